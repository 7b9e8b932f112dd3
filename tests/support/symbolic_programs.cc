#include "symbolic_programs.h"

#include <cstring>

#include "rlx/ir/builder.h"
#include "rlx/ops/ops.h"
#include "rlx/train/functions.h"
#include "rlx/train/train_step.h"
#include "rlx/transform/reverse.h"

namespace rlx::testing {

namespace {

Dim symbol(const char* name) { return Dim::symbol(name); }

TracedTensor dense_layer(Tracer& t, const TracedTensor& x, const std::string& name, int64_t in,
                         int64_t out) {
  return x.matmul(t.param(name + ".w", {in, out})) + t.param(name + ".b", {out});
}

TracedTensor norm_layer(Tracer& t, const TracedTensor& x, const std::string& name, int64_t width) {
  return x.layer_norm(t.param(name + ".g", {width}), t.param(name + ".c", {width}));
}

TracedTensor self_attention(Tracer& t, const TracedTensor& x, const std::string& name,
                            int64_t width, int64_t heads, MaskKind mask,
                            const TracedTensor* padding) {
  Values in;
  for (const char* part : {".q", ".k", ".v"})
    in.push_back(dense_layer(t, x, name + part, width, width).value());
  if (padding) in.push_back(padding->value());
  const AttentionAttrs attrs{
      .num_heads = heads, .num_kv_heads = heads, .mask = mask, .has_mask = padding != nullptr};
  const TracedTensor a = t.wrap(t.builder().emit(op::attention.def, attrs, in)[0]);
  return dense_layer(t, a, name + ".o", width, width);
}

}  // namespace

SymbolicProgram symbolic_bert(int64_t layers, int64_t width, int64_t heads, int64_t vocab) {
  Graph g = trace("bert", [&](Tracer& t) {
    const Dim batch = symbol("batch"), length = symbol("length");
    const TracedTensor ids = t.input("ids", {batch, length}, DType::I32),
                       mask = t.input("mask", {batch, length});
    TracedTensor x = op::gather(t.param("words", {vocab, width}), ids, {.axis = 0});
    const TracedTensor at = t.wrap(op::iota(t.builder(), {}, {DType::I32, {length}, 0}));
    x = norm_layer(t, x + op::gather(t.param("places", {512, width}), at, {.axis = 0}), "e", width);
    for (int64_t i = 0; i < layers; ++i) {
      const std::string name = fmt::format("l{}", i);
      x = norm_layer(t, x + self_attention(t, x, name, width, heads, MaskKind::none, &mask),
                     name + ".n1", width);
      const TracedTensor h = dense_layer(t, x, name + ".up", width, 4 * width).gelu();
      x = norm_layer(t, x + dense_layer(t, h, name + ".down", 4 * width, width), name + ".n2",
                     width);
    }
    return x;
  });
  return {"bert", std::move(g), {{"batch", {1, 8}}, {"length", {1, 200}}}};
}

SymbolicProgram symbolic_gpt(int64_t layers, int64_t width, int64_t heads, int64_t vocab) {
  Graph g = trace("gpt2", [&](Tracer& t) {
    const Dim length = symbol("length");
    const TracedTensor ids = t.input("ids", {1, length}, DType::I32);
    const TracedTensor words = t.param("words", {vocab, width});
    TracedTensor x = op::gather(words, ids, {.axis = 0}) +
                     op::slice(t.param("places", {1024, width}), {.limit = {length, width}});
    for (int64_t i = 0; i < layers; ++i) {
      const std::string name = fmt::format("h{}", i);
      x = x + self_attention(t, norm_layer(t, x, name + ".n1", width), name, width, heads,
                             MaskKind::causal, nullptr);
      const TracedTensor h =
          dense_layer(t, norm_layer(t, x, name + ".n2", width), name + ".up", width, 4 * width);
      x = x + dense_layer(t, op::gelu_tanh(h), name + ".down", 4 * width, width);
    }
    return norm_layer(t, x, "n", width).matmul(words.t());
  });
  return {"gpt2", std::move(g), {{"length", {1, 200}}}};
}

SymbolicProgram symbolic_conv_net() {
  Graph g = trace("conv_net", [](Tracer& t) {
    const auto block = [&](const TracedTensor& x, const std::string& name, int64_t in, int64_t out,
                           int64_t stride) {
      const TracedTensor y = op::conv(x, t.param(name + ".w", {out, in, 3, 3}),
                                      {.stride = {stride, stride}, .low = {1, 1}, .high = {1, 1}});
      return t
          .wrap(
              op::batch_norm_training(t.builder(), {y.value(), t.param(name + ".g", {out}).value(),
                                                    t.param(name + ".b", {out}).value()}))
          .relu();
    };
    TracedTensor h = block(t.input("x", {2, 3, symbol("height"), symbol("width")}), "c1", 3, 16, 1);
    h = op::pool(h, {.kind = PoolKind::max, .kernel = {2, 2}, .stride = {2, 2}});
    h = block(h, "c2", 16, 16, 1) + h;
    h = block(h, "c3", 16, 24, 2).mean({2, 3});
    return dense_layer(t, h, "head", 24, 10).softmax();
  });
  return {"conv_net", std::move(g), {{"height", {8, 70}}, {"width", {8, 70}}}};
}

SymbolicProgram symbolic_rnn() {
  Graph g = trace("rnn", [](Tracer& t) {
    const TracedTensor xs = t.input("xs", {symbol("steps"), 8, 20}), h0 = t.input("h0", {8, 33});
    const TracedTensor w = t.param("w", {20, 33}), u = t.param("u", {33, 33}),
                       b = t.param("b", {33});
    auto cell = [&](Tracer&, const TracedTensors& h, const TracedTensors& x) -> ScanResult {
      const TracedTensor next = (x[0].matmul(w) + b + h[0].matmul(u)).tanh();
      return {{next}, {next}};
    };
    return t.scan({h0}, {xs}, cell).ys[0].square().mean();
  });
  return {"rnn", value_and_grad(g, {"w", "u", "b"}), {{"steps", {1, 120}}}};
}

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
  const Graph bound = bind(p.graph, sizes);
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

}  // namespace rlx::testing
