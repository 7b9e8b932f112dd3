// Products of one value with several weights (queries, keys and values; gate and up) become one product with the weights side
// by side, and slices of its result. Lowering joins the weights once, where no update writes them (lower/lir.h).
//
// A slice is a view, so this is done where all readers take the view as it is, and where no region loses the product whose
// rows it follows tile by tile; with where=everywhere, which is the documents' FuseSharedInputMatMul, also elsewhere. Every
// result is the same sum in the same order as before.
#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>

#include "rlx/base/decision.h"
#include "rlx/ops/attention/attention.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/passes/named_passes.h"
#include "rlx/passes/passes.h"

namespace rlx {

namespace {

// A product and what is joined with it.
struct GroupedProduct {
  int32_t product;
  int32_t end;         // the product, or the sum with its bias
  Value bias = kNone;  // [columns]
  int64_t columns = 0;
  bool in_tiles = false;  // a region before or behind it may work on the same rows
};

struct ProductGroup {
  std::vector<GroupedProduct> members;
  int64_t columns = 0;
  bool with_bias() const {
    return std::all_of(members.begin(), members.end(),
                       [](const GroupedProduct& m) { return m.bias.valid(); });
  }
};

bool is_reduction(const OpDef& op) {
  return &op == &op::reduce_sum || &op == &op::reduce_max || &op == &op::reduce_min ||
         &op == &op::reduce_prod;
}
bool is_in_regions(const Node& n) { return n.op->kind == Kind::elementwise || is_reduction(*n.op); }

Dim product_of_dims(Shape::const_iterator begin, Shape::const_iterator end) {
  Dim out = 1;
  for (auto d = begin; d != end; ++d) out = out * *d;
  return out;
}

// Whether a reshape of [.., columns] keeps the columns apart from what is before them: of a slice it is a view then.
bool keeps_columns_apart(const Shape& from, const Shape& to) {
  const Dim rows = product_of_dims(from.begin(), from.end() - 1);
  for (auto at = to.begin();; ++at) {
    if (product_of_dims(to.begin(), at) == rows) return true;
    if (at == to.end()) return false;
  }
}

class Joiner {
 public:
  // everywhere: whether it pays or not.
  Joiner(const Graph& g, const PassOptions& o, bool everywhere)
      : g_(g), o_(o), everywhere_(everywhere), uses_(g) {
    if (everywhere) return;  // updates do not matter
    for (const Update& u : g.updates) updated_.insert(u.param);
  }

  std::vector<ProductGroup> run() {
    // By what they multiply and how the weights lie, in the order of the program.
    std::vector<std::vector<GroupedProduct>> sets;
    std::unordered_map<std::string, size_t> known;
    for (int32_t i = 0; i < g_.size(); ++i) {
      const auto m = member(i);
      if (!m) continue;
      const Node& n = g_.node(i);
      const std::string key = fmt::format("{} {}", n.in[0], n.get<MatmulAttrs>().transpose_b);
      const auto [at, fresh] = known.try_emplace(key, sets.size());
      if (fresh) sets.emplace_back();
      sets[at->second].push_back(*m);
    }
    std::vector<ProductGroup> groups;
    for (const auto& set : sets)
      if (set.size() > 1) divide(set, groups);
    std::erase_if(groups, [](const ProductGroup& g) { return g.members.size() < 2; });
    return groups;
  }

 private:
  // No run changes it.
  bool is_fixed(Value v) const {
    const Node& n = g_.node(v);
    return n.op == &op::constant ||
           (n.op == &op::param && !updated_.contains(n.get<LeafAttrs>().name));
  }

  std::optional<GroupedProduct> member(int32_t i) const {
    const Node& n = g_.node(i);
    if (n.op != &op::matmul || n.get<MatmulAttrs>().transpose_a) return std::nullopt;
    const Type& w = g_.type(n.in[1]);
    if (w.rank() != 2 || g_.type(n.in[0]).rank() < 2 || !is_fixed(n.in[1]) ||
        (is_fixed(n.in[0]) && !everywhere_) || !w.shape[0].is_static() || !w.shape[1].is_static())
      return std::nullopt;
    GroupedProduct m{i, i};
    m.columns = n.type().shape.back().value();
    if (m.columns == 0) return std::nullopt;
    if (everywhere_) return m;
    add_bias(m);
    const auto readers = uses_.users(m.end);
    m.in_tiles = m.bias.valid() || is_in_regions(g_.node(n.in[0])) ||
                 std::any_of(readers.begin(), readers.end(),
                             [&](int32_t r) { return is_in_regions(g_.node(r)); });
    return m;
  }

  // product + bias, when nobody else reads the product.
  void add_bias(GroupedProduct& m) const {
    const auto readers = uses_.users(m.product);
    if (readers.size() != 1 || uses_.count(m.product) != 1 || uses_.is_output(m.product)) return;
    const Node& sum = g_.node(readers[0]);
    if (sum.op != &op::add || sum.type() != g_.node(m.product).type()) return;
    const Value bias = sum.in[sum.in[0].node == m.product ? 1 : 0];
    if (!is_fixed(bias) || g_.type(bias).shape != Shape{m.columns}) return;
    m.end = readers[0];
    m.bias = bias;
  }

  // Members that may be joined, in groups that are not too wide.
  void divide(const std::vector<GroupedProduct>& set, std::vector<ProductGroup>& groups) {
    const int32_t first = set[0].product;
    std::optional<size_t> open, narrow;  // groups of this set without and with a limit
    for (const GroupedProduct& m : set) {
      if (const Decision d = everywhere_ ? Decision::yes() : takes_slices(m); !d) {
        refuse(m, m.product == first ? set[1] : set[0], std::string(d.why()));
        continue;
      }
      const bool limited = m.in_tiles && has_tiles(m);
      std::optional<size_t>& at = limited ? narrow : open;
      if (at && limited && groups[*at].columns + m.columns > o_.schedule.product_columns) {
        refuse(m, groups[*at].members.back(),
               fmt::format("{} columns are too many for regions to follow their rows",
                           groups[*at].columns + m.columns));
        at.reset();
      }
      if (!at) {
        at = groups.size();
        groups.emplace_back();
      }
      groups[*at].members.push_back(m);
      groups[*at].columns += m.columns;
    }
  }

  Dim rows_of(const GroupedProduct& m) const {
    const Shape& s = g_.node(m.product).type().shape;
    return product_of_dims(s.begin(), s.end() - 1);
  }
  bool is_one_row(const GroupedProduct& m) const { return rows_of(m) == Dim(1); }

  // Whether the rows of the product are cut into tiles of whole rows.
  bool has_tiles(const GroupedProduct& m) const {
    const Dim rows = rows_of(m);
    return m.columns <= o_.schedule.product_columns &&
           !(rows.is_static() && rows.value() <= o_.schedule.product_rows);
  }

  // Whether all readers take a slice of the joined product as it lies.
  Decision takes_slices(const GroupedProduct& m) const {
    Values open{{m.end, 0}};
    std::set<int32_t> turned;  // nodes whose elements lie in another order
    while (!open.empty()) {
      const Value v = open.back();
      open.pop_back();
      if (uses_.is_output(v.node)) return Decision::no("a result of the program would be copied");
      for (int32_t r : uses_.users(v.node)) {
        const Node& n = g_.node(r);
        if (n.op == &op::transpose || n.op == &op::slice || n.op == &op::broadcast) {
          turned.insert(r);
          open.push_back({r, 0});
        } else if (n.op == &op::reshape) {
          if (turned.contains(v.node)) continue;  // copied already
          if (!is_one_row(m) && !keeps_columns_apart(g_.type(v).shape, n.type().shape))
            return Decision::no("a reshape would copy it");
          open.push_back({r, 0});
        } else if (!is_one_row(m) && !takes_view(n, v)) {
          return Decision::no("{} would copy it", n.op->name);
        }
      }
    }
    return Decision::yes();
  }

  static bool takes_view(const Node& n, Value v) {
    if (is_in_regions(n) || n.op == &op::matmul || n.op == &op::concat) return true;
    const bool among_optional =
        n.op == &op::attention && std::find(n.in.begin() + std::min<int64_t>(3, std::ssize(n.in)),
                                            n.in.end(), v) != n.in.end();
    return n.op == &op::attention && !among_optional;
  }

  void refuse(const GroupedProduct& m, const GroupedProduct& other, std::string why) const {
    if (!o_.fusion) return;
    const auto name = [&](const GroupedProduct& of) {
      const Node& w = g_.node(g_.node(of.product).in[1]);
      return w.op == &op::param ? fmt::format("matmul by {}", w.get<LeafAttrs>().name)
                                : fmt::format("matmul by {}", w.type());
    };
    o_.fusion->refusals.push_back({name(m), name(other), "not joined: " + std::move(why)});
  }

  const Graph& g_;
  const PassOptions& o_;
  bool everywhere_;
  Uses uses_;
  std::set<std::string, std::less<>> updated_;
};

// The places of nodes when leaves stand before all others, in their order: joined weights come before the first product.
std::vector<int32_t> leaves_first(const Graph& g) {
  std::vector<int32_t> places(g.nodes.size());
  int32_t next = 0;
  for (const bool leaves : {true, false})
    for (size_t i = 0; i < g.nodes.size(); ++i)
      if ((g.nodes[i].op->kind == Kind::leaf) == leaves) places[i] = next++;
  return places;
}

Graph in_order(Graph&& g, const std::vector<int32_t>& places) {
  const auto move = [&](Value& v) { v.node = places[static_cast<size_t>(v.node)]; };
  std::vector<Node> nodes(g.nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i)
    nodes[static_cast<size_t>(places[i])] = std::move(g.nodes[i]);
  g.nodes = std::move(nodes);
  for (Node& n : g.nodes) std::for_each(n.in.begin(), n.in.end(), move);
  std::for_each(g.outputs.begin(), g.outputs.end(), move);
  for (Update& u : g.updates) move(u.value);
  return std::move(g);
}

// The columns of y from `start` on.
Value columns_of(Builder& b, Value y, int64_t start, int64_t count) {
  Shape from(static_cast<size_t>(b.type(y).rank()), Dim(0)), to = b.shape(y);
  from.back() = start;
  to.back() = start + count;
  return op::slice(b, y, {from, to, {}});
}

// The product of a group, and the sum with its biases, at the place of its first product.
Value joined_product(Rebuild& r, const ProductGroup& group, const Node& first,
                     const Values& weights) {
  Builder& b = r.builder();
  Values parts, biases;
  for (size_t i = 0; i < group.members.size(); ++i) {
    parts.push_back(r.at(weights[i]));
    if (group.with_bias()) biases.push_back(r.at(group.members[i].bias));
  }
  const auto attrs = first.get<MatmulAttrs>();
  const Value w = b.emit(op::concat.def, AxisAttrs{attrs.transpose_b ? 0 : 1}, parts)[0],
              y = op::matmul(b, first.in[0], w, attrs);
  return biases.empty() ? y : op::add(b, y, b.emit(op::concat.def, AxisAttrs{0}, biases)[0]);
}

// Where a member of a group stands in what is rewritten.
struct ColumnsAt {
  size_t group;
  int64_t start;  // its first column
  int64_t columns;
};

Graph run_join(Graph&& given, const PassOptions& o, bool everywhere, SharedText pass) {
  std::vector<ProductGroup> groups = Joiner(given, o, everywhere).run();
  if (groups.empty()) return std::move(given);
  const std::vector<int32_t> places = leaves_first(given);
  const Graph& g = given = in_order(std::move(given), places);
  const auto moved = [&](int32_t node) { return places[static_cast<size_t>(node)]; };
  std::unordered_map<int32_t, ColumnsAt> products, ends;  // by node
  std::vector<Values> weights(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    int64_t start = 0;
    for (GroupedProduct& m : groups[i].members) {
      m.product = moved(m.product), m.end = moved(m.end);
      if (m.bias.valid()) m.bias.node = moved(m.bias.node);
      weights[i].push_back(g.node(m.product).in[1]);
      products[m.product] = {i, start, m.columns};
      if (groups[i].with_bias()) ends[m.end] = products[m.product];
      start += m.columns;
    }
  }
  Values joined(groups.size(), kNone);
  Rebuild r(std::move(given), std::move(pass));
  for (int32_t i = 0; i < r.size(); ++i) {
    const Node& n = r.node(i);
    const auto product = products.find(i), end = ends.find(i);
    if (product == products.end() && end == ends.end()) {
      r.keep(i);
      continue;
    }
    const ColumnsAt at = end != ends.end() ? end->second : product->second;
    Builder& b = r.builder();
    r.stamp(n);
    Value& whole = joined[at.group];
    if (!whole.valid()) whole = joined_product(r, groups[at.group], n, weights[at.group]);
    r.replace(i, {columns_of(b, whole, at.start, at.columns)});
  }
  return r.finish();
}

constexpr PassArgument kJoinArguments[] = {
    {"where", "pays (the default): where slices are read as they lie; or everywhere"}};

bool joins_everywhere(const PassOptions& o) {
  const std::string where = o.argument("where", "pays");
  user_check(where == "pays" || where == "everywhere", "pass-option",
             "join_products: where is pays or everywhere, not {}", quote(where));
  return where == "everywhere";
}

}  // namespace

constinit const Pass pass::join_products{
    .name = "join_products",
    .doc = "Products of one value with several weights become one product; its slices are views.",
    .run =
        [](Graph&& g, const PassOptions& o) {
          return run_join(std::move(g), o, joins_everywhere(o), "join_products");
        },
    .in_bodies = false,  // bodies own no memory in which joined weights outlive a run
    .arguments = kJoinArguments};

constinit const Pass pass::fuse_shared_input_matmul{
    "fuse_shared_input_matmul",
    "Products of one value with parameters or constants become one: join_products everywhere.",
    [](Graph&& g, const PassOptions& o) {
      return run_join(std::move(g), o, true, "fuse_shared_input_matmul");
    }};

}  // namespace rlx
