// Programs with symbolic sizes, compiled once: at every size the bits of the program whose sizes are constant, and no code
// after the first compilation.
#include "../support/symbolic_programs.h"

#include "../support/expect_error.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/equal_symbols.h"
#include "rlx/ir/size_questions.h"
#include "rlx/ops/nn/losses.h"
#include "rlx/runtime/extend.h"

namespace rlx::testing {
namespace {

TEST(SymbolicPrograms, SmallOnes) {
  uint64_t seed = 1;
  for (const SymbolicProgram& p : small_symbolic_programs()) {
    SCOPED_TRACE(p.name);
    expect_bits_of_static(p, 12, ++seed);
  }
}
TEST(SymbolicPrograms, Encoder) { expect_bits_of_static(symbolic_bert(2, 96, 6, 50), 10, 7); }
TEST(SymbolicPrograms, Decoder) { expect_bits_of_static(symbolic_gpt(2, 96, 6, 50), 10, 8); }
TEST(SymbolicPrograms, ConvNet) { expect_bits_of_static(symbolic_conv_net(), 10, 9); }
TEST(SymbolicPrograms, Recurrence) { expect_bits_of_static(symbolic_rnn(), 10, 10); }

// Sizes of 0 and 1 are sizes like others: right within rounding, as the reference has it.
TEST(SymbolicPrograms, NoneAndOne) {
  std::mt19937_64 random(11);
  for (const SymbolicProgram& p : small_symbolic_programs()) {
    if (p.name == "long_rows" || p.name == "train_step" || p.name == "order") continue;
    CompiledGraph f = Session("cpu").compile(p.graph);
    const NamedTensors params = random_params(p.graph, random);
    f.set_params(params);
    for (int64_t n : {0, 1, 5})
      for (int64_t m : {0, 1, 5}) {
        DimBinding sizes;
        for (const auto& [name, range] : p.sizes) sizes[name] = name == "n" ? n : m;
        const Graph bound = rlx::bind(p.graph, sizes);
        const NamedTensors inputs = random_inputs(bound, random);
        CompiledGraph reference = Session("reference").compile(bound);
        reference.set_params(params);
        const auto got = f.run(inputs), want = reference.run(inputs);
        for (size_t k = 0; k < want.size(); ++k) {
          ASSERT_EQ(got[k].type(), want[k].type()) << p.name;
          for (int64_t i = 0; i < want[k].elements(); ++i) {
            const double a = got[k].get_float(i), b = want[k].get_float(i);
            const bool same = a == b || (std::isnan(a) && std::isnan(b)) ||
                              std::abs(a - b) <= 4e-2 * std::abs(b) + 1e-5;
            ASSERT_TRUE(same) << p.name << " n=" << n << " m=" << m << " output " << k << ": " << a
                              << " instead of " << b;
          }
        }
      }
  }
}

// Every second column of [?n, 7] but the last as one line: a view where ?n is 1, a copy else; the code is that of a copy.
TEST(SymbolicPrograms, AReshapeThatIsAViewForSomeSizes) {
  Builder b("line");
  const Dim n = Dim::symbol("n");
  const Value x = b.input("x", {DType::F32, {n, 7}});
  const Value columns = op::slice(b, x, {.start = {0, 0}, .limit = {n, 6}, .stride = {1, 2}});
  b.output(op::neg(b, op::reshape(b, columns, {{n * Dim(3)}})));
  CompiledGraph f = Session("cpu").compile(b.finish());
  EXPECT_EQ(f.info().per_size, "");
  for (int64_t rows : {1, 2, 1, 40}) {
    Tensor t(DType::F32, {rows, 7});
    for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, static_cast<double>(i));
    const Tensor y = f.run({{"x", t}})[0];
    for (int64_t i = 0; i < y.elements(); ++i)
      ASSERT_EQ(y.get_float(i), -t.get_float(i / 3 * 7 + i % 3 * 2)) << rows << " rows, " << i;
  }
}

// Every second column of 3 x [?n, 4]: a view for all sizes, none of them included.
TEST(SymbolicPrograms, AReshapeOfAViewThatIsEmpty) {
  Builder b("empty");
  const Dim n = Dim::symbol("n");
  const Value x = b.input("x", {DType::F32, {3, n, 4}});
  const Value columns =
      op::slice(b, x, {.start = {0, 0, 0}, .limit = {3, n, 4}, .stride = {1, 1, 2}});
  b.output(op::neg(b, op::reshape(b, columns, {{n * Dim(3), 2}})));
  b.output(op::neg(b, op::reshape(b, op::transpose(b, x, {.perm = {2, 1, 0}}), {{4, n * Dim(3)}})));
  CompiledGraph f = Session("cpu").compile(b.finish());
  for (int64_t rows : {3, 0, 1, 0}) {
    Tensor t(DType::F32, {3, rows, 4});
    for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, static_cast<double>(i));
    const Tensor y = f.run({{"x", t}})[0];
    ASSERT_EQ(y.sizes(), (Ints{3 * rows, 2}));
    for (int64_t i = 0; i < y.elements(); ++i)
      ASSERT_EQ(y.get_float(i), -t.get_float(2 * i)) << rows << " rows, " << i;
    EXPECT_EQ(f.run({{"x", t}})[1].sizes(), (Ints{4, 3 * rows}));
  }
}

Graph sum_of_two() {
  Builder b("sum");
  const Value x = b.input("x", {DType::F32, {Dim::symbol("n"), 2}}),
              y = b.input("y", {DType::F32, {Dim::symbol("m"), 2}});
  b.output(op::add(b, x, y));
  return b.finish();
}

// Two symbols that must be equal; the message has both and their values. Nothing is lost by an error.
TEST(SymbolicPrograms, Guards) {
  CompiledGraph f = Session("cpu").compile(sum_of_two());
  const auto rows = [](int64_t n) { return Tensor::full(DType::F32, {n, 2}, 1); };
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{5, 7}, {1, 5}}) {
    try {
      f.run({{"x", rows(n)}, {"y", rows(m)}});
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), "dim-guard");
      for (const std::string& part : {fmt::format("?n = {}", n), fmt::format("?m = {}", m)})
        EXPECT_NE(e.message().find(part), std::string::npos) << e.message();
    }
    EXPECT_EQ(f.run({{"x", rows(4)}, {"y", rows(4)}})[0].get_float(7), 2);
  }
}

// ?m may be 1 where the result is ?n; the code for all sizes takes the two for one size, so this one gets its own.
TEST(SymbolicPrograms, OneBroadcasts) {
  CompiledGraph f = Session("cpu").compile(sum_of_two());
  Tensor x(DType::F32, {5, 2});
  for (int64_t i = 0; i < 10; ++i) x.set_float(i, static_cast<double>(i));
  const Tensor y = Tensor::from<float>({1, 2}, {100, 200});
  for (int64_t i = 0; i < 10; ++i)
    EXPECT_EQ(f.run({{"x", x}, {"y", y}})[0].get_float(i),
              static_cast<double>(i + 100 + i % 2 * 100));
  EXPECT_NE(f.info().per_size, "");
  EXPECT_EQ(f.run({{"x", y}, {"y", y}})[0].get_float(1), 400);
}

// The same where the two are not one: 2 * ?n and ?m.
TEST(SymbolicPrograms, OneBroadcastsAgainstTwice) {
  Builder b("sum");
  b.output(op::add(b, b.input("x", {DType::F32, {2 * Dim::symbol("n")}}),
                   b.input("y", {DType::F32, {Dim::symbol("m")}})));
  CompiledGraph f = Session("cpu").compile(b.finish());
  const Tensor x = Tensor::from<float>({4}, {1, 2, 3, 4}), y = Tensor::from<float>({1}, {10});
  EXPECT_EQ(f.run({{"x", x}, {"y", x}})[0].get_float(3), 8);
  EXPECT_EQ(f.info().per_size, "");
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(f.run({{"x", x}, {"y", y}})[0].get_float(i), static_cast<double>(i + 11));
  EXPECT_NE(f.info().per_size, "");
}

// ---- symbols that are one

SymbolNames equal_in(FunctionRef<void(Builder&)> build) {
  Builder b("g");
  build(b);
  return equal_symbols(b.finish());
}
Value input_of(Builder& b, const char* name, const Shape& shape) {
  return b.input(name, {DType::F32, shape});
}

TEST(EqualSymbols, WhereTheyMeet) {
  const Dim n = Dim::symbol("n"), m = Dim::symbol("m"), k = Dim::symbol("k"), l = Dim::symbol("l");
  const auto of = [&](const Shape& x, const Shape& y, auto f) {
    return equal_in([&](Builder& b) { b.output(f(b, input_of(b, "x", x), input_of(b, "y", y))); });
  };
  const auto add = [](Builder& b, Value x, Value y) { return op::add(b, x, y); };
  const auto matmul = [](Builder& b, Value x, Value y) { return op::matmul(b, x, y); };
  const auto loss = [](Builder& b, Value x, Value y) { return op::mse_loss(b, x, y); };
  EXPECT_EQ(of({n}, {m}, add), (SymbolNames{{"n", "m"}}));
  EXPECT_EQ(of({n, m}, {k, l}, add), (SymbolNames{{"n", "k"}, {"m", "l"}}));
  EXPECT_EQ(of({n, m}, {k}, add), (SymbolNames{{"m", "k"}}));
  EXPECT_EQ(of({n, m}, {k}, loss), (SymbolNames{{"m", "k"}}));
  EXPECT_EQ(of({n, k}, {l, m}, matmul), (SymbolNames{{"l", "k"}}));
  EXPECT_EQ(of({n, m, k}, {n, l, m}, matmul), (SymbolNames{{"l", "k"}}));
  EXPECT_EQ(of({n, n}, {m, k}, add), (SymbolNames{{"n", "k"}, {"m", "k"}}));
  EXPECT_EQ(equal_in([&](Builder& b) {  // one after another
              const Value x = input_of(b, "x", {n}), y = input_of(b, "y", {m});
              const Value z = input_of(b, "z", {k}), u = input_of(b, "u", {l});
              b.output(op::mul(b, op::add(b, z, u), op::add(b, y, x)));
            }),
            (SymbolNames{{"l", "k"}, {"m", "k"}, {"n", "k"}}));
}

TEST(EqualSymbols, WhereTheyDoNot) {
  const Dim n = Dim::symbol("n"), m = Dim::symbol("m"), k = Dim::symbol("k"), l = Dim::symbol("l");
  const auto none = [&](auto f) { EXPECT_EQ(equal_in(f), SymbolNames{}); };
  none([&](Builder& b) { b.output(op::reduce_sum(b, input_of(b, "x", {n, m}), {{0}})); });
  none([&](Builder& b) {
    b.output(op::concat(b, {input_of(b, "x", {n}), input_of(b, "y", {m})}, {.axis = 0}));
  });
  none([&](Builder& b) {  // n * m = k * l has other answers
    b.output(op::reshape(b, input_of(b, "x", {n, m}), {{k, l}}));
  });
  none([&](Builder& b) {
    b.output(op::add(b, input_of(b, "x", {n, 1}), input_of(b, "y", {1, m})));
  });
  none([&](Builder& b) { b.output(op::add(b, input_of(b, "x", {2 * n}), input_of(b, "y", {m}))); });
}

// A size that came in by two operands is fused like one.
TEST(EqualSymbols, MakeTheSameKernels) {
  const auto kernels = [](const char* other) {
    Builder b("loss");
    const Value x = input_of(b, "x", {Dim::symbol("n"), 8});
    const Value y = input_of(b, "y", {Dim::symbol(other), 8});
    b.output(op::bce_with_logits_loss(b, x, y));
    CompiledGraph f = Session("cpu").compile(b.finish());
    f.run({{"x", Tensor::full(DType::F32, {5, 8}, 1)}, {"y", Tensor::full(DType::F32, {5, 8}, 1)}});
    return f.info().kernels;
  };
  EXPECT_EQ(kernels("m"), kernels("n"));
}

// What is known of one is known of all.
TEST(EqualSymbols, HintsMeet) {
  const auto generated = [](const SizeHints& hints) {
    Builder b("sums");
    const Value x = input_of(b, "x", {4, Dim::symbol("n")});
    const Value y = input_of(b, "y", {4, Dim::symbol("m")});
    b.output(op::softmax(b, op::add(b, x, y)));
    CompiledGraph f = Session("cpu").compile(b.finish(), {.hints = hints});
    const Tensor t = Tensor::full(DType::F32, {4, 300}, 1);
    f.run({{"x", t}, {"y", t}});
    return f.info().generated;
  };
  const int all = generated({});
  EXPECT_LT(generated({{"n", {.max = 512}}}), all);
  EXPECT_EQ(generated({{"m", {.max = 512}}}), generated({{"n", {.max = 512}}}));
}

TEST(SymbolicPrograms, SizesThatAreNotThere) {
  Builder b("shapes");
  const Dim n = Dim::symbol("n"), k = Dim::symbol("k");
  const Value x = b.input("x", {DType::F32, {2 * n + 1}});
  b.output(op::broadcast(b, x, {.shape = {k, 2 * n + 1}}));
  CompiledGraph f = Session("cpu").compile(b.finish());
  const Tensor five = Tensor::from<float>({5}, {1, 2, 3, 4, 5});
  expect_error("unbound-dim", "", [&] { f.run({{"x", five}}); });
  expect_error("dim-unknown", "", [&] { f.set_sizes({{"z", 1}}); });
  expect_error("negative-dim", "", [&] { f.set_sizes({{"k", -1}}); });
  f.set_sizes({{"k", 3}});
  EXPECT_EQ(f.run({{"x", five}})[0].sizes(), (Ints{3, 5}));
  EXPECT_EQ(f.sizes(), (DimBinding{{"k", 3}, {"n", 2}}));
  expect_error("unbound-dim", "", [&] { f.run({{"x", Tensor(DType::F32, {4})}}); });  // 2 * n + 1
  f.set_sizes({{"k", 2}, {"n", 2}});
  expect_error("dim-guard", "", [&] { f.run({{"x", Tensor(DType::F32, {7})}}); });
  expect_error("input-type", "", [&] { f.run({{"x", Tensor(DType::F32, {5, 1})}}); });
}

// A clone knows the sizes that were said and those of the inputs that were set.
TEST(SymbolicPrograms, ClonesHaveTheSizes) {
  Builder b("shapes");
  const Dim n = Dim::symbol("n"), k = Dim::symbol("k");
  const Value x = b.input("x", {DType::F32, {n}});
  b.output(op::broadcast(b, x, {.shape = {k, n}}));
  CompiledGraph f = Session("cpu").compile(b.finish());
  f.set_sizes({{"k", 3}});
  f.set_input("x", Tensor::from<float>({2}, {1, 2}));
  CompiledGraph g = f.clone();
  g.run();
  EXPECT_EQ(g.output_tensor(0).sizes(), (Ints{3, 2}));
  EXPECT_EQ(g.output_tensor(0).get_float(5), 2);
}

// Of other sizes an output has no value, also where as many bytes as before hold it.
TEST(SymbolicPrograms, OutputsOfOtherSizesAreNotThereYet) {
  Builder b("negated");
  b.output(op::neg(b, b.input("x", {DType::F32, {Dim::symbol("n"), Dim::symbol("m")}})));
  CompiledGraph f = Session("cpu").compile(b.finish());
  f.set_input("x", Tensor(DType::F32, {2, 6}));
  f.run();
  EXPECT_EQ(f.output_tensor(0).sizes(), (Ints{2, 6}));
  f.set_input("x", Tensor(DType::F32, {4, 3}));
  EXPECT_EQ(f.output_types()[0].shape, (Shape{4, 3}));
  expect_error("output-missing", "", [&] { f.output_tensor(0); });
  f.run();
  EXPECT_EQ(f.output_tensor(0).sizes(), (Ints{4, 3}));
}

TEST(SymbolicPrograms, PointersHaveSizes) {
  Builder b("negated");
  b.output(op::neg(b, b.input("x", {DType::F32, {Dim::symbol("n")}})));
  CompiledGraph f = Session("cpu").compile(b.finish());
  const float x[] = {1, 2, 3, 4};
  expect_error("input-sizes", "", [&] { f.bind_input(0, x); });
  f.bind_input(0, x, {4});
  f.run();
  EXPECT_EQ(f.output_tensor(0).get_float(3), -4);
  f.bind_input(0, x + 1, {2});
  f.run();
  EXPECT_EQ(f.output_tensor(0).sizes(), (Ints{2}));
  EXPECT_EQ(f.output_tensor(0).get_float(1), -3);
  const auto bytes = std::as_bytes(std::span(x));
  const CompiledGraph::TypedInput plain[] = {{"x", DType::F32, bytes}},
                                  sized[] = {{"x", DType::F32, bytes, {4}}},
                                  wrong[] = {{"x", DType::F32, bytes, {3}}};
  expect_error("input-sizes", "", [&] { f.run_typed(plain); });
  expect_error("input-type", "", [&] { f.run_typed(wrong); });
  EXPECT_EQ(f.run_typed(sized)[0].get_float(0), -1);
}

// Clones, weights set between sizes, and updates that all sizes see.
TEST(SymbolicPrograms, WeightsAreOfAllSizes) {
  Builder b("layer");
  const Value x = b.input("x", {DType::F32, {Dim::symbol("n"), 64}}),
              w = b.param("w", {DType::F32, {64, 64}}), c = b.param("c", {DType::F32, {}});
  b.output(op::add(b, op::matmul(b, x, w), c));
  b.update("c", op::add(b, c, b.constant(DType::F32, 1.0)));
  const Graph g = b.finish();
  CompiledGraph f = Session("cpu").compile(g);
  const auto eye = [](double scale) {
    Tensor t(DType::F32, {64, 64});
    for (int64_t i = 0; i < 64; ++i) t.set_float(65 * i, scale);
    return t;
  };
  f.set_params({{"w", eye(1)}, {"c", Tensor::scalar(DType::F32, 0)}});
  const auto first = [](CompiledGraph& h, int64_t n) {
    return h.run({{"x", Tensor::full(DType::F32, {n, 64}, 1)}})[0].get_float(0);
  };
  EXPECT_EQ(first(f, 3), 1);
  const int64_t bytes = f.resident_bytes();
  EXPECT_EQ(first(f, 300), 2);  // c grew
  // The program of 300 rows takes some, too: less than a packed weight.
  EXPECT_LT(f.resident_bytes() - bytes, 2 * 300 * 64 * 4 + 64 * 64 * 4) << "packed twice";
  f.set_param("w", eye(10));
  EXPECT_EQ(first(f, 3), 12);
  EXPECT_EQ(first(f, 300), 13);
  CompiledGraph other = f.clone();
  EXPECT_EQ(first(other, 300), 14);
  EXPECT_EQ(first(other, 5), 15);
  EXPECT_EQ(first(f, 5), 14);
}

// An op that must know a size before it is bound: one compilation for each, and the reason.
constinit const Op<> numbered = OpDef{
    .name = "test_numbered",
    .doc = "x plus its number of rows.",
    .arity = 1,
    .infer = [](const InferArgs& a) -> Types { return {a.in[0]}; },
    .decompose = [](Builder& b, const Node&, Operands in) -> Values {
      const auto rows = static_cast<double>(b.type(in[0]).shape[0].value());
      return {op::add(b, in[0], b.constant(DType::F32, rows))};
    },
};

TEST(SymbolicPrograms, OpsThatNeedANumber) {
  register_op(numbered.def);
  Builder b("numbered");
  b.output(numbered(b, b.input("x", {DType::F32, {Dim::symbol("n")}})));
  CompiledGraph f = Session("cpu").compile(b.finish());
  EXPECT_NE(f.info().per_size.find("?n"), std::string::npos) << f.info().per_size;
  for (int64_t n : {4, 6, 4})
    EXPECT_EQ(f.run({{"x", Tensor::full(DType::F32, {n}, 1)}})[0].get_float(0),
              static_cast<double>(n + 1));
}

TEST(SymbolicPrograms, OnTheReference) {
  CompiledGraph f = Session("reference").compile(sum_of_two());
  const auto rows = [](int64_t n) { return Tensor::full(DType::F32, {n, 2}, 1); };
  EXPECT_EQ(f.run({{"x", rows(4)}, {"y", rows(4)}})[0].elements(), 8);
  EXPECT_EQ(f.run({{"x", rows(2)}, {"y", rows(2)}})[0].elements(), 4);
  expect_error("dim-guard", "", [&] { f.run({{"x", rows(2)}, {"y", rows(3)}}); });
}

// ---- hints

// With hints for the lower and for the upper half of its sizes a program has the bits of the static one, and no more code
// than without; over all of them there is less.
TEST(SymbolicHints, KeepBitsAndSaveCode) {
  uint64_t seed = 100;
  int with = 0, without = 0;
  for (const SymbolicProgram& p : small_symbolic_programs()) {
    SCOPED_TRACE(p.name);
    const int all = expect_bits_of_static(p, 1, ++seed);
    for (const bool upper : {false, true}) {
      SymbolicProgram half = p;
      SizeHints hints;
      for (auto& [name, range] : half.sizes) {
        const int64_t middle = (range.first + range.second) / 2;
        (upper ? range.first : range.second) = middle;
        hints[name] = {.min = range.first, .max = range.second};
      }
      const int hinted = expect_bits_of_static(half, 4, ++seed, hints);
      EXPECT_LE(hinted, all);
      with += hinted, without += all;
    }
  }
  EXPECT_LT(with, without);
}

// One hint for each question that a row of ?m elements asks; what another program was told is forgotten.
TEST(SymbolicHints, AnswerQuestions) {
  const auto programs = small_symbolic_programs();
  const Graph& softmax = std::find_if(programs.begin(), programs.end(), [](const auto& p) {
                           return p.name == "softmax";
                         })->graph;
  const auto kernels = [&](const SizeHints& hints) {
    CompiledGraph f = Session("cpu").compile(softmax, {.hints = hints});
    f.run({{"x", Tensor::full(DType::F32, {8, 512}, 1)}});
    return f.info().generated;
  };
  const int all = kernels({});
  EXPECT_LT(kernels({{"m", {.max = 512}}}), all);
  EXPECT_EQ(kernels({{"m", {.min = 8, .multiple_of = 8}}}), all);  // decides nothing
  EXPECT_EQ(kernels({}), all);
}

// An answer answers what follows from it, so that there are as many ways as there are cases.
TEST(SizeQuestions, FollowFromEachOther) {
  const Dim n = Dim::symbol("n"), m = Dim::symbol("m");
  const auto ways = all_answers([&](SizeQuestions& q) {
    int fit = 0;
    for (int64_t bytes = 4; bytes <= 64; bytes += 4) fit += q.at_most(bytes * n, 1000);
    return fit;
  });
  EXPECT_EQ(ways.size(), 17u);
  for (int64_t size : {1, 15, 16, 31, 62, 63, 250, 251, 5000})
    EXPECT_EQ(at(ways, {{"n", size}}), std::min<int64_t>(250 / size, 16)) << size;
  EXPECT_EQ(all_answers([&](SizeQuestions& q) {
              return q.at_most(n, 10) + q.at_most(m, 10) + q.at_most(n, 10);
            }).size(),
            4u);
}

TEST(SymbolicHints, OtherSizesAreRefused) {
  const auto rows = [](int64_t n) { return Tensor::full(DType::F32, {n, 2}, 1); };
  for (const char* device : {"cpu", "reference"}) {
    const CompileOptions options{.hints = {{"n", {8, 512, 8}}, {"m", {.max = 600}}}};
    CompiledGraph f = Session(device).compile(sum_of_two(), options);
    const auto run = [&](CompiledGraph& g, int64_t n) {
      return g.run({{"x", rows(n)}, {"y", rows(n)}})[0].elements();
    };
    EXPECT_EQ(run(f, 8), 16);
    for (int64_t n : {7, 0, 12, 520})
      expect_error("dim-hint", fmt::format("?n = {}: the hint allows 8 to 512, multiples of 8", n),
                   [&] { run(f, n); });
    EXPECT_EQ(run(f, 512), 1024);
    CompiledGraph copy = f.clone();
    expect_error("dim-hint", "?n = 9", [&] { run(copy, 9); });
    f.set_input("x", rows(16)), f.set_input("y", rows(601));
    expect_error("dim-hint", "?m = 601: the hint allows at most 600", [&] { f.output_types(); });
    EXPECT_EQ(run(f, 16), 32);
  }
}

TEST(SymbolicHints, HintsThatAreNone) {
  const Graph g = sum_of_two();
  const auto compile = [&](const SizeHints& hints, const DimBinding& dims = {}) {
    Session("cpu").compile(g, {.dims = dims, .hints = hints});
  };
  expect_error("dim-unknown", "has no dim ?k; it has ?n, ?m", [&] { compile({{"k", {}}}); });
  expect_error("hint-range", "?n is from 9 to 8", [&] { compile({{"n", {9, 8, 1}}}); });
  expect_error("hint-range", "?n says multiples of 0", [&] { compile({{"n", {0, 8, 0}}}); });
  expect_error("hint-range", "?m begins at -1", [&] { compile({{"m", {-1, 8, 1}}}); });
  expect_error("hint-range", "?n: 9 to 15 has no multiple of 8",
               [&] { compile({{"n", {9, 15, 8}}}); });
  expect_error("hint-range", "?n: from 9223372036854775807 on has no multiple of 2",
               [&] { compile({{"n", {.min = SizeHint::kNoMax, .multiple_of = 2}}}); });
  expect_error("dim-hint", "?n = 7: the hint allows at least 8",
               [&] { compile({{"n", {.min = 8}}}, {{"n", 7}}); });
  expect_error("dim-hint", "?n = 7: the hint allows multiples of 2",
               [&] { compile({{"n", {.multiple_of = 2}}}, {{"n", 7}}); });
  compile({{"n", {8, 8, 8}}, {"m", {0, 0, 5}}}, {{"n", 8}});
}

}  // namespace
}  // namespace rlx::testing
