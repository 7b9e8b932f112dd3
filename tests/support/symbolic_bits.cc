#include "symbolic_bits.h"

#include <fstream>
#include <sstream>

#include "cpu_checks.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {

namespace {

// The sizes of a round. The row's own; equal ones as small as numbers in attributes; then by turns those beside and on
// multiples of what kernels step by, other ones for each symbol.
int64_t size_at(int round, size_t symbol, int64_t own) {
  if (round == 0) return own;
  if (round == 1 || round == 2) return round + 1;
  if (round == SymbolicBits::kRounds - 1) return 64;
  constexpr int64_t kSizes[] = {130, 17, 300, 5, 70, 33};
  return kSizes[(static_cast<size_t>(round - 3) + 2 * symbol) % std::size(kSizes)];
}

int64_t leaf_elements(const Graph& g, const DimBinding& sizes) {
  int64_t out = 0;
  for (Value v : g.inputs()) {
    int64_t elements = 1;
    for (const Dim& d : g.type(v).shape) elements *= d.bind(sizes).value();
    out += elements;
  }
  return out;
}

// Symbols of one size have one in every round. The largest sizes are lowered until the leaves have no more elements than
// so many.
DimBinding sizes_of(const SymbolicCase& s, int round, int64_t most) {
  std::set<int64_t> own;
  for (const auto& [name, size] : s.sizes) own.insert(size);
  std::map<int64_t, int64_t> chosen;  // by the row's size
  for (int64_t size : own) chosen[size] = size_at(round, chosen.size(), size);
  const auto sizes = [&] {
    DimBinding out = s.sizes;
    for (auto& [name, size] : out) size = chosen.at(size);
    return out;
  };
  while (leaf_elements(s.graph, sizes()) > most) {
    int64_t& largest =
        std::max_element(chosen.begin(), chosen.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        })->second;
    if (largest <= 3) break;
    largest = largest / 2 + 1;
  }
  return sizes();
}

bool has_gradient(const Case& c) {
  if (!c.node().op->not_differentiable.empty() || c.swept.empty() || !is_differentiable(c.dtype))
    return false;
  const Types out = c.graph.output_types();
  return std::any_of(out.begin(), out.end(),
                     [](const Type& t) { return is_differentiable(t.dtype); });
}

// The results, or the code of the error.
std::pair<Tensors, std::string> run_bits(CompiledGraph& f, const Graph& bound,
                                         const Tensors& leaves) {
  NamedTensors in;
  const Values inputs = bound.inputs();
  for (size_t i = 0; i < inputs.size(); ++i)
    in[bound.node(inputs[i]).get<LeafAttrs>().name] = leaves[i];
  try {
    return {f.run(in), ""};
  } catch (const Error& e) {
    return {{}, e.code()};
  }
}

std::string first_difference(const Tensor& got, const Tensor& want) {
  if (!(got.type() == want.type())) return fmt::format("{} instead of {}", got.type(), want.type());
  int64_t differ = 0, first = -1;
  const auto bytes = static_cast<size_t>(size_of(want.dtype()));
  for (int64_t i = 0; i < want.elements(); ++i)
    if (std::memcmp(got.raw() + i * size_of(want.dtype()), want.raw() + i * size_of(want.dtype()),
                    bytes) != 0) {
      if (first < 0) first = i;
      ++differ;
    }
  const auto number = [&](const Tensor& t) {
    const std::complex<double> z = t.get_complex(first);
    return is_complex(t.dtype()) ? fmt::format("{} + {}i", z.real(), z.imag())
                                 : fmt::format("{}", z.real());
  };
  return fmt::format("{} of {} elements, the first is {}: {} instead of {}", differ,
                     want.elements(), first, number(got), number(want));
}

}  // namespace

SymbolicBits::SymbolicBits(Options options) : options_(std::move(options)) {
  std::ifstream file(RLX_SOURCE_DIR "/tests/symbolic_bits.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    Line l;
    std::istringstream words(line);
    words >> l.op >> l.part;
    std::getline(words >> std::ws, l.why);
    EXPECT_TRUE(l.part == "value" || l.part == "gradient" || l.part == "both") << line;
    EXPECT_FALSE(l.why.empty()) << line;
    EXPECT_TRUE(op_table().find(l.op)) << line;
    EXPECT_FALSE(line_for(l.op)) << l.op << " has two lines";
    lines_.push_back(std::move(l));
  }
}

std::string SymbolicBits::Count::to_string() const {
  return fmt::format(
      "{} programs at some sizes compared, {} of them listed; {} refused, {} compiled for each "
      "size",
      compared, listed, refused, per_size);
}

SymbolicBits::Line* SymbolicBits::line_for(const std::string& op) {
  for (Line& l : lines_)
    if (l.op == op) return &l;
  return nullptr;
}

std::vector<std::string> SymbolicBits::unneeded() const {
  std::vector<std::string> out;
  for (const Line& l : lines_) {
    if (!tried_.contains(l.op)) continue;
    if (l.part != "gradient" && !l.needed_value) out.push_back(l.op + " value");
    if (l.part != "value" && !l.needed_gradient) out.push_back(l.op + " gradient");
  }
  return out;
}

void SymbolicBits::compare(const Case& c, const Fixed& want, const Tensors& got, bool gradient,
                           const std::string& what, FunctionRef<Graph()> definition) {
  ++count_.compared;
  ASSERT_EQ(got.size(), want.results.size()) << what;
  bool listed = false;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].same_bits(want.results[i])) continue;
    const bool of_gradient = i >= c.graph.outputs.size();
    const std::string_view part = of_gradient ? "gradient" : "value";
    Line* line = line_for(c.sample->op);
    if (line && (line->part == part || line->part == "both")) {
      (of_gradient ? line->needed_gradient : line->needed_value) = true;
      listed = true;
    } else if (reported_.emplace(c.sample->op, of_gradient).second) {
      ADD_FAILURE() << c.sample->op << " " << part << " has no line in symbolic_bits.txt: " << what
                    << ", result " << i << ": " << first_difference(got[i], want.results[i]);
    }
  }
  if (!listed) return;
  ++count_.listed;
  const CpuCase as_case{definition(), want.leaves, c.sample->op, what, gradient};
  for (const std::string& why : against_reference(as_case, got))
    ADD_FAILURE() << what << ", " << why;
}

void SymbolicBits::check(const Case& c, const SymbolicCase& s, bool gradient,
                         const std::string& what, Fixeds& fixed) {
  const auto program = [&](const Graph& g) {
    return gradient ? vjp(g, names(c.swept), {.zero_missing = true}) : g;
  };
  std::vector<std::pair<DimBinding, Graph>> at;
  for (int round : options_.rounds) try {
      const DimBinding sizes = sizes_of(s, round, options_.elements);
      at.emplace_back(sizes, program(bind_checked(s.graph, sizes)));
    } catch (const Error&) {
      ++count_.refused;  // a product of sizes in a reshape, say
    }
  // A symbol that meets a number has one size.
  if (std::all_of(at.begin(), at.end(), [&](const auto& one) { return one.first == s.sizes; }))
    return;
  std::optional<CompiledGraph> f;
  try {
    f = Session("cpu").compile(program(s.graph), {.threads = 2});
  } catch (const Error& e) {
    ++count_.refused;
    EXPECT_NE(e.kind(), ErrorKind::internal) << what << ": " << e.what();
    return;
  }
  if (!f->info().per_size.empty()) {
    ++count_.per_size;
    return;
  }
  for (const auto& [sizes, bound] : at) {
    f->set_sizes(sizes);  // some no operand has
    auto want = std::find_if(fixed.begin(), fixed.end(),
                             [&, &bound = bound](const Fixed& one) { return one.graph == bound; });
    if (want == fixed.end()) {
      want = fixed.insert(want, {bound, leaves_for(c, bound), {}, {}});
      CompiledGraph alone = Session("cpu").compile(bound, {.threads = 2});
      std::tie(want->results, want->error) = run_bits(alone, bound, want->leaves);
    }
    const auto [got, error] = run_bits(*f, bound, want->leaves);
    const std::string where = fmt::format("{} at{}", what, text_of(sizes));
    if (error == "dim-guard") {
      ++count_.refused;
    } else if (!error.empty() || !want->error.empty()) {
      EXPECT_EQ(error, want->error) << where;
    } else {
      // What rounding can do to the definition for symbols: that for numbers may have constants where it computes.
      compare(c, *want, got, gradient, where, [&, &sizes = sizes] {
        return bind_checked(optimised_symbolically(program(s.graph)), sizes);
      });
    }
  }
}

void SymbolicBits::add(const Sample& s) {
  std::optional<Case> c = make_case(s, options_.dtype);
  for (const DTypeInfo& d : kDTypes)
    if (!c) c = make_case(s, d.dtype);
  if (!c) return;
  Fixeds values, gradients;
  for (Symbols form : options_.forms) {
    std::optional<SymbolicCase> with;
    try {
      with = with_symbols(*c, form);
    } catch (const Error&) {
      ++count_.refused;  // SymbolicSurvey looks at the error
    }
    if (!with) continue;
    tried_.insert(s.op);
    const bool gradient = has_gradient(*c);
    const std::string what = fmt::format("{} with symbols for {}", row(*c), name(form));
    try {
      if (gradient) check(*c, *with, true, "gradient of " + what, gradients);
      if (!gradient || options_.values_alone) check(*c, *with, false, what, values);
    } catch (const std::exception& e) {
      ADD_FAILURE() << what << ": " << e.what();
    }
  }
}

}  // namespace rlx::testing
