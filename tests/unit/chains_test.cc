// Chains run neighbouring steps tile by tile, so a tile may read only rows that are already written.
// In a square domain a value per row, [n], that is read along the columns looks like one that is
// read row by row: programs where that matters, at sizes on both sides of a tile (64 rows) and of a
// block of a product (128), against the reference and plain loops.
#include <gtest/gtest.h>

#include <cmath>

#include "rlx/base/philox.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/runtime/runtime.h"

namespace rlx {
namespace {

constexpr int64_t kWidth = 24;  // of a matrix that is not square

using Numbers = std::vector<double>;

struct Matrix {
  int64_t rows, columns;
  Numbers values;
  double operator()(int64_t i, int64_t j) const {
    return values[static_cast<size_t>(i * columns + j)];
  }
  double& operator()(int64_t i, int64_t j) { return values[static_cast<size_t>(i * columns + j)]; }
};

Matrix zeros(int64_t rows, int64_t columns) {
  return {rows, columns, Numbers(static_cast<size_t>(rows * columns))};
}

template <class F>
Matrix made(int64_t rows, int64_t columns, F&& value) {
  Matrix m = zeros(rows, columns);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) m(i, j) = value(i, j);
  return m;
}

Matrix product_of(const Matrix& a, const Matrix& b, bool transposed) {
  return made(a.rows, transposed ? b.rows : b.columns, [&](int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t k = 0; k < a.columns; ++k) sum += a(i, k) * (transposed ? b(j, k) : b(k, j));
    return sum;
  });
}

Numbers row_sums(const Matrix& m) {
  Numbers out(static_cast<size_t>(m.rows));
  for (int64_t i = 0; i < m.rows; ++i)
    for (int64_t j = 0; j < m.columns; ++j) out[static_cast<size_t>(i)] += m(i, j);
  return out;
}

Numbers row_minima(const Matrix& m) {
  Numbers out(static_cast<size_t>(m.rows), INFINITY);
  for (int64_t i = 0; i < m.rows; ++i)
    for (int64_t j = 0; j < m.columns; ++j)
      out[static_cast<size_t>(i)] = std::min(out[static_cast<size_t>(i)], m(i, j));
  return out;
}

Matrix softmax_of(const Matrix& m) {
  Matrix out = made(m.rows, m.columns, [&](int64_t i, int64_t j) { return std::exp(m(i, j)); });
  const Numbers sums = row_sums(out);
  return made(m.rows, m.columns,
              [&](int64_t i, int64_t j) { return out(i, j) / sums[static_cast<size_t>(i)]; });
}

double at(const Numbers& v, int64_t i) { return v[static_cast<size_t>(i)]; }

// A program over a matrix of [n, columns] (n where columns is 0) and what its result is.
struct Case {
  const char* name;
  int64_t columns;
  Value (*build)(Builder& b, Value x);
  Numbers (*plain)(const Matrix& x);
};

Value sum_of_rows(Builder& b, Value x, bool keepdims = false) {
  return op::reduce_sum(b, x, {{1}, keepdims});
}

constexpr Case kCases[] = {
    {"(x * x.sum(axis=1)).sum(axis=1)", 0,
     [](Builder& b, Value x) { return sum_of_rows(b, op::mul(b, x, sum_of_rows(b, x))); },
     [](const Matrix& x) {
       const Numbers sums = row_sums(x);
       return row_sums(
           made(x.rows, x.columns, [&](int64_t i, int64_t j) { return x(i, j) * at(sums, j); }));
     }},
    {"softmax(x / x.sum(axis=1))", 0,
     [](Builder& b, Value x) { return op::softmax(b, op::div(b, x, sum_of_rows(b, x))); },
     [](const Matrix& x) {
       const Numbers sums = row_sums(x);
       return softmax_of(made(x.rows, x.columns,
                              [&](int64_t i, int64_t j) { return x(i, j) / at(sums, j); }))
           .values;
     }},
    {"the least squared distance of each point to the others", kWidth,
     [](Builder& b, Value x) {
       const Value squares = sum_of_rows(b, op::mul(b, x, x)),
                   column = sum_of_rows(b, op::mul(b, x, x), true),
                   products = op::matmul(b, x, x, {.transpose_b = true});
       const Value two = b.constant(Tensor::scalar(DType::F32, 2));
       const Value distances = op::sub(b, op::add(b, column, squares), op::mul(b, two, products));
       // A point is not its own neighbour.
       const Type type = b.type(distances);
       const Value row = op::iota(b, {}, {DType::I32, type.shape, 0}),
                   other = op::iota(b, {}, {DType::I32, type.shape, 1});
       const Value far = b.constant(Tensor::scalar(DType::F32, 1e6));
       return op::reduce_min(b, op::select(b, op::eq(b, row, other), far, distances), {{1}});
     },
     [](const Matrix& x) {
       return row_minima(made(x.rows, x.rows, [&](int64_t i, int64_t j) {
         double sum = 0;
         for (int64_t k = 0; k < x.columns; ++k) sum += std::pow(x(i, k) - x(j, k), 2);
         return i == j ? 1e6 : sum;
       }));
     }},
    {"softmax of cosine similarities", kWidth,
     [](Builder& b, Value x) {
       const Value norms = op::sqrt(b, sum_of_rows(b, op::mul(b, x, x))),
                   column = op::sqrt(b, sum_of_rows(b, op::mul(b, x, x), true)),
                   products = op::matmul(b, x, x, {.transpose_b = true});
       return op::softmax(b, op::div(b, op::div(b, products, column), norms));
     },
     [](const Matrix& x) {
       const Numbers squares = row_sums(
           made(x.rows, x.columns, [&](int64_t i, int64_t j) { return x(i, j) * x(i, j); }));
       const Matrix products = product_of(x, x, true);
       return softmax_of(made(x.rows, x.rows,
                              [&](int64_t i, int64_t j) {
                                return products(i, j) / std::sqrt(at(squares, i) * at(squares, j));
                              }))
           .values;
     }},
    {"normalised adjacency", 0,
     [](Builder& b, Value x) {
       const Value degrees = op::rsqrt(b, sum_of_rows(b, x)),
                   column = op::rsqrt(b, sum_of_rows(b, x, true));
       return op::mul(b, op::mul(b, x, column), degrees);
     },
     [](const Matrix& x) {
       const Numbers degrees = row_sums(x);
       return made(x.rows, x.columns,
                   [&](int64_t i, int64_t j) {
                     return x(i, j) / std::sqrt(at(degrees, i) * at(degrees, j));
                   })
           .values;
     }},
    {"normalised adjacency of a product, times it", kWidth,
     [](Builder& b, Value x) {
       const Value products = op::matmul(b, x, x, {.transpose_b = true}),
                   degrees = op::rsqrt(b, sum_of_rows(b, products)),
                   scaled = op::mul(b, products, degrees);
       return op::matmul(b, scaled, x);
     },
     [](const Matrix& x) {
       const Matrix products = product_of(x, x, true);
       const Numbers degrees = row_sums(products);
       const Matrix scaled = made(x.rows, x.rows, [&](int64_t i, int64_t j) {
         return products(i, j) / std::sqrt(at(degrees, j));
       });
       return product_of(scaled, x, false).values;
     }},
    {"a product scaled along its columns by its row sums", kWidth,
     [](Builder& b, Value x) {
       const Value products = op::matmul(b, x, x, {.transpose_b = true});
       return sum_of_rows(b, op::mul(b, products, sum_of_rows(b, products)));
     },
     [](const Matrix& x) {
       const Matrix products = product_of(x, x, true);
       const Numbers sums = row_sums(products);
       return row_sums(made(x.rows, x.rows,
                            [&](int64_t i, int64_t j) { return products(i, j) * at(sums, j); }));
     }},
};

Matrix positive(int64_t rows, int64_t columns) {
  return made(rows, columns, [&](int64_t i, int64_t j) {
    const auto index = static_cast<uint64_t>(i * columns + j);
    return 0.25 + philox_uniform(philox4x32({11, 0}, philox_counter(index))[0]);
  });
}

// How many elements are further from the wanted ones than a few thousand roundings.
int64_t wrong(const Tensor& got, const Numbers& want) {
  int64_t count = 0;
  double scale = 0;
  for (double w : want) scale = std::max(scale, std::abs(w));
  for (int64_t i = 0; i < got.elements(); ++i)
    count += !(std::abs(got.get_float(i) - at(want, i)) <= 2e-4 * scale);
  return count;
}

TEST(Chains, AValuePerRowReadAlongTheColumns) {
  for (const Case& c : kCases)
    for (const int64_t n : {63, 64, 65, 66, 70, 100, 127, 128, 129, 130, 200}) {
      const Matrix x = positive(n, c.columns ? c.columns : n);
      Builder b("columns");
      b.output(c.build(b, b.input("x", {DType::F32, {x.rows, x.columns}})));
      const Graph g = b.finish();
      Tensor leaf(DType::F32, {x.rows, x.columns});
      for (int64_t i = 0; i < leaf.elements(); ++i) leaf.set_float(i, at(x.values, i));
      const Numbers want = c.plain(x);
      EXPECT_EQ(wrong(evaluate(g, Tensors{leaf})[0], want), 0)
          << c.name << ", the reference, " << n;
      for (const int threads : {1, 3}) {
        CompiledGraph f = Session("cpu").compile(g, {.threads = threads, .poison = true});
        EXPECT_EQ(wrong(f.run({{"x", leaf}})[0], want), 0)
            << "of " << want.size() << ": " << c.name << ", n = " << n << ", " << threads
            << " threads";
      }
    }
}

}  // namespace
}  // namespace rlx
