// What the backward of a transformer costs: product FLOPs counted from the compiled plan, against those of the forward. A
// product has two gradients, each a product of its size; fused attention computes its scores again.
#include <gtest/gtest.h>

#include "rlx/compile.h"
#include "rlx/models/gpt.h"
#include "rlx/ops/attention/attention.h"
#include "rlx/ops/core.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/passes/passes.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

struct Products {
  double matmul = 0, attention = 0;
  int matmuls = 0, attentions = 0;
};

// 2 M N K of every product step, from the views it runs on; attention as its kernels say.
void count_products(const Program& p, Products& out) {
  for (const Step& s : p.steps) {
    for (const auto& body : s.bodies) count_products(*body, out);
    if (!s.kernel || s.node < 0) continue;
    const Node& n = p.graph.node(s.node);
    if (n.op == &op::matmul) {
      const auto& a = n.get<MatmulAttrs>();
      const Shape& x = p.graph.type(n.in[0]).shape;
      const int64_t rank = x.rank();
      const int64_t k =
          x[static_cast<size_t>(rank == 1 || !a.transpose_a ? rank - 1 : rank - 2)].value();
      const double flops = 2.0 * static_cast<double>(n.type().shape.elements().value() * k);
      EXPECT_NEAR(s.kernel->flops(), flops, flops * 1e-9) << s.label;
      out.matmul += flops;
      ++out.matmuls;
    } else if (n.op == &op::attention || n.op == &op::attention_backward ||
               n.op == &op::attention_gradient) {
      EXPECT_GT(s.kernel->flops(), 0) << s.label;
      out.attention += s.kernel->flops();
      ++out.attentions;
    }
  }
}

Products products_of(const Graph& g) {
  const GraphModule m = lower_to(CompileStage::lir, g, *backend_for("cpu"), {}, CompileStage::mir);
  Products out;
  count_products(m.as_lir()->plan(), out);
  return out;
}

TEST(TrainingFlops, ABackwardIsTwiceItsForward) {
  const GptConfig config{
      .vocab = 50, .width = 64, .layers = 12, .heads = 4, .block = 48, .batch = 2};
  const Graph loss = recognised(gpt_loss(config));
  std::vector<std::string> params;
  for (Value v : loss.params()) params.push_back(loss.node(v).get<LeafAttrs>().name);
  const Products forward = products_of(loss), both = products_of(value_and_grad(loss, params));
  // By hand: q, k, v, o and the two of the MLP, then the head.
  const double rows = 2 * 48, layer = 2 * rows * 64 * 64 * (4 + 8), head = 2 * rows * 64 * 50;
  EXPECT_DOUBLE_EQ(forward.matmul, 12 * layer + head);
  EXPECT_EQ(forward.attentions, 12);
  const double backward = both.matmul - forward.matmul,
               attention = both.attention - forward.attention;
  fmt::print("products: {:.4f} of the forward, attention: {:.4f}\n", backward / forward.matmul,
             attention / forward.attention);
  EXPECT_GT(backward, 1.9 * forward.matmul);
  EXPECT_LE(backward, 2.0 * forward.matmul);
  EXPECT_GT(attention, 1.9 * forward.attention);
  EXPECT_LE(attention, 2.5 * forward.attention);
}

}  // namespace
}  // namespace rlx
