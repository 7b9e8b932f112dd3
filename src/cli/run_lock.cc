#include "rlx/cli/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "rlx/base/error.h"

namespace rlx::cli {

namespace {

// Whether the open file is still the one of that name: who ends removes it.
bool is_at(int fd, const std::filesystem::path& path) {
  struct stat open_file, named;
  return ::fstat(fd, &open_file) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& folder) : path_(folder / ".train.lock") {
  do {
    file_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!file_.valid())
      fail(ErrorKind::user, "file-open", "cannot open {}: {}", path_.string(),
           std::strerror(errno));
    const bool locked = ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0;
    user_check(locked || errno != EWOULDBLOCK, "running",
               "another rlx train writes to {}; give another --out, or wait for it",
               folder.string());
    if (!locked) return;  // there are no locks here
  } while (!is_at(file_.get(), path_));
}

RunLock::~RunLock() { ::unlink(path_.c_str()); }

}  // namespace rlx::cli
