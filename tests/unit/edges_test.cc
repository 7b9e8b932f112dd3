// Cases that random programs meet once in a thousand, or never: what a mutant of scripts/mutants.txt lived through gets its
// test here.
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <random>
#include <set>

#include "../support/samples.h"
#include "rlx/formats/checkpoint.h"
#include "rlx/formats/npy.h"
#include "rlx/ops/indexing/sorting.h"
#include "rlx/ops/movement/shaping.h"
#include "rlx/ops/random/draws.h"
#include "rlx/passes/passes.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

namespace fs = std::filesystem;

std::string code_of(FunctionRef<void()> f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(e.code());
  }
  return "no error";
}

Tensor numbered(DType d, const Ints& sizes) {
  Tensor t(d, sizes);
  for (int64_t i = 0; i < t.elements(); ++i) {
    if (is_float(d))
      t.set_float(i, static_cast<double>(i % 251) * 0.25 - 20);
    else
      t.set_int(i, i % 100);
  }
  return t;
}

Tensors on_cpu(const Graph& g, const NamedTensors& in,
               CompileOptions options = {.threads = 2, .poison = true}) {
  return Session("cpu").compile(g, options).run(in);
}

void expect_as_reference(const Graph& g, const NamedTensors& in) {
  const Tensors want = evaluate(g, in).outputs;
  const Tensors got = on_cpu(g, in);
  for (size_t k = 0; k < want.size(); ++k)
    EXPECT_TRUE(got[k].same_bits(want[k])) << "result " << k << "\n" << print(g);
}

// ---- files

std::string npy(const std::string& header, const std::string& data) {
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(header.size());
  out += static_cast<char>(header.size() >> 8);
  return out + header + data;
}

TEST(NpyEdges, FortranOrderAtEveryRank) {
  for (const Ints& sizes : {Ints{2, 3, 4}, Ints{3, 1, 2, 5}, Ints{2, 3, 4, 2, 3}}) {
    const int64_t n = product(sizes);
    Tensor want(DType::I32, sizes);
    std::string data(static_cast<size_t>(4 * n), 0);
    int64_t at = 0;
    for_each_index(sizes, [&](const Ints& index) {
      int64_t fortran = 0, step = 1;
      for (size_t a = 0; a < sizes.size(); ++a) fortran += index[a] * step, step *= sizes[a];
      const auto v = static_cast<int32_t>(at * 7 + 3);
      want.set_int(at++, v);
      std::memcpy(data.data() + 4 * fortran, &v, 4);
    });
    const std::string header = fmt::format(
        "{{'descr': '<i4', 'fortran_order': True, 'shape': ({},), }}\n", fmt::join(sizes, ", "));
    EXPECT_TRUE(parse_npy(npy(header, data)).same_bits(want))
        << fmt::format("{}", fmt::join(sizes, ", "));
  }
}

// A flipped bit anywhere, beyond the first chunk of a mebibyte too.
TEST(Checksums, CoverEveryChunkOfACheckpoint) {
  const fs::path path = fs::temp_directory_path() / fmt::format("rlx_edges_{}.ckpt", ::getpid());
  save_checkpoint(path, {{"w", numbered(DType::F32, {900000})}});
  std::string bytes = read_file(path);
  fs::remove(path);
  ASSERT_GT(bytes.size(), size_t{3} << 20);
  EXPECT_EQ(parse_checkpoint(bytes, "it").size(), 1u);
  for (size_t at = 100; at < bytes.size(); at += 300007) {
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    EXPECT_EQ(code_of([&] { parse_checkpoint(bytes, "it"); }), "checksum") << at;
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
  }
}

TEST(Checksums, CoverAllOfALargeGraph) {
  Builder b("large");
  b.output(b.constant(numbered(DType::F32, {600000})));
  std::string bytes = to_bytes(b.finish());
  ASSERT_GT(bytes.size(), size_t{2} << 20);
  for (size_t at = 60; at < bytes.size() - 8; at += 300007) {
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    EXPECT_EQ(code_of([&] { from_bytes(bytes); }), "graph-checksum") << at;
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
  }
  EXPECT_EQ(from_bytes(bytes).size(), 1);
}

TEST(Utf8Edges, SurrogatesOverlongFormsAndZeroAreRefused) {
  for (std::string_view bad :
       {"\xed\xa0\x80", "\xed\xbf\xbf", "\xc0\xaf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "a\x80", "\xe2\x82"})
    EXPECT_FALSE(is_utf8(bad)) << ::testing::PrintToString(bad);
  EXPECT_FALSE(is_utf8(std::string_view("a\0b", 3)));
  for (std::string_view good : {"", "plain", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf",
                                "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(is_utf8(good)) << ::testing::PrintToString(good);
}

TEST(VarintEdges, OnlyTheShortestFormOfEachNumber) {
  for (uint64_t v : {0ull, 127ull, 128ull, 16383ull, 16384ull, 1ull << 62, ~0ull}) {
    ByteWriter w;
    w.varint(v);
    EXPECT_EQ(ByteReader(w.out, "it").varint(), v);
    w.out.back() = static_cast<char>(w.out.back() | 0x80);
    w.out += '\0';  // the same number, a byte longer
    EXPECT_EQ(code_of([&] { ByteReader(w.out, "it").varint(); }), "varint") << v;
  }
  EXPECT_EQ(code_of([&] { ByteReader(std::string(9, '\xff') + '\x02', "it").varint(); }), "varint");
}

TEST(ParserEdges, CommasSeparate) {
  const std::string good =
      "graph @f {\n %0 = input() {name=\"x\", dtype=f32, shape=[2, 3]} : [2, 3] f32\n"
      " %1 = add(%0, %0) : [2, 3] f32\n return %1, %0\n}\n";
  EXPECT_EQ(parse(good).size(), 2);
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"(%0, %0)", "(%0, %0,)"},
                                                        {"(%0, %0)", "(, %0, %0)"},
                                                        {"(%0, %0)", "(%0 %0)"},
                                                        {"[2, 3]} ", "[2, 3,]} "},
                                                        {"shape=[2, 3]}", "shape=[2, 3],}"},
                                                        {"return %1, %0", "return %1, %0,"},
                                                        {"dtype=f32, ", "dtype=f32, dtype=f32, "}})
    EXPECT_EQ(code_of([&] { parse(testing::replace_all(good, from, to)); }), "parse") << to;
}

// ---- shapes

TEST(ShapeEdges, KnownSizesWinOverSymbols) {
  const Dim n = Dim::symbol("n");
  EXPECT_EQ(broadcast_shapes({n}, {3}), (Shape{3}));
  EXPECT_EQ(broadcast_shapes({3}, {n}), (Shape{3}));
  EXPECT_EQ(broadcast_shapes({n, 1}, {4}), (Shape{n, 4}));
  EXPECT_EQ(broadcast_shapes({2}, {3}), std::nullopt);
}

TEST(ShapeEdges, DivisionIsExactOrRefused) {
  const Dim n = Dim::symbol("n");
  EXPECT_EQ(Dim(12).divide(4), Dim(3));
  EXPECT_EQ(Dim(7).divide(2), std::nullopt);
  EXPECT_EQ((n * 4 + 6).divide(2), n * 2 + 3);
  EXPECT_EQ((n * 4 + 3).divide(2), std::nullopt);
  EXPECT_EQ((n * 3 + 6).divide(2), std::nullopt);
  EXPECT_EQ((n * n * 6).divide(n * 3), n * 2);
  EXPECT_EQ((n * 6 + 1).divide(n), std::nullopt);
  EXPECT_EQ(Dim(5).divide(0), std::nullopt);
}

// Numbers that fit into a dim's word and numbers that do not are numbers alike.
TEST(ShapeEdges, NumbersOfAllSizes) {
  const int64_t most = std::numeric_limits<int64_t>::max(), edge = int64_t{1} << 62;
  const std::vector<int64_t> sizes{0, 1, -1, edge - 1, edge, -edge, -edge - 1, most, -most - 1};
  for (int64_t a : sizes)
    for (int64_t b : sizes) {
      const Dim copy = Dim(a);
      EXPECT_EQ(copy.value(), a);
      EXPECT_TRUE(copy.is_static());
      EXPECT_EQ(copy == Dim(b), a == b) << a << " " << b;
      int64_t sum = 0;
      if (!__builtin_add_overflow(a, b, &sum)) {
        EXPECT_EQ(Dim(a) + Dim(b), Dim(sum));
      }
    }
  const Dim n = Dim::symbol("n");
  EXPECT_EQ((n + edge) - n, Dim(edge));
  EXPECT_EQ((n + edge).bind({{"n", -edge}}), Dim(0));
}

// ---- folding

// Constants that overflow fold to what a run gives: integers wrap.
TEST(FoldingEdges, IntegersWrap) {
  for (DType d : {DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U32}) {
    const bool is_signed = info(d).is_signed;
    const int bits = 8 * static_cast<int>(size_of(d));
    const auto most = static_cast<int64_t>(~uint64_t{0} >> (64 - bits + is_signed));
    const int64_t least = is_signed ? -most - 1 : 0;
    Tensor a(d, {4}), c(d, {4});
    const int64_t left[] = {most, least, most, 3}, right[] = {1, most, most, most};
    for (int64_t i = 0; i < 4; ++i) a.set_int(i, left[i]), c.set_int(i, right[i]);
    auto program = [&](bool constants) {
      Builder b("wrap");
      const Value x = constants ? b.constant(a) : b.input("x", a.type()),
                  y = constants ? b.constant(c) : b.input("y", c.type());
      for (Value v :
           {op::add(b, x, y), op::sub(b, y, x), op::mul(b, x, y), op::neg(b, x), op::square(b, x),
            op::reduce_sum(b, x, {.axes = {0}}), op::reduce_prod(b, y, {.axes = {0}})})
        b.output(v);
      return b.finish();
    };
    const Graph folded = run_passes(program(true), {pass::fold_constants});
    for (const Node& n : folded.nodes) EXPECT_EQ(n.op, &op::constant) << n.op->name;
    const Tensors run = on_cpu(program(false), {{"x", a}, {"y", c}});
    const Tensors compiled = on_cpu(program(true), {});
    for (size_t k = 0; k < run.size(); ++k) {
      EXPECT_TRUE(evaluate(folded, Tensors{})[k].same_bits(run[k]))
          << to_string(d) << " result " << k;
      EXPECT_TRUE(compiled[k].same_bits(run[k])) << to_string(d) << " result " << k;
    }
    const uint64_t mask = ~uint64_t{0} >> (64 - bits);
    for (int64_t i = 0; i < 4; ++i)
      EXPECT_EQ(static_cast<uint64_t>(run[0].get_int(i)) & mask,
                (static_cast<uint64_t>(left[i]) + static_cast<uint64_t>(right[i])) & mask);
  }
}

TEST(PassEdges, DifferencesInBothOrdersStayTwo) {
  Builder b("both");
  const Value x = b.input("x", {DType::F32, {3}}), y = b.input("y", {DType::F32, {3}});
  b.output(op::sub(b, x, y));
  b.output(op::sub(b, y, x));
  b.output(op::add(b, x, y));
  b.output(op::add(b, y, x));
  const Graph after = run_passes(b.finish(), {pass::cse});
  EXPECT_EQ(after.size(), 5) << print(after);
  EXPECT_NE(after.outputs[0], after.outputs[1]);
  EXPECT_EQ(after.outputs[2], after.outputs[3]);
}

// An attribute of -0 is not one of 0: neither are graphs equal, nor may they be folded into one.
TEST(PassEdges, AttributesOfMinusZero) {
  const auto filled = [](std::initializer_list<double> values) {
    Builder b("filled");
    for (double v : values)
      b.output(b.emit(op::full.def, FullAttrs{{2}, v, DType::F32}, Values{})[0]);
    return b.finish();
  };
  EXPECT_TRUE(filled({-0.0}) == filled({-0.0}));
  EXPECT_FALSE(filled({-0.0}) == filled({0.0}));
  const Graph g = run_passes(filled({0.0, -0.0}), {pass::cse});
  const Tensors got = Session("cpu").compile(g).run(NamedTensors{});
  EXPECT_FALSE(std::signbit(got[0].get_float(0)));
  EXPECT_TRUE(std::signbit(got[1].get_float(0)));
}

// ---- values

TEST(OrderEdges, EqualsAndZerosKeepTheirOrder) {
  Builder b("order");
  const Value x = b.input("x", {DType::F32, {2, 6}});
  b.output(op::argmax(b, x, {.axis = 1}));
  b.output(op::argmin(b, x, {.axis = 1}));
  b.output(op::argsort(b, x, {.axis = 1}));
  b.output(op::argsort(b, x, {.axis = 1, .descending = true}));
  const Graph g = b.finish();
  const NamedTensors in{
      {"x", Tensor::from<float>({2, 6}, {0.f, -0.f, 0.f, -0.f, 0.f, -0.f, 1, 3, -2, 3, -2, 1})}};
  const Tensors want = evaluate(g, in).outputs;
  auto ints = [](const Tensor& t) {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < t.elements(); ++i) out.push_back(t.get_int(i));
    return out;
  };
  EXPECT_EQ(ints(want[0]), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(ints(want[1]), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(ints(want[2]), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 2, 4, 0, 5, 1, 3}));
  EXPECT_EQ(ints(want[3]), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 1, 3, 0, 5, 2, 4}));
  expect_as_reference(g, in);
}

TEST(CumsumEdges, EveryDirectionByHand) {
  const Tensor x = Tensor::from<float>({4}, {1, 2, 4, 8});
  for (const auto& [exclusive, reverse, want] :
       std::vector<std::tuple<bool, bool, std::vector<float>>>{{false, false, {1, 3, 7, 15}},
                                                               {true, false, {0, 1, 3, 7}},
                                                               {false, true, {15, 14, 12, 8}},
                                                               {true, true, {14, 12, 8, 0}}}) {
    Builder b("sum");
    b.output(op::cumsum(b, b.input("x", x.type()),
                        {.axis = 0, .exclusive = exclusive, .reverse = reverse}));
    const Graph g = b.finish();
    EXPECT_TRUE(evaluate(g, Tensors{x})[0].same_bits(Tensor::from<float>({4}, want)));
    expect_as_reference(g, {{"x", x}});
  }
}

TEST(DivisionEdges, TheSmallestIntegerOverMinusOne) {
  for (DType d : {DType::I8, DType::I16, DType::I32, DType::I64}) {
    const int bits = 8 * static_cast<int>(size_of(d));
    const int64_t least = -static_cast<int64_t>(~uint64_t{0} >> (65 - bits)) - 1;
    Tensor x(d, {40}), y(d, {40});
    for (int64_t i = 0; i < 40; ++i)
      x.set_int(i, i % 2 ? least : i - 20), y.set_int(i, i % 3 == 0 ? -1 : i % 3 == 1 ? 0 : 3);
    Builder b("quotients");
    const Value u = b.input("x", x.type()), v = b.input("y", y.type());
    b.output(op::div(b, u, v));
    expect_as_reference(b.finish(), {{"x", x}, {"y", y}});
  }
}

TEST(CastEdges, HalvesBetweenTwoNumbersGoToTheEvenOne) {
  // Halfway between numbers of bf16, then of f16; below every other one stands an even number.
  Tensor x(DType::F32, {128});
  for (int64_t i = 0; i < 128; ++i)
    x.set_float(i, 1 + static_cast<double>(2 * (i % 64) + 1) * (i < 64 ? 0x1p-8 : 0x1p-11));
  for (DType d : {DType::BF16, DType::F16}) {
    Builder b("round");
    b.output(op::cast(b, op::cast(b, b.input("x", x.type()), {d}), {DType::F32}));
    const Graph g = b.finish();
    expect_as_reference(g, {{"x", x}});
    // Narrower vectors round without the instructions that wider ones may have for it.
    const Session narrow(Device("cpu"), {.threads = 1, .vector_bits = 256});
    EXPECT_TRUE(narrow.compile(g).run({{"x", x}})[0].same_bits(evaluate(g, Tensors{x})[0]));
  }
}

// ---- transforms

TEST(ForwardEdges, StoppedDerivativesAreZero) {
  Builder b("stopped");
  const Value x = b.input("x", {DType::F64, {2}});
  b.output(op::mul(b, op::stop_gradient(b, x), x));
  b.output(op::stop_gradient(b, x));
  const Tensors out = evaluate(jvp(b.finish(), {"x"}), Tensors{Tensor::from<double>({2}, {3, 5}),
                                                               Tensor::from<double>({2}, {1, 10})});
  EXPECT_TRUE(out[2].same_bits(Tensor::from<double>({2}, {3, 50})));
  EXPECT_TRUE(out[3].same_bits(Tensor::from<double>({2}, {0, 0})));
}

// f(x, w): cumsum along axis 1 of x [2, 3, 4], times w [4]: no two axes are alike.
Graph lopsided() {
  Builder b("lopsided");
  const Value x = b.input("x", {DType::F64, {2, 3, 4}}), w = b.input("w", {DType::F64, {4}});
  b.output(op::mul(b, op::cumsum(b, x, {.axis = 1}), w));
  return b.finish();
}

// The batch axis of `whole` at `axis` taken at k.
Tensor sample_at(const Tensor& whole, int64_t axis, int64_t k) {
  Ints sizes = whole.sizes();
  sizes.erase(sizes.begin() + axis);
  Tensor out(whole.dtype(), sizes);
  int64_t at = 0;
  for_each_index(sizes, [&](const Ints& index) {
    Ints full = index;
    full.insert(full.begin() + axis, k);
    int64_t from = 0;
    const Ints strides = row_major_strides(whole.sizes());
    for (size_t a = 0; a < full.size(); ++a) from += full[a] * strides[a];
    out.set_float(at++, whole.get_float(from));
  });
  return out;
}

TEST(VmapEdges, EveryAxisInAndOut) {
  constexpr int64_t kBatch = 5;
  const Graph g = lopsided();
  for (int64_t in = -4; in < 4; ++in)
    for (int64_t other : {0, 1})
      for (int64_t out = 0; out < 4; ++out) {
        const int64_t axis = in < 0 ? in + 4 : in;
        Ints x_sizes{2, 3, 4}, w_sizes{4};
        x_sizes.insert(x_sizes.begin() + axis, kBatch);
        w_sizes.insert(w_sizes.begin() + other, kBatch);
        const Tensor x = numbered(DType::F64, x_sizes), w = numbered(DType::F64, w_sizes);
        const Graph many = vmap(g, {{"x", in}, {"w", other}}, kBatch, out);
        const Tensors together = evaluate(many, Tensors{x, w});
        for (int64_t k = 0; k < kBatch; ++k)
          EXPECT_TRUE(sample_at(together[0], out, k)
                          .same_bits(evaluate(
                              g, Tensors{sample_at(x, axis, k), sample_at(w, other, k)})[0]))
              << "axis " << in << " and " << other << " to " << out << ", sample " << k;
      }
}

// ---- memory

// A result may take over an operand's memory only if no other operand looks into it.
TEST(SharingEdges, AnOperandThatAnotherViewsIsNotWrittenOver) {
  for (int64_t n : {7, 64, 130}) {
    Builder b("views");
    const Value x = b.input("x", {DType::F32, {n, n}});
    auto made = [&](double by) {  // a value of its own, in the arena
      return op::matmul(b, x, op::mul(b, x, b.constant(DType::F32, by)));
    };
    const Value s = made(0.5), t = made(0.25), u = made(2);
    b.output(op::add(b, s, op::transpose(b, s, {{1, 0}})));
    b.output(op::sub(b, op::reverse(b, t, {{0}}), t));
    b.output(op::sub(b, u, op::reverse(b, u, {{0, 1}})));
    Tensor value(DType::F32, {n, n});
    for (int64_t i = 0; i < n * n; ++i) value.set_float(i, static_cast<double>((i * 7) % 11 - 5));
    expect_as_reference(b.finish(), {{"x", value}});
  }
}

TEST(UpdateEdges, NewValuesNeverReadWhatWasAlreadyWritten) {
  Builder b("rotate");
  const Type type{DType::F32, {3, 50}};
  const Value p = b.param("p", type), q = b.param("q", type), r = b.param("r", type);
  b.update("p", op::reverse(b, q, {{1}}));
  b.update("q", op::add(b, r, p));
  b.update("r", p);
  b.output(op::add(b, p, op::mul(b, q, r)));
  const Graph g = b.finish();
  CompiledGraph f = Session("cpu").compile(g, {.threads = 1, .poison = true});
  NamedTensors now{{"p", numbered(DType::F32, {3, 50})},
                   {"q", Tensor(DType::F32, {3, 50})},
                   {"r", Tensor(DType::F32, {3, 50})}};
  for (int64_t i = 0; i < 150; ++i)
    now["q"].set_float(i, static_cast<double>(i)),
        now["r"].set_float(i, static_cast<double>(-i % 17));
  f.set_params(now);
  for (int step = 0; step < 4; ++step) {
    const Evaluated want = evaluate(g, now);
    const Tensors got = f.run(NamedTensors{});
    EXPECT_TRUE(got[0].same_bits(want.outputs[0])) << step;
    for (const auto& [name, t] : want.updates)
      EXPECT_TRUE(f.param(name).same_bits(t)) << name << " " << step;
    now = want.updates;
  }
}

// Weights that kernels keep in a form of their own follow the parameter, in clones too.
TEST(PackedEdges, WeightsFollowTheirParameter) {
  Builder b("product");
  const Value x = b.input("x", {DType::F32, {64, 48}}), w = b.param("w", {DType::F32, {48, 80}});
  b.output(op::matmul(b, x, w));
  const Graph g = b.finish();
  CompiledGraph f = Session("cpu").compile(g, {.threads = 1});
  const Tensor in = numbered(DType::F32, {64, 48});
  auto weights = [](double by) {
    Tensor t(DType::F32, {48, 80});
    for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, by * static_cast<double>(i % 13 - 6));
    return t;
  };
  auto expect = [&](CompiledGraph& one, double by) {
    const Tensor want = evaluate(g, Tensors{in, weights(by)})[0];
    const Tensor got = one.run({{"x", in}})[0];
    for (int64_t i = 0; i < want.elements(); ++i)
      ASSERT_EQ(got.get_float(i), want.get_float(i)) << by;
  };
  f.set_param("w", weights(1));
  expect(f, 1);
  CompiledGraph copy = f.clone();
  f.set_param("w", weights(0.5));
  expect(f, 0.5);
  expect(copy, 1);
  copy.set_param("w", weights(2));
  expect(copy, 2);
  expect(f, 0.5);
}

// Weights that a run writes are read where they are.
// Weights with two batch axes: each of the six has a place of its own in the packed form.
TEST(PackedEdges, WeightsOfABatchStandApart) {
  Builder b("products");
  const Value x = b.input("x", {DType::F32, {2, 3, 40, 48}}),
              w = b.param("w", {DType::F32, {2, 3, 48, 80}});
  b.output(op::matmul(b, x, w));
  const Graph g = b.finish();
  Tensor in(DType::F32, {2, 3, 40, 48}), weights(DType::F32, {2, 3, 48, 80});
  for (int64_t i = 0; i < in.elements(); ++i) in.set_float(i, static_cast<double>(i % 7 - 3));
  for (int64_t i = 0; i < weights.elements(); ++i)
    weights.set_float(i, static_cast<double>(i % 13 - 6 + i / (48 * 80)));
  CompiledGraph f = Session("cpu").compile(g, {.threads = 1});
  f.set_param("w", weights);
  const Tensor want = evaluate(g, Tensors{in, weights})[0], got = f.run({{"x", in}})[0];
  EXPECT_TRUE(got.same_bits(want));
}

TEST(PackedEdges, UpdatedWeightsAreReadAnew) {
  Builder b("step");
  const Value x = b.input("x", {DType::F32, {64, 48}}), w = b.param("w", {DType::F32, {48, 80}});
  b.output(op::matmul(b, x, w));
  b.update("w", op::mul(b, w, b.constant(DType::F32, 0.5)));
  const Graph g = b.finish();
  CompiledGraph f = Session("cpu").compile(g, {.threads = 1});
  NamedTensors now{{"x", numbered(DType::F32, {64, 48})}, {"w", Tensor(DType::F32, {48, 80})}};
  for (int64_t i = 0; i < 48 * 80; ++i) now["w"].set_float(i, static_cast<double>(i % 13 - 6) * 64);
  f.set_param("w", now["w"]);
  for (int step = 0; step < 3; ++step) {
    const Evaluated want = evaluate(g, now);
    EXPECT_TRUE(f.run({{"x", now["x"]}})[0].same_bits(want.outputs[0])) << step;
    now["w"] = want.updates.at("w");
  }
}

// ---- indices

// An op without an element of a result reads nothing, its indices included; with one it raises, on every device.
TEST(IndexEdges, NothingIsReadForNothing) {
  const Tensor five = Tensor::from<int64_t>({1}, {5});
  for (const int64_t width : {0, 1}) {
    const Tensor x(DType::F32, {2, width});
    Builder b("rows");
    b.output(op::gather(b, b.input("x", x.type()), b.input("i", five.type()), {.axis = 0}));
    const Graph g = b.finish();
    for (const Device& d : {Device("reference"), Device("cpu")}) {
      CompiledGraph f = Session(d).compile(g);
      std::string code;
      Ints sizes;
      try {
        sizes = f.run({{"x", x}, {"i", five}})[0].sizes();
      } catch (const Error& e) {
        code = e.code();
      }
      EXPECT_EQ(code, width == 0 ? "" : "index-range") << name(d);
      EXPECT_EQ(sizes, width == 0 ? Ints({1, 0}) : Ints()) << name(d);
    }
  }
}

// ---- random numbers

// Draws by rejection have counters of their own: no number is one that random_bits gives for the key, and none stands twice.
TEST(RandomEdges, StreamsDoNotMeet) {
  const PhiloxKey key{123, 456};
  std::set<double> seen;
  auto number = [](uint32_t high, uint32_t low) {
    const uint64_t bits = uint64_t{high} << 32 | low;
    return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
  };
  for (uint64_t i = 0; i < 2000; ++i) {
    const PhiloxBlock block = philox4x32(key, philox_counter(i));
    for (size_t k = 0; k < 4; ++k) seen.insert(number(block[k], block[(k + 1) % 4]));
  }
  for (uint64_t element = 0; element < 200; ++element) {
    DrawStream stream(key, element);
    for (int k = 0; k < 8; ++k)
      EXPECT_TRUE(seen.insert(stream.uniform()).second)
          << "element " << element << ", number " << k;
  }
  DrawStream stream(key, 9);
  const PhiloxBlock first = philox4x32(key, {9, 0, 0, 1}), second = philox4x32(key, {9, 0, 1, 1});
  EXPECT_EQ(stream.uniform(), number(first[0], first[1]));
  EXPECT_EQ(stream.uniform(), number(first[2], first[3]));
  EXPECT_EQ(stream.uniform(), number(second[0], second[1]));
  EXPECT_EQ(philox_counter(uint64_t{5} << 32 | 7), (PhiloxBlock{7, 5, 0, 0}));
}

// ---- control flow

// Carries of three types that change places in every step.
TEST(CarryEdges, KeepTheirOrder) {
  for (int64_t length : {0, 1, 2, 3, 5})
    for (bool reverse : {false, true}) {
      Builder body("step");
      const Value p = body.input("p", {DType::F32, {4}}), q = body.input("q", {DType::F32, {4}}),
                  r = body.input("r", {DType::F32, {4}}), x = body.input("x", {DType::F32, {}});
      body.output(op::add(body, q, x));
      body.output(r);
      body.output(op::mul(body, p, body.constant(DType::F32, 2)));
      body.output(op::sub(body, p, r));
      const Graph step = body.finish();
      Builder b("scan");
      Values in;
      NamedTensors values;
      for (const char* name : {"p", "q", "r"}) {
        in.push_back(b.input(name, {DType::F32, {4}}));
        values[name] = Tensor::from<float>({4}, {name[0] * 1.f, 2, name[0] * 3.f, -4});
      }
      in.push_back(b.input("x", {DType::F32, {length}}));
      values["x"] = numbered(DType::F32, {length});
      for (Value v : b.emit(op::scan.def,
                            ScanAttrs{.body = Body(step),
                                      .length = length,
                                      .num_carries = 3,
                                      .num_xs = 1,
                                      .reverse = reverse},
                            in))
        b.output(v);
      expect_as_reference(b.finish(), values);
    }
}

// ---- blocks and tails

// Sizes around the tiles of the strided copy, the blocks of rows and the vectors, transposed, sliced and turned.
TEST(TailEdges, TransposedAndSlicedCopies) {
  for (int64_t rows : {1, 15, 16, 17, 127, 129, 260})
    for (int64_t cols : {1, 15, 16, 33, 128, 131}) {
      Builder b("moves");
      const Value x = b.input("x", {DType::F32, {rows, cols}});
      b.output(op::transpose(b, x, {{1, 0}}));
      b.output(op::concat(
          b, {op::transpose(b, x, {{1, 0}}), op::transpose(b, op::reverse(b, x, {{0}}), {{1, 0}})},
          {0}));
      b.output(op::slice(b, x, {{0, 0}, {rows, cols}, {2, 3}}));
      b.output(op::concat(b, {x, op::reverse(b, x, {{1}}), x}, {1}));
      const Dim half = cols - cols / 2;
      b.output(op::reshape(b, op::slice(b, x, {{0, 0}, {rows, half}, {}}), {{rows * half}}));
      b.output(op::reshape(b, op::transpose(b, x, {{1, 0}}), {{rows * cols}}));
      expect_as_reference(b.finish(), {{"x", numbered(DType::F32, {rows, cols})}});
    }
}

}  // namespace
}  // namespace rlx
