#include "file_faults.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "rlx/base/error.h"

namespace rlx::testing {

namespace {

FileCalls g_real{};
FileFault g_fault;
std::vector<FileCall> g_log;

// Writes the call down and makes it, or not.
template <class R, class F>
R counted(FileCall call, F&& real) {
  const int number = static_cast<int>(g_log.size());
  const bool hit = number == g_fault.at || (g_fault.lasting && number > g_fault.at);
  const bool fails = hit && g_fault.at >= 0 && g_fault.error != 0;
  const R result = fails ? R{-1} : real(hit && g_fault.short_write);
  if (call.kind == FileCall::Kind::open) call.fd = static_cast<int>(result);
  struct stat info{};
  call.folder = call.fd >= 0 && ::fstat(call.fd, &info) == 0 && S_ISDIR(info.st_mode);
  const int error = errno;
  g_log.push_back(std::move(call));
  if (hit && g_fault.at >= 0 && g_fault.kill) ::kill(::getpid(), SIGKILL);
  errno = fails ? g_fault.error : error;
  return result;
}

}  // namespace

FileFaults::FileFaults(FileFault fault) : before_(file_calls()) {
  using Kind = FileCall::Kind;
  g_real = before_;
  g_fault = fault;
  g_log.clear();
  file_calls() = {[](const char* path, int flags, mode_t mode) {
                    return counted<int>({Kind::open, -1, path, "", false},
                                        [&](bool) { return g_real.open(path, flags, mode); });
                  },
                  [](int fd, const void* data, size_t size) {
                    return counted<ssize_t>({Kind::write, fd, "", "", false}, [&](bool few) {
                      return g_real.write(fd, data, few && size > 0 ? 1 : size);
                    });
                  },
                  [](int fd) {
                    return counted<int>({Kind::fsync, fd, "", "", false},
                                        [&](bool) { return g_real.fsync(fd); });
                  },
                  [](const char* from, const char* to) {
                    return counted<int>({Kind::rename, -1, from, to, false},
                                        [&](bool) { return g_real.rename(from, to); });
                  },
                  [](const char* path) {
                    return counted<int>({Kind::unlink, -1, path, "", false},
                                        [&](bool) { return g_real.unlink(path); });
                  }};
}

FileFaults::~FileFaults() { file_calls() = before_; }

int FileFaults::calls() const { return static_cast<int>(g_log.size()); }
const std::vector<FileCall>& FileFaults::log() const { return g_log; }

std::string missing_fsync(const std::vector<FileCall>& log) {
  using Kind = FileCall::Kind;
  for (size_t i = 0; i < log.size(); ++i) {
    if (log[i].kind != Kind::rename) continue;
    int fd = -1;
    for (size_t j = 0; j < i && fd < 0; ++j)  // whoever opens it later looks whether it is locked
      if (log[j].kind == Kind::open && log[j].path == log[i].path) fd = log[j].fd;
    bool synchronised = false;
    for (size_t j = 0; j < i; ++j) {
      if (log[j].fd == fd && log[j].kind == Kind::write) synchronised = false;
      if (log[j].fd == fd && log[j].kind == Kind::fsync) synchronised = true;
    }
    if (!synchronised) return log[i].to + " is renamed before it is synchronised";
    bool folder = false;
    for (size_t j = i + 1; j < log.size() && log[j].kind != Kind::rename; ++j)
      folder = folder || (log[j].kind == Kind::fsync && log[j].folder);
    if (!folder) return "the folder of " + log[i].to + " is not synchronised";
  }
  return {};
}

}  // namespace rlx::testing
