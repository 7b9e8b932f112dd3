// The facts by which the documents want to be accepted: each has a test (tests/names/facts.tsv), and those that no other test
// states are here.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "rlx/build.h"
#include "rlx/compile.h"
#include "rlx/front/trace.h"
#include "rlx/ops/core.h"
#include "rlx/ops/elementwise/complex.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/linalg/factor.h"
#include "rlx/ops/ops.h"
#include "rlx/opt.h"
#include "rlx/rewrite/pattern.h"
#include "rlx/runtime/runtime.h"

namespace rlx {
namespace {

namespace fs = std::filesystem;
const fs::path kTests = fs::path(RLX_SOURCE_DIR) / "tests";

// "passes_test.cc:Runner.Dumps": all there are.
std::set<std::string> tests_there_are() {
  static const std::regex test(R"(^TEST(?:_P|_F)?\((\w+), *(\w+)\))");
  std::set<std::string> out;
  for (const auto& entry : fs::directory_iterator(kTests / "unit")) {
    std::ifstream in(entry.path());
    std::smatch found;
    for (std::string line; std::getline(in, line);)
      if (line.starts_with("TEST") && std::regex_search(line, found, test))
        out.insert(fmt::format("{}:{}.{}", entry.path().filename().string(), found[1].str(),
                               found[2].str()));
  }
  return out;
}

TEST(Facts, EachHasATest) {
  const std::set<std::string> tests = tests_there_are();
  std::map<std::string, int> rows;
  std::ifstream in(kTests / "names" / "facts.tsv");
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    SCOPED_TRACE(line);
    std::stringstream text(line);
    std::string fact, what, names;
    ASSERT_TRUE(std::getline(text, fact, '\t') && std::getline(text, what, '\t') &&
                std::getline(text, names, '\t'));
    EXPECT_FALSE(what.empty());
    ++rows[fact];
    std::stringstream list(names);
    for (std::string name; std::getline(list, name, ',');) {
      name.erase(0, name.find_first_not_of(' '));
      EXPECT_TRUE(tests.contains(name)) << "no such test: " << name;
    }
  }
  // As many facts as the documents' lists have.
  for (const auto& [chapter, count] : {std::pair("autodiff 18", 8), {"optimizer 22", 15}}) {
    for (int i = 1; i <= count; ++i)
      EXPECT_GT(rows[fmt::format("{}.{}", chapter, i)], 0) << chapter << "." << i << " has no test";
    for (const auto& [fact, lines] : rows)
      if (fact.starts_with(chapter)) {
        EXPECT_LE(std::stoi(fact.substr(std::strlen(chapter) + 1)), count) << fact;
      }
  }
}

int count(const Graph& g, const OpDef& op) {
  int n = 0;
  for (const Node& node : g.nodes) n += node.op == &op;
  return n;
}

Tensor numbers(DType d, Ints sizes, double phase, double scale = 1) {
  Tensor t(d, std::move(sizes));
  for (int64_t i = 0; i < t.elements(); ++i) {
    const double x = static_cast<double>(i);
    t.set_complex(i, is_complex(d) ? Complex(std::sin(x + phase), std::cos(2 * x - phase)) * scale
                                   : Complex(scale * std::sin(1.3 * x + phase)));
  }
  return t;
}

// ---- autodiff 18.4

TEST(Facts, HigherOrdersOfFunctions) {
  struct Case {
    TracedTensor (*f)(const TracedTensor&);
    std::vector<double> at;  // the derivatives at 0.5, by hand
  };
  const double x = 0.5, s = std::sin(x), c = std::cos(x), e = std::exp(x), q = 1 + x * x;
  const Case cases[] = {
      {[](const TracedTensor& v) { return v.sin(); }, {s, c, -s, -c, s}},
      {[](const TracedTensor& v) { return v.exp(); }, {e, e, e, e, e}},
      {[](const TracedTensor& v) { return 1.0 / (1.0 + v * v); },
       {1 / q, -2 * x / std::pow(q, 2), (6 * x * x - 2) / std::pow(q, 3),
        24 * x * (1 - x * x) / std::pow(q, 4),
        24 * (5 * std::pow(x, 4) - 10 * x * x + 1) / std::pow(q, 5)}},
  };
  for (const Case& k : cases) {
    const Graph f = trace("f", [&](Tracer& t) { return k.f(t.input("x", {}, DType::F64)); });
    for (int order = 0; order <= 4; ++order) {
      const Graph g = opt::nth_order_grad(f, "x", order);
      const Tensor at = Tensor::scalar(DType::F64, x);
      EXPECT_NEAR(evaluate(g, {{"x", at}}).outputs[0].get_float(0),
                  k.at[static_cast<size_t>(order)], 1e-12)
          << order;
    }
  }
}

TEST(Facts, SecondOrderOfLayers) {
  const DType d = DType::F64;
  const std::pair<const char*, Graph> layers[] = {
      {"attention",
       trace("attention",
             [&](Tracer& t) {
               auto x = t.input("x", {2, 5, 8}, d);
               return op::attention(x, x.sin(), x * 2, {.num_heads = 2}).square().sum();
             })},
      {"layer_norm",
       trace("layer_norm",
             [&](Tracer& t) {
               auto x = t.input("x", {3, 7}, d);
               return x.layer_norm(t.input("g", {7}, d), t.input("b", {7}, d)).exp().sum();
             })},
      {"conv",
       trace(
           "conv",
           [&](Tracer& t) {
             auto x = t.input("x", {1, 2, 6, 6}, d), w = t.input("w", {3, 2, 3, 3}, d);
             return op::conv(x, w, {.stride = {1, 2}, .low = {1, 1}, .high = {1, 1}}).tanh().sum();
           })},
  };
  for (const auto& [name, f] : layers) {
    SCOPED_TRACE(name);
    NamedTensors at;
    for (const Node& n : f.nodes)
      if (n.op == &op::input)
        at[n.get<LeafAttrs>().name] =
            numbers(d, n.type().shape.sizes(), static_cast<double>(at.size()));
    const Tensor x = at.at("x"), v = numbers(d, x.sizes(), 0.4);
    NamedTensors with_v = at;
    with_v["tangent_x"] = v;
    const Tensor hv = evaluate(opt::hvp(f, {"x"}), with_v).outputs[3];
    const Graph slope = opt::grad(f, {"x"});
    const double h = 1e-5;
    const auto moved = [&](double by) {
      NamedTensors there = at;
      there["x"] = Tensor(d, x.sizes());
      for (int64_t i = 0; i < x.elements(); ++i)
        there["x"].set_float(i, x.get_float(i) + by * v.get_float(i));
      return evaluate(slope, there).outputs[0];
    };
    const Tensor up = moved(h), down = moved(-h);
    for (int64_t i = 0; i < x.elements(); ++i) {
      const double want = (up.get_float(i) - down.get_float(i)) / (2 * h);
      EXPECT_NEAR(hv.get_float(i), want, 1e-6 * (1 + std::abs(want))) << i;
    }
  }
}

// ---- autodiff 18.6

struct ScanCase {
  DType dtype;
  int64_t checkpoints;
  bool stacked, constant, trajectory;
};

Graph scanned(const ScanCase& k, int64_t length, bool unrolled) {
  return trace("scan", [&](Tracer& t) {
    auto h = t.input("h", {3}, k.dtype), xs = t.input("xs", {length, 3}, k.dtype),
         w = t.input("w", {3}, k.dtype);
    const auto step = [&](const TracedTensor& c, const TracedTensor* x) {
      TracedTensor y = c * 0.8 + c.sin();
      if (k.constant) y = y * w;
      return x ? (y + *x).tanh() : y.tanh();
    };
    TracedTensor last = h;
    TracedTensors all;
    if (unrolled) {
      for (int64_t i = 0; i < length; ++i) {
        const TracedTensor x = xs.narrow(0, i, 1).reshape({3});
        last = step(last, k.stacked ? &x : nullptr);
        all.push_back(last * last);
      }
    } else {
      const ScanResult r = t.scan(
          {h}, k.stacked ? TracedTensors{xs} : TracedTensors{},
          [&](Tracer&, const TracedTensors& c, const TracedTensors& x) -> ScanResult {
            const TracedTensor next = step(c[0], x.empty() ? nullptr : &x[0]);
            return {{next}, k.trajectory ? TracedTensors{next * next} : TracedTensors{}};
          },
          {.length = k.stacked ? std::optional<Dim>() : Dim(length), .checkpoints = k.checkpoints});
      last = r.carries[0];
      if (k.trajectory) all.push_back(r.ys[0]);
    }
    TracedTensor loss = (last * last * last).sum();
    if (k.trajectory)
      for (const TracedTensor& y : all) loss = loss + y.sum();
    return loss;
  });
}

TEST(Facts, ScansAreTheirUnrolledGraphs) {
  const int64_t length = 9;
  for (DType d : {DType::F64, DType::F32})
    for (int64_t checkpoints : {0, 1, 3, 9})
      for (int flags = 0; flags < 8; ++flags) {
        const ScanCase k{d, checkpoints, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0};
        SCOPED_TRACE(fmt::format("{} checkpoints {} flags {}", d, checkpoints, flags));
        opt::Wrts wrt{"h"};
        if (k.stacked) wrt.emplace_back("xs");
        if (k.constant) wrt.emplace_back("w");
        const NamedTensors at{{"h", numbers(d, {3}, 1)},
                              {"xs", numbers(d, {length, 3}, 2)},
                              {"w", numbers(d, {3}, 3)}};
        const Tensors want =
            evaluate(opt::grad_with_loss(scanned(k, length, true), wrt), at).outputs;
        const Graph g = opt::grad_with_loss(scanned(k, length, false), wrt);
        const Tensors got = evaluate(g, at).outputs;
        // Compiled where all of it is there.
        const Tensors ran = flags == 7 ? Session("cpu").compile(g).run(at) : got;
        ASSERT_EQ(want.size(), got.size());
        const double tolerance = d == DType::F64 ? 1e-12 : 1e-5;
        for (size_t j = 0; j < want.size(); ++j)
          for (int64_t i = 0; i < want[j].elements(); ++i) {
            ASSERT_NEAR(got[j].get_float(i), want[j].get_float(i), tolerance) << j << " " << i;
            ASSERT_NEAR(ran[j].get_float(i), want[j].get_float(i), tolerance) << j << " " << i;
          }
      }
}

// ---- autodiff 18.7

TEST(Facts, TheGradientOfASolve) {
  Builder b("solve");
  const Value a = b.input("a", {DType::F64, {4, 4}}), y = b.input("y", {DType::F64, {4, 2}});
  b.output(op::dense_solve(b, a, y));
  const Graph g = opt::grad_with_loss(b.finish(), {"a", "y"});
  EXPECT_GE(count(g, op::dense_solve.def), 2);
  EXPECT_EQ(count(g, op::neg.def), 1);
  EXPECT_EQ(count(g, op::matmul.def), 1);
  int transposes = count(g, op::transpose.def);  // or a product that reads its operand so
  for (const Node& n : g.nodes)
    if (n.op == &op::matmul)
      transposes += n.get<MatmulAttrs>().transpose_a + n.get<MatmulAttrs>().transpose_b;
  EXPECT_GE(transposes, 1);
}

TEST(Facts, WithoutSeedsATangentIsAConstant) {
  const Graph g = opt::jvp(trace("f", [](Tracer& t) { return t.input("x", {3}).exp(); }), {});
  ASSERT_EQ(g.outputs.size(), 2u);
  EXPECT_EQ(splat_value(g, g.outputs[1]), Complex(0));
  EXPECT_EQ(g.type(g.outputs[1]).shape, (Shape{3}));
}

TEST(Facts, AFunctionsOwnDerivativeIsInlined) {
  GraphBuilder body("fwd");
  const NodeId x = body.input("x0", {DType::F32, {}});
  body.set_outputs({body.exp(x)});
  GraphBuilder own("vjp");
  own.input("x0", {DType::F32, {}});
  own.input("primal_output", {DType::F32, {}});
  own.set_outputs({own.tanh(own.input("d_output", {DType::F32, {}}))});  // no derivative of exp
  GraphBuilder f("f");
  f.set_outputs({f.custom_fn({f.input("x", {DType::F32, {}})}, body.finish(), own.finish())});
  const Graph g = opt::grad(f.finish(), {"x"});
  EXPECT_EQ(count(g, op::custom_fn.def), 0);  // of the gradient, and the forward is not needed
  EXPECT_EQ(count(g, op::tanh.def), 1);
  EXPECT_EQ(count(g, op::exp.def), 0);
  for (const Node& n : g.nodes) EXPECT_EQ(n.op->name.find("backward"), std::string_view::npos);
}

// ---- autodiff 18.8. Gradients here are what a descent step may subtract, 2 dL/d conj(z): twice the documents'.

TEST(Facts, WirtingerDerivatives) {
  const DType c64 = DType::C64;
  const auto traced = [&](auto f) {
    return trace("f", [&](Tracer& t) { return f(t.input("a", {5}, c64), t.input("b", {5}, c64)); });
  };
  const NamedTensors at{{"a", numbers(c64, {5}, 0.3)}, {"b", numbers(c64, {5}, 1.1)}};
  const auto expect = [&](const Graph& g, auto want_a, auto want_b) {
    const Tensors got = evaluate(opt::grad(g, {"a", "b"}), at).outputs;
    for (int64_t i = 0; i < 5; ++i) {
      const Complex a = at.at("a").get_complex(i), b = at.at("b").get_complex(i);
      EXPECT_LT(std::abs(got[0].get_complex(i) - 2.0 * Complex(want_a(a, b))), 1e-4) << i;
      EXPECT_LT(std::abs(got[1].get_complex(i) - 2.0 * Complex(want_b(a, b))), 1e-4) << i;
    }
  };
  const auto norms = [](const TracedTensor& z) { return op::complex_norm_sq(z).sum(); };
  expect(
      traced([&](auto a, auto b) { return norms(a) + norms(b); }),
      [](Complex a, Complex) { return a; }, [](Complex, Complex b) { return b; });
  expect(
      traced([&](auto a, auto b) { return norms(a * b); }),
      [](Complex a, Complex b) { return a * std::norm(b); },
      [](Complex a, Complex b) { return b * std::norm(a); });
  // |a / b|^2: a / |b|^2, and -|a|^2 b / |b|^4.
  expect(
      traced([&](auto a, auto b) { return norms(a / b); }),
      [](Complex a, Complex b) { return a / std::norm(b); },
      [](Complex a, Complex b) { return -std::norm(a) * b / std::pow(std::norm(b), 2); });
  // |conj(a) + b|^2: a + conj(b), conj(a) + b.
  expect(
      traced([&](auto a, auto b) { return norms(op::conj(a) + b); }),
      [](Complex a, Complex b) { return a + std::conj(b); },
      [](Complex a, Complex b) { return std::conj(a) + b; });
  // The documents' op gives their derivative itself.
  Builder named("named");
  named.output(op::complex_norm_sq_backward(named, named.input("a", {c64, {5}}),
                                            named.input("g", {DType::F32, {5}})));
  const Tensor ones = Tensor::full(DType::F32, {5}, 1);
  const Tensor z = evaluate(named.finish(), {{"a", at.at("a")}, {"g", ones}}).outputs[0];
  for (int64_t i = 0; i < 5; ++i)
    EXPECT_LT(std::abs(z.get_complex(i) - at.at("a").get_complex(i)), 1e-6);
}

// ---- optimizer 22

TEST(Facts, ALateBiasIsOneParameter) {
  Builder b("late");
  const Value x = b.input("x", {DType::F32, {3, 9}}), w = b.param("w", {DType::F32, {9, 7}}),
              product = op::matmul(b, x, w);
  b.output(op::add(b, product, b.param("bias", {DType::F32, {7}})));
  const Graph fused = opt::FuseMatMulBiasAct().run(b.finish());
  EXPECT_EQ(fused.node(fused.outputs[0]).op->name, "fused_matmul_bias_act");
  int named = 0;
  for (Value v : fused.params()) named += fused.node(v).get<LeafAttrs>().name == "bias";
  EXPECT_EQ(named, 1);
}

TEST(Facts, LongerSequencesTakeMore) {
  const Graph g = trace("sequence", [](Tracer& t) {
    auto x = t.input("x", {Dim::symbol("n"), 16});
    return x.matmul(t.param("w", {16, 64})).softmax(1).matmul(t.param("v", {64, 16})).tanh();
  });
  const opt::CompilePipeline pipeline(backend_for("cpu"));
  const opt::CompileResult r = pipeline.compile_graph(g);
  EXPECT_EQ(r.dynamic_symbols(), std::vector<std::string>{"n"});
  int64_t before = 0;
  for (int64_t n : {8, 129, 1000}) {
    const opt::CompileResult at = r.specialize(pipeline, {{"n", n}});
    EXPECT_FALSE(at.has_dynamic_dims());
    EXPECT_GT(at.lir.arena_size(), before) << n;
    before = at.lir.arena_size();
  }
}

}  // namespace
}  // namespace rlx
