#include "symbolic_programs.h"

#include <gtest/gtest.h>

#include <cstring>

#include "rlx/ir/builder.h"
#include "rlx/train/train_step.h"

namespace rlx::testing {

using namespace symbolic;

std::vector<SymbolicProgram> small_symbolic_programs() {
  std::vector<SymbolicProgram> out;
  const Dim n = symbol("n"), m = symbol("m");
  const auto add = [&](const char* name, std::map<std::string, std::pair<int64_t, int64_t>> sizes,
                       auto f) { out.push_back({name, trace(name, f), std::move(sizes)}); };
  add("elementwise", {{"n", {1, 300}}, {"m", {1, 300}}}, [&](Tracer& t) {
    const TracedTensor x = t.input("x", {n, m}), y = t.input("y", {m}), z = t.input("z", {n, 1});
    return TracedTensors{(x * 2 + y).tanh() * z, x.t().exp()};
  });
  add("softmax", {{"n", {1, 40}}, {"m", {1, 9000}}}, [&](Tracer& t) {
    const TracedTensor x = t.input("x", {n, m});
    return TracedTensors{x.softmax(), op::logsumexp(x, {.axes = {1}})};
  });
  add("long_rows", {{"n", {1, 4}}, {"m", {30000, 70000}}},
      [&](Tracer& t) { return t.input("x", {n, m}).softmax(); });
  add("reductions", {{"n", {1, 400}}, {"m", {1, 400}}}, [&](Tracer& t) {
    const TracedTensor x = t.input("x", {n, 3, m});
    return TracedTensors{x.sum(),    x.sum({0}),          x.sum({1}),
                         x.sum({2}), x.sum({0, 2}),       x.mean({1, 2}),
                         x.max({0}), x.exp().sum({0, 1}), x.square().mean().sqrt()};
  });
  add("few_columns", {{"n", {1, 60000}}}, [&](Tracer& t) {
    const TracedTensor x = t.input("x", {n, 5});
    return TracedTensors{x.sum({0}), (x * x).sum({0}), x.sum({1}), x.sum()};
  });
  add("spread", {{"n", {1, 300}}, {"m", {1, 300}}},
      [&](Tracer& t) {  // operands with strides, in reductions cut by sizes
        const TracedTensor x = t.input("x", {n, m}), y = t.input("y", {m});
        const TracedTensor wide = t.wrap(op::broadcast(t.builder(), y.value(), {.shape = {n, m}}));
        return TracedTensors{wide.sum(), (wide * 2).sum({0}), (x.t() * 3).sum(), x.t().sum({0})};
      });
  add("square", {{"n", {1, 300}}}, [&](Tracer& t) {
    const TracedTensor x = t.input("x", {n, n});
    return TracedTensors{(x * x.sum({1})).sum({1}), (x / (x.abs().sum({1}) + 1)).softmax(),
                         x.t() + x};
  });
  add("products", {{"n", {1, 300}}, {"m", {1, 300}}}, [&](Tracer& t) {
    const TracedTensor x = t.input("x", {n, 48}), y = t.input("y", {48, m});
    const TracedTensor h = x.matmul(t.param("w", {48, 64})).gelu();
    return TracedTensors{h.matmul(t.param("v", {64, 7})), x.matmul(y).relu(), y.sum({1})};
  });
  add("views", {{"n", {1, 90}}, {"m", {1, 90}}}, [&](Tracer& t) {
    const TracedTensor x = t.input("x", {n, m, 6});
    const TracedTensor flat = op::transpose(x, {.perm = {1, 0, 2}}).reshape({n * m, 6});
    return TracedTensors{
        flat.exp(), x.reshape({n * m * 6}).tanh(), x.reshape({n, m * 6}).sum({1}),
        t.wrap(op::concat(t.builder(), {x.value(), (x * 2).value()}, {.axis = 1}))};
  });
  add("halves", {{"n", {1, 300}}, {"m", {1, 700}}}, [&](Tracer& t) {
    const TracedTensor x = t.input("x", {n, m}, DType::BF16);
    return TracedTensors{x.softmax(), x.sum({0}), (x * x).mean()};
  });
  add("f64", {{"n", {1, 300}}, {"m", {1, 700}}}, [&](Tracer& t) {
    const TracedTensor x = t.input("x", {n, m}, DType::F64);
    return TracedTensors{x.softmax(), x.sum({0}), (x * x).mean(), x.cumsum(1)};
  });
  add("order", {{"n", {1, 30}}, {"m", {1, 300}}}, [&](Tracer& t) {
    const TracedTensor x = t.input("x", {n, m});
    return TracedTensors{op::sort(x, {.axis = 1}), x.argmax()};
  });
  // A training step over batches of any length.
  const Graph loss = trace("loss", [&](Tracer& t) {
    const TracedTensor x = t.input("x", {n, 20});
    const TracedTensor h = dense_layer(t, x, "a", 20, 64).tanh();
    return cross_entropy(dense_layer(t, h, "b", 64, 10), t.input("y", {n}, DType::I32));
  });
  NamedTensors zeros;
  for (Value v : loss.params())
    zeros.emplace(loss.node(v).get<LeafAttrs>().name,
                  Tensor(loss.type(v).dtype, loss.type(v).shape.sizes()));
  out.push_back(
      {"train_step", train_step(loss, zeros, {.optimizer = adamw({})}).graph, {{"n", {1, 1500}}}});
  return out;
}

Tensor random_tensor(const Type& type, std::mt19937_64& random) {
  Tensor t(type.dtype, type.shape.sizes());
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < t.elements(); ++i) {
    if (is_float(type.dtype))
      t.set_float(i, normal(random));
    else
      t.set_int(i, static_cast<int64_t>(random() % (is_bool(type.dtype) ? 2 : 7)));
  }
  return t;
}

NamedTensors random_params(const Graph& g, std::mt19937_64& random) {
  NamedTensors out;
  for (Value v : g.params()) {
    Tensor t = random_tensor(g.type(v), random);
    if (is_float(t.dtype()))
      for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, 0.1 * t.get_float(i));
    out.emplace(g.node(v).get<LeafAttrs>().name, std::move(t));
  }
  return out;
}

NamedTensors random_inputs(const Graph& bound, std::mt19937_64& random) {
  NamedTensors out;
  for (Value v : bound.inputs())
    out.emplace(bound.node(v).get<LeafAttrs>().name, random_tensor(bound.type(v), random));
  return out;
}

DimBinding random_sizes(const SymbolicProgram& p, std::mt19937_64& random) {
  DimBinding out;
  for (const auto& [name, range] : p.sizes) {
    const auto [low, high] = range;
    // Small ones as often as large ones, and those beside multiples of what kernels step by.
    const int64_t most = random() % 2 ? high : std::min(high, low + 40);
    int64_t n = low + static_cast<int64_t>(random() % static_cast<uint64_t>(most - low + 1));
    if (random() % 4 == 0)
      n = std::clamp<int64_t>(n / 64 * 64 + static_cast<int64_t>(random() % 3) - 1, low, high);
    out.emplace(name, n);
  }
  return out;
}

std::string compare_with_static(const SymbolicProgram& p, CompiledGraph& symbolic,
                                const NamedTensors& params, const DimBinding& sizes,
                                std::mt19937_64& random) {
  const Graph bound = rlx::bind(p.graph, sizes);
  const NamedTensors inputs = random_inputs(bound, random);
  symbolic.set_params(params);
  const auto got = symbolic.run(inputs);
  CompiledGraph fixed = Session("cpu").compile(bound);
  fixed.set_params(params);
  const auto want = fixed.run(inputs);
  std::string where = p.name;
  for (const auto& [name, size] : sizes) where += fmt::format(" {}={}", name, size);
  const auto differs = [&](const Tensor& a, const Tensor& b) -> std::string {
    if (!(a.type() == b.type())) return fmt::format("{} instead of {}", a.type(), b.type());
    for (int64_t i = 0; i < a.elements(); ++i)
      if (std::memcmp(a.raw() + i * size_of(a.dtype()), b.raw() + i * size_of(a.dtype()),
                      static_cast<size_t>(size_of(a.dtype()))) != 0)
        return fmt::format("element {}: {} instead of {}", i, a.get_float(i), b.get_float(i));
    return {};
  };
  for (size_t k = 0; k < want.size(); ++k)
    if (const std::string d = differs(got[k], want[k]); !d.empty())
      return fmt::format("{}: output {}: {}", where, k, d);
  for (const auto& [name, value] : fixed.params())
    if (const std::string d = differs(symbolic.param(name), value); !d.empty())
      return fmt::format("{}: parameter {}: {}", where, name, d);
  return {};
}

int expect_bits_of_static(const SymbolicProgram& p, int runs, uint64_t seed,
                          const SizeHints& hints) {
  std::mt19937_64 random(seed);
  CompiledGraph f = Session("cpu").compile(p.graph, {.hints = hints});
  EXPECT_EQ(f.info().per_size, "") << p.name;
  const NamedTensors params = random_params(p.graph, random);
  int generated = -1;
  for (int i = 0; i < runs; ++i) {
    const DimBinding sizes = random_sizes(p, random);
    const std::string difference = compare_with_static(p, f, params, sizes, random);
    // Sizes of 1 change what is a dim and what is not; their results are right within rounding (below).
    const bool ones =
        std::any_of(sizes.begin(), sizes.end(), [](const auto& s) { return s.second <= 1; });
    if (!ones) {
      EXPECT_EQ(difference, "");
    }
    if (generated < 0) generated = f.info().generated;
    EXPECT_EQ(f.info().generated, generated) << p.name << ": code for a size";
  }
  return generated;
}

}  // namespace rlx::testing
