#include "rlx/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "rlx/cli/output.h"

namespace rlx::cli {

namespace {

// Asked each time: windows change.
size_t terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(std::string unit, int64_t total, int64_t every, int64_t done)
    : unit_(std::move(unit)),
      total_(total),
      every_(std::max<int64_t>(every, 1)),
      first_(done),
      terminal_(::isatty(STDERR_FILENO) != 0),
      start_(Clock::now()) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (drawn_) redraw_message("");
  drawn_ = false;
}

void Progress::note(const std::string& line) {
  clear();
  write_message(line + "\n");
}

void Progress::show(int64_t done, const std::string& text) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double left = done > first_ ? seconds / static_cast<double>(done - first_) *
                                          static_cast<double>(total_ - done)
                                    : 0;
  const std::string line =
      fmt::format("{} {}/{}  {}  {} left", unit_, done, total_, text, duration_text(left));
  if (!terminal_) {
    if (done % every_ == 0 || done == total_) write_message(line + "\n");
    return;
  }
  if (drawn_ && done < total_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  redraw_message(
      progress_line(static_cast<double>(done) / static_cast<double>(std::max<int64_t>(total_, 1)),
                    line, terminal_width()));
  drawn_ = true;
}

std::string progress_line(double share, const std::string& text, size_t width) {
  constexpr size_t kBar = 24, kFrame = 3;  // two brackets and a blank
  const size_t room = width > 0 ? width - 1 : 0;
  std::string out;
  if (text.size() + kFrame + 4 <= room) {
    const size_t bar = std::min(kBar, room - text.size() - kFrame);
    const auto filled = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(bar));
    out = "[" + std::string(filled, '#') + std::string(bar - filled, '.') + "] ";
  }
  return (out + text).substr(0, room);
}

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(std::lround(std::max(seconds, 0.0)));
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace rlx::cli
