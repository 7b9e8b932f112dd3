#include "rlx/base/format.h"

#include <algorithm>

namespace rlx {

fmt::format_context::iterator TextFormatter::put(fmt::format_context& context,
                                                 std::string_view text) {
  return std::copy(text.begin(), text.end(), context.out());
}

}  // namespace rlx
