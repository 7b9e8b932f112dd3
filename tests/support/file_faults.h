// Faults of the file system for tests: the nth call that changes files fails, or the process dies
// right after it.
//
//   FileFaults faults({.at = 3, .error = ENOSPC});
//   save();                       // the fourth call fails
//   faults.calls() > 3            // it got that far
//
// All calls through file_calls() are counted and written down while it lives. Not for threads.
#pragma once

#include <string>
#include <vector>

#include "rlx/base/file.h"

namespace rlx::testing {

struct FileFault {
  int at = -1;               // the number of the call, from 0; -1: none
  int error = 0;             // what it fails with; 0: it does not fail
  bool lasting = false;      // and all calls after it
  bool short_write = false;  // a write there takes one byte only
  bool kill = false;         // the process dies after the call
};

struct FileCall {
  enum class Kind { open, write, fsync, rename, unlink } kind;
  int fd = -1;           // what was opened, written or synchronised
  std::string path, to;  // as given
  bool folder = false;   // fd is a folder
};

class FileFaults {
 public:
  explicit FileFaults(FileFault fault);
  FileFaults(const FileFaults&) = delete;
  ~FileFaults();
  int calls() const;
  const std::vector<FileCall>& log() const;

 private:
  FileCalls before_;
};

// Empty, or what is missing: each renamed file is synchronised after its last write and before the
// rename, and its folder after the rename and before the next one.
std::string missing_fsync(const std::vector<FileCall>& log);

}  // namespace rlx::testing
