#include "rlx/lower/outline.h"

#include "rlx/ops/control/checkpoint.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/core.h"
#include "rlx/ops/region.h"
#include "rlx/passes/fuse_regions.h"

namespace rlx {

namespace {

// Walks a fused graph with layouts, as lowering does with views.
class Outliner {
 public:
  // `inputs`: where those lie; none: dense, as all that is given to a program.
  Outliner(const Graph& g, Target& target, std::span<const Layout> inputs)
      : g_(g), target_(target), layouts_(g.nodes.size()), inputs_(inputs) {}

  std::vector<Outline::Entry> run() {
    std::vector<Outline::Entry> entries(g_.nodes.size());
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      const Node& n = g_.nodes[i];
      Outline::Entry& e = entries[i];
      e.is_symbolic = has_symbols(n);
      if (n.op->kind == Kind::movement) {
        layouts_[i] = {moved(n, e)};
        continue;
      }
      if (n.op == &op::input && !inputs_.empty()) {
        layouts_[i] = {inputs_.front()};
        inputs_ = inputs_.subspan(1);
        continue;
      }
      for (const Type& t : n.out) layouts_[i].push_back(Layout::dense(t));
      if (n.op == &op::region) region(n, i, e);
      if (n.op->kind == Kind::control) control(n, e);
    }
    return entries;
  }

 private:
  const Layout& layout(Value v) const {
    return layouts_[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)];
  }

  Layout moved(const Node& n, Outline::Entry& e) const {
    const Shape& shape = n.type().shape;
    if (n.op == &op::reshape) {
      if (auto v = view_reshape(layout(n.in[0]), shape)) return *v;
      e.copies = true;
      return Layout::dense(n.type());
    }
    if (n.op == &op::transpose)
      return view_transpose(layout(n.in[0]), n.get<TransposeAttrs>().perm);
    if (n.op == &op::slice) return view_slice(layout(n.in[0]), n.get<SliceAttrs>().stride, shape);
    if (n.op == &op::broadcast) {
      line_up(g_.type(n.in[0]).shape, shape, e);
      return view_broadcast(layout(n.in[0]), shape);
    }
    if (n.op == &op::reverse) return view_reverse(layout(n.in[0]), n.get<ReverseAttrs>().axes);
    if (n.op == &op::barrier) return layout(n.in[0]);
    return Layout::dense(n.type());
  }

  // Right-aligned: a dim that is not 1 is the one it stands for.
  static void line_up(const Shape& operand, const Shape& result, Outline::Entry& e) {
    for (size_t i = 0; i < operand.size(); ++i) {
      const Dim &own = operand[operand.size() - 1 - i], &all = result[result.size() - 1 - i];
      if (!(own == all) && !(own == Dim(1))) e.equal.emplace_back(own, all);
    }
  }

  void region(const Node& n, size_t i, Outline::Entry& e) {
    std::vector<Layout> in;
    for (Value v : n.in) in.push_back(layout(v));
    const auto& a = n.get<RegionAttrs>();
    for (const Node& member : a.body->nodes)
      for (Value v : member.in)
        if (member.op->kind == Kind::elementwise || member.op == &op::broadcast)
          line_up(a.body->type(v).shape, member.type().shape, e);
    FusionOptions options;
    options.schedule = target_.schedule();
    const bool may_be_cut = a.kind != RegionKind::elementwise && !a.domain.is_static();
    std::shared_ptr<const KernelForm> whole;
    e.ways = all_answers([&](SizeQuestions& q) {
      options.questions = &q;
      if (may_be_cut && a.kind != RegionKind::split && cuts_reductions(*a.body, options))
        return Outline::RegionWay{
            nullptr, Outline::of_region(fuse_regions(*a.body, nullptr, options), target_, in)};
      if (!whole) whole = target_.form(n, in, layouts_[i]);
      return Outline::RegionWay{whole, nullptr};
    });
  }

  void control(const Node& n, Outline::Entry& e) {
    for (const FieldInfo& f : n.attrs.fields()) {
      if (!f.is<Body>()) continue;
      const Graph& body = **static_cast<const Body*>(f.member_of(n.attrs.data()));
      if (has_symbols(body)) {
        e.programs.push_back(nullptr);
        e.bodies.push_back(Outline::of_body(body, target_));
      } else {
        e.programs.push_back(std::make_shared<const Program>(lower_body(body, target_)));
        e.bodies.push_back(nullptr);
      }
    }
  }

  const Graph& g_;
  Target& target_;
  std::vector<std::vector<Layout>> layouts_;
  std::span<const Layout> inputs_;  // of those that are to come
};

}  // namespace

Outline::Outline(const Graph& fused, Target& target) : Outline(fused, target, false, {}) {}

std::shared_ptr<const Outline> Outline::of_body(const Graph& fused, Target& target) {
  return std::shared_ptr<const Outline>(new Outline(fused, target, true, {}));
}

std::shared_ptr<const Outline> Outline::of_region(const Graph& fused, Target& target,
                                                  std::span<const Layout> operands) {
  return std::shared_ptr<const Outline>(new Outline(fused, target, true, operands));
}

Outline::Outline(const Graph& fused, Target& target, bool is_body, std::span<const Layout> inputs)
    : graph_(fused), entries_(Outliner(graph_, target, inputs).run()), is_body_(is_body) {}

Graph Outline::bound(const DimBinding& sizes) const {
  Graph g = graph_;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    for (const auto& [a, b] : entries_[i].equal)
      user_check(a.bind(sizes) == b.bind(sizes), "dim-guard",
                 "{}: {} = {} and {} = {} must be equal", g.nodes[i].op->name, a, a.bind(sizes), b,
                 b.bind(sizes));
    if (!entries_[i].is_symbolic) continue;
    Node& n = g.nodes[i];
    n.attrs = map_dims(n.attrs, [&](const Dim& d) { return d.bind(sizes); });
    for (Type& t : n.out) t.shape = t.shape.bind(sizes);
  }
  return g;
}

Program Outline::at(const DimBinding& sizes, Target& target, const Donated& donated) const {
  return lower(*this, sizes, target, is_body_, donated);
}

}  // namespace rlx
