// Programs at the ends of what code generation and lowering take: values that are shared on many paths, sizes of none,
// more questions of sizes than there are ways, regions that are none, integers with more digits than a double.
#include <gtest/gtest.h>

#include <cmath>

#include "../support/expect_error.h"
#include "rlx/compile/compile.h"
#include "rlx/ir/size_questions.h"
#include "rlx/ir/text.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/runtime/runtime.h"
#include "rlx/stages/json.h"

namespace rlx {
namespace {

constexpr DType f32 = DType::F32;

Tensor ramp(const Ints& sizes) {
  Tensor t(f32, sizes);
  for (int64_t i = 0; i < t.elements(); ++i)
    t.set_float(i, 0.125 * static_cast<double>(i % 61) - 3);
  return t;
}

void expect_near(const Tensor& got, const Tensor& want, double tolerance) {
  ASSERT_EQ(got.type(), want.type());
  for (int64_t i = 0; i < want.elements(); ++i)
    ASSERT_NEAR(got.get_float(i), want.get_float(i), tolerance * (1 + std::abs(want.get_float(i))))
        << i;
}

// Each value is read twice by the next: 2^60 paths lead to the first. Behind the mean nothing can be kept for a later
// pass; rows too long for a stage in front of it.
TEST(CodegenLimits, SharedValuesAroundAReduction) {
  for (const auto& [rows, length, behind] :
       {std::tuple<int64_t, int64_t, bool>{8, 64, true}, {3, 60000, false}}) {
    Builder b("shared");
    const Value x = b.input("x", {f32, {rows, length}});
    const auto mean = [&](Value v) {
      const Value sum = op::reduce_sum(b, v, {{1}, true});
      return op::mul(b, sum, b.constant(f32, 1 / static_cast<double>(length)));
    };
    const auto doubled = [&](Value v) {
      for (int i = 0; i < 40; ++i)
        v = op::mul(b, op::add(b, v, op::sin(b, v)), b.constant(f32, 0.5));
      return v;
    };
    if (behind) {
      b.output(doubled(op::sub(b, x, mean(x))));
    } else {
      const Value v = doubled(x), d = op::sub(b, v, mean(v));
      b.output(op::reduce_sum(b, op::mul(b, d, d), {{1}}));
    }
    const Graph g = b.finish();
    const Tensor in = ramp({rows, length});
    CompiledGraph f = Session("cpu").compile(g);
    expect_near(f.run({{"x", in}})[0], evaluate(g, {{"x", in}}).outputs[0], 2e-5);
  }
}

// A reduction in parts, of which there are none along another axis.
TEST(CodegenLimits, PartsOfNothing) {
  Builder b("parts");
  const Dim n = Dim::symbol("n");
  const Value x = b.input("x", {f32, {40000, 1}}), y = b.input("y", {f32, {n}});
  b.output(op::reduce_sum(b, op::mul(b, x, y), {{0, 1}}));
  b.output(op::reduce_max(b, op::mul(b, x, y), {{0, 1}}));
  CompiledGraph f = Session("cpu").compile(b.finish());
  const Tensor ones = Tensor::full(f32, {40000, 1}, 1);
  for (int64_t size : {3, 0, 7, 0}) {
    const Tensors out = f.run({{"x", ones}, {"y", Tensor::full(f32, {size}, 1)}});
    EXPECT_EQ(out[0].get_float(0), 40000.0 * static_cast<double>(size));
    EXPECT_EQ(out[1].get_float(0), size ? 1 : -INFINITY);
  }
}

// Rolls: each joins two parts of the one before.
TEST(CodegenLimits, JoinsOfPartsOfOneValue) {
  Builder b("rolls");
  const Value x = b.input("x", {f32, {8, 8}}), y = b.input("y", {f32, {Dim::symbol("n")}});
  Value v = x;
  int64_t moved[2] = {0, 0};
  for (int i = 0; i < 60; ++i) {
    const auto axis = static_cast<size_t>(i % 2);
    const int64_t by = 1 + i * 3 % 5;
    Shape cut{0, 0}, end{8, 8};
    cut[axis] = Dim(by);
    Shape begin = cut, low{0, 0}, upto{8, 8};
    upto[axis] = Dim(by);
    const std::vector<Value> parts{op::slice(b, v, {.start = begin, .limit = end}),
                                   op::slice(b, v, {.start = low, .limit = upto})};
    v = b.emit(op::concat.def, AxisAttrs{static_cast<int64_t>(axis)}, parts)[0];
    moved[axis] += by;
  }
  b.output(v);
  b.output(op::relu(b, y));
  CompiledGraph f = Session("cpu").compile(b.finish());
  Tensor in(f32, {8, 8});
  for (int64_t i = 0; i < 64; ++i) in.set_float(i, static_cast<double>(i));
  for (int64_t n : {5, 2}) {
    const Tensor out = f.run({{"x", in}, {"y", ramp({n})}})[0];
    for (int64_t i = 0; i < 64; ++i)
      EXPECT_EQ(out.get_float(i), in.get_float((i / 8 + moved[0]) % 8 * 8 + (i + moved[1]) % 8));
  }
}

// Four of a weight, from a place that sizes say; turned round and joined with another weight they are still not those of
// all sizes.
TEST(CodegenLimits, JoinsOfViewsThatSizesPlace) {
  Builder b("views");
  const Dim n = Dim::symbol("n");
  const Value x = b.input("x", {f32, {n}}), w = b.param("w", {f32, {100}}),
              u = b.param("u", {f32, {4}});
  const Value four = op::reverse(b, op::slice(b, w, {.start = {n}, .limit = {n + Dim(4)}}), {{0}});
  const std::vector<Value> parts{four, u};
  b.output(b.emit(op::concat.def, AxisAttrs{0}, parts)[0]);
  b.output(op::relu(b, x));
  CompiledGraph f = Session("cpu").compile(b.finish());
  Tensor weight(f32, {100});
  for (int64_t i = 0; i < 100; ++i) weight.set_float(i, static_cast<double>(i));
  f.set_params({{"w", weight}, {"u", Tensor::full(f32, {4}, -1)}});
  for (int64_t size : {1, 5, 9, 5}) {
    const Tensor out = f.run({{"x", ramp({size})}})[0];
    for (int64_t i = 0; i < 8; ++i)
      EXPECT_EQ(out.get_float(i), i < 4 ? static_cast<double>(size + 3 - i) : -1) << size;
  }
}

// Which of the eight axes is the longest has 2^7 answers: there is no code for all sizes, but for each its own.
TEST(CodegenLimits, MoreWaysThanThereAreKernelsFor) {
  Builder b("axes");
  Shape dims, reversed;
  Ints perm, axes;
  for (int i = 0; i < 8; ++i)
    dims.push_back(Dim::symbol(std::string(1, static_cast<char>('a' + i))));
  for (int64_t i = 8; i-- > 0;) {
    reversed.push_back(dims[static_cast<size_t>(i)]);
    perm.push_back(i);
    axes.insert(axes.begin(), i);
  }
  const Value x = b.input("x", {f32, dims}), y = b.input("y", {f32, reversed});
  b.output(op::reduce_sum(b, op::add(b, x, op::transpose(b, y, {perm})), {axes}));
  CompiledGraph f = Session("cpu").compile(b.finish());
  for (const Ints& sizes : {Ints{2, 3, 2, 1, 2, 3, 1, 2}, {1, 1, 1, 1, 1, 1, 1, 70000}}) {
    const Tensor ones = Tensor::full(f32, sizes, 1),
                 twos = Tensor::full(f32, Ints(sizes.rbegin(), sizes.rend()), 2);
    EXPECT_EQ(f.run({{"x", ones}, {"y", twos}})[0].get_float(0),
              3.0 * static_cast<double>(ones.elements()));
  }
  EXPECT_NE(f.info().per_size.find("more than 64 ways"), std::string::npos) << f.info().per_size;
  expect_error("size-ways", "more than 64 ways", [&] {
    all_answers([&](SizeQuestions& q) {
      for (const Dim& d : dims) q.at_most(d, Dim(100));
      return 0;
    });
  });
}

// Fused programs come from files, too. `what`: the inputs' and the region's types, the body, kind and so on.
struct BadRegion {
  const char *input, *body, *attributes, *result, *why;
};

TEST(CodegenLimits, RegionsThatAreNone) {
  const BadRegion bad[] = {
      {"[2, 3]", "%1 = softmax(%0) {axis=1} : [2, 3] f32", "kind=elementwise, domain=[2, 3]",
       "[2, 3]", "softmax has no scalar form"},
      {"[64, 4]", "%1 = reshape(%0) {shape=[4, 64]} : [4, 64] f32", "domain=[4, 64]", "[4, 64]",
       "reshape reads what the region does not compute"},
      {"[8, 7, 6, 5]", "%1 = reshape(%0) {shape=[1680]} : [1680] f32", "domain=[1680]", "[1680]",
       "reshape reads what"},
      {"[4]", "%1 = broadcast(%0) {shape=[2, 4]} : [2, 4] f32", "domain=[2, 4]", "[2, 4]",
       "broadcast reads what"},
      {"[2, 3]", "%1 = exp(%0) : [2, 3] f32", "domain=[3, 2]", "[2, 3]",
       "exp of [2, 3] in a region"},
      {"[2, 3]", "%1 = exp(%0) : [2, 3] f32", "domain=[2, 3], axes=[1]", "[2, 3]",
       "kind elementwise has 1 axes"},
      {"[2, 3]", "%1 = reduce_sum(%0) {axes=[1]} : [2] f32", "domain=[2, 3], kind=row", "[2]",
       "kind row has 0 axes"},
      {"[2, 3]", "%1 = reduce_sum(%0) {axes=[0]} : [3] f32", "domain=[2, 3], kind=row, axes=[0]",
       "[3]", "not its last ones"},
      {"[2, 3]", "%1 = reduce_sum(%0) {axes=[1]} : [2] f32", "domain=[], kind=row, axes=[1]", "[2]",
       "not its last ones"},
      {"[2, 3]", "%1 = exp(%0) : [2, 3] f32", "domain=[2, 3], kind=row, axes=[1, 1]", "[2, 3]",
       "not its last ones"},
      {"[2, 3]", "%1 = reduce_sum(%0) {axes=[0]} : [3] f32", "domain=[2, 3], kind=column, axes=[5]",
       "[3]", "none of it"},
      {"[2, 3]", "%1 = reduce_sum(%0) {axes=[1]} : [2] f32", "domain=[2, 3], kind=column, axes=[0]",
       "[2]", "reduces the axes [0]"},
      {"[2, 3]", "%1 = reduce_mean(%0) {axes=[1]} : [2] f32", "domain=[2, 3], kind=row, axes=[1]",
       "[2]", "reduce_mean"},
      {"[3]", "%1 = exp(%0) : [3] f32", "domain=[2, 3]", "[3]", "exp of [3]"},
      {"[2, 3]",
       "%1 = constant() {value=f32[3]{1, 2, 3}} : [3] f32\n    %2 = add(%0, %1) : [2, 3] f32",
       "domain=[2, 3]", "[2, 3]", "a constant of a region is one number"},
  };
  const auto backend = backend_for("cpu");
  for (const BadRegion& r : bad) {
    const bool two = std::string_view(r.body).find("%2 =") != std::string_view::npos;
    const std::string text = fmt::format(
        "graph @g {{\n  %0 = input() {{name=\"x\", shape={}}} : {} f32\n  %1 = region(%0) "
        "{{body=graph @r "
        "{{\n    %0 = input() {{name=\"x0\", shape={}}} : {} f32\n    {}\n    return %{}\n  }}, "
        "{}}} : {} "
        "f32\n  return %1\n}}\n",
        r.input, r.input, r.input, r.input, r.body, two ? 2 : 1, r.attributes, r.result);
    SCOPED_TRACE(text);
    const Graph g = parse(text);
    for (const CompileStage from : {CompileStage::optimised, CompileStage::fused})
      expect_error("region-form", r.why,
                   [&] { lower_to(CompileStage::lir, MirModule(g), *backend, {}, from); });
    // At an earlier stage a region means its body.
    Session("cpu").compile(g);
  }
}

// LIR of files holds regions, too.
TEST(CodegenLimits, RegionsOfLirThatAreNone) {
  Builder b("g");
  b.output(op::exp(b, b.input("x", {f32, {2, 3}})));
  const auto backend = backend_for("cpu");
  const GraphModule m = lower_to(CompileStage::lir, MirModule(b.finish()), *backend);
  std::string text = lir_to_json(*m.as_lir());
  const std::string there = "domain=[2, 3]";
  ASSERT_NE(text.find(there), std::string::npos);
  text.replace(text.find(there), there.size(), "domain=[3, 3]");
  const auto target = backend->make_target({});
  expect_error("region-form", "exp of [2, 3]", [&] { lir_from_json(text, target.get()); });
  const GraphModule without = lir_from_json(text, nullptr);
  expect_error("region-form", "exp of [2, 3]",
               [&] { lower_to(CompileStage::lir, without, *backend, {}, CompileStage::lir); });
}

// Passes remove reductions along no axes; who starts behind them may have some.
TEST(CodegenLimits, ReductionsAlongNoAxes) {
  Builder b("g");
  const Value x = b.input("x", {f32, {2, 3}});
  b.output(op::neg(b, op::reduce_max(b, op::exp(b, x), {Ints{}})));
  const Graph g = b.finish();
  const auto backend = backend_for("cpu");
  const GraphModule fused =
      lower_to(CompileStage::fused, MirModule(g), *backend, {}, CompileStage::optimised);
  const GraphModule lir = lower_to(CompileStage::lir, fused, *backend, {}, CompileStage::fused);
  const Tensor in = ramp({2, 3});
  CompiledGraph f = Session("cpu").compile(lir);
  expect_near(f.run({{"x", in}})[0], evaluate(g, {{"x", in}}).outputs[0], 1e-6);
}

// What is cast once is rounded once, whatever lies between in the machine.
TEST(CodegenLimits, IntegersBeyondFloats) {
  Builder b("wide");
  const Value n = b.input("n", {DType::I64, {6}}),
              rows = b.input("rows", {f32, {Dim::symbol("r"), 0}});
  for (DType to : {DType::BF16, DType::F32, DType::F64}) b.output(op::cast(b, n, {to}));
  b.output(b.emit(op::dim_size.def, DimSizeAttrs{Dim::symbol("r"), DType::BF16}, Values{})[0]);
  b.output(rows);
  const Graph g = b.finish();
  const int64_t tie = (int64_t{1} << 62) + (int64_t{1} << 54);  // between two numbers of bf16
  const Tensor in = Tensor::from<int64_t>({6}, {tie, tie + 1, tie - 1, -tie - 1, -tie + 1,
                                                (int64_t{1} << 60) + (int64_t{1} << 52) + 1});
  CompiledGraph f = Session("cpu").compile(g);
  const double below = 0x1p62, above = 0x1p62 + 0x1p55;
  for (const int64_t r : {16842753, 16973823}) {
    const Tensors got = f.run({{"n", in}, {"rows", Tensor(f32, {r, 0})}}),
                  want = evaluate(bind(g, {{"r", r}}), {{"n", in}, {"rows", Tensor(f32, {r, 0})}})
                             .outputs;
    for (const Tensors* out : {&got, &want}) {
      const double nearest[] = {below, above, below, -above, -below, 0x1p60 + 0x1p53};
      for (int64_t i = 0; i < 6; ++i) {
        EXPECT_EQ((*out)[0].get_float(i), nearest[i]) << i;
        EXPECT_EQ((*out)[1].get_float(i), static_cast<double>(static_cast<float>(in.get_int(i))));
        EXPECT_EQ((*out)[2].get_float(i), static_cast<double>(in.get_int(i)));
      }
      EXPECT_EQ((*out)[3].get_float(0), 16908288.0);  // 129 * 2^17
    }
  }
}

TEST(CodegenLimits, CountsBeyondFloats) {
  Builder b("counts");
  const Value counts = b.emit(op::iota.def, IotaAttrs{DType::BF16, {16842760}, 0}, Values{})[0];
  b.output(op::slice(b, op::mul(b, counts, b.constant(DType::BF16, 2)),
                     {.start = {16842750}, .limit = {16842758}}));
  const Tensor out = Session("cpu").compile(b.finish()).run({})[0];
  for (int64_t i = 0; i < 8;
       ++i)  // the tie of 2^24 and 2^24 + 2^17 is 16842752, and goes to the even one
    EXPECT_EQ(out.get_float(i), 2 * (i < 3 ? 0x1p24 : 0x1p24 + 0x1p17)) << i;
}

}  // namespace
}  // namespace rlx
