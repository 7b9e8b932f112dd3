// What samples of a few elements do not reach: kernels beyond their first block, stretch and tile, carries that hand a
// derivative or a batch on from one to the next, rules of inference one condition at a time. Like edges_test, it holds
// what mutants of scripts/mutants.txt lived through.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <tuple>

#include "rlx/base/bytes.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/ops.h"
#include "rlx/quant/format.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

// Numbers in [-1, 1] without a pattern that blocks could repeat.
Tensor scattered(DType d, const Ints& sizes, uint64_t seed = 1) {
  Tensor t(d, sizes);
  for (int64_t i = 0; i < t.elements(); ++i) {
    const auto word = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u;
    const double unit = static_cast<double>((word ^ word >> 29) >> 40) * 0x1p-23 - 1;
    if (is_complex(d))
      t.set_complex(i, {unit, std::cos(static_cast<double>(i))});
    else
      t.set_float(i, unit);
  }
  return t;
}

Tensor whole(DType d, const Ints& sizes, int64_t below, int64_t from = 0) {
  Tensor t(d, sizes);
  for (int64_t i = 0; i < t.elements(); ++i) t.set_int(i, from + i * 7919 % 1009 % below);
  return t;
}

double largest_in(const Tensor& t) {
  double most = 0;
  for (int64_t i = 0; i < t.elements(); ++i) most = std::max(most, std::abs(t.get_complex(i)));
  return most;
}

// The op on these operands, on the CPU with all threads and with one, against the reference: within `units` of the
// largest element.
void expect_as_reference(const OpDef& op, Attrs attrs, const Tensors& in, double units) {
  Builder b{std::string(op.name)};
  Values values;
  NamedTensors named;
  for (const Tensor& t : in) {
    const std::string name = fmt::format("x{}", values.size());
    values.push_back(b.input(name, t.type()));
    named.emplace(name, t);
  }
  for (Value v : b.emit(op, std::move(attrs), values)) b.output(v);
  const Graph g = b.finish();
  const Tensors want = evaluate(g, in);
  for (int threads : {1, 3}) {
    const Tensors got = Session("cpu").compile(g, {.threads = threads, .poison = true}).run(named);
    for (size_t k = 0; k < want.size(); ++k) {
      const double allowed = units * largest_in(want[k]);
      EXPECT_GT(largest_in(want[k]), 0) << op.name << ", result " << k;
      int64_t wrong = 0;
      for (int64_t i = 0; i < want[k].elements(); ++i)
        wrong += !(std::abs(got[k].get_complex(i) - want[k].get_complex(i)) <= allowed);
      EXPECT_EQ(wrong, 0) << op.name << ", result " << k << ", " << threads << " threads, of "
                          << want[k].elements();
    }
  }
}

template <class A>
void expect_as_reference(const Op<A>& op, const A& attrs, const Tensors& in, double units) {
  expect_as_reference(op.def, Attrs(attrs), in, units);
}

// ---- numbers and sizes

TEST(Numbers, EverySignedNumberComesBack) {
  for (int64_t v : {INT64_MIN, INT64_MIN + 1, int64_t{-65}, int64_t{-64}, int64_t{-1}, int64_t{0},
                    int64_t{1}, int64_t{63}, int64_t{64}, INT64_MAX}) {
    ByteWriter w;
    w.signed_varint(v);
    EXPECT_EQ(ByteReader(w.out, "it").signed_varint(), v);
  }
}

TEST(SymbolicSizes, OfStridedSlices) {
  const Dim n = Dim::symbol("n");
  for (int64_t odd : {0, 1}) {
    Builder b("every_second");
    const Value x = b.input("x", {DType::F32, {n * 2 + odd}});
    const Value y = op::slice(b, x, {{}, {}, {2}});
    EXPECT_EQ(b.shape(y), (Shape{n + odd}));
    b.output(y);
    const Graph g = b.finish();
    for (int64_t size : {0, 1, 3}) {
      const Tensor in(DType::F32, {2 * size + odd});
      EXPECT_EQ(evaluate(bind(g, {{"n", size}}), Tensors{in})[0].sizes(), Ints{size + odd});
    }
  }
}

// ---- kernels beyond their first block

constexpr DType f32 = DType::F32, f64 = DType::F64;

// More steps than are kept at a time, more channels than a block has, states and widths that fill no vector.
TEST(LongRecurrences, StepsChannelsAndStates) {
  for (const auto& [steps, channels, states] :
       {std::array<int64_t, 3>{40, 5, 3}, {33, 70, 1}, {97, 67, 2}}) {
    const Tensors in{scattered(f64, {2, steps, channels}, 1),
                     scattered(f64, {2, steps, channels}, 2), scattered(f64, {channels, states}, 3),
                     scattered(f64, {2, steps, states}, 4), scattered(f64, {2, steps, states}, 5)};
    expect_as_reference(op::selective_scan, {}, in, 1e-11);
    Tensors more = in;
    more.push_back(scattered(f64, {2, steps, channels}, 6));
    expect_as_reference(op::selective_scan_backward, {}, more, 1e-10);
  }
}

TEST(LongRecurrences, StatesOfEveryWidth) {
  for (int64_t n : {1, 7, 15, 16, 17, 33}) {
    const Ints rows{2, 5, 2, n}, each{2, 5, 2};
    expect_as_reference(
        op::gated_delta_net, {},
        {scattered(f64, rows, 1), scattered(f64, rows, 2), scattered(f64, rows, 3),
         scattered(f64, each, 4), scattered(f64, each, 5), scattered(f64, {2, 2, n, n}, 6)},
        1e-10);
  }
}

// More rows of an expert than are gathered at a time, more columns than a tile has.
TEST(Experts, RowsAndColumnsBeyondATile) {
  const Tensor ids = whole(DType::I64, {170}, 2);
  for (int64_t k : {5, 16, 17, 40})
    expect_as_reference(op::grouped_outer, {.experts = 2},
                        {scattered(f32, {170, k}, 1), scattered(f32, {170, 19}, 2), ids}, 1e-5);
  for (bool transposed : {false, true})
    expect_as_reference(op::grouped_matmul, {.transpose_weight = transposed},
                        {scattered(f32, {170, 37}, 1),
                         scattered(f32, transposed ? Ints{2, 75, 37} : Ints{2, 37, 75}, 2), ids},
                        1e-5);
}

// More columns of an expert than a tile has, the last tile narrower: as they lie, transposed, and in quantised blocks.
TEST(Experts, ColumnsBeyondATile) {
  const Tensor ids = whole(DType::I64, {7}, 2);
  for (int64_t n : {256, 257, 520})
    for (bool transposed : {false, true})
      expect_as_reference(op::grouped_matmul, {.transpose_weight = transposed},
                          {scattered(f32, {7, 9}, 1),
                           scattered(f32, transposed ? Ints{2, n, 9} : Ints{2, 9, n}), ids},
                          1e-5);
  for (const auto& [scheme, k, bytes] :
       {std::tuple<const char*, int64_t, int64_t>{"gguf_q8_0", 32, 34}, {"gguf_q4k", 256, 144}})
    for (int64_t n : {65, 130})
      expect_as_reference(op::dequant_grouped_matmul, {parse_scheme(scheme), n},
                          {scattered(f32, {7, k}), whole(DType::U8, {2 * n * bytes}, 60), ids},
                          1e-5);
}

TEST(RandomWords, BlocksOfEveryKeyAreDistinct) {
  const Tensor keys = whole(DType::U32, {3, 2}, 1000);
  for (int64_t words : {4095, 4096, 4097, 9001})
    expect_as_reference(op::random_bits, {.shape = {words}}, {keys}, 0);
}

TEST(Indexing, ListsAndAxesBeyondABlock) {
  for (int64_t inner : {3, 16, 70}) {
    expect_as_reference(op::gather, {.axis = 1},
                        {scattered(f32, {2, 50, inner}), whole(DType::I64, {4000}, 50)}, 0);
    for (ScatterMode mode : {ScatterMode::set, ScatterMode::max})
      expect_as_reference(op::scatter, {.axis = 1, .mode = mode},
                          {scattered(f32, {2, 53, inner}, 1), whole(DType::I32, {90}, 53),
                           scattered(f32, {2, 90, inner}, 2)},
                          0);
    expect_as_reference(op::scatter_add, {.axis = 1, .size = 53},
                        {scattered(f32, {2, 90, inner}), whole(DType::I64, {90}, 53)}, 1e-6);
  }
}

// Lines that lie side by side, in rows that no vector fills; single lines of prime length, short and long, both ways.
TEST(Transforms, EveryLayoutBothWays) {
  for (bool inverse : {false, true}) {
    for (int64_t inner : {1, 3, 13, 21})
      for (int64_t n : {12, 17, 41})
        expect_as_reference(op::fft, {.inverse = inverse, .axis = 1},
                            {scattered(DType::C64, {3, n, inner})}, 1e-5);
    for (int64_t n : {67, 97, 257, 1031})
      expect_as_reference(op::fft, {.inverse = inverse, .axis = 0}, {scattered(DType::C64, {n})},
                          1e-5);
  }
}

TEST(Sorting, IntegersOfBothSigns) {
  for (DType d : {DType::I8, DType::I16, DType::I32, DType::I64}) {
    const Tensor x = whole(d, {3, 40, 5}, 101, -50);
    for (bool descending : {false, true})
      expect_as_reference(op::argsort, {.axis = 1, .descending = descending}, {x}, 0);
  }
}

// Of equals a running extremum names the last, in every direction.
TEST(RunningExtrema, TiesAndDirections) {
  const Tensor x = whole(f32, {3, 40, 5}, 4);
  for (bool exclusive : {false, true})
    for (bool reverse : {false, true}) {
      const CumsumAttrs attrs{.axis = 1, .exclusive = exclusive, .reverse = reverse};
      for (const auto* op : {&op::cummax.def, &op::cummin.def}) {
        Builder b("running");
        for (Value v : b.emit(*op, attrs, Values{b.input("x", x.type())})) b.output(v);
        const Graph g = b.finish();
        const Tensors want = evaluate(g, Tensors{x}),
                      got = Session("cpu").compile(g).run({{"x", x}});
        for (size_t k = 0; k < 2; ++k) EXPECT_TRUE(got[k].same_bits(want[k])) << k;
      }
    }
  Builder b("ties");
  for (Value v : b.emit(op::cummax.def, CumsumAttrs{.axis = 0}, Values{b.input("x", {f32, {5}})}))
    b.output(v);
  const Tensor y = evaluate(b.finish(), Tensors{Tensor::from<float>({5}, {2, 1, 2, 3, 3})})[1];
  EXPECT_TRUE(y.same_bits(Tensor::from<int64_t>({5}, {0, 0, 2, 3, 4})));
}

// Elements of every size, transposed, turned and joined, at sizes that no tile divides.
TEST(Copies, OfEveryElementSize) {
  for (DType d : {DType::I8, DType::F16, f32, f64, DType::C64})
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{17, 33}, {129, 70}, {3, 260}}) {
      const Tensor x = is_int(d) ? whole(d, {2, rows, cols}, 100) : scattered(d, {2, rows, cols});
      expect_as_reference(op::transpose, {{0, 2, 1}}, {x}, 0);
      expect_as_reference(op::transpose, {{2, 1, 0}}, {x}, 0);
      expect_as_reference(op::reverse, {{1, 2}}, {x}, 0);
      expect_as_reference(op::concat.def, AxisAttrs{2}, {x, x}, 0);
    }
}

// Lines beyond a block: many searches, many short lines, more columns than walk side by side.
TEST(Lines, BeyondABlock) {
  const Tensor x = scattered(f32, {3, 21, 70}), long_lines = scattered(f64, {2, 6000});
  expect_as_reference(op::argmax, {.axis = 1}, {x}, 0);
  expect_as_reference(op::cumprod, {.axis = 1}, {x}, 1e-5);
  expect_as_reference(op::cumlogsumexp, {.axis = 1, .reverse = true}, {x}, 1e-5);
  const Tensor u = scattered(f32, {3, 70, 21});
  for (bool exclusive : {false, true}) {
    expect_as_reference(op::linear_recurrence, {1, exclusive, !exclusive}, {x, x}, 1e-5);
    expect_as_reference(op::linear_recurrence, {2, exclusive, exclusive}, {u, u}, 1e-5);
  }
  expect_as_reference(op::argsort, {.axis = 1}, {scattered(f32, {900, 7, 2})}, 0);
  expect_as_reference(op::topk, {.k = 700, .axis = 1}, {long_lines}, 0);
  Tensor sorted(f32, {2, 50});
  for (int64_t i = 0; i < 100; ++i) sorted.set_float(i, static_cast<double>(i % 50) * 0.04 - 1);
  for (bool right : {false, true})
    expect_as_reference(op::searchsorted, {right}, {sorted, scattered(f32, {2, 700})}, 0);
}

// Draws of several keys and a parameter for each element, beyond a block.
TEST(Draws, OfSeveralKeysAndParameters) {
  const Tensor keys = whole(DType::U32, {3, 2}, 1000);
  Tensor alpha(f64, {700});
  for (int64_t i = 0; i < 700; ++i) alpha.set_float(i, 0.1 + 0.01 * static_cast<double>(i));
  expect_as_reference(op::random_gamma, {.shape = {700}}, {keys, alpha}, 0);
  expect_as_reference(op::random_poisson, {.shape = {700}}, {keys, alpha}, 0);
}

// Complex ops beyond a block: operands that broadcast or lie transposed, of one dtype and of several, and reductions.
TEST(ComplexNumbers, BeyondABlock) {
  const DType c64 = DType::C64;
  const Tensor rows = scattered(c64, {60, 1}, 1), columns = scattered(c64, {1, 50}, 2),
               all = scattered(c64, {60, 50}, 3);
  for (const auto* op : {&op::add, &op::mul, &op::div}) {
    expect_as_reference(*op, {}, {rows, columns}, 1e-6);
    expect_as_reference(*op, {}, {all, columns}, 1e-6);
    expect_as_reference(*op, {}, {all, scattered(c64, {60, 50}, 4)}, 1e-6);
    expect_as_reference(*op, {}, {all, scattered(c64, {}, 5)}, 1e-6);
  }
  Tensor mask(DType::Bool, {60, 1}), some = scattered(c64, {60, 50}, 3);
  for (int64_t i = 0; i < 60; ++i) mask.set_int(i, i % 3 == 0);
  for (int64_t i = 0; i < all.elements(); i += 5) some.set_complex(i, 0);
  expect_as_reference(op::select, {}, {mask, all, columns}, 0);
  expect_as_reference(op::ne, {}, {all, some}, 0);
  for (int64_t axis : {0, 1})
    for (const auto* op : {&op::reduce_sum, &op::reduce_prod})
      expect_as_reference(*op, ReduceAttrs{.axes = {axis}}, {scattered(c64, {61, 67})}, 1e-5);
  Builder b("turned");
  const Value x = b.input("x", all.type());
  b.output(op::conj(b, op::transpose(b, x, {{1, 0}})));
  const Graph g = b.finish();
  const Tensor want = evaluate(g, Tensors{all})[0];
  for (int threads : {1, 3})
    EXPECT_TRUE(Session("cpu")
                    .compile(g, {.threads = threads, .poison = true})
                    .run({{"x", all}})[0]
                    .same_bits(want));
  for (int64_t axis : {0, 1, 2})
    expect_as_reference(op::iota, {c64, {5, 70, 60}, axis}, Tensors{}, 0);
}

// A window in rows of which a block has several, and what is around it, in the memory of the operand and elsewhere.
TEST(Windows, RowsOfManyBlocksAroundOne) {
  const Tensor starts = Tensor::from<int64_t>({3}, {1, 20, 3});
  for (const Ints& window : {Ints{1, 7, 900}, {2, 40, 1000}, {1, 60, 999}}) {
    const Tensor x = scattered(f32, {2, 60, 1000}), update = scattered(f32, window, 2);
    expect_as_reference(op::dynamic_update_slice, {}, {x, update, starts}, 0);
    expect_as_reference(op::dynamic_slice, {.sizes = {window.begin(), window.end()}}, {x, starts},
                        0);
    Builder b("once");
    const Value in = b.input("x", x.type());
    b.output(op::dynamic_update_slice(b, op::neg(b, in), b.input("u", update.type()),
                                      b.input("s", starts.type())));
    const Graph g = b.finish();
    const NamedTensors leaves{{"x", x}, {"u", update}, {"s", starts}};
    const Tensor want = evaluate(g, leaves).outputs[0];
    for (int threads : {1, 3})
      EXPECT_TRUE(Session("cpu")
                      .compile(g, {.threads = threads, .poison = true})
                      .run(leaves)[0]
                      .same_bits(want));
  }
}

// Planes of more lines than a block has, the last block shorter.
TEST(Windows, PlanesOfManyBlocks) {
  for (PoolKind kind : {PoolKind::max, PoolKind::mean})
    expect_as_reference(
        op::pool, {.kind = kind, .kernel = {3, 3}, .stride = {1, 1}, .low = {1, 1}, .high = {1, 1}},
        {scattered(f32, {3, 90, 50})}, 1e-6);
  expect_as_reference(op::max_pool_with_indices, {.kernel = {3, 3}, .stride = {1, 1}},
                      {scattered(f32, {2, 90, 50})}, 0);
}

// ---- sizes of one

// Where place i of an axis continued by a mode comes from: mirrored or moved until it is inside.
int64_t inside(PadMode mode, int64_t i, int64_t n) {
  while (i < 0 || i >= n) {
    const bool before = i < 0;
    if (mode == PadMode::edge || (mode == PadMode::reflect && n == 1))
      i = before ? 0 : n - 1;
    else if (mode == PadMode::wrap)
      i += before ? n : -n;
    else if (mode == PadMode::reflect)
      i = before ? -i : 2 * (n - 1) - i;
    else
      i = before ? -1 - i : 2 * n - 1 - i;
  }
  return i;
}

// Padding by what is there, much more than that, of axes of a known size and of one that is bound by the run.
TEST(Padding, OfShortAxes) {
  for (PadMode mode : {PadMode::edge, PadMode::reflect, PadMode::symmetric, PadMode::wrap}) {
    const PadModeAttrs attrs{.low = {0, 5}, .high = {0, 4}, .mode = mode};
    const auto padded = [&](const Dim& size) {
      Builder b("padded");
      b.output(op::pad_mode(b, b.input("x", {f64, {2, size}}), attrs));
      return b.finish();
    };
    CompiledGraph any = Session("cpu").compile(padded(Dim::symbol("n")));
    for (int64_t n : {1, 2, 3, 7}) {
      const Tensor x = scattered(f64, {2, n});
      Tensor want(f64, {2, n + 9});
      for (int64_t row : {0, 1})
        for (int64_t i = 0; i < n + 9; ++i)
          want.set_float(row * (n + 9) + i, x.get_float(row * n + inside(mode, i - 5, n)));
      EXPECT_TRUE(evaluate(padded(n), Tensors{x})[0].same_bits(want)) << n;
      EXPECT_TRUE(Session("cpu").compile(padded(n)).run({{"x", x}})[0].same_bits(want)) << n;
      EXPECT_TRUE(any.run({{"x", x}})[0].same_bits(want)) << n;
    }
  }
}

// ---- folding

// What raises when it is computed raises when it is run, not when it is compiled.
TEST(Folding, ErrorsWaitForTheRun) {
  Builder b("wrong");
  const Value table = b.constant(Tensor::from<float>({2}, {1, 2})),
              index = b.constant(Tensor::from<int64_t>({1}, {5}));
  b.output(op::gather(b, table, index));
  const Graph g = b.finish();
  for (const Device& d : {Device("reference"), Device("cpu")}) {
    CompiledGraph f = Session(d).compile(g);
    try {
      f.run(NamedTensors{});
      ADD_FAILURE() << name(d) << ": no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), "index-range") << name(d);
    }
  }
}

// ---- updates

// A parameter that nothing reads is there for who asks for it afterwards.
TEST(Updates, OfAParameterThatNothingReads) {
  Builder b("counts");
  const Value x = b.input("x", {f32, {3}});
  b.param("last", {f32, {3}});
  b.update("last", op::add(b, x, x));
  b.output(op::neg(b, x));
  const Graph g = b.finish();
  for (const Device& d : {Device("reference"), Device("cpu")}) {
    CompiledGraph f = Session(d).compile(g);
    f.set_param("last", Tensor(f32, {3}));
    f.run({{"x", Tensor::from<float>({3}, {1, 2, 4})}});
    EXPECT_TRUE(f.param("last").same_bits(Tensor::from<float>({3}, {2, 4, 8}))) << name(d);
  }
}

// ---- memory and chains

Tensor small_numbers(const Ints& sizes) {
  Tensor t(f32, sizes);
  for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, static_cast<double>(i * 7919 % 5 - 2));
  return t;
}

void expect_exact(const Graph& g, const NamedTensors& in) {
  const Tensors want = evaluate(g, in).outputs;
  for (int threads : {1, 3}) {
    const Tensors got = Session("cpu").compile(g, {.threads = threads, .poison = true}).run(in);
    for (size_t k = 0; k < want.size(); ++k) EXPECT_TRUE(got[k].same_bits(want[k])) << k;
  }
}

// Both results of one kernel could take over the operand that ends there; one may.
TEST(Sharing, TwoResultsOfOneKernel) {
  for (int64_t n : {8, 70}) {
    Builder b("two");
    const Value x = b.input("x", {f32, {n, n}}), w = b.input("w", {f32, {n, n}});
    const Value t = op::matmul(b, x, w);
    const Value one = op::add(b, t, b.constant(f32, 1)), two = op::mul(b, t, b.constant(f32, 2));
    b.output(op::matmul(b, op::sub(b, one, two), w));
    b.output(op::matmul(b, one, w));
    b.output(op::matmul(b, two, w));
    expect_exact(b.finish(), {{"x", small_numbers({n, n})}, {"w", small_numbers({n, n})}});
  }
}

// Products whose tiles have 26 and 65 rows: a chain of both has tiles of 130, or there is none.
TEST(Tiles, OfDifferentHeights) {
  for (int64_t rows : {130, 390, 129}) {
    Builder b("products");
    const Value x = b.input("x", {f32, {rows, 600}}), v = b.input("v", {f32, {600, 64}}),
                w = b.input("w", {f32, {64, 16}});
    b.output(op::matmul(b, op::matmul(b, x, v), w));
    expect_exact(b.finish(), {{"x", small_numbers({rows, 600})},
                              {"v", small_numbers({600, 64})},
                              {"w", small_numbers({64, 16})}});
  }
}

// ---- functions with derivatives of their own

// (2 x, 3 x), whose stated slopes are 20 and 300: each cotangent goes to its own result.
TEST(CustomFunctions, EachResultHasItsCotangent) {
  const Type t{f64, {2}};
  Builder forward("f"), back("b");
  const Value x = forward.input("x", t);
  forward.output(op::mul(forward, x, forward.constant(f64, 2)));
  forward.output(op::mul(forward, x, forward.constant(f64, 3)));
  back.input("x", t);
  const Value second = back.input("d_output_1", t), first = back.input("d_output_0", t);
  back.output(op::add(back, op::mul(back, first, back.constant(f64, 20)),
                      op::mul(back, second, back.constant(f64, 300))));
  Builder b("g");
  const Values y = b.emit(op::custom_fn.def,
                          CustomFnAttrs{.fwd = Body(forward.finish()), .vjp = Body(back.finish())},
                          Values{b.input("x", t)});
  const Value weighted =
      op::add(b, op::mul(b, y[0], b.constant(f64, 5)), op::mul(b, y[1], b.constant(f64, 7)));
  b.output(op::reduce_sum(b, weighted, {.axes = {0}}));
  const Tensor at = Tensor::from<double>({2}, {1, -4});
  EXPECT_TRUE(evaluate(grad(b.finish(), {"x"}), Tensors{at})[0].same_bits(
      Tensor::from<double>({2}, {2200, 2200})));
}

// ---- carries that hand something on

// p' = q, q' = r, r' = r + x: what reaches r needs two steps to p.
Graph handing_on(int64_t length) {
  Builder body("step");
  Values in;
  for (const char* name : {"p", "q", "r", "x"}) in.push_back(body.input(name, {f64, {}}));
  body.output(in[1]);
  body.output(in[2]);
  body.output(op::add(body, in[2], op::square(body, in[3])));
  Builder b("carries");
  Values operands;
  for (const char* name : {"p", "q", "r"}) operands.push_back(b.input(name, {f64, {}}));
  operands.push_back(b.input("x", {f64, {length}}));
  const Values out = b.emit(
      op::scan.def,
      ScanAttrs{.body = Body(body.finish()), .length = length, .num_carries = 3, .num_xs = 1},
      operands);
  b.output(out[0]);
  return b.finish();
}

const Tensor kXs = Tensor::from<double>({4}, {1, 2, 3, 4});

NamedTensors carries_at(const Tensor& x) {
  return {{"p", Tensor::scalar(f64, 10)},
          {"q", Tensor::scalar(f64, 20)},
          {"r", Tensor::scalar(f64, 30)},
          {"x", x}};
}

// After four steps p is r + x0^2 + x1^2.
TEST(CarriesHandOn, Values) {
  EXPECT_EQ(evaluate(handing_on(4), carries_at(kXs)).outputs[0].get_float(0), 35);
}
TEST(CarriesHandOn, Tangents) {
  NamedTensors in = carries_at(kXs);
  in["tangent_x"] = Tensor::from<double>({4}, {1, 10, 100, 1000});
  EXPECT_EQ(evaluate(jvp(handing_on(4), {"x"}), in).outputs[1].get_float(0), 2 + 40);
}
TEST(CarriesHandOn, Cotangents) {
  const Evaluated r = evaluate(grad(handing_on(4), {"x", "r"}), carries_at(kXs));
  EXPECT_TRUE(r.outputs[0].same_bits(Tensor::from<double>({4}, {2, 4, 0, 0})));
  EXPECT_EQ(r.outputs[1].get_float(0), 1);
  EXPECT_EQ(evaluate(grad(handing_on(4), {"r"}), carries_at(kXs)).outputs[0].get_float(0), 1);
}
TEST(CarriesHandOn, Batches) {
  NamedTensors in = carries_at(Tensor::from<double>({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}));
  const Tensor y = evaluate(vmap(handing_on(4), {{"x", 0}}, 2), in).outputs[0];
  EXPECT_TRUE(y.same_bits(Tensor::from<double>({2}, {35, 91})));
}

// The same as a while loop, whose condition reads a counter; its carries change places on the CPU, too.
Graph handing_on_while(int64_t steps) {
  Builder condition("goes_on"), body("step");
  Values in, inner;
  for (Builder* b : {&condition, &body}) {
    Values& list = b == &body ? inner : in;
    list.push_back(b->input("i", {DType::I64, {}}));
    for (const char* name : {"p", "q", "r", "x"}) list.push_back(b->input(name, {f64, {3}}));
  }
  condition.output(op::lt(condition, in[0], condition.constant(DType::I64, steps)));
  body.output(op::add(body, inner[0], body.constant(DType::I64, 1)));
  body.output(inner[2]);
  body.output(inner[3]);
  body.output(op::add(body, inner[1], op::square(body, inner[4])));
  Builder b("carries");
  Values operands{b.input("i", {DType::I64, {}})};
  for (const char* name : {"p", "q", "r", "x"}) operands.push_back(b.input(name, {f64, {3}}));
  const Values out = b.emit(op::while_loop.def,
                            WhileAttrs{.cond = Body(condition.finish()),
                                       .body = Body(body.finish()),
                                       .num_carries = 4,
                                       .max_iterations = 10},
                            operands);
  for (size_t k = 1; k < 4; ++k) b.output(out[k]);
  return b.finish();
}

NamedTensors loop_at() {
  NamedTensors in{{"i", Tensor::scalar(DType::I64, 0)}};
  for (const char* name : {"p", "q", "r", "x"})
    in.emplace(name, Tensor::from<double>({3}, {name[0] * 1.0, 2, name[0] * 3.0}));
  return in;
}

TEST(CarriesHandOn, InAWhileLoop) {
  for (int64_t steps : {0, 1, 2, 3, 5, 6}) {
    const Graph g = handing_on_while(steps);
    const Tensors want = evaluate(g, loop_at()).outputs,
                  got = Session("cpu").compile(g, {.poison = true}).run(loop_at());
    for (size_t k = 0; k < 3; ++k) EXPECT_TRUE(got[k].same_bits(want[k])) << steps << ' ' << k;
  }
  // Three steps: p, q, r have each gained x^2, whose slope is 2 x.
  NamedTensors in = loop_at();
  in["tangent_x"] = Tensor::from<double>({3}, {1, 1, 1});
  const Evaluated r = evaluate(jvp(handing_on_while(3), {"x"}), in);
  for (size_t k = 3; k < 6; ++k)
    EXPECT_TRUE(r.outputs[k].same_bits(Tensor::from<double>({3}, {2 * 'x', 4, 6 * 'x'}))) << k;
}

// Under vmap with a limit each, carries that no operand batches end at different steps.
TEST(CarriesHandOn, UntilEachIsDone) {
  Builder condition("goes_on"), body("step");
  const Value i = condition.input("i", {DType::I64, {}}),
              n = condition.input("n", {DType::I64, {}});
  condition.output(op::lt(condition, i, n));
  const Value j = body.input("i", {DType::I64, {}});
  body.input("n", {DType::I64, {}});
  body.output(op::add(body, j, body.constant(DType::I64, 2)));
  Builder b("count");
  const Value first = b.input("i", {DType::I64, {}}), limit = b.input("n", {DType::I64, {}});
  b.output(b.emit(
      op::while_loop.def,
      WhileAttrs{.cond = Body(condition.finish()), .body = Body(body.finish()), .num_carries = 1},
      Values{first, limit})[0]);
  const Graph g = vmap(b.finish(), {{"n", 0}}, 4);
  const NamedTensors in{{"i", Tensor::scalar(DType::I64, 1)},
                        {"n", Tensor::from<int64_t>({4}, {0, 1, 2, 7})}};
  const Tensor want = Tensor::from<int64_t>({4}, {1, 1, 3, 7});
  EXPECT_TRUE(evaluate(g, in).outputs[0].same_bits(want));
  EXPECT_TRUE(Session("cpu").compile(g).run(in)[0].same_bits(want));
}

}  // namespace
}  // namespace rlx
