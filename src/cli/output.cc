#include "rlx/cli/output.h"

#include <fcntl.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "rlx/base/error.h"
#include "rlx/base/printable.h"

namespace rlx::cli {

namespace {

bool output_is_optional = false;

// Writing failed: an error, or nobody listens and that is fine.
void output_failed() {
  const int error = errno;
  __fpurge(stdout);
  std::clearerr(stdout);
  if (output_is_optional && (error == EPIPE || error == EBADF)) return;
  fail(ErrorKind::resource, "output", "cannot write to standard output: {}", std::strerror(error));
}

}  // namespace

void write_output(std::string_view text) {
  const std::string shown = printable(text, "\n\t");
  if (std::fwrite(shown.data(), 1, shown.size(), stdout) != shown.size()) return output_failed();
  if (output_is_optional) flush_output();
}

void flush_output() {
  if (std::fflush(stdout) != 0) output_failed();
}

void write_message(std::string_view text) {
  const std::string shown = printable(text, "\n\t");
  std::fwrite(shown.data(), 1, shown.size(), stderr);
  std::fflush(stderr);
}

void redraw_message(std::string_view line) {
  const std::string shown = "\r\x1b[K" + printable(line);
  std::fwrite(shown.data(), 1, shown.size(), stderr);
  std::fflush(stderr);
}

OutputIsOptional::OutputIsOptional() : handler_(std::signal(SIGPIPE, SIG_IGN)) {
  output_is_optional = true;
}
OutputIsOptional::~OutputIsOptional() {
  output_is_optional = false;
  std::signal(SIGPIPE, handler_);
}

void keep_standard_descriptors() {
  // Opened the wrong way round. The lowest free number is given out first.
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0) return;
}

}  // namespace rlx::cli
