#include "rlx/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace rlx::cli {

Progress::Progress(std::string unit, int64_t total, int64_t every, int64_t done)
    : unit_(std::move(unit)),
      total_(total),
      every_(std::max<int64_t>(every, 1)),
      first_(done),
      terminal_(::isatty(STDERR_FILENO) != 0),
      start_(Clock::now()) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (drawn_) fmt::print(stderr, "\r\x1b[K");
  drawn_ = false;
}

void Progress::note(const std::string& line) {
  clear();
  fmt::print(stderr, "{}\n", line);
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
    if (done % every_ == 0 || done == total_) fmt::print(stderr, "{}\n", line);
    return;
  }
  if (drawn_ && done < total_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  constexpr int kBar = 24;
  const auto filled = static_cast<int>(kBar * done / std::max<int64_t>(total_, 1));
  fmt::print(stderr, "\r\x1b[K[{}{}] {}", std::string(static_cast<size_t>(filled), '#'),
             std::string(static_cast<size_t>(kBar - filled), '.'), line);
  std::fflush(stderr);
  drawn_ = true;
}

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(std::lround(std::max(seconds, 0.0)));
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace rlx::cli
