// Movement, reductions, contractions and randomness: values by hand, the messages of their errors,
// symbolic sizes, and the form of gradients that speed depends on.
#include <gtest/gtest.h>

#include <cmath>

#include "rlx/base/philox.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

using Numbers = std::vector<double>;

Tensor tensor(Ints sizes, const Numbers& v) { return Tensor::from<double>(std::move(sizes), v); }
Tensor ids(Ints sizes, const std::vector<int64_t>& v) {
  return Tensor::from<int64_t>(std::move(sizes), v);
}

Numbers numbers(const Tensor& t) {
  Numbers out;
  for (int64_t i = 0; i < t.elements(); ++i) out.push_back(t.get_float(i));
  return out;
}

// The graph of one op; inputs are "0", "1", ... of the given types.
template <class A>
Graph graph_of(const Op<A>& op, const Types& types, A attrs = {}) {
  Builder b("f");
  Values in;
  for (const Type& t : types) in.push_back(b.input(std::to_string(in.size()), t));
  b.output(b.emit(op.def, std::move(attrs), in)[0]);
  return b.finish();
}

template <class A>
Tensor apply(const Op<A>& op, const Tensors& in, A attrs = {}) {
  Types types;
  for (const Tensor& t : in) types.push_back(t.type());
  return evaluate(graph_of(op, types, std::move(attrs)), in)[0];
}

// The code of the error that building (or running) raises; empty for none.
template <class F>
std::string code_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  }
  return {};
}
template <class A>
std::string build_error(const Op<A>& op, const Types& types, A attrs = {}) {
  return code_of([&] { graph_of(op, types, attrs); });
}

int count(const Graph& g, const OpDef* op) {
  int n = 0;
  for (const Node& node : g.nodes) n += node.op == op;
  return n;
}

const Type kF32_23{DType::F32, {2, 3}};
const Dim kB = Dim::symbol("b");

TEST(Movement, ValuesByHand) {
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(numbers(apply(op::transpose, {x}, {{1, 0}})), (Numbers{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(numbers(apply(op::slice, {x}, {{0, 0}, {2, 3}, {1, 2}})), (Numbers{1, 3, 4, 6}));
  EXPECT_EQ(numbers(apply(op::reverse, {x}, {{1}})), (Numbers{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(numbers(apply(op::concat, {x, tensor({2, 1}, {7, 8})}, {1})),
            (Numbers{1, 2, 3, 7, 4, 5, 6, 8}));
  EXPECT_EQ(numbers(apply(op::pad, {x, tensor({}, {9})}, {{0, 1}, {0, -2}})),
            (Numbers{9, 1, 9, 4}));
  EXPECT_EQ(numbers(apply(op::pad, {x, tensor({}, {9})}, {{0, -5}, {0, 4}})),
            (Numbers{9, 9, 9, 9}));
  EXPECT_EQ(numbers(apply(op::gather, {x, ids({2}, {2, 0})}, {1})), (Numbers{3, 1, 6, 4}));
  EXPECT_EQ(numbers(apply(op::scatter_add, {x, ids({3}, {1, 0, 1})}, {1, 2})),
            (Numbers{2, 4, 5, 10}));
}

TEST(Movement, ErrorsSayWhatIsAllowed) {
  EXPECT_EQ(build_error(op::broadcast, {kF32_23}, {{2, 4}}), "broadcast");
  EXPECT_EQ(build_error(op::reshape, {kF32_23}, {{4, -1}}), "reshape-size");
  EXPECT_EQ(build_error(op::reshape, {kF32_23}, {{-1, -1}}), "reshape-size");
  EXPECT_EQ(build_error(op::reshape, {kF32_23}, {{7}}), "reshape-size");
  EXPECT_EQ(build_error(op::transpose, {kF32_23}, {{0, 0}}), "perm");
  EXPECT_EQ(build_error(op::transpose, {kF32_23}, {{0, 2}}), "axis-range");
  EXPECT_EQ(build_error(op::slice, {kF32_23}, {{0, 2}, {2, 1}, {}}), "slice-range");
  EXPECT_EQ(build_error(op::slice, {kF32_23}, {{0, 0}, {2, 4}, {}}), "slice-range");
  EXPECT_EQ(build_error(op::slice, {kF32_23}, {{}, {}, {1, 0}}), "slice-stride");
  EXPECT_EQ(build_error(op::slice, {kF32_23}, {{0}, {}, {}}), "slice-rank");
  EXPECT_EQ(build_error(op::concat, {kF32_23, {DType::F32, {2, 4}}}), "concat-shape");
  EXPECT_EQ(build_error(op::concat, {kF32_23, {DType::F64, {2, 3}}}), "dtype-mixed");
  EXPECT_EQ(build_error(op::pad, {kF32_23, kF32_23}), "pad-value");
  EXPECT_EQ(build_error(op::pad, {kF32_23, {DType::F32, {}}}, {{0, -4}, {0, 0}}), "negative-dim");
  EXPECT_EQ(build_error(op::gather, {kF32_23, {DType::F16, {1}}}), "index-dtype");
  EXPECT_EQ(build_error(op::scatter_add, {kF32_23, {DType::I64, {3}}}, {0, 4}), "scatter-shape");
  EXPECT_EQ(build_error(op::iota, {}, {DType::Bool, {3}, 0}), "dtype");
}

TEST(Movement, IndicesOutOfRangeRaiseAlsoUnderVmap) {
  const Graph one = graph_of(op::gather, {{DType::F64, {3}}, {DType::I64, {1}}});
  const Graph both = vmap(one, {{"0", 0}, {"1", 0}}, 2);
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(numbers(evaluate(both, Tensors{x, ids({2, 1}, {2, 1})})[0]), (Numbers{3, 5}));
  for (int64_t bad : {-1, 3})  // inside the rows of the other sample
    EXPECT_EQ(code_of([&] {
                evaluate(both, Tensors{x, ids({2, 1}, {bad == 3 ? bad : 0, bad == 3 ? 0 : bad})});
              }),
              "index-range");
  EXPECT_EQ(code_of([&] { apply(op::gather, {tensor({3}, {1, 2, 3}), tensor({1}, {NAN})}); }),
            "index-range");
}

TEST(Movement, SymbolicSizes) {
  EXPECT_EQ(graph_of(op::reshape, {{DType::F32, {kB, 4, 3}}}, {{-1, 6}}).output_types()[0].shape,
            (Shape{2 * kB, 6}));
  EXPECT_EQ(
      graph_of(op::slice, {{DType::F32, {2 * kB + 1}}}, {{}, {}, {2}}).output_types()[0].shape,
      (Shape{kB + 1}));
  // Behind a symbolic operand a concat's gradient starts at a symbolic place.
  const Graph g = vjp(graph_of(op::concat, {{DType::F64, {kB}}, {DType::F64, {2}}}), {"1"});
  EXPECT_EQ(numbers(evaluate(g, Tensors{tensor({3}, {0, 0, 0}), tensor({2}, {0, 0}),
                                        tensor({5}, {1, 2, 3, 4, 5})})[1]),
            (Numbers{4, 5}));
  const Graph mean = vjp(graph_of(op::reduce_mean, {{DType::F64, {kB}}}, {{0}}), {"0"});
  EXPECT_EQ(numbers(evaluate(mean, Tensors{tensor({4}, {1, 2, 3, 6}), tensor({}, {8})})[1]),
            (Numbers{2, 2, 2, 2}));
}

TEST(Reduce, ValuesByHand) {
  const Tensor x = tensor({2, 3}, {1, 5, 5, 4, NAN, 0});
  EXPECT_EQ(numbers(apply(op::argmax, {x}, {1})), (Numbers{1, 1}));
  EXPECT_EQ(numbers(apply(op::reduce_max, {x}, {{0}}))[0], 4);
  EXPECT_TRUE(std::isnan(numbers(apply(op::reduce_min, {x}, {{1}}))[1]));
  EXPECT_EQ(numbers(apply(op::reduce_prod, {tensor({2, 0}, {})}, {{1}})), (Numbers{1, 1}));
  EXPECT_EQ(numbers(apply(op::reduce_sum, {tensor({2, 0}, {})}, {{1}, true})), (Numbers{0, 0}));
  EXPECT_EQ(numbers(apply(op::reduce_max, {tensor({1, 0}, {})}, {{1}})), (Numbers{-INFINITY}));
  EXPECT_EQ(build_error(op::argmax, {{DType::F32, {2, 0}}}), "reduce-empty");
  EXPECT_EQ(build_error(op::reduce_sum, {kF32_23}, {{1, -1}}), "axis-repeated");
  const Tensor line = tensor({3}, {1, 2, 3});
  EXPECT_EQ(numbers(apply(op::cumsum, {line}, {0, true, false})), (Numbers{0, 1, 3}));
  EXPECT_EQ(numbers(apply(op::cumsum, {line}, {0, true, true})), (Numbers{5, 3, 0}));
  // The sum exceeds the range of f16, the mean does not.
  const Tensor many = Tensor::full(DType::F16, {70000}, 1);
  EXPECT_EQ(numbers(apply(op::reduce_mean, {many}, {{0}})), (Numbers{1}));
}

TEST(Reduce, ProductsWithZerosHaveGradients) {
  for (const Dim& n : {Dim(3), kB}) {
    const Graph g = vjp(graph_of(op::reduce_prod, {{DType::F64, {n}}}, {{0}}), {"0"});
    const Tensor one = tensor({}, {1});
    EXPECT_EQ(numbers(evaluate(g, Tensors{tensor({3}, {2, 3, 4}), one})[1]), (Numbers{12, 8, 6}));
    EXPECT_EQ(numbers(evaluate(g, Tensors{tensor({3}, {2, 0, 4}), one})[1]), (Numbers{0, 8, 0}));
    EXPECT_EQ(numbers(evaluate(g, Tensors{tensor({3}, {0, 0, 4}), one})[1]), (Numbers{0, 0, 0}));
    // The second derivative of x y z by x and y is z, also where x and y are 0.
    const Graph h = hvp(graph_of(op::reduce_prod, {{DType::F64, {n}}}, {{0}}), {"0"});
    EXPECT_EQ(numbers(evaluate(h, Tensors{tensor({3}, {0, 0, 4}), tensor({3}, {1, 0, 0})}).back()),
              (Numbers{0, 4, 0}));
  }
}

TEST(Matmul, GradientOfASharedWeightIsOneProduct) {
  for (bool transposed : {false, true}) {
    const Type w{DType::F32, transposed ? Shape{5, 4} : Shape{4, 5}};
    const Graph g = drop_dead(
        vjp(graph_of(op::matmul, {{DType::F32, {kB, 3, 4}}, w}, {false, transposed}), {"0", "1"}));
    EXPECT_EQ(count(g, &op::matmul), 3);
    EXPECT_EQ(count(g, &op::reduce_sum) + count(g, &op::transpose), 0);
    EXPECT_EQ(g.type(g.outputs[2]), w);
  }
}

TEST(Matmul, GradientOfASharedWeightUnderATransposedBatch) {
  const Tensor a = tensor({2, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});  // a^T: [2, 3, 2]
  const Tensor w = tensor({2, 1}, {1, -1}), g = tensor({2, 3, 1}, {1, 0, 2, -1, 3, 0});
  const Graph grad = vjp(graph_of(op::matmul, {a.type(), w.type()}, {true, false}), {"0", "1"});
  const Tensors out = evaluate(grad, Tensors{a, w, g});
  EXPECT_EQ(numbers(out[0]), (Numbers{-3, -3, -3, -3, -3, -3}));
  EXPECT_EQ(numbers(out[1]), (Numbers{1, 0, 2, -1, 0, -2, -1, 3, 0, 1, -3, 0}));
  EXPECT_EQ(numbers(out[2]), (Numbers{24, 39}));
}

TEST(Matmul, SharedOperandsStayUnbatched) {
  const Graph g =
      vmap(graph_of(op::matmul, {{DType::F32, {3, 4}}, {DType::F32, {4, 5}}}), {{"0", 0}}, 7);
  EXPECT_EQ(count(g, &op::broadcast) + count(g, &op::reshape), 0);
}

TEST(Matmul, ErrorsSayWhatIsAllowed) {
  EXPECT_EQ(build_error(op::matmul, {kF32_23, kF32_23}), "matmul-inner");
  EXPECT_EQ(build_error(op::matmul, {kF32_23, {DType::F32, {3}}}), "matmul-rank");
  EXPECT_EQ(build_error(op::matmul, {{DType::F32, {2, 2, 3}}, {DType::F32, {3, 3, 2}}}),
            "broadcast");
  EXPECT_EQ(build_error(op::dot_general, {kF32_23, kF32_23}, {{1}, {0}, {}, {}}), "dot-sizes");
  EXPECT_EQ(build_error(op::dot_general, {kF32_23, kF32_23}, {{1}, {}, {}, {}}), "dot-axes");
  EXPECT_EQ(build_error(op::dot_general, {kF32_23, kF32_23}, {{1}, {1}, {1}, {0}}),
            "axis-repeated");
}

TEST(DotGeneral, TransposesOnlyWhenItMust) {
  auto transposes = [](const Shape& x, const Shape& y, DotAttrs d) {
    const Graph g = graph_of(op::dot_general, {{DType::F32, x}, {DType::F32, y}}, d);
    return count(decomposed(g.nodes.back(), Types{{DType::F32, x}, {DType::F32, y}}),
                 &op::transpose);
  };
  EXPECT_EQ(transposes({2, 3}, {3, 4}, {{1}, {0}, {}, {}}), 0);
  EXPECT_EQ(transposes({3, 2}, {4, 3}, {{0}, {1}, {}, {}}), 0);
  EXPECT_EQ(transposes({7, 2, 3}, {7, 4, 3}, {{2}, {2}, {0}, {0}}), 0);
  EXPECT_EQ(transposes({2, 7, 3}, {7, 4, 3}, {{2}, {2}, {1}, {0}}), 1);
}

TEST(Random, BitsArePhilox) {
  const Tensor key = Tensor::from<uint32_t>({2}, {42, 0});
  const Tensor bits = apply(op::random_bits, {key}, {{5}});
  const uint32_t expected[] = {0x9ceaf053, 0x77f5493b, 0x12bf50ad, 0x5742b3d7};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(bits.data<uint32_t>()[i], expected[i]);
  // Each of several keys has the stream it has alone.
  const Tensor keys = Tensor::from<uint32_t>({2, 2}, {7, 1, 42, 0});
  const Tensor both = apply(op::random_bits, {keys}, {{5}});
  EXPECT_EQ(std::memcmp(both.data<uint32_t>() + 5, bits.data<uint32_t>(), 20), 0);
  EXPECT_EQ(build_error(op::random_bits, {{DType::U32, {3}}}, {{5}}), "random-key");
  EXPECT_EQ(build_error(op::random_uniform, {{DType::U32, {2}}}, {DType::I32, {5}}), "dtype");
}

TEST(Random, Distributions) {
  const Tensor key = Tensor::from<uint32_t>({2}, {3, 9});
  for (DType d : {DType::F32, DType::F16, DType::BF16, DType::F64}) {
    double mean = 0, square = 0;
    for (double u : numbers(apply(op::random_uniform, {key}, {d, {4000}}))) {
      EXPECT_TRUE(u >= 0 && u < 1);
      mean += u / 4000;
    }
    EXPECT_NEAR(mean, 0.5, 0.02);
    mean = 0;
    for (double z : numbers(apply(op::random_normal, {key}, {d, {4000}})))
      mean += z / 4000, square += z * z / 4000;
    EXPECT_NEAR(mean, 0, 0.05);
    EXPECT_NEAR(square, 1, 0.08);
  }
  const PhiloxBlock r = philox4x32({3, 9}, philox_counter(0));
  const double u1 = ((r[2] >> 8) + 1) * 0x1p-24, u2 = (r[3] >> 8) * 0x1p-24;
  EXPECT_NEAR(numbers(apply(op::random_normal, {key}, {DType::F64, {2}}))[1],
              std::sqrt(-2 * std::log(u1)) * std::cos(2 * M_PI * u2), 1e-12);
}

}  // namespace
}  // namespace rlx
