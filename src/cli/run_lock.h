// One run at a time writes the results of a folder.
//
//   const RunLock lock("out/book");     // Error(user, "running") while another process has it
#pragma once

#include "rlx/base/file.h"

namespace rlx::cli {

// Held by the process for as long as it lives: ended however, it lets go. Where the file system knows no
// locks it does nothing. The lock is a file of its own, since the results are replaced.
class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& folder);
  RunLock(const RunLock&) = delete;
  ~RunLock();

 private:
  std::filesystem::path path_;
  Descriptor file_;
};

}  // namespace rlx::cli
