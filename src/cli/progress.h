// Progress of a long loop: a live bar on a terminal, a plain line now and then elsewhere. Goes to
// stderr.
//
//   Progress p("step", total, 50);
//   for (...) p.show(i + 1, "loss 1.23");
//   p.note("validation 2.1 bits");          // a line that stays
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace rlx::cli {

class Progress {
 public:
  // `every`: steps between plain lines; `done`: steps finished before this process started.
  Progress(std::string unit, int64_t total, int64_t every, int64_t done = 0);
  Progress(const Progress&) = delete;
  ~Progress();
  void show(int64_t done, const std::string& text);
  void note(const std::string& line);

 private:
  void clear();
  using Clock = std::chrono::steady_clock;
  std::string unit_;
  int64_t total_, every_, first_;
  bool terminal_, drawn_ = false;
  Clock::time_point start_, last_{};
};

std::string duration_text(double seconds);  // 1:05

// A bar of `share` (0 to 1) before the text, in fewer than `width` columns so that a terminal does not
// break the line: the bar gives way first, then the end of the text.
std::string progress_line(double share, const std::string& text, size_t width);

}  // namespace rlx::cli
