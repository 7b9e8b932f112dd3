#include "narrow_derivatives.h"

#include <iostream>

#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {

namespace {

Tensor converted(const Tensor& t, DType d) {
  if (t.dtype() == d) return t;
  Tensor out(d, t.sizes());
  for (int64_t i = 0; i < t.elements(); ++i) out.set_complex(i, t.get_complex(i));
  return out;
}

Derivatives derivatives_of(const Case& c) {
  const Graph forward = jvp(c.graph, names(c.swept)),
              reverse = vjp(c.graph, names(c.swept), {.zero_missing = true});
  const size_t outputs = c.graph.outputs.size(), operands = c.operands.size();
  Derivatives d{{}, c.operands};
  Builder b("derivatives");
  Values primal;
  for (const Tensor& t : c.operands)
    primal.push_back(b.input(std::to_string(primal.size()), t.type()));
  for (const Graph* g : {&forward, &reverse}) {
    Values in = primal;
    const Values inputs = g->inputs();
    for (size_t i = operands; i < inputs.size(); ++i) {
      const Type& type = g->type(inputs[i]);
      in.push_back(b.input(fmt::format("d{}", d.in.size()), type));
      d.in.push_back(noise(Tensor(type.dtype, type.shape.sizes()), 50 + d.in.size()));
    }
    const Values out = b.inline_graph(*g, in);
    for (size_t i = outputs; i < out.size(); ++i) b.output(out[i]);
  }
  d.graph = b.finish();
  return d;
}

bool is_random(const OpDef& op) {
  return op.kind == Kind::random || op.name.starts_with("random_");
}

struct Comparison {
  Derivatives narrow;
  std::vector<Bounded> allowed;
};

std::optional<Comparison> against_f64(const Sample& s, DType d) {
  const auto narrow = make_case(s, d), wide = make_case(s, DType::F64);
  if (!narrow || !wide || !has_derivatives(*wide) || is_random(*wide->node().op)) return {};
  Comparison out{derivatives_of(*narrow), {}};
  Derivatives f64 = derivatives_of(*wide);
  check(f64.in.size() == out.narrow.in.size(), "{}: other derivatives at {}", s.where, d);
  for (size_t i = 0; i < f64.in.size(); ++i)
    f64.in[i] = converted(out.narrow.in[i], f64.in[i].dtype());
  out.allowed = bounded_by_rounding(out.narrow.graph, out.narrow.in, evaluate(f64.graph, f64.in),
                                    hash_text(s.text));
  return out;
}

}  // namespace

Tensors on_reference(const Derivatives& d) { return evaluate(d.graph, d.in); }

Tensors on_cpu(const Derivatives& d) {
  NamedTensors named;
  const Values inputs = d.graph.inputs();
  for (size_t i = 0; i < inputs.size(); ++i)
    named[d.graph.node(inputs[i]).get<LeafAttrs>().name] = d.in[i];
  return Session("cpu").compile(d.graph, {.threads = 1}).run(named);
}

void NarrowReport::expect_good(std::optional<Column> column) const {
  CompareStats stats;
  for (const auto& [op, s] : ops) stats.add(s);
  std::cout << fmt::format("{} rows, {} elements: {} exact, {} unstable, {} loose, widest {:.2g}\n",
                           rows, stats.elements, stats.exact, stats.unstable, stats.loose,
                           stats.widest);
  for (const std::string& w : wrong) ADD_FAILURE() << w;
  if (column && !is_filtered()) {
    AllowanceTable table;
    for (const auto& [op, s] : ops) table.cell(op, *column).add(s);
    table.expect_as_checked_in(std::span(&*column, 1));
  }
}

void NarrowReport::add(const NarrowReport& other) {
  rows += other.rows;
  for (const auto& [op, s] : other.ops) ops[op].add(s);
  wrong.insert(wrong.end(), other.wrong.begin(), other.wrong.end());
}

double derivative_scale(const std::string& op) {
  static std::map<std::string, double> known;
  const auto [place, is_new] = known.emplace(op, 0);
  double& scale = place->second;
  if (!is_new) return scale;
  for (const Sample& s : samples())
    if (const auto c = s.op == op ? make_case(s, DType::F64) : std::nullopt;
        c && has_derivatives(*c))
      for (const Tensor& t : on_reference(derivatives_of(*c)))
        for (int64_t i = 0; i < t.elements(); ++i)
          if (const double x = std::abs(t.get_complex(i)); std::isfinite(x))
            scale = std::max(scale, x);
  return scale;
}

NarrowReport compare_narrow_derivatives(const std::vector<const Sample*>& rows, DType d,
                                        RunDerivatives run, double scale) {
  NarrowReport report;
  for (const Sample* s : rows) {
    const std::string what = fmt::format("{} {} at {}", s->where, s->op, d);
    try {
      const auto c = against_f64(*s, d);
      if (!c) continue;
      ++report.rows;
      const Tensors got = run(c->narrow);
      for (size_t i = 0; i < got.size(); ++i) {
        const Compare plain{nullptr, false, default_ceiling(d, Measured::derivatives), scale};
        if (!c->allowed[i].mismatch(got[i], plain).empty())
          note_need(s->op, d, Measured::derivatives);
        const std::string why = c->allowed[i].mismatch(
            got[i],
            {&report.ops[s->op], false, ceiling_of(s->op, d, Measured::derivatives), scale});
        if (!why.empty())
          report.wrong.push_back(fmt::format("{}, derivative {}, {}", what, i, why));
      }
    } catch (const std::exception& e) {
      report.wrong.push_back(fmt::format("{}: {}", what, e.what()));
    }
  }
  return report;
}

std::vector<const Sample*> all_rows() {
  std::vector<const Sample*> out;
  for (const Sample& s : samples()) out.push_back(&s);
  return out;
}

std::vector<const Sample*> row_of_each_op() {
  std::map<std::string, const Sample*> last;
  for (const Sample& s : samples())
    if (const auto c = make_case(s, DType::F64); c && has_derivatives(*c)) last[s.op] = &s;
  std::vector<const Sample*> out;
  for (const auto& [op, s] : last) out.push_back(s);
  return out;
}

}  // namespace rlx::testing
