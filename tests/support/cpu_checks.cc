#include "cpu_checks.h"

#include "error_bound.h"
#include "op_checks.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {

namespace {

struct Compiled {
  Graph graph;
  NamedTensors in;
  std::string plan;
  Tensors results;
};

// The cases as one graph, each with operands of its own.
Compiled run_together(const std::vector<CpuCase>& cases) {
  Compiled c;
  Builder b("cases");
  for (const CpuCase& one : cases) {
    Values in;
    for (const Tensor& t : one.in) {
      const std::string name = fmt::format("{}", c.in.size());
      in.push_back(b.input(name, t.type()));
      c.in[name] = t;
    }
    for (Value v : b.inline_graph(one.graph, in)) b.output(v);
  }
  c.graph = b.finish();
  CompiledGraph f = Session("cpu").compile(c.graph, {.threads = 2, .poison = true});
  c.results = f.run(c.in);
  c.plan = f.info().plan();
  return c;
}

void check_together(const std::vector<CpuCase>& cases) {
  try {
    const Compiled run = run_together(cases);
    size_t next = 0;
    for (const CpuCase& c : cases) {
      const size_t count = c.graph.outputs.size();
      const auto first = run.results.begin() + static_cast<int64_t>(next);
      for (const std::string& why :
           against_reference(c, {first, first + static_cast<int64_t>(count)}))
        ADD_FAILURE() << c.what << ", " << why << "\n"
                      << print(c.graph) << (cases.size() == 1 ? run.plan : "");
      next += count;
    }
  } catch (const std::exception& e) {
    if (cases.size() == 1) {
      ADD_FAILURE() << cases[0].what << ": " << e.what();
      return;
    }
    for (const CpuCase& c : cases) check_together({c});
  }
}

bool only_says_where(const OperandSpec& o) {
  return o.kind == "index" || o.kind == "ranges" || o.kind == "key";
}

}  // namespace

BoundedRun bounded(const CpuCase& c) {
  NamedTensors named;
  const Values inputs = c.graph.inputs();
  for (size_t i = 0; i < inputs.size(); ++i)
    named[c.graph.node(inputs[i]).get<LeafAttrs>().name] = c.in[i];
  return evaluate_bounded(c.graph, named, 1);
}

std::vector<std::string> against_reference(const CpuCase& c, const Tensors& got) {
  const Tensors want = evaluate(c.graph, c.in);
  std::vector<std::string> wrong;
  if (got.size() != want.size()) return {fmt::format("{} results of {}", got.size(), want.size())};
  std::optional<BoundedRun> allowed;
  for (size_t k = 0; k < want.size(); ++k) {
    if (got[k].same_bits(want[k])) continue;
    if (!allowed) allowed = bounded(c);
    const DType d = want[k].dtype();
    const Bounded& b = allowed->outputs[k];
    // Whether the op needs a ceiling of its own is judged by what rounding can do, which is the same on every
    // machine, and not by what this one's kernels do.
    CompareStats free;
    b.mismatch(got[k], {.stats = &free});
    if (free.widest > default_ceiling(d, c.measured())) note_need(c.op, d, c.measured());
    if (std::string why =
            b.mismatch(got[k], {.ceiling = ceiling_of(c.op, d, c.measured()), .scale = c.scale});
        !why.empty())
      wrong.push_back(fmt::format("result {}, {}", k, why));
  }
  return wrong;
}

void CpuChecks::add(CpuCase c) {
  waiting_.push_back(std::move(c));
  if (waiting_.size() >= batch_) finish();
}

void CpuChecks::finish() {
  const std::vector<CpuCase> cases = std::exchange(waiting_, {});
  if (!cases.empty()) check_together(cases);
}

std::optional<CpuCase> gradient_of(const Case& c) {
  if (!c.node().op->not_differentiable.empty()) return std::nullopt;
  std::vector<size_t> wrt;
  for (size_t i = 0; i < c.operands.size(); ++i)
    if (differentiable(c.operands[i]) && !only_says_where(c.sample->operands[i])) wrt.push_back(i);
  bool any = false;
  for (const Type& t : c.graph.output_types()) any |= is_differentiable(t.dtype);
  if (wrt.empty() || !any) return std::nullopt;
  CpuCase out{vjp(c.graph, names(wrt), {.zero_missing = true}), c.operands, c.sample->op,
              fmt::format("gradient of {} at {}", c.sample->text, c.dtype), true};
  const Values inputs = out.graph.inputs();
  for (size_t i = c.operands.size(); i < inputs.size(); ++i) {
    const Type& type = out.graph.type(inputs[i]);
    out.in.push_back(noise(Tensor(type.dtype, type.shape.sizes()), 60 + i));
  }
  return out;
}

}  // namespace rlx::testing
