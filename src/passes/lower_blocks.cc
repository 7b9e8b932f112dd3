// HIR to MIR: every block becomes its definition, every other node stays. What a block is made of carries the author's
// label, or the block's, and the block's number: `@ "proj" from "hir:h2"`.
#include "rlx/ops/blocks/hir_blocks.h"
#include "rlx/passes/passes.h"

namespace rlx {
namespace {

constexpr PassArgument kBlockArguments[] = {
    {"fusion", "fusable (the default): to primitives, or direct: to fused ops where there are"}};

FusionPolicy policy_of(const PassOptions& o) {
  const std::string fusion = o.argument("fusion", "fusable");
  const auto names = enum_names(FusionPolicy::direct);
  const auto at = std::find(names.begin(), names.end(), fusion);
  user_check(at != names.end(), "pass-option", "lower_blocks: fusion is {}, not {}",
             fmt::join(names, " or "), quote(fusion));
  return static_cast<FusionPolicy>(at - names.begin());
}

Graph lower(const Graph& g, FusionPolicy policy) {
  Builder b(g.name);
  std::vector<Values> map;
  const auto at = [&](Value v) {
    return map[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)];
  };
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.nodes[static_cast<size_t>(i)];
    Values in;
    for (Value v : n.in) in.push_back(at(v));
    const bool is_block = n.op->stage() == Stage::hir;
    b.set_origin(n.origin);
    if (is_block) b.set_pass(fmt::format("hir:h{}", i));
    if (is_block && n.origin.label.empty()) b.set_label(block_label(*n.op, n.attrs));
    map.push_back(is_block ? expand_block(b, n, in, policy) : b.emit(*n.op, n.attrs, in));
    for (size_t k = 0; k < n.out.size(); ++k)
      check(b.type(map.back()[k]) == n.out[k], "{}: lowered to {}, not to {}", n.op->name,
            b.type(map.back()[k]), n.out[k]);
  }
  Graph out = std::move(b.mutable_graph());
  for (Value v : g.outputs) out.outputs.push_back(at(v));
  for (const Update& u : g.updates) out.updates.push_back({u.param, at(u.value)});
  return out;
}

}  // namespace

constinit const Pass pass::lower_blocks{.name = "lower_blocks",
                                        .doc = "Blocks of HIR become their definitions.",
                                        .run =
                                            [](Graph&& g, const PassOptions& o) {
                                              const FusionPolicy policy = policy_of(o);
                                              return has_blocks(g) ? lower(g, policy)
                                                                   : std::move(g);
                                            },
                                        .arguments = kBlockArguments};

}  // namespace rlx
