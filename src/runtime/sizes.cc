#include "rlx/runtime/sizes.h"

#include <map>

namespace rlx {

namespace {

// The n for which d, whose one unknown symbol is `symbol`, is `size`; nullopt: none, or not to be told.
std::optional<int64_t> solved(const Dim& d, const std::string& symbol, int64_t size) {
  const auto at = [&](int64_t n) { return d.bind({{symbol, n}}).value(); };
  try {
    const int64_t origin = at(0), slope = at(1) - origin;
    if (slope == 0 || (size - origin) % slope) return std::nullopt;
    const int64_t n = (size - origin) / slope;
    // Quotients are steps and products of symbols bend: only a line has one answer.
    const bool line = d == Dim(slope) * Dim::symbol(symbol) + Dim(origin);
    return n >= 0 && line ? std::optional(n) : std::nullopt;
  } catch (const Error&) {  // beyond 64 bits
    return std::nullopt;
  }
}

}  // namespace

bool may_be(const Shape& dims, const Ints& sizes) {
  if (dims.size() != sizes.size()) return false;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (const auto n = dims[d].static_value(); n && *n != sizes[d]) return false;
  return true;
}

DimBinding infer_sizes(std::span<const SizedLeaf> leaves, const DimBinding& known) {
  DimBinding found = known;
  std::map<std::string, std::string> from;  // who said it
  for (const auto& [symbol, size] : known) from[symbol] = "the sizes given";
  for (bool more = true; more;) {
    more = false;
    for (const SizedLeaf& leaf : leaves)
      for (size_t d = 0; d < leaf.sizes->size(); ++d) {
        const Dim& dim = (*leaf.dims)[d];
        if (dim.is_static()) continue;
        const Dim rest = dim.bind(found);
        const int64_t size = (*leaf.sizes)[d];
        std::vector<std::string> symbols;
        rest.collect_symbols(symbols);
        if (symbols.size() == 1) {
          if (const auto n = solved(rest, symbols[0], size)) {
            found.emplace(symbols[0], *n);
            from[symbols[0]] = fmt::format("axis {} of {}", d, leaf.name);
            more = true;
          }
        } else if (symbols.empty() && rest.value() != size) {
          std::vector<std::string> names, values;
          dim.collect_symbols(names);
          for (const std::string& s : names)
            values.push_back(fmt::format("?{} = {} by {}", s, found.at(s), from[s]));
          fail(ErrorKind::user, "dim-guard", "axis {} of {} is {}, given is {}; {}", d, leaf.name,
               dim, size,
               fmt::format("with {} it must be {}", fmt::join(values, ", "), rest.value()));
        }
      }
  }
  return found;
}

}  // namespace rlx
