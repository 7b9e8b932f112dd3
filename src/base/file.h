// Files, whole: read completely or raise; written completely or not at all. All files that RLX
// writes are written here.
//
//   std::string text = read_file("model.rlx");
//   AtomicFile out("w.ckpt");                 // a temporary file in the same folder
//   out.write(bytes.data(), bytes.size());
//   out.commit();                             // fsync, rename over w.ckpt, fsync of the folder
//
// Without commit() the temporary file is removed and the old file, if any, stays. So it does when
// the process is killed; the temporary file that is left then goes at the next save of the same
// name: one is locked while its process lives.
//
// Symbolic links are followed: what they point to is replaced, in its own folder. The new file has
// the old one's mode, and where permitted its owner and group; another group gets what all get. Other
// hard links keep the old content. A file without its owner's write bit is refused, whoever asks.
// What is neither a file nor a folder (a pipe, a device) is not replaced but written to as it comes.
//
// Raises Error(user, "file-open") for a path that cannot be opened, Error(resource, "file-read" |
// "file-write") when the disk fails or is full.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlx {

// A regular file's content. Pipes and devices are refused: reading them may never end.
std::string read_file(const std::filesystem::path& path);
// Standard input up to its end, whatever it is.
std::string read_standard_input();

// An open file of the system's, closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }

 private:
  int fd_;
};

class AtomicFile {
 public:
  // Temporary files are called after the file, or after the `family` of files that it belongs to:
  // each save sweeps what dead processes have left of its family.
  explicit AtomicFile(std::filesystem::path path, const std::string& family = "");
  AtomicFile(const AtomicFile&) = delete;
  ~AtomicFile();
  void write(const void* data, size_t size);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  // `durable`: whether it must be there after the power fails. The old file or the new one, whole, is always
  // there when only the process ends.
  void commit(bool durable = true);

 private:
  void open_temporary(const std::string& family, mode_t mode);
  void take_over_mode();
  [[noreturn]] void failed(std::string_view what);
  std::filesystem::path path_;       // as given, for messages
  std::filesystem::path target_;     // path_ with its links followed
  std::filesystem::path temporary_;  // empty: there is none (any more)
  Descriptor file_, folder_;
};

void write_file(const std::filesystem::path& path, std::string_view content);

// Raises what saving to this path would raise now (but for what fills the disk later on), for those
// who work long before they save. Leaves everything as it is.
void require_writable(const std::filesystem::path& path);

// Makes the folder and those above it, where they are missing.
void make_folder(const std::filesystem::path& path);
// The same; where the folder itself is missing, for this user alone (mode 0700).
void make_private_folder(const std::filesystem::path& path);

// Where the file of this name stands: links followed, also those that point to nothing yet.
std::filesystem::path follow_links(std::filesystem::path path);
// The folder that a file of this name stands in.
std::filesystem::path folder_of(const std::filesystem::path& path);
// The names of what is in the folder; none when it cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& folder);
// Whether there is something that is not replaced but written to.
bool is_pipe_or_device(const std::filesystem::path& path);

// While it lives, nobody else who asks has the folder. Where the file system knows no locks it does
// nothing.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);

 private:
  Descriptor folder_;
};

// A file that one process at a time has: made where there is none, removed by the one who had it.
// Ended however, a process lets go. Where the file system knows no locks everybody gets it.
class LockFile {
 public:
  // Raises when the file cannot be made.
  explicit LockFile(const std::filesystem::path& path);
  LockFile(const LockFile&) = delete;
  ~LockFile();
  // Whether it is ours: false while another process has it.
  bool held() const { return held_; }

 private:
  std::filesystem::path path_;
  Descriptor file_;
  bool held_ = false;
};

// Removes a file that is no longer needed; one that cannot be removed stays.
void remove_file(const std::filesystem::path& path);

// The system calls that change files. Tests put others here, to count them and to let them fail.
struct FileCalls {
  int (*open)(const char* path, int flags, mode_t mode);
  ssize_t (*write)(int fd, const void* data, size_t size);
  int (*fsync)(int fd);
  int (*rename)(const char* from, const char* to);
  int (*unlink)(const char* path);
};
FileCalls& file_calls();

}  // namespace rlx
