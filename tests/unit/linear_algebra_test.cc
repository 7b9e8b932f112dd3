// Dense linear algebra beyond the sample table: what it refuses, degenerate matrices, larger sizes,
// views, and what a run on the CPU promises.
#include <gtest/gtest.h>

#include <cmath>

#include "../support/allocations.h"
#include "../support/samples.h"
#include "../support/worse.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/linalg/factor.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/linalg/matrix.h"
#include "rlx/ops/linalg/matrix_rules.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {
namespace {

constexpr DType f32 = DType::F32, f64 = DType::F64;

template <class F>
std::string code_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  }
  return "none";
}

Tensor matrices(DType d, Ints sizes, const std::string& kind, uint64_t seed = 1) {
  return make_operand({"T", std::move(sizes), kind}, d, seed);
}

// A graph of one op on inputs "0", "1"...
Graph graph_of(const OpDef& op, Attrs attrs, const Tensors& operands) {
  Builder b("linear_algebra");
  Values in;
  for (const Tensor& t : operands) in.push_back(b.input(std::to_string(in.size()), t.type()));
  for (Value v : b.emit(op, std::move(attrs), in)) b.output(v);
  return b.finish();
}

Tensors on_cpu(const Graph& g, const Tensors& operands, int threads = 2) {
  CompiledGraph f = Session("cpu").compile(g, {.threads = threads, .poison = true});
  NamedTensors named;
  for (size_t i = 0; i < operands.size(); ++i) named[std::to_string(i)] = operands[i];
  return f.run(named);
}

double distance(const Tensor& a, const Tensor& b) {
  double most = 0;
  for (int64_t i = 0; i < a.elements(); ++i)
    most = worse(most, std::abs(a.get_complex(i) - b.get_complex(i)));
  return most;
}

double magnitude_of(const Tensor& a) {
  double most = 0;
  for (int64_t i = 0; i < a.elements(); ++i) most = std::max(most, std::abs(a.get_complex(i)));
  return most;
}

TEST(LinearAlgebra, SingularMatricesRaise) {
  const Tensors in{Tensor::from<double>({2, 2, 2}, {1, 0, 0, 1, 1, 2, 2, 4}),
                   Tensor::from<double>({2, 2}, {1, 2, 3, 4})};
  const Graph g = graph_of(op::dense_solve.def, {}, in);
  EXPECT_EQ(code_of([&] { evaluate(g, in); }), "singular");
  CompiledGraph f = Session("cpu").compile(g);
  EXPECT_EQ(code_of([&] { f.run({{"0", in[0]}, {"1", in[1]}}); }), "singular");
  const Tensor regular = Tensor::from<double>({2, 2, 2}, {1, 0, 0, 1, 2, 0, 0, 4});
  EXPECT_EQ(f.run({{"0", regular}, {"1", in[1]}})[0].get_float(3), 1);  // the next run is clean
  const Tensors one{Tensor::from<float>({1, 1}, {0})};
  EXPECT_EQ(code_of([&] { on_cpu(graph_of(op::inverse.def, {}, one), one); }), "singular");
  const Graph slope = grad(graph_of(op::determinant.def, {}, one), {"0"});
  EXPECT_EQ(code_of([&] { on_cpu(slope, one); }), "singular");
}

TEST(LinearAlgebra, BadOperandsAreNamed) {
  auto build = [](const OpDef& op, const Tensors& in) {
    return code_of([&] { graph_of(op, Attrs(op.attr_type, op.attr_type->make()), in); });
  };
  const Tensor square(f32, {3, 3}), wide(f32, {2, 3}), line(f32, {3});
  for (const OpDef* op : {&op::cholesky, &op::eigh, &op::eig, &op::determinant, &op::slogdet,
                          &op::inverse, &op::expm, &op::logdet, &op::matrix_power})
    EXPECT_EQ(build(*op, {wide}), "matrix-square") << op->name;
  for (const OpDef* op :
       {&op::qr, &op::svd, &op::lu, &op::pinv, &op::trace, &op::matrix_rank, &op::matrix_norm})
    EXPECT_EQ(build(*op, {line}), "matrix-rank") << op->name;
  EXPECT_EQ(build(op::dense_solve.def, {square, Tensor(f32, {2})}), "solve-shape");
  EXPECT_EQ(build(op::dense_solve.def, {square, Tensor(f64, {3})}), "dtype-mixed");
  EXPECT_EQ(build(op::triangular_solve.def, {square, wide}), "solve-shape");
  EXPECT_EQ(build(op::lstsq.def, {square, wide}), "solve-shape");
  EXPECT_EQ(build(op::dense_solve.def, {Tensor(f32, {2, 3, 3}), Tensor(f32, {3, 3, 1})}),
            "broadcast");
  EXPECT_NE(build(op::eig.def, {Tensor(f64, {3, 3})}), "none");  // there is no c128
  EXPECT_NE(build(op::cholesky.def, {Tensor(DType::BF16, {3, 3})}), "none");
}

TEST(LinearAlgebra, OneBadMatrixDoesNotSpoilItsNeighbours) {
  const Tensors in{Tensor::from<float>({3, 2, 2}, {4, 0, 0, 9, 1, 2, 2, 1, 1, 0, 0, 1})};
  const Tensor l = on_cpu(graph_of(op::cholesky.def, CholeskyAttrs{}, in), in)[0];
  EXPECT_EQ(l.get_float(0), 2);
  EXPECT_EQ(l.get_float(3), 3);
  for (int64_t i = 4; i < 8; ++i) EXPECT_TRUE(std::isnan(l.get_float(i)));
  EXPECT_EQ(l.get_float(8), 1);
}

// d/dA of the sum of squared eigenvalues is 2 A, also where eigenvalues are equal.
TEST(LinearAlgebra, EqualEigenvaluesHaveFiniteGradients) {
  Builder b("loss");
  const Value a = b.input("0", {f64, {3, 3}});
  const Value w = b.emit(op::eigh.def, {}, Values{a})[0];
  b.output(sum_axes(b, op::square(b, w), {0}));
  Tensor three(f64, {3, 3});
  for (int64_t i = 0; i < 3; ++i) three.set_float(4 * i, 3);
  const Tensor slope = evaluate(grad(b.finish(), {"0"}), Tensors{three})[0];
  for (int64_t i = 0; i < 9; ++i) EXPECT_NEAR(slope.get_float(i), i % 4 == 0 ? 6 : 0, 1e-12);
}

// A = U S Vh, A V = V w and so on, in sizes where LAPACK works in blocks.
TEST(LinearAlgebra, LargerMatricesAreReconstructed) {
  const int64_t n = 150;
  Builder b("residuals");
  const Value a = b.input("0", {f64, {n, n}}), s = hermitian_part(b, a);
  auto residual = [&](Value x, Value y) {
    b.output(op::matrix_norm(b, op::sub(b, x, y), {.ord = MatrixNorm::fro}));
  };
  const Values svd = b.emit(op::svd.def, SvdAttrs{}, Values{a});
  residual(product(b, op::mul(b, svd[0], as_row(b, svd[1])), svd[2]), a);
  const Values qr = b.emit(op::qr.def, QrAttrs{}, Values{a});
  residual(product(b, qr[0], qr[1]), a);
  const Values eigh = b.emit(op::eigh.def, {}, Values{a});
  residual(product(b, s, eigh[1]), op::mul(b, eigh[1], as_row(b, eigh[0])));
  residual(product(b, a, op::inverse(b, a)), identity(b, f64, n));
  const Value l = op::cholesky(b, product(b, a, adjoint(b, a)));
  residual(product(b, l, adjoint(b, l)), product(b, a, adjoint(b, a)));
  residual(product(b, op::expm(b, op::neg(b, s)), op::expm(b, s)), identity(b, f64, n));
  const Graph g = b.finish();
  Tensor x = matrices(f64, {n, n}, "unit");
  for (int64_t i = 0; i < x.elements(); ++i)
    x.set_float(i, x.get_float(i) / 20 + (i % (n + 1) == 0 ? 1.5 : 0));
  for (const Tensor& r : on_cpu(g, {x})) EXPECT_LT(r.get_float(0), 1e-9);
}

// Columns whose numbers of the largest modulus are negative, or below a 0 or a tiny number. What is solved for are small
// integers, and so are the products: they come back to a few roundings.
TEST(LinearAlgebra, PivotsAreTheLargestInModulus) {
  const auto solved = [](DType d, int64_t n, auto&& element, const char* what) {
    Tensor a(d, {n, n}), b(d, {n, 2});
    const auto x = [](int64_t i, int64_t j) { return static_cast<double>((3 * i + j) % 7 - 3); };
    for (int64_t i = 0; i < n; ++i) {
      Complex sums[2] = {};
      for (int64_t j = 0; j < n; ++j) {
        const double v = element(i, j);
        a.set_complex(i * n + j, v);
        for (int64_t k : {0, 1}) sums[k] += v * x(j, k);
      }
      for (int64_t k : {0, 1}) b.set_complex(2 * i + k, sums[k]);
    }
    const Graph g = graph_of(op::dense_solve.def, {}, {a, b});
    const double allowed = (d == f64 ? 1e-14 : 1e-5) * static_cast<double>(n);
    for (const Tensor& y : {evaluate(g, Tensors{a, b})[0], on_cpu(g, {a, b})[0]})
      for (int64_t i = 0; i < 2 * n; ++i)
        EXPECT_LE(std::abs(y.get_complex(i) - x(i / 2, i % 2)), allowed)
            << to_string(d) << ", " << what << " of " << n;
  };
  for (DType d : {f32, f64, DType::C64})
    for (int64_t n : {2, 3, 7, 23, 24, 25, 40}) {  // the CPU eliminates up to 24, then LAPACK does
      solved(d, n, [=](int64_t i, int64_t j) { return j == (i + 1) % n ? -2.0 : 0.0; }, "swaps");
      solved(
          d, n,
          [=](int64_t i, int64_t j) {
            return i == j ? d == f64 ? 0x1p-60 : 0x1p-28 : i == (j + 1) % n ? -4.0 : 0.0;
          },
          "tiny numbers");
    }
}

// Matrices higher than wide and wider than high, around the tiles in which they are turned.
TEST(LinearAlgebra, RectanglesAreReconstructed) {
  for (DType d : {f32, f64, DType::C64})
    for (const auto& [m, n] :
         {std::pair<int64_t, int64_t>{2, 3}, {3, 2}, {3, 40}, {40, 3}, {16, 33}, {33, 17}}) {
      Builder b("factors");
      const Value a = b.input("0", {d, {2, m, n}});
      const Values svd = b.emit(op::svd.def, SvdAttrs{}, Values{a}),
                   qr = b.emit(op::qr.def, QrAttrs{}, Values{a}),
                   lu = b.emit(op::lu.def, {}, Values{a});
      const Value s = is_complex(d) ? op::cast(b, svd[1], {d}) : svd[1];
      b.output(product(b, op::mul(b, svd[0], as_row(b, s)), svd[2]));
      b.output(product(b, qr[0], qr[1]));
      for (Value v : lu) b.output(v);
      const Graph g = b.finish();
      const Tensor x = matrices(d, {2, m, n}, "unit", 7);
      const double allowed = d == f64 ? 1e-13 : 1e-5;
      const Tensors want = evaluate(g, Tensors{x}), got = on_cpu(g, {x});
      for (const Tensors& y : {want, got})
        for (size_t k : {0, 1})
          EXPECT_LE(distance(y[k], x), allowed)
              << to_string(d) << ", " << m << " by " << n << ", " << k;
      for (size_t k = 2; k < want.size(); ++k)
        EXPECT_LE(distance(got[k], want[k]), allowed * 10)
            << to_string(d) << ", " << m << " by " << n;
    }
}

// Both are by Pade's approximant and as few squarings as its norm allows, so what they are apart is a few roundings, and
// twice that for each squaring.
TEST(LinearAlgebra, ExponentialsOnTheReferenceAndOnTheCpuAgree) {
  constexpr double epsilon = std::numeric_limits<double>::epsilon();
  double worst[] = {0, 0};
  for (const int64_t n : {1, 3, 8, 30})
    for (const double scale : {0.01, 0.5, 2.0, 16.0}) {
      Tensor a = matrices(f64, {n, n}, "unit", 3), e = matrices(f64, {n, n}, "unit", 4);
      double norm = 0;
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) sum += std::fabs(a.get_float(i * n + j));
        norm = std::max(norm, sum);
      }
      for (int64_t i = 0; i < n * n; ++i) a.set_float(i, a.get_float(i) * scale / norm);
      const Graph graphs[] = {graph_of(op::expm.def, {}, {a}),
                              graph_of(op::expm_frechet.def, {}, {a, e})};
      for (size_t k = 0; k < 2; ++k) {
        const Tensors in = k ? Tensors{a, e} : Tensors{a};
        const Tensor want = evaluate(graphs[k], in)[0], got = on_cpu(graphs[k], in)[0];
        const double apart = distance(got, want) / magnitude_of(want) / epsilon;
        worst[k] = std::max(worst[k], apart / (1 + scale));
      }
    }
  fmt::print("expm {:.1f}, its derivative {:.1f} epsilons for a norm of 1\n", worst[0], worst[1]);
  EXPECT_LT(worst[0], 6);
  EXPECT_LT(worst[1], 8);
}

// Linear in the direction, however long that is: scaled by a power of two, bit for bit.
TEST(LinearAlgebra, DirectionsOfAnyLength) {
  const Tensor a = matrices(f64, {4, 4}, "unit", 3), e = matrices(f64, {4, 4}, "unit", 4);
  const Graph g = graph_of(op::expm_frechet.def, {}, {a, e});
  const Tensor reference = evaluate(g, Tensors{a, e})[0], cpu = on_cpu(g, {a, e})[0];
  for (const int exponent : {-600, -60, 60, 600}) {
    Tensor far(f64, {4, 4});
    for (int64_t i = 0; i < 16; ++i) far.set_float(i, std::ldexp(e.get_float(i), exponent));
    const Tensor ref_far = evaluate(g, Tensors{a, far})[0], cpu_far = on_cpu(g, {a, far})[0];
    for (int64_t i = 0; i < 16; ++i) {
      EXPECT_EQ(ref_far.get_float(i), std::ldexp(reference.get_float(i), exponent));
      EXPECT_EQ(cpu_far.get_float(i), std::ldexp(cpu.get_float(i), exponent));
    }
  }
  const Tensor none = Tensor::full(f64, {4, 4}, 0);
  EXPECT_EQ(magnitude_of(evaluate(g, Tensors{a, none})[0]), 0);
  EXPECT_EQ(magnitude_of(on_cpu(g, {a, none})[0]), 0);
}

TEST(LinearAlgebra, ViewsAreRead) {
  Builder b("views");
  const Value x = b.input("0", {f64, {4, 3, 3}}), y = b.input("1", {f64, {3, 4, 2}});
  const Value a = op::slice(b, matrix_transpose(b, x), {{1, 0, 0}, {3, 3, 3}, {}});
  const Value rhs =
      op::slice(b, op::transpose(b, y, {{1, 0, 2}}), {{0, 0, 0}, {4, 3, 2}, {2, 1, 1}});
  b.output(op::dense_solve(b, a, rhs));
  for (Value v : b.emit(op::svd.def, SvdAttrs{}, Values{op::reverse(b, a, {{1}})})) b.output(v);
  const Graph g = b.finish();
  const Tensors in{matrices(f64, {4, 3, 3}, "spectrum"), matrices(f64, {3, 4, 2}, "unit")};
  const Tensors want = evaluate(g, in), got = on_cpu(g, in);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_LT(distance(got[i], want[i]), 1e-13) << i;
}

TEST(LinearAlgebra, RunsAllocateNothingAndThreadsDoNotMatter) {
  const Tensors in{matrices(f32, {60, 8, 8}, "invertible"), matrices(f32, {60, 8, 3}, "unit")};
  Builder b("batch");
  const Value a = b.input("0", in[0].type()), rhs = b.input("1", in[1].type());
  b.output(op::dense_solve(b, a, rhs));
  b.output(op::expm_frechet(b, a, matrix_transpose(b, a)));
  for (const OpDef* op :
       {&op::qr, &op::svd, &op::eigh, &op::eig, &op::lu, &op::expm, &op::cholesky})
    for (Value v : b.emit(*op, Attrs(op->attr_type, op->attr_type->make()), Values{a})) b.output(v);
  const Graph g = b.finish();
  const Tensors one = on_cpu(g, in, 1);
  for (const int threads : {2, 3}) {
    const Tensors many = on_cpu(g, in, threads);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].same_bits(many[i])) << i;
  }
  CompiledGraph f = Session("cpu").compile(g, {.threads = 2});
  f.run({{"0", in[0]}, {"1", in[1]}});
  f.run();  // the results inside get their memory
  const AllocationCounter counter;
  for (int i = 0; i < 3; ++i) f.run();
  EXPECT_EQ(counter.ours(), 0);
}

}  // namespace
}  // namespace rlx::testing
