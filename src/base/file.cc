#include "rlx/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "rlx/base/error.h"
#include "rlx/base/hash.h"

namespace rlx {

namespace {

namespace fs = std::filesystem;

// Retries calls that a signal interrupted.
template <class F>
auto retry(F&& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

Descriptor open_file(const fs::path& path, int flags, mode_t mode = 0) {
  return Descriptor(
      retry([&] { return file_calls().open(path.c_str(), flags | O_CLOEXEC, mode); }));
}

std::string reason() { return std::strerror(errno); }

const char* what_is(mode_t mode) {
  return S_ISDIR(mode)    ? "a folder"
         : S_ISFIFO(mode) ? "a pipe"
         : S_ISCHR(mode)  ? "a character device"
         : S_ISBLK(mode)  ? "a block device"
         : S_ISSOCK(mode) ? "a socket"
                          : "not a file";
}

[[noreturn]] void cannot(std::string_view verb, const fs::path& path, std::string_view why) {
  fail(ErrorKind::user, "file-open", "cannot {} {}: {}", verb, path.string(), why);
}

void require_regular(const fs::path& path, mode_t mode) {
  if (S_ISREG(mode)) return;
  cannot("read", path,
         fmt::format("it is {}{}", what_is(mode),
                     S_ISFIFO(mode) ? "; commands take - for standard input" : ""));
}

std::string read_all(int fd, size_t hint, const std::string& name) {
  constexpr size_t kLeast = size_t{1} << 16;
  std::string out;
  out.reserve(hint);
  for (;;) {
    const size_t have = out.size();
    out.resize(std::max(out.capacity(), have + kLeast));
    const ssize_t n = retry([&] { return ::read(fd, out.data() + have, out.size() - have); });
    if (n < 0) fail(ErrorKind::resource, "file-read", "reading {}: {}", name, reason());
    out.resize(have + static_cast<size_t>(n));
    if (n == 0) return out;
  }
}

// Some file systems and devices have nothing to do here and say so.
bool synchronise(int fd) {
  return retry([&] { return file_calls().fsync(fd); }) == 0 || errno == EINVAL || errno == ENOTSUP;
}

uint64_t random_bits() {
  uint64_t bits = 0;
  if (retry([&] { return ::getrandom(&bits, sizeof bits, 0); }) !=
      static_cast<ssize_t>(sizeof bits))
    fail(ErrorKind::resource, "file-write", "no random numbers for a file's name: {}", reason());
  return bits;
}

// Temporary files of a family: this and 16 hex digits. A file's name has at most 255 bytes.
std::string temporary_prefix(std::string name) {
  constexpr size_t kLongest = 200;
  if (name.size() > kLongest)
    name = fmt::format("{}{:016x}", name.substr(0, kLongest - 16), hash_text(name));
  return fmt::format(".{}.tmp-", name);
}

bool is_temporary(const std::string& name, const std::string& prefix) {
  return name.size() == prefix.size() + 16 && name.starts_with(prefix) &&
         name.find_first_not_of("0123456789abcdef", prefix.size()) == std::string::npos;
}

// Removes what processes that died left behind: their locks died with them.
void sweep(const fs::path& folder, const std::string& prefix) {
  for (const std::string& name : names_in(folder)) {
    if (!is_temporary(name, prefix)) continue;
    const fs::path path = folder / name;
    const Descriptor file = open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    struct stat info{};
    if (file.valid() && ::fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode) &&
        ::flock(file.get(), LOCK_EX | LOCK_NB) == 0)
      file_calls().unlink(path.c_str());
  }
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

FileCalls& file_calls() {
  static FileCalls calls{
      [](const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }, ::write,
      ::fsync, ::rename, ::unlink};
  return calls;
}

// ---- reading

std::string read_file(const fs::path& path) {
  // Asked before it is opened: opening a device may have effects, opening a pipe may never end.
  struct stat info{};
  if (::stat(path.c_str(), &info) < 0) cannot("read", path, reason());
  require_regular(path, info.st_mode);
  const Descriptor file(
      retry([&] { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); }));
  if (!file.valid() || ::fstat(file.get(), &info) < 0) cannot("read", path, reason());
  require_regular(path, info.st_mode);
  // The size is a hint: what counts is what read() delivers.
  return read_all(file.get(), static_cast<size_t>(info.st_size) + 1, path.string());
}

std::string read_standard_input() { return read_all(STDIN_FILENO, 0, "standard input"); }

// ---- writing

fs::path follow_links(fs::path path) {
  const fs::path given = path;
  for (int i = 0; i < 40; ++i) {
    std::error_code none;
    const fs::path next = fs::read_symlink(path, none);
    if (none) return path;
    path = next.is_absolute() ? next : path.parent_path() / next;
  }
  cannot("follow", given, "too many symbolic links");
}

// std::filesystem's iterators end the process when memory runs out.
std::vector<std::string> names_in(const fs::path& folder) {
  struct Close {
    void operator()(DIR* d) const { ::closedir(d); }
  };
  errno = 0;
  const std::unique_ptr<DIR, Close> dir(::opendir(folder.c_str()));
  if (!dir && errno == ENOMEM) raise_out_of_memory();
  std::vector<std::string> names;
  while (const dirent* entry = dir ? ::readdir(dir.get()) : nullptr)
    if (const std::string_view name = entry->d_name; name != "." && name != "..")
      names.emplace_back(name);
  return names;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

bool is_pipe_or_device(const fs::path& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

namespace {

// The mode of the file that would be replaced, or nothing; raises when it must not be.
std::optional<mode_t> mode_to_keep(const fs::path& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) < 0) return std::nullopt;
  if (S_ISDIR(info.st_mode)) cannot("write", path, "it is a folder");
  if (!S_ISREG(info.st_mode)) return info.st_mode;
  if (!(info.st_mode & S_IWUSR)) cannot("write", path, "it is read-only");
  if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) < 0) cannot("write", path, reason());
  return info.st_mode;
}

}  // namespace

AtomicFile::AtomicFile(fs::path path, const std::string& family) : path_(std::move(path)) {
  const std::optional<mode_t> mode = mode_to_keep(path_);
  if (mode && !S_ISREG(*mode)) {
    file_ = open_file(path_, O_WRONLY);
    if (!file_.valid()) cannot("write", path_, reason());
    return;
  }
  target_ = follow_links(path_);
  // What replaces a private file is private from its first byte on.
  open_temporary(family.empty() ? target_.filename().string() : family, mode ? 0600 : 0666);
}

void AtomicFile::open_temporary(const std::string& family, mode_t mode) {
  const fs::path folder = folder_of(target_);
  folder_ = open_file(folder, O_RDONLY | O_DIRECTORY);
  // A folder that may be written but not read can be used, though not synchronised.
  if (!folder_.valid() && errno != EACCES)
    cannot("write", path_, fmt::format("{}: {}", folder.string(), reason()));
  const std::string prefix = temporary_prefix(family);
  sweep(folder, prefix);
  for (;;) {
    fs::path name = folder / fmt::format("{}{:016x}", prefix, random_bits());
    file_ = open_file(name, O_WRONLY | O_CREAT | O_EXCL, mode);
    if (!file_.valid()) cannot("write", path_, fmt::format("{}: {}", folder.string(), reason()));
    // Not locked before this call, it may have been swept.
    retry([&] { return ::flock(file_.get(), LOCK_EX); });
    struct stat info{};
    if (::fstat(file_.get(), &info) == 0 && info.st_nlink == 0) continue;
    temporary_ = std::move(name);
    return;
  }
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) file_calls().unlink(temporary_.c_str());
}

void AtomicFile::failed(std::string_view what) {
  fail(ErrorKind::resource, "file-write", "{} {}: {}", what, path_.string(), reason());
}

void AtomicFile::write(const void* data, size_t size) {
  const auto* p = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = retry([&] { return file_calls().write(file_.get(), p, size); });
    if (n == 0) errno = ENOSPC;
    if (n <= 0) failed("writing");
    p += n;
    size -= static_cast<size_t>(n);
  }
}

void AtomicFile::take_over_mode() {
  const std::optional<mode_t> mode = mode_to_keep(path_);
  if (!mode) return;
  struct stat before{}, now{};
  if (::stat(target_.c_str(), &before) < 0 || ::fstat(file_.get(), &now) < 0) return;
  const bool same_group = before.st_gid == now.st_gid ||
                          ::fchown(file_.get(), static_cast<uid_t>(-1), before.st_gid) == 0;
  const bool same_owner = before.st_uid == now.st_uid ||
                          ::fchown(file_.get(), before.st_uid, static_cast<gid_t>(-1)) == 0;
  // Special bits belong to the owner that they were given for; another group gets what all get.
  mode_t kept = *mode & (same_owner && same_group ? 07777 : 0777);
  if (!same_group) kept = (kept & 0707) | (kept & 07) << 3;
  if (::fchmod(file_.get(), kept) < 0) failed("setting the mode of");
}

void AtomicFile::commit(bool durable) {
  if (temporary_.empty()) {
    if (!synchronise(file_.get())) failed("writing");
    return;
  }
  take_over_mode();
  if (durable && !synchronise(file_.get())) failed("writing");
  if (retry([&] { return file_calls().rename(temporary_.c_str(), target_.c_str()); }) < 0)
    failed("renaming to");
  temporary_.clear();
  // Until now the new name may be lost with the power.
  if (durable && folder_.valid() && !synchronise(folder_.get())) failed("writing the folder of");
}

void write_file(const fs::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

void require_writable(const fs::path& path) {
  if (is_pipe_or_device(path)) {  // opening a pipe would wait for its reader
    if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) < 0) cannot("write", path, reason());
    return;
  }
  AtomicFile(path).write(" ");
}

// ---- folders

void make_folder(const fs::path& path) {
  std::error_code code;
  fs::create_directories(path, code);
  if (code || !fs::is_directory(path, code))
    fail(ErrorKind::user, "file-open", "cannot make the folder {}: {}", path.string(),
         code ? code.message() : "a file has this name");
}

void make_private_folder(const fs::path& path) {
  if (path.has_parent_path()) make_folder(path.parent_path());
  if (::mkdir(path.c_str(), 0700) < 0 && errno != EEXIST)
    fail(ErrorKind::user, "file-open", "cannot make the folder {}: {}", path.string(), reason());
}

FolderLock::FolderLock(const fs::path& folder)
    : folder_(retry([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); })) {
  if (folder_.valid()) retry([&] { return ::flock(folder_.get(), LOCK_EX); });
}

namespace {

// Whether the open file is still the one of that name: who had it removes it.
bool is_at(int fd, const fs::path& path) {
  struct stat open_file, named;
  return ::fstat(fd, &open_file) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

}  // namespace

LockFile::LockFile(const fs::path& path) : path_(path) {
  do {
    file_ = open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
    if (!file_.valid())
      fail(ErrorKind::user, "file-open", "cannot open {}: {}", path.string(), reason());
    held_ = ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  } while (held_ && !is_at(file_.get(), path));
}

LockFile::~LockFile() {
  if (held_) remove_file(path_);
}

void remove_file(const fs::path& path) {
  retry([&] { return file_calls().unlink(path.c_str()); });
}

}  // namespace rlx
