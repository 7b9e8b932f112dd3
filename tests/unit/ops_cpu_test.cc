// Every sample on the CPU against the reference: at every dtype the op takes, and the gradients in
// f32 and f64.
#include <gtest/gtest.h>

#include "../samples.h"
#include "rlx/ops/support.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {
namespace {

// Units in the last place of the dtype, relative to the largest magnitude around: sums of a few
// terms, or a chain of rounded steps.
double tolerance(DType d) {
  switch (d) {
    case DType::F64:
      return 1e-13;
    case DType::F32:
    case DType::C64:
      return 2e-6;
    case DType::F16:
      return 4e-3;
    case DType::BF16:
      return 3e-2;
    default:
      return 0;
  }
}

std::string compare(const Tensor& got, const Tensor& want) {
  if (!(got.type() == want.type())) return fmt::format("{} instead of {}", got.type(), want.type());
  double scale = 1e-30;
  for (int64_t i = 0; i < want.elements(); ++i)
    if (const double a = std::abs(want.get_complex(i)); std::isfinite(a))
      scale = std::max(scale, a);
  for (int64_t i = 0; i < want.elements(); ++i) {
    const Complex a = got.get_complex(i), b = want.get_complex(i);
    if (a == b || (std::isnan(std::abs(a)) && std::isnan(std::abs(b)))) continue;
    if (!(std::abs(a - b) <= tolerance(want.dtype()) * std::max(scale, 1.0)))
      return fmt::format("element {}: {}{:+}i instead of {}{:+}i", i, a.real(), a.imag(), b.real(),
                         b.imag());
  }
  return {};
}

void check_graph(const Graph& g, const Tensors& in, const std::string& what) {
  const Tensors want = evaluate(g, in);
  CompiledGraph f = Session(Device::cpu).compile(g, {.threads = 2, .poison = true});
  NamedTensors named;
  const auto inputs = g.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) named[g.node(inputs[i]).get<LeafAttrs>().name] = in[i];
  const std::vector<Tensor> got = f.run(named);
  for (size_t k = 0; k < want.size(); ++k)
    if (std::string error = compare(got[k], want[k]); !error.empty())
      ADD_FAILURE() << what << ", result " << k << ", " << error << "\n"
                    << print(g) << f.info().plan;
}

TEST(OpsCpu, EverySampleAtEveryDType) {
  for (const Sample& s : samples())
    for (const DTypeInfo& row : kDTypes)
      if (auto c = make_case(s, row.dtype)) {
        check_graph(c->graph, c->operands, fmt::format("{} at {}", s.text, row.name));
        if (!s.swept()) break;
      }
}

TEST(OpsCpu, Gradients) {
  for (const Sample& s : samples()) {
    if (!op_table().find(s.op)->not_differentiable.empty()) continue;
    for (DType d : {DType::F32, DType::F64}) {
      auto c = make_case(s, d);
      if (!c) continue;
      // The sum of squares of all real results, differentiated by every float operand.
      Builder b("loss");
      Values in;
      for (Value v : c->graph.inputs())
        in.push_back(b.input(c->graph.node(v).get<LeafAttrs>().name, c->graph.type(v)));
      Value loss = kNone;
      for (Value v : b.inline_graph(c->graph, in)) {
        if (!is_float(b.type(v).dtype)) continue;
        Expr e(b, v);
        Ints axes(static_cast<size_t>(e.rank()));
        for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
        Expr total(b, op::reduce_sum(b, op::square(e), {.axes = axes}));
        if (total.dtype() != DType::F64) total = Expr(b, op::cast(b, total, {DType::F32}));
        if (loss.valid() && !(b.type(loss) == total.type())) continue;
        loss = loss.valid() ? Value(Expr(b, loss) + total) : total.value();
      }
      std::vector<std::string> wrt;
      for (Value v : in)
        if (is_float(b.type(v).dtype)) wrt.push_back(b.node(v).get<LeafAttrs>().name);
      if (!loss.valid() || wrt.empty()) continue;
      b.output(loss);
      const Graph g = value_and_grad(b.finish(), wrt, {.zero_missing = true});
      check_graph(g, c->operands, fmt::format("gradient of {} at {}", s.text, to_string(d)));
    }
  }
}

TEST(OpsCpu, NoOpLacksACpuPath) {
  const std::vector<std::string> native = backend_for(Device::cpu)->native_ops();
  const std::set<std::string_view> kernels(native.begin(), native.end());
  for (const auto& entry : op_table().entries())
    for (const Support& s : support(*entry.op, kernels)) {
      EXPECT_NE(s.answer, Answer::missing) << entry.op->name << " " << s.column << ": " << s.how;
      // 'Not applicable' is an answer about derivatives only, and it has a reason.
      if (s.answer != Answer::not_applicable) continue;
      EXPECT_TRUE(s.column == "jvp" || s.column == "vjp") << entry.op->name << " " << s.column;
      EXPECT_FALSE(s.how.empty()) << entry.op->name << " " << s.column;
    }
}

}  // namespace
}  // namespace rlx::testing
