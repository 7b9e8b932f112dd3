// Passes: text cases, every rule's two cases, values before and after, the runner and pipelines.
#include "rlx/passes/passes.h"

#include <gtest/gtest.h>

#include <random>

#include "rlx/ops/evaluate.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/named_passes.h"
#include "text_cases.h"

namespace rlx {
namespace {

using text_cases::Case;
using text_cases::File;
using text_cases::updating;

Graph run_case(const Case& c, PassReport* report = nullptr) {
  return run_passes(parse(c.input), parse_pipeline(c.passes),
                    {.fast_math = c.fast_math, .report = report});
}

TEST(TextCases, ComeOutAsWritten) {
  for (File& file : text_cases::all()) {
    for (Case& c : file.cases) {
      SCOPED_TRACE(fmt::format("{}: {}", file.path.string(), c.title));
      std::string now;
      try {
        now = print(run_case(c));
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
        continue;
      }
      if (updating())
        c.expected = now;
      else
        EXPECT_EQ(now, c.expected);
    }
    if (updating()) text_cases::write(file);
  }
}

// Hits of a rule over all passes of a run.
int hits(const PassReport& report, std::string_view rule) {
  int n = 0;
  for (const PassRecord& r : report.passes)
    if (auto it = r.rules.hits.find(rule); it != r.rules.hits.end()) n += it->second;
  return n;
}

void expect_both_cases(std::string_view pass, const RuleSet& rules) {
  for (const Rule& rule : rules) {
    const auto path = text_cases::root() / pass / (std::string(rule.name) + ".txt");
    ASSERT_TRUE(std::filesystem::exists(path))
        << "rule " << rule.name << " has no text case " << path;
    int fires = 0, misses = 0;
    for (const Case& c : text_cases::read(path).cases) {
      SCOPED_TRACE(fmt::format("{}: {}", path.string(), c.title));
      PassReport report;
      run_case(c, &report);
      const bool fired = hits(report, rule.name) > 0;
      const bool should_fire = c.title.starts_with("fires");
      ASSERT_TRUE(should_fire || c.title.starts_with("near miss"));
      EXPECT_EQ(fired, should_fire);
      ++(should_fire ? fires : misses);
    }
    EXPECT_GT(fires, 0) << rule.name;
    EXPECT_GT(misses, 0) << rule.name;
  }
}

TEST(Rules, HaveACaseThatFiresAndANearMiss) {
  expect_both_cases("simplify", simplify_rules());
  expect_both_cases("recognise", recognise_rules());
  expect_both_cases("fuse_quantised", fuse_quantised_rules());
  expect_both_cases("canonicalise", canonicalise_rules());
  expect_both_cases("fold_scales", fold_scales_rules());
  expect_both_cases("named", named_fusion_rules());
}

TEST(Rules, HaveDistinctKebabNames) {
  std::set<std::string_view> names;
  for (const RuleSet* set : {&simplify_rules(), &recognise_rules(), &fuse_quantised_rules(),
                             &canonicalise_rules(), &fold_scales_rules(), &named_fusion_rules()})
    for (const Rule& r : *set) {
      EXPECT_TRUE(names.insert(r.name).second) << r.name;
      EXPECT_EQ(r.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz-"), r.name.npos) << r.name;
    }
}

TEST(Rules, EveryTextCaseOfARuleSetNamesARule) {
  for (const auto& [folder, rules] : {std::pair{"simplify", &simplify_rules()},
                                      {"recognise", &recognise_rules()},
                                      {"fuse_quantised", &fuse_quantised_rules()},
                                      {"canonicalise", &canonicalise_rules()},
                                      {"fold_scales", &fold_scales_rules()},
                                      {"named", &named_fusion_rules()}})
    for (const auto& entry : std::filesystem::directory_iterator(text_cases::root() / folder)) {
      const std::string stem = entry.path().stem().string();
      EXPECT_TRUE(std::any_of(rules->begin(), rules->end(), [&](const Rule& r) {
        return r.name == stem;
      })) << stem;
    }
}

// ---- values before and after

Tensor random_tensor(const Type& t, std::mt19937& random) {
  Tensor out(t.dtype, t.shape.sizes());
  std::uniform_real_distribution<double> real(-2, 2);
  std::uniform_int_distribution<int> small(0, 3);
  for (int64_t i = 0; i < out.elements(); ++i) {
    if (is_differentiable(t.dtype))
      out.set_float(i, real(random));
    else
      out.set_int(i, small(random));
  }
  return out;
}

NamedTensors random_leaves(const Graph& g, std::mt19937& random) {
  NamedTensors out;
  for (const Node& n : g.nodes)
    if (n.op == &op::input || n.op == &op::param)
      out[n.get<LeafAttrs>().name] = random_tensor(n.type(), random);
  return out;
}

void expect_same_values(const Graph& before, const Graph& after, bool exact, std::mt19937& random) {
  NamedTensors leaves = random_leaves(before, random), fewer;
  for (const Node& n : after.nodes)
    if (n.op == &op::input || n.op == &op::param)
      fewer[n.get<LeafAttrs>().name] = leaves.at(n.get<LeafAttrs>().name);
  const Tensors a = evaluate(before, leaves).outputs, b = evaluate(after, fewer).outputs;
  ASSERT_EQ(a.size(), b.size());
  for (size_t k = 0; k < a.size(); ++k) {
    ASSERT_EQ(a[k].type(), b[k].type());
    for (int64_t i = 0; i < a[k].elements(); ++i) {
      const Complex p = a[k].get_complex(i), q = b[k].get_complex(i);
      if (std::isnan(p.real()) && std::isnan(q.real())) continue;
      const double tolerance = exact ? 0 : 1e-5 * (1 + std::abs(p));
      ASSERT_TRUE(p == q || std::abs(p - q) <= tolerance)
          << "output " << k << " element " << i << ": " << p << " " << q;
    }
  }
}

TEST(TextCases, KeepTheirValues) {
  std::mt19937 random(7);
  for (const File& file : text_cases::all())
    for (const Case& c : file.cases) {
      SCOPED_TRACE(fmt::format("{}: {}", file.path.string(), c.title));
      const Pipeline pipeline = parse_pipeline(c.passes);
      const Graph given = parse(c.input);
      DimBinding dims;
      for (const std::string& symbol : given.symbols()) dims.emplace(symbol, 2);
      const Graph before = rlx::bind(given, dims);
      if (!std::all_of(pipeline.begin(), pipeline.end(),
                       [](const PassUse& u) { return u.pass->keeps_signature; }))
        continue;
      if (c.title.find("out of range") != c.title.npos) continue;
      // Round on purpose; precision_test and quantise_test have the bounds.
      if (c.passes.find("auto_mixed_precision") != c.passes.npos ||
          c.passes.find("insert_q_dq") != c.passes.npos)
        continue;
      // An op rounds otherwise than its definition written out, and so do weights with a scale in them.
      const bool exact = !c.fast_math && c.passes.find("recognise") == c.passes.npos &&
                         c.passes.find("fold_scales") == c.passes.npos &&
                         c.passes.find("fuse_") == c.passes.npos;
      expect_same_values(before, run_passes(before, pipeline, {.fast_math = c.fast_math}), exact,
                         random);
    }
}

// Random programs over a few shapes that broadcast, with constants that rules look for.
class RandomProgram {
 public:
  explicit RandomProgram(unsigned seed) : random_(seed), b_(fmt::format("random{}", seed)) {
    for (int i = 0; i < 3; ++i)
      values_.push_back(b_.input(fmt::format("x{}", i), {DType::F32, {3, 4}}));
    values_.push_back(b_.param("row", {DType::F32, {4}}));
    values_.push_back(b_.param("column", {DType::F32, {3, 1}}));
    for (double v : {0.0, -0.0, 1.0, -1.0, 2.0, 4.0}) values_.push_back(b_.constant(DType::F32, v));
  }

  Graph make(int steps) {
    for (int i = 0; i < steps; ++i) values_.push_back(step());
    for (int i = 0; i < 3; ++i) b_.output(values_[values_.size() - 1 - static_cast<size_t>(i)]);
    return b_.finish();
  }

 private:
  size_t pick(size_t n) { return random_() % n; }
  Value any() { return values_[pick(values_.size())]; }

  Value step() {
    const Value v = any(), w = any();
    const int64_t rank = b_.type(v).rank();
    switch (pick(14)) {
      case 0:
        return op::add(b_, v, like(v, w));
      case 1:
        return op::sub(b_, v, like(v, w));
      case 2:
        return op::mul(b_, v, like(v, w));
      case 3:
        return op::neg(b_, v);
      case 4:
        return op::select(b_, op::lt(b_, v, b_.constant_like(v, 0)), v, v);
      case 5:
        return op::maximum(b_, v, like(v, w));
      case 6:
        return op::tanh(b_, v);
      case 7:
        return fits(v, {3, 4}) ? broadcast_to(b_, v, {3, 4}) : op::neg(b_, v);
      case 8:
        return rank == 2 ? op::transpose(b_, v, {{1, 0}}) : op::square(b_, v);
      case 9:
        return rank ? op::reduce_max(b_, v, {{rank - 1}, pick(2) == 0}) : op::neg(b_, v);
      case 10:
        return rank == 2 ? halves(v) : op::abs(b_, v);
      case 11:
        return rank == 2 ? op::matmul(b_, op::transpose(b_, v, {{1, 0}}), v) : op::tanh(b_, v);
      case 12:
        return rank ? op::reshape(b_, v, {{b_.shape(v).elements()}}) : v;
      default:
        return op::cast(b_, op::cast(b_, v, {DType::F64}), {DType::F32});
    }
  }

  bool fits(Value v, const Shape& shape) { return broadcast_shapes(b_.shape(v), shape) == shape; }

  // w if it broadcasts with v, else a scalar.
  Value like(Value v, Value w) {
    return broadcast_shapes(b_.shape(v), b_.shape(w)) ? w : b_.constant_like(v, 1);
  }

  // Cut in two, turned round and padded back: what gradients of slices look like.
  Value halves(Value v) {
    const Shape s = b_.shape(v);
    const int64_t n = s[1].value(), cut = n / 2;
    const Value left = op::slice(b_, v, {{0, 0}, {s[0], cut}, {}}),
                right = op::slice(b_, v, {{0, cut}, s, {}});
    const Value zero = b_.constant_like(v, 0);
    return op::add(b_, op::pad(b_, op::tanh(b_, left), zero, {{0, 0}, {0, n - cut}}),
                   op::pad(b_, right, zero, {{0, cut}, {0, 0}}));
  }

  std::mt19937 random_;
  Builder b_;
  Values values_;
};

TEST(RandomPrograms, KeepTheirValuesUnderEveryPass) {
  std::mt19937 random(11);
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Graph g = RandomProgram(seed).make(24);
    for (const char* passes :
         {"simplify", "recognise", "canonicalise", "cse", "fold_constants",
          "simplify,canonicalise,fold_constants,cse", "fuse_matmul_bias_act",
          "fuse_shared_input_matmul", "mark_elementwise_regions",
          "mark_elementwise_regions(steps=3,inputs=3)",
          "mark_elementwise_regions,unfuse_elementwise_regions", "legalize_broadcast"}) {
      SCOPED_TRACE(fmt::format("seed {} under {}\n{}", seed, passes, print(g)));
      expect_same_values(g, run_passes(g, parse_pipeline(passes)), true, random);
    }
    SCOPED_TRACE(fmt::format("seed {} under the default pipeline", seed));
    expect_same_values(g, run_passes(g, default_pipeline(), {.fast_math = true}), false, random);
    if (HasFailure()) return;
  }
}

TEST(RandomPrograms, SettleUnderTheDefaultPipeline) {
  for (unsigned seed = 100; seed < 130; ++seed) {
    const Graph once = run_passes(RandomProgram(seed).make(30), default_pipeline());
    const Graph again = run_passes(once, parse_pipeline("simplify,canonicalise,cse,dead_code"));
    EXPECT_EQ(print(once), print(again));
  }
}

// ---- the runner and pipelines

Graph small() {
  Builder b("small");
  const Value v = b.input("x", {DType::F32, {4}});
  Label scope(b, "layer0");
  b.output(op::exp(b, op::mul(b, v, b.constant(DType::F32, 1))));
  return b.finish();
}

TEST(Runner, ReportsTimesNodesAndRules) {
  PassReport report;
  const Graph g = run_passes(small(), parse_pipeline("simplify, cse"), {.report = &report});
  ASSERT_EQ(report.passes.size(), 2u);
  EXPECT_EQ(report.passes[0].pass, "simplify");
  EXPECT_EQ(report.passes[0].nodes_before, 4);
  EXPECT_EQ(report.passes[0].nodes_after, 2);
  EXPECT_EQ(report.passes[0].rules.hits.at("mul-one"), 1);
  EXPECT_NE(report.to_string().find("mul-one"), std::string::npos);
  EXPECT_EQ(g.nodes.back().origin.label, "layer0");
}

TEST(Runner, DumpsAreNumberedAndReadBack) {
  const auto dir = std::filesystem::temp_directory_path() / "rlx_passes_test_dump";
  std::filesystem::remove_all(dir);
  const Graph g = run_passes(small(), parse_pipeline("simplify,cse"), {.dump_dir = dir.string()});
  for (const char* name : {"00-input.rlx", "01-simplify.rlx", "02-cse.rlx"})
    EXPECT_TRUE(std::filesystem::exists(dir / name)) << name;
  std::stringstream text;
  text << std::ifstream(dir / "02-cse.rlx").rdbuf();
  EXPECT_EQ(parse(text.str()), g);
  std::filesystem::remove_all(dir);
}

constexpr Pass kLosesAnOutput{"lose_output", "A broken pass.", [](Graph&& g, const PassOptions&) {
                                Graph out = std::move(g);
                                out.outputs.clear();
                                return out;
                              }};
constexpr Pass kBreaksAType{"break_type", "A broken pass.", [](Graph&& g, const PassOptions&) {
                              Graph out = std::move(g);
                              out.nodes.back().out[0].dtype = DType::F64;
                              return out;
                            }};

std::string code_of(FunctionRef<void()> f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.code() + ": " + e.message();
  }
  return "nothing raised";
}

TEST(Runner, CatchesBrokenPasses) {
  auto run = [](const Pass& p) {
    return code_of([&] { run_passes(small(), {p}); }, ErrorKind::internal);
  };
  EXPECT_EQ(run(kLosesAnOutput), "internal: lose_output: changed the signature of \"small\"");
  EXPECT_TRUE(run(kBreaksAType).starts_with("result-type: after break_type")) << run(kBreaksAType);
}

TEST(Pipelines, RoundTripAsText) {
  const std::string text = "simplify,grad(output=0,wrt=w|b),cse";
  EXPECT_EQ(to_string(parse_pipeline(text)), text);
  EXPECT_EQ(to_string(parse_pipeline(to_string(default_pipeline()))),
            to_string(default_pipeline()));
  EXPECT_TRUE(parse_pipeline(" ").empty());
}

TEST(Pipelines, MistakesAreNamed) {
  auto parsed = [](std::string_view text) {
    return code_of([&] { parse_pipeline(text); }, ErrorKind::user);
  };
  EXPECT_TRUE(parsed("simplfy").starts_with(
      "pass-unknown: there is no pass simplfy; passes are simplify,"));
  EXPECT_EQ(parsed("cse(x=1)"), "pass-option: pass cse: has no option x; allowed: none");
  EXPECT_EQ(parsed("grad(wtr=w)"),
            "pass-option: pass grad: has no option wtr; allowed: wrt, output, zero_missing; did "
            "you mean wrt?");
  EXPECT_EQ(parsed("grad(wrt=w,wrt=b)"), "pass-option: pass grad: option wrt is given twice");
  EXPECT_EQ(parsed("grad(wrt)"), "pipeline: pass grad: expected option=value, got \"wrt\"");
  EXPECT_EQ(parsed("grad(wrt=w"), "pipeline: pass grad: expected ')' at the end of \"grad(wrt=w\"");
  EXPECT_EQ(parsed("cse,,simplify"), "pipeline: expected the name of a pass in \"cse,,simplify\"");
}

TEST(Pipelines, PassesHaveNamesAndDocs) {
  for (const Pass* p : all_passes()) {
    EXPECT_EQ(find_pass(p->name), p);
    EXPECT_FALSE(p->doc.empty());
    for (const PassArgument& a : p->arguments)
      EXPECT_FALSE(a.doc.empty()) << p->name << " " << a.name;
  }
}

TEST(Pipelines, TransformOptionsAreChecked) {
  auto run = [](std::string_view text) {
    return code_of([&] { run_passes(small(), parse_pipeline(text)); }, ErrorKind::user);
  };
  EXPECT_EQ(run("grad"), "pass-option: wrt: \"small\" has no parameters; say wrt=name|name");
  EXPECT_EQ(run("grad(wrt=x,output=one)"), "pass-option: output: expected an integer, got \"one\"");
  EXPECT_EQ(run("grad(wrt=x,output=4294967296)"),
            "pass-option: output: expected an integer, got \"4294967296\"");
  EXPECT_EQ(run("jet(wrt=x,order=4294967297)"),
            "pass-option: order: expected an integer, got \"4294967297\"");
  EXPECT_EQ(run("grad(wrt=x,zero_missing=1)"),
            "pass-option: zero_missing: expected true or false, got \"1\"");
  EXPECT_EQ(run("vmap(size=3)"), "pass-option: vmap: say over=name|name:axis");
  EXPECT_EQ(run("vmap(over=x)"), "pass-option: vmap: say size=number or size=?symbol");
}

// ---- nodes that move towards their operands

// The only node of that op is the first behind the leaves, when the pass is done.
void expect_first(const Graph& g, std::string_view pass, OpRef op) {
  RewriteStats stats;
  PassOptions options;
  options.stats = &stats;
  const Graph out = run_pass(g, *find_pass(pass), options);
  EXPECT_EQ(stats.sweeps, 2) << pass;
  EXPECT_EQ(out.size(), g.size()) << pass;
  EXPECT_EQ(out.nodes[out.inputs().size() + out.params().size()].op, op.op) << pass;
}

TEST(Rules, ReshapesMoveToWeights) {
  Builder b("weights");
  Value v = b.param("w", {DType::F32, {6}});
  for (int i = 0; i < 64; ++i) v = op::tanh(b, v);
  b.output(op::reshape(b, v, {{6, 1, 1}}));
  expect_first(b.finish(), "fold_scales", op::reshape);
}

TEST(Rules, QuantizeMovesBehindArithmetic) {
  for (int length : {70, 3000}) {
    Builder b("codes");
    Value v = b.input("x", {DType::F32, {6, 6}});
    for (int i = 0; i < length; ++i)
      v = i % 2 ? op::reshape(b, v, {{6, 6}}) : op::transpose(b, v, {{1, 0}});
    b.output(op::quantize(b, v, {.scales = {0.5}, .zero_points = {0}}));
    expect_first(b.finish(), "fuse_quantised", op::quantize);
  }
}

TEST(Rules, ReshapesMoveToNorms) {
  for (int length : {64, 3000}) {
    Builder b("norms");
    Value v = b.input("x", {DType::F32, {2, 3, 8}});
    const Value gain = b.param("gain", {DType::F32, {8}}),
                shift = b.param("shift", {DType::F32, {8}});
    for (int i = 0; i < length; ++i) v = op::rms_norm(b, v, gain, shift, {2, 1e-5});
    b.output(op::reshape(b, v, {{6, 8}}));
    expect_first(b.finish(), "fuse_rms_norm_reshape", op::reshape);
  }
}

// ---- single passes

TEST(Legalise, KeepsWhatTheTargetHasAKernelFor) {
  Builder b("g");
  const Value v = b.input("x", {DType::F32, {2, 8}});
  b.output(op::softmax(b, op::gelu(b, v)));
  const Graph g =
      run_passes(b.finish(), {pass::legalise},
                 {.keeps = [](const Node& n, const Graph&) { return op::softmax.is(n); }});
  const auto count = [&](const OpDef* op) {
    return std::count_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.op == op; });
  };
  EXPECT_EQ(count(&op::softmax), 1);
  EXPECT_EQ(count(&op::gelu), 0);
}

TEST(Decompose, LeavesNoComposite) {
  Builder b("g");
  const Value v = b.input("x", {DType::F32, {2, 8}}), w = b.param("gamma", {DType::F32, {8}}),
              s = b.param("beta", {DType::F32, {8}});
  b.output(op::softmax(b, op::gelu(b, op::layer_norm(b, v, w, s))));
  const Graph before = b.finish(), after = run_passes(before, {pass::decompose});
  for (const Node& n : after.nodes) EXPECT_FALSE(n.op->decompose) << n.op->name;
  std::mt19937 random(3);
  expect_same_values(before, after, false, random);
}

TEST(FoldConstants, LeavesLargeResultsAlone) {
  Builder b("g");
  const Value row = b.constant(Tensor(DType::F32, {1, 256})),
              column = b.constant(Tensor(DType::F32, {256, 1}));
  b.output(op::add(b, row, column));
  const Graph g = run_passes(b.finish(), {pass::fold_constants});
  EXPECT_EQ(g.nodes.back().op, &op::add);
}

TEST(FoldConstants, LeavesLongWorkAlone) {
  Builder b("g");
  const Value x = b.constant(Tensor(DType::F32, {8, 1 << 18}));
  b.output(op::matmul(b, x, x, {.transpose_b = true}));
  const Value q = b.constant(Tensor(DType::F32, {1024, 64}));
  b.output(op::attention(b, q, q, q, {}));
  const Graph g = run_passes(b.finish(), {pass::fold_constants});
  EXPECT_EQ(g.node(g.outputs[0]).op, &op::matmul);
  EXPECT_EQ(g.node(g.outputs[1]).op, &op::attention);
}

TEST(FoldConstants, LeavesControlFlowAlone) {
  Builder body("body");
  const Value c = body.input("c", {DType::F32, {}});
  body.output(op::add(body, c, c));
  ScanAttrs attrs;
  attrs.body = Body(body.finish());
  attrs.length = int64_t{1} << 40;
  attrs.num_carries = 1;
  Builder b("g");
  b.output(b.emit(op::scan.def, attrs, Values{b.constant(DType::F32, 1)})[0]);
  const Graph g = run_passes(b.finish(), {pass::fold_constants});
  EXPECT_EQ(g.nodes.back().op, &op::scan);
}

TEST(Passes, KeepInputsAndUpdates) {
  Builder b("g");
  const Value v = b.input("x", {DType::F32, {4}});
  b.input("unused", {DType::I64, {2}});
  const Value w = b.param("w", {DType::F32, {4}});
  b.update("w", op::mul(b, op::add(b, w, v), b.constant(DType::F32, 1)));
  const Graph g = run_passes(b.finish(), default_pipeline());
  EXPECT_EQ(g.inputs().size(), 2u);
  ASSERT_EQ(g.updates.size(), 1u);
  EXPECT_EQ(g.node(g.updates[0].value).op, &op::add);
}

}  // namespace
}  // namespace rlx
