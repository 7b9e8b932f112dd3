#include "rlx/formats/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "rlx/base/error.h"

namespace rlx {

namespace {

// Retries calls that a signal interrupted.
template <class F>
auto retry(F&& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string reason() { return std::strerror(errno); }

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  const Descriptor file(retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  struct stat info{};
  if (file.get() < 0 || ::fstat(file.get(), &info) < 0)
    fail(ErrorKind::user, "file-open", "cannot read {}: {}", path.string(), reason());
  user_check(!S_ISDIR(info.st_mode), "file-open", "cannot read {}: it is a folder", path.string());
  // The size is a hint: what counts is what read() delivers.
  constexpr size_t kChunk = size_t{1} << 20;
  std::string out;
  if (info.st_size > 0) out.reserve(static_cast<size_t>(info.st_size) + 1);
  for (;;) {
    const size_t have = out.size();
    out.resize(std::max(out.capacity(), have + kChunk / 16));
    const ssize_t n =
        retry([&] { return ::read(file.get(), out.data() + have, out.size() - have); });
    if (n < 0) fail(ErrorKind::resource, "file-read", "reading {}: {}", path.string(), reason());
    out.resize(have + static_cast<size_t>(n));
    if (n == 0) return out;
  }
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  static std::atomic<unsigned> counter{0};
  std::error_code ignored;
  user_check(!std::filesystem::is_directory(path_, ignored), "file-open",
             "cannot write {}: it is a folder", path_.string());
  temporary_ = path_.parent_path() /
               fmt::format(".{}.tmp-{}-{}", path_.filename().string(), ::getpid(), counter++);
  fd_ = retry(
      [&] { return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  if (fd_ < 0) fail(ErrorKind::user, "file-open", "cannot write {}: {}", path_.string(), reason());
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::failed(std::string_view what) {
  fail(ErrorKind::resource, "file-write", "{} {}: {}", what, path_.string(), reason());
}

void AtomicFile::write(const void* data, size_t size) {
  const auto* p = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = retry([&] { return ::write(fd_, p, size); });
    if (n < 0) failed("writing");
    p += n;
    size -= static_cast<size_t>(n);
  }
}

void AtomicFile::commit() {
  if (retry([&] { return ::fsync(fd_); }) < 0) failed("writing");
  if (::rename(temporary_.c_str(), path_.c_str()) < 0) failed("renaming to");
  ::close(fd_);
  fd_ = -1;
  const auto folder = path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".");
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0)
    ::fsync(directory.get());  // some file systems refuse; the rename stands
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

}  // namespace rlx
