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
  return rebuild(g, [&](Builder& b, int32_t i, Operands in) {
    const Node& n = g.node(i);
    const bool is_block = n.op->stage() == Stage::hir;
    if (is_block) b.set_pass(fmt::format("hir:h{}", i));
    if (is_block && n.origin.label.empty()) b.set_label(block_label(*n.op, n.attrs));
    Values out = is_block ? expand_block(b, n, in, policy) : b.emit(*n.op, n.attrs, in);
    for (size_t k = 0; k < n.out.size(); ++k)
      check(b.type(out[k]) == n.out[k], "{}: lowered to {}, not to {}", n.op->name, b.type(out[k]),
            n.out[k]);
    return out;
  });
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
