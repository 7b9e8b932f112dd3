// Decision: yes, or no with a reason. What a pass or a kernel answers when asked whether something
// applies.
//
//   Decision fits = can_fuse(producer, consumer);
//   if (!fits) report.add(producer, consumer, fits.why());
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

namespace rlx {

class [[nodiscard]] Decision {
 public:
  static Decision yes() { return Decision(); }
  template <class... Args>
  static Decision no(fmt::format_string<Args...> format, Args&&... args) {
    Decision d;
    d.why_ = fmt::format(format, std::forward<Args>(args)...);
    return d;
  }
  explicit operator bool() const { return !why_; }
  const std::string& why() const { return *why_; }  // only when the answer is no

 private:
  Decision() = default;
  std::optional<std::string> why_;
};

}  // namespace rlx
