// Files, whole: read completely or raise; written completely or not at all.
//
//   std::string text = read_file("model.rlx");
//   AtomicFile out("w.ckpt");                 // a temporary file in the same directory
//   out.write(bytes.data(), bytes.size());
//   out.commit();                             // fsync, rename over w.ckpt, fsync of the directory
//
// Without commit() the temporary file is removed and the old file, if any, stays. Raises
// Error(user, "file-open") for a path that cannot be opened, Error(resource, "file-read" |
// "file-write") when the disk fails or is full.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace rlx {

std::string read_file(const std::filesystem::path& path);

class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  ~AtomicFile();
  void write(const void* data, size_t size);
  void commit();

 private:
  [[noreturn]] void failed(std::string_view what);
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
};

void write_file(const std::filesystem::path& path, std::string_view content);

}  // namespace rlx
