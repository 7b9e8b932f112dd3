#include "rlx/ir/equal_symbols.h"

#include <algorithm>
#include <bit>

#include "rlx/ir/builder.h"

namespace rlx {

namespace {

// Sizes that attributes divide and windows fit into; one half and twice that.
constexpr int64_t kUsual = 720, kLess = kUsual / 2, kMore = kUsual * 2;
// Symbols of a node. All sets of them may be tried.
constexpr size_t kMostSymbols = 8;

void collect_symbols(const Attrs& attrs, std::vector<std::string>& names) {
  map_dims(attrs, [&](const Dim& d) {
    d.collect_symbols(names);
    return d;
  });
  for (const NamedBody& b : bodies(attrs))
    for (std::string& s : b.graph.symbols()) names.push_back(std::move(s));
}

class EqualSymbols {
 public:
  explicit EqualSymbols(const Graph& g) : graph_(g), symbols_(g.symbols()) {
    for (const std::string& s : symbols_) sizes_[s] = kUsual;
  }

  SymbolNames find() {
    if (symbols_.size() > 1)
      for (const Node& n : graph_.nodes)
        if (!n.in.empty()) add(n);
    return names_;
  }

 private:
  using Set = uint32_t;  // of the symbols of a node

  const std::string& name_of(const std::string& s) const {
    const auto found = names_.find(s);
    return found == names_.end() ? s : found->second;
  }

  void add(const Node& n) {
    std::vector<std::string> symbols;
    for (Value v : n.in)
      for (const Dim& d : graph_.type(v).shape) d.collect_symbols(symbols);
    collect_symbols(n.attrs, symbols);
    for (std::string& s : symbols) s = name_of(s);
    std::sort(symbols.begin(), symbols.end());
    symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
    if (symbols.size() < 2 || symbols.size() > kMostSymbols) return;
    for (const std::vector<std::string>& one : inseparable(n, symbols)) merge(one);
  }

  // The symbols in groups: no set of them that can have sizes of its own holds a part of a group.
  std::vector<std::vector<std::string>> inseparable(const Node& n,
                                                    const std::vector<std::string>& symbols) {
    const Set all = (Set{1} << symbols.size()) - 1;
    std::vector<Set> groups{all};
    bool usual = false;  // the node has a meaning at the usual sizes; asked when there is a doubt
    for (int count = 1; count < static_cast<int>(symbols.size()); ++count)
      for (Set set = 1; set < all; ++set) {
        const bool splits = std::popcount(set) == count &&
                            std::any_of(groups.begin(), groups.end(),
                                        [&](Set g) { return (g & set) != 0 && (g & ~set) != 0; });
        if (!splits) continue;
        if (!holds(n, symbols, set, kMore) && !holds(n, symbols, set, kLess)) {
          if (!usual && !holds(n, symbols, 0, kUsual)) return {};
          usual = true;
          continue;
        }
        std::vector<Set> parts;
        for (Set g : groups)
          for (Set part : {g & set, g & ~set})
            if (part) parts.push_back(part);
        groups = std::move(parts);
      }
    std::vector<std::vector<std::string>> out;
    for (Set g : groups) {
      if (std::popcount(g) < 2) continue;
      auto& group = out.emplace_back();
      for (size_t i = 0; i < symbols.size(); ++i)
        if (g >> i & 1) group.push_back(symbols[i]);
    }
    return out;
  }
  // Whether the node has a meaning where these symbols, and what is equal to them, have the size.
  bool holds(const Node& n, const std::vector<std::string>& symbols, Set set, int64_t size) {
    DimBinding sizes = sizes_;
    for (auto& [symbol, value] : sizes)
      for (size_t i = 0; i < symbols.size(); ++i)
        if ((set >> i & 1) && name_of(symbol) == symbols[i]) value = size;
    return holds_at(graph_, n, sizes);
  }

  void merge(const std::vector<std::string>& one) {
    for (const std::string& s : symbols_)
      if (s != one[0] && std::find(one.begin(), one.end(), name_of(s)) != one.end())
        names_[s] = one[0];
  }

  const Graph& graph_;
  const std::vector<std::string> symbols_;
  DimBinding sizes_;
  SymbolNames names_;
};

}  // namespace

SymbolNames equal_symbols(const Graph& g) { return EqualSymbols(g).find(); }

Graph rename_symbols(const Graph& g, const SymbolNames& names) {
  return rebuild(g, [&](Builder& b, int32_t i, Operands in) {
    const Attrs attrs =
        map_bodies(map_dims(g.node(i).attrs, [&](const Dim& d) { return d.renamed(names); }),
                   [&](const Body& body) { return Body(rename_symbols(*body, names)); });
    return b.emit(*g.node(i).op, attrs, in);
  });
}

}  // namespace rlx
