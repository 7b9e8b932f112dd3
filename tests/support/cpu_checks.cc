#include "cpu_checks.h"

#include "error_bound.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {

namespace {

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

}  // namespace

void check_on_cpu(const Graph& g, const Tensors& in, const std::string& what) {
  const Tensors want = evaluate(g, in);
  CompiledGraph f = Session(Device::cpu).compile(g, {.threads = 2, .poison = true});
  NamedTensors named;
  const auto inputs = g.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) named[g.node(inputs[i]).get<LeafAttrs>().name] = in[i];
  const std::vector<Tensor> got = f.run(named);
  for (size_t k = 0; k < want.size(); ++k)
    if (std::string error = compare(got[k], want[k]);
        !error.empty() && !evaluate_bounded(g, named, k).outputs[k].mismatch(got[k]).empty())
      ADD_FAILURE() << what << ", result " << k << ", " << error << "\n"
                    << print(g) << f.info().plan;
}

std::optional<Graph> gradient_of_squares(const Case& c) {
  Builder b("loss");
  Values in;
  for (Value v : c.graph.inputs())
    in.push_back(b.input(c.graph.node(v).get<LeafAttrs>().name, c.graph.type(v)));
  Value loss = kNone;
  for (Value v : b.inline_graph(c.graph, in)) {
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
  if (!loss.valid() || wrt.empty()) return std::nullopt;
  b.output(loss);
  return value_and_grad(b.finish(), wrt, {.zero_missing = true});
}

}  // namespace rlx::testing
