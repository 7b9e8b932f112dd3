// The tracer: what programs it writes, judged by their values on the reference evaluator, and what
// it refuses.
#include "rlx/front/trace.h"

#include <gtest/gtest.h>

#include <cmath>

#include "../support/expect_error.h"
#include "rlx/front/loops.h"
#include "rlx/ops/evaluate.h"
#include "rlx/transform/reverse.h"

namespace rlx {
namespace {

Tensor floats(Ints sizes, std::vector<float> v) { return Tensor::from<float>(std::move(sizes), v); }

Tensor counting(Ints sizes) {
  Tensor t(DType::F32, std::move(sizes));
  for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, static_cast<double>(i));
  return t;
}

std::vector<double> numbers(const Tensor& t) {
  std::vector<double> out;
  for (int64_t i = 0; i < t.elements(); ++i)
    out.push_back(is_float(t.dtype()) ? t.get_float(i) : static_cast<double>(t.get_int(i)));
  return out;
}

// f applied to a counting tensor 0, 1, 2, .. of the given sizes.
template <class F>
Tensor of_counting(Ints sizes, F&& f) {
  Graph g = trace("f", [&](Tracer& t) { return f(t.input("x", Shape::of(sizes))); });
  return evaluate(g, {{"x", counting(sizes)}}).outputs.at(0);
}

using Numbers = std::vector<double>;

// ---- programs

TEST(Trace, WritesTheProgramOfAnExpression) {
  Graph g = trace("mlp", [](Tracer& t) {
    auto x = t.input("x", {2, 3});
    auto w = t.param("w", {3, 2}), b = t.param("b", {2});
    return (x.matmul(w) + b).relu();
  });
  EXPECT_EQ(g.name, "mlp");
  EXPECT_EQ(g.nodes.size(), 6u);
  const Tensor y =
      evaluate(g, {{"x", counting({2, 3})}, {"w", counting({3, 2})}, {"b", floats({2}, {-30, 1})}})
          .outputs[0];
  EXPECT_EQ(numbers(y), (Numbers{0, 14, 0, 41}));
}

TEST(Trace, SeveralOutputsOneOrNone) {
  EXPECT_EQ(trace("two",
                  [](Tracer& t) -> TracedTensors {
                    auto x = t.input("x", {2});
                    return {x + 1, x - 1};
                  })
                .outputs.size(),
            2u);
  Graph g = trace("none", [](Tracer& t) {
    auto c = t.param("c", {});
    t.update("c", c + 1);
  });
  EXPECT_TRUE(g.outputs.empty());
  EXPECT_EQ(evaluate(g, {{"c", Tensor::scalar(DType::F32, 4)}}).updates.at("c").get_float(0), 5);
}

TEST(Trace, SymbolicSizes) {
  Graph g = trace("f", [](Tracer& t) {
    auto x = t.input("x", {Dim::symbol("b"), 2});
    return x.flatten().unsqueeze(0) * 2;
  });
  EXPECT_EQ(g.output_types()[0].shape, (Shape{1, Dim::symbol("b") * 2}));
  EXPECT_EQ(numbers(evaluate(g, {{"x", counting({2, 2})}}).outputs[0]), (Numbers{0, 2, 4, 6}));
}

TEST(Trace, ScalarsOnEitherSide) {
  EXPECT_EQ(numbers(of_counting({3}, [](auto x) { return 1 + x * 2 - 3; })), (Numbers{-2, 0, 2}));
  EXPECT_EQ(numbers(of_counting({3}, [](auto x) { return (6 / (x + 1) - -x) / 2; })),
            (Numbers{3, 2, 2}));
  EXPECT_EQ(numbers(of_counting({3}, [](auto x) { return 10 - x; })), (Numbers{10, 9, 8}));
}

TEST(Trace, ComparisonsAndChoices) {
  EXPECT_EQ(numbers(of_counting({4}, [](auto x) { return (x < 2).to(DType::I32); })),
            (Numbers{1, 1, 0, 0}));
  EXPECT_EQ(numbers(of_counting({4}, [](auto x) { return ((1 <= x) & !x.eq(2)).to(DType::I32); })),
            (Numbers{0, 1, 0, 1}));
  EXPECT_EQ(numbers(of_counting({4}, [](auto x) { return where((x >= 2) | x.ne(1), x, -1); })),
            (Numbers{0, -1, 2, 3}));
  EXPECT_EQ(numbers(of_counting({4}, [](auto x) { return where(x > 2, 7.0, x.clamp(1, 2)); })),
            (Numbers{1, 1, 2, 7}));
}

TEST(Trace, Reductions) {
  EXPECT_EQ(numbers(of_counting({2, 3}, [](auto x) { return x.sum(); })), Numbers{15});
  EXPECT_EQ(numbers(of_counting({2, 3}, [](auto x) { return x.mean(0); })),
            (Numbers{1.5, 2.5, 3.5}));
  EXPECT_EQ(numbers(of_counting({2, 3}, [](auto x) { return x.max({-1}); })), (Numbers{2, 5}));
  EXPECT_EQ(of_counting({2, 3}, [](auto x) { return x.min({0, 1}, true); }).sizes(), (Ints{1, 1}));
  EXPECT_EQ(numbers(of_counting({2, 3}, [](auto x) { return (x + 1).prod(-1); })),
            (Numbers{6, 120}));
  EXPECT_EQ(numbers(of_counting({3}, [](auto x) { return x.cumsum(0); })), (Numbers{0, 1, 3}));
  EXPECT_EQ(numbers(of_counting({2, 3}, [](auto x) { return (-x).argmax(); })), (Numbers{0, 0}));
}

TEST(Trace, ShapesLikePyTorch) {
  EXPECT_EQ(of_counting({2, 3, 4}, [](auto x) { return x.t(); }).sizes(), (Ints{2, 4, 3}));
  EXPECT_EQ(of_counting({2, 3, 4}, [](auto x) { return x.transpose(0, -1); }).sizes(),
            (Ints{4, 3, 2}));
  EXPECT_EQ(of_counting({2, 3, 4}, [](auto x) { return x.permute({2, 0, -2}); }).sizes(),
            (Ints{4, 2, 3}));
  EXPECT_EQ(of_counting({2, 3, 4}, [](auto x) { return x.view({6, -1}); }).sizes(), (Ints{6, 4}));
  EXPECT_EQ(of_counting({2, 3, 4}, [](auto x) { return x.flatten(1); }).sizes(), (Ints{2, 12}));
  EXPECT_EQ(of_counting({2, 1, 4}, [](auto x) { return x.squeeze(1).unsqueeze(-1); }).sizes(),
            (Ints{2, 4, 1}));
  EXPECT_EQ(of_counting({1, 2, 1}, [](auto x) { return x.squeeze(); }).sizes(), (Ints{2}));
  EXPECT_EQ(of_counting({2, 1}, [](auto x) { return x.expand({3, -1, 5}); }).sizes(),
            (Ints{3, 2, 5}));
  EXPECT_EQ(numbers(of_counting({3}, [](auto x) { return x.flip(0); })), (Numbers{2, 1, 0}));
}

TEST(Trace, MatmulTakesVectors) {
  EXPECT_EQ(numbers(of_counting({3}, [](auto x) { return x.matmul(x); })), Numbers{5});
  EXPECT_EQ(of_counting({2, 3}, [](auto x) { return x.matmul(x[0]); }).sizes(), (Ints{2}));
  EXPECT_EQ(of_counting({4, 2, 3}, [](auto x) { return x[0][0].matmul(x.t()); }).sizes(),
            (Ints{4, 2}));
}

TEST(Trace, OneHotOfNarrowLabels) {
  Graph g = trace("f", [](Tracer& t) -> TracedTensors {
    return {one_hot(t.input("i8", {1}, DType::I8), 300).sum(),
            one_hot(t.input("bf16", {1}, DType::BF16), 300).sum()};
  });
  const Tensors out = evaluate(g, {{"i8", Tensor::full(DType::I8, {1}, 3)},
                                   {"bf16", Tensor::full(DType::BF16, {1}, 256)}})
                          .outputs;
  EXPECT_EQ(out[0].get_float(0), 1);
  EXPECT_EQ(out[1].get_float(0), 1);
}

TEST(Trace, IndexingLikePython) {
  EXPECT_EQ(numbers(of_counting({2, 3}, [](auto x) { return x[-1]; })), (Numbers{3, 4, 5}));
  EXPECT_EQ(numbers(of_counting({6}, [](auto x) { return x.slice(0, 1, -1, 2); })),
            (Numbers{1, 3}));
  EXPECT_EQ(numbers(of_counting({6}, [](auto x) { return x.slice(0, -2, 100); })), (Numbers{4, 5}));
  EXPECT_EQ(numbers(of_counting({6}, [](auto x) { return x.slice(0, {}, {}, -2); })),
            (Numbers{5, 3, 1}));
  EXPECT_EQ(numbers(of_counting({6}, [](auto x) { return x.slice(0, 4, 0, -3); })),
            (Numbers{4, 1}));
  EXPECT_EQ(of_counting({6}, [](auto x) { return x.slice(0, 4, 2); }).sizes(), (Ints{0}));
  EXPECT_EQ(
      numbers(of_counting({2, 2, 3}, [](auto x) { return x.index({1, Ellipsis{}, Slice{1, 3}}); })),
      (Numbers{7, 8, 10, 11}));
  EXPECT_EQ(of_counting({2, 3}, [](auto x) { return x.index({NewAxis{}, Ellipsis{}, 0}); }).sizes(),
            (Ints{1, 2}));
  EXPECT_EQ(numbers(of_counting(
                {3, 2},
                [](auto x) {
                  return x[x.make(x.builder().constant(Tensor::from<int32_t>({2}, {2, 0})))];
                })),
            (Numbers{4, 5, 0, 1}));
  EXPECT_EQ(numbers(of_counting({4}, [](auto x) { return x.narrow(0, 1, 2); })), (Numbers{1, 2}));
  // Behind a tensor of places comes the next axis of x, however many axes the places have.
  const auto at = [](const Ints& sizes, std::initializer_list<int32_t> places, int64_t last) {
    return of_counting({2, 3, 2}, [&](auto x) {
      auto p = x.make(x.builder().constant(Tensor::from<int32_t>(sizes, places)));
      return x.index({p, last});
    });
  };
  EXPECT_EQ(at({1, 2}, {1, 0}, 2).sizes(), (Ints{1, 2, 2}));
  EXPECT_EQ(numbers(at({1, 2}, {1, 0}, 2)), (Numbers{10, 11, 4, 5}));
  EXPECT_EQ(at({}, {1}, 2).sizes(), (Ints{2}));
  EXPECT_EQ(numbers(at({}, {1}, 2)), (Numbers{10, 11}));
}

TEST(Trace, SplitsAndJoins) {
  EXPECT_EQ(numbers(of_counting({4},
                                [](auto x) {
                                  auto p = x.chunk(2);
                                  return cat({p[1], p[0]});
                                })),
            (Numbers{2, 3, 0, 1}));
  EXPECT_EQ(numbers(of_counting({4}, [](auto x) { return x.split({1, 3})[1]; })),
            (Numbers{1, 2, 3}));
  EXPECT_EQ(of_counting({4}, [](auto x) { return stack({x, x, x}, -1); }).sizes(), (Ints{4, 3}));
}

TEST(Trace, EveryOpIsCallable) {
  EXPECT_EQ(numbers(of_counting({2}, [](auto x) { return op::maximum(x, op::sign(x) * 3); })),
            (Numbers{0, 3}));
  Graph g = trace("heads", [](Tracer& t) {
    auto q = t.input("q", {4, 8});
    return apply(
        op::attention.def,
        AttentionAttrs{.num_heads = 2, .num_kv_heads = 2, .mask = MaskKind::causal, .scale = {}},
        {q, q, q});
  });
  EXPECT_EQ(g.outputs.size(), 2u);
}

TEST(Trace, ScopesNameNodes) {
  Graph g = trace("f", [](Tracer& t) {
    auto x = t.input("x", {2});
    Scope outer(t, "layer0");
    auto y = x.exp();
    {
      Scope inner(t, "mlp");
      y = y.tanh();
    }
    return y.log();
  });
  EXPECT_EQ(g.nodes[1].origin.label, "layer0");
  EXPECT_EQ(g.nodes[2].origin.label, "layer0/mlp");
  EXPECT_EQ(g.nodes[3].origin.label, "layer0");
}

// ---- control flow

TEST(Trace, ScanCapturesWhatItUses) {
  Graph g = trace("rnn", [](Tracer& t) {
    auto xs = t.input("xs", {3, 2}), scale = t.param("scale", {2}), h0 = t.zeros({2});
    ScanResult r = t.scan(
        {h0}, {xs}, [&](Tracer&, const TracedTensors& h, const TracedTensors& x) -> ScanResult {
          auto next = h[0] * scale + x[0];
          return {{next}, {next * 10, scale + 0}};
        });
    return TracedTensors{r.carries[0], r.ys[0]};
  });
  const Tensors y = evaluate(g, {{"xs", counting({3, 2})}, {"scale", floats({2}, {2, 1})}}).outputs;
  EXPECT_EQ(numbers(y[0]), (Numbers{8, 9}));
  EXPECT_EQ(numbers(y[1]), (Numbers{0, 10, 20, 40, 80, 90}));
}

TEST(Trace, ScanWithoutStackedInputsAndBackwards) {
  Graph g = trace("pow", [](Tracer& t) {
    auto x = t.input("x", {});
    auto once = [&](Tracer&, const TracedTensors& c, const TracedTensors&) -> ScanResult {
      return {{c[0] * x}, {}};
    };
    return t.scan({t.scalar(1)}, {}, once, {.length = Dim(5)}).carries[0];
  });
  EXPECT_EQ(evaluate(g, {{"x", Tensor::scalar(DType::F32, 2)}}).outputs[0].get_float(0), 32);
  Graph back = trace("back", [](Tracer& t) {
    auto xs = t.input("xs", {3});
    auto sum = [](Tracer&, const TracedTensors& c, const TracedTensors& x) -> ScanResult {
      return {{c[0] + x[0]}, {c[0] + x[0]}};
    };
    return t.scan({t.scalar(0)}, {xs}, sum, {.length = {}, .reverse = true}).ys[0];
  });
  EXPECT_EQ(numbers(evaluate(back, {{"xs", counting({3})}}).outputs[0]), (Numbers{3, 3, 2}));
}

TEST(Trace, GradientsFlowThroughCapturedTensors) {
  Graph g = trace("loss", [](Tracer& t) {
    auto xs = t.input("xs", {3}), w = t.param("w", {});
    auto step = [&](Tracer&, const TracedTensors& c, const TracedTensors& x) -> ScanResult {
      return {{c[0] * w + x[0]}, {}};
    };
    return t.scan({t.scalar(1)}, {xs}, step).carries[0];
  });
  // c = w^3 + 0 w^2 + 1 w + 2
  const Tensor dw =
      evaluate(grad(g, {"w"}), {{"xs", counting({3})}, {"w", Tensor::scalar(DType::F32, 2)}})
          .outputs[0];
  EXPECT_EQ(dw.get_float(0), 13);
}

TEST(Trace, CondSharesTheOperandsOfBothBodies) {
  Graph g = trace("choose", [](Tracer& t) {
    auto p = t.input("p", {}, DType::Bool), a = t.input("a", {2}), b = t.input("b", {2});
    return t.cond(p, [&](Tracer&) { return a * 2; }, [&](Tracer&) { return b - a; });
  });
  for (bool p : {true, false}) {
    const Tensor y = evaluate(g, {{"p", Tensor::scalar(DType::Bool, p)},
                                  {"a", counting({2})},
                                  {"b", floats({2}, {5, 7})}})
                         .outputs[0];
    EXPECT_EQ(numbers(y), p ? (Numbers{0, 2}) : (Numbers{5, 6}));
  }
}

TEST(Trace, BodiesNest) {
  Graph g = trace("nested", [](Tracer& t) {
    auto x = t.input("x", {}), y = t.input("y", {});
    auto outer = [&](Tracer& body, const TracedTensors& c, const TracedTensors&) -> ScanResult {
      auto w = body.param("w", {});  // a parameter of the whole program
      auto inner = [&](Tracer&, const TracedTensors& d, const TracedTensors&) -> ScanResult {
        return {{d[0] + x * c[0]}, {}};
      };
      auto sum = t.scan({y + w}, {}, inner, {.length = Dim(2)}).carries[0];
      return {t.cond(sum < 100, [&](Tracer&) { return sum; }, [&](Tracer&) { return x * 0; }), {}};
    };
    return t.scan({x}, {}, outer, {.length = Dim(2)}).carries[0];
  });
  auto scalar = [](double v) { return Tensor::scalar(DType::F32, v); };
  // c = 3 -> (1 + 4) + 2 * 3 * 3 = 23 -> 5 + 2 * 3 * 23 = 143 >= 100 -> 0
  EXPECT_EQ(
      evaluate(g, {{"x", scalar(3)}, {"y", scalar(1)}, {"w", scalar(4)}}).outputs[0].get_float(0),
      0);
  EXPECT_EQ(
      evaluate(g, {{"x", scalar(1)}, {"y", scalar(1)}, {"w", scalar(4)}}).outputs[0].get_float(0),
      19);
}

// ---- refusals

TEST(Loops, ForiLoopCountsAndCarries) {
  for (const int64_t upper : {1, 3, 9}) {
    const Graph g = trace("loop", [&](Tracer& t) {
      const auto x = t.input("x", {2});
      return fori_loop(t, 2, upper, {x},
                       [&](Tracer&, const TracedTensor& i, const TracedTensors& c) {
                         return TracedTensors{c[0] * x + i.to(DType::F32)};
                       });
    });
    const Tensor x = Tensor::from<float>({2}, std::vector<float>{0.5F, 2});
    const Tensor found = evaluate(g, {{"x", x}}).outputs[0];
    for (int64_t k = 0; k < 2; ++k) {
      double c = x.get_float(k);
      for (int64_t i = 2; i < upper; ++i) c = c * x.get_float(k) + static_cast<double>(i);
      EXPECT_FLOAT_EQ(static_cast<float>(found.get_float(k)), static_cast<float>(c));
    }
  }
}

TEST(Loops, SwitchCaseTakesTheBranchOfItsIndex) {
  const Graph g = trace("choice", [](Tracer& t) {
    const auto x = t.input("x", {}), i = t.input("i", {}, DType::I32);
    std::vector<std::function<TracedTensors(Tracer&)>> branches;
    for (int k = 0; k < 5; ++k)
      branches.emplace_back([x, k](Tracer&) { return TracedTensors{x + k}; });
    return switch_case(t, i, branches);
  });
  for (const auto& [index, branch] :
       std::vector<std::pair<int, int>>{{-7, 0}, {0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {70, 4}}) {
    const NamedTensors in{{"x", Tensor::scalar(DType::F32, 10)},
                          {"i", Tensor::scalar(DType::I32, index)}};
    EXPECT_EQ(evaluate(g, in).outputs[0].get_float(0), 10 + branch) << index;
  }
}

TEST(Loops, AssociativeScanOfARecurrence) {
  for (const int64_t n : {0, 1, 2, 3, 8, 9, 70, 129}) {
    for (const bool reverse : {false, true}) {
      const Graph g = trace("scan", [&](Tracer& t) {
        const auto a = t.input("a", {2, n}, DType::F64), u = t.input("u", {2, n}, DType::F64);
        return associative_scan(
            {a, u}, -1,
            [](const TracedTensors& p, const TracedTensors& q) {
              return TracedTensors{p[0] * q[0], q[0] * p[1] + q[1]};
            },
            reverse);
      });
      Tensor a(DType::F64, {2, n}), u(DType::F64, {2, n});
      for (int64_t i = 0; i < 2 * n; ++i)
        a.set_float(i, 0.5 + 0.1 * static_cast<double>(i % 5)),
            u.set_float(i, std::sin(static_cast<double>(i)));
      const Tensor found = evaluate(g, {{"a", a}, {"u", u}}).outputs[1];
      for (int64_t r = 0; r < 2; ++r) {
        double h = 0;
        for (int64_t k = 0; k < n; ++k) {
          const int64_t i = r * n + (reverse ? n - 1 - k : k);
          h = a.get_float(i) * h + u.get_float(i);
          EXPECT_NEAR(found.get_float(i), h, 1e-12) << n << " " << reverse << " " << i;
        }
      }
    }
  }
}

TEST(Loops, Refusals) {
  trace("errors", [](Tracer& t) {
    const auto x = t.input("x", {4, 2}), y = t.input("y", {3, 2}), f = t.input("f", {});
    const auto first = [](const TracedTensors& p, const TracedTensors&) { return p; };
    expect_error("scan-length", "must have one size", [&] { associative_scan({x, y}, 0, first); });
    expect_error("scan-result", "makes 1 tensors of 2", [&] {
      associative_scan({x, x}, 0, [](const TracedTensors& p, const TracedTensors&) {
        return TracedTensors{p[0]};
      });
    });
    expect_error("scan-result", "of [2, 2] f32", [&] {
      associative_scan({x}, 0, [](const TracedTensors& p, const TracedTensors&) {
        return TracedTensors{p[0].sum(0)};
      });
    });
    expect_error("switch-branches", "a branch",
                 [&] { switch_case(t, t.scalar(0, DType::I32), {}); });
    expect_error("switch-index", "scalar of integers",
                 [&] { switch_case(t, f, {[&](Tracer&) { return TracedTensors{x}; }}); });
  });
}

TEST(TraceErrors, TensorsOfTwoTracesDoNotMix) {
  trace("a", [](Tracer& t) {
    auto x = t.input("x", {2});
    trace("b", [&](Tracer& u) {
      auto y = u.input("y", {2});
      expect_error("trace-mixed", "\"b\"", [&] { x + y; });
      expect_error("trace-mixed", "\"a\"", [&] { op::select(y < 0, y, x); });
      expect_error("trace-mixed", "do not mix", [&] { cat({y, x}); });
      return y;
    });
    return x;
  });
  Builder b("plain");
  TracedTensor z(b, b.input("z", {DType::F32, {2}}));
  trace("a", [&](Tracer& t) {
    auto x = t.input("x", {2});
    expect_error("trace-mixed", "\"plain\"", [&] { x* z; });
    return x;
  });
}

TEST(TraceErrors, TensorsEndWithTheirTrace) {
  TracedTensor kept;
  expect_error("no-tensor", "empty", [&] { kept.exp(); });
  trace("short", [&](Tracer& t) { return kept = t.input("x", {2}); });
  expect_error("trace-ended", "\"short\"", [&] { kept + 1; });
  expect_error("trace-ended", "\"short\"", [&] { kept.shape(); });
  trace("long", [&](Tracer& t) {
    auto x = t.input("x", {3});
    TracedTensor inside;
    t.scan({}, {x}, [&](Tracer&, const TracedTensors&, const TracedTensors& s) -> ScanResult {
      inside = s[0] * 2;
      return {{}, {inside}};
    });
    expect_error("trace-ended", "scan_body", [&] { inside + 1; });
    return x;
  });
}

TEST(TraceErrors, AThrowingBodyLeavesTheTraceUsable) {
  Graph g = trace("f", [](Tracer& t) {
    auto x = t.input("x", {3});
    auto bad = [&](Tracer&, const TracedTensors&, const TracedTensors& s) -> ScanResult {
      return {{}, {s[0].matmul(x.reshape({7}))}};
    };
    EXPECT_THROW(t.scan({}, {x}, bad), Error);
    return x + 1;
  });
  EXPECT_EQ(numbers(evaluate(g, {{"x", counting({3})}}).outputs[0]), (Numbers{1, 2, 3}));
}

TEST(TraceErrors, ThePlaceOfUpdatesAndLeaves) {
  trace("f", [](Tracer& t) {
    auto x = t.input("x", {3}), w = t.param("w", {});
    expect_error("update-in-body", "\"w\"", [&] {
      t.scan({}, {x},
             [&](Tracer& body, const TracedTensors&, const TracedTensors& s) -> ScanResult {
               body.update("w", s[0]);
               return {};
             });
    });
    expect_error("leaf-name", "\"x\"", [&] { t.param("x", {}); });
    expect_error("scan-length", "length", [&] {
      t.scan({w}, {}, [](Tracer&, const auto& c, const auto&) -> ScanResult { return {c, {}}; });
    });
    expect_error("scan-carries", "1 carries but returns 0", [&] {
      t.scan({w}, {x}, [](Tracer&, const auto&, const auto&) -> ScanResult { return {}; });
    });
    return x;
  });
}

TEST(Trace, NumbersKeepTheirDigits) {
  constexpr int64_t kLarge = (int64_t{1} << 53) + 1;  // no float holds it
  Graph g = trace("f", [](Tracer& t) {
    auto x = t.input("x", {2}, DType::I64);
    return TracedTensors{x + kLarge, x.eq(kLarge).to(DType::I64), x.maximum(INT64_MAX)};
  });
  const Tensor x = Tensor::from<int64_t>({2}, {0, kLarge});
  const std::vector<Tensor> out = evaluate(g, {{"x", x}}).outputs;
  EXPECT_EQ(out[0].get_int(0), kLarge);
  EXPECT_EQ(numbers(out[1]), (Numbers{0, 1}));
  EXPECT_EQ(out[2].get_int(0), INT64_MAX);
}

TEST(TraceErrors, NumbersThatTheDtypeHasNot) {
  trace("f", [](Tracer& t) {
    auto u8 = t.input("u8", {2}, DType::U8), i32 = t.input("i32", {2}, DType::I32);
    auto i64 = t.input("i64", {2}, DType::I64), f32 = t.input("f32", {2});
    auto truth = t.input("truth", {2}, DType::Bool);
    for (const Number& n : {Number(0), Number(255), Number(255.0), Number(7u)}) u8.like(n);
    expect_error("scalar-range", "300 does not fit in a tensor of u8", [&] { u8 < 300; });
    expect_error("scalar-range", "from 0 to 255", [&] { u8 + 256.0; });
    expect_error("scalar-range", "-1 does not fit", [&] { u8.maximum(-1); });
    expect_error("scalar-range", "0.5 does not fit in a tensor of i32", [&] { i32 * 0.5; });
    expect_error("scalar-range", "nan", [&] { i32.eq(std::nan("")); });
    expect_error("scalar-range", "inf", [&] { i32.clamp(0, INFINITY); });
    expect_error("scalar-range", "2147483648", [&] { 0x80000000u - i32; });
    i32.like(INT32_MIN);
    i64.like(-0x1p63);
    expect_error("scalar-range", "does not fit in a tensor of i64", [&] { i64 + 0x1p63; });
    expect_error("scalar-range", "does not fit", [&] { i64 + UINT64_MAX; });
    expect_error("scalar-range", "from 0 to 1", [&] { truth.eq(2); });
    truth.eq(true);
    expect_error("scalar-range", "1+2i", [&] { f32 + Complex(1, 2); });
    f32 * 0.1;
    return f32;
  });
}

TEST(TraceErrors, ArgumentsOutOfRange) {
  trace("f", [](Tracer& t) {
    auto x = t.input("x", {2, 3});
    expect_error("index-range", "index 2", [&] { x[2]; });
    expect_error("index-rank", "3 indices", [&] { x.index({0, 0, 0}); });
    expect_error("index-ellipsis", "Ellipsis", [&] { x.index({Ellipsis{}, Ellipsis{}}); });
    expect_error("slice-step", "is 0", [&] { x.slice(0, {}, {}, 0); });
    expect_error("squeeze-dim", "axis 1", [&] { x.squeeze(1); });
    expect_error("axis-range", "two axes", [&] { x[0].t(); });
    expect_error("axis-range", "unsqueeze", [&] { x.unsqueeze(4); });
    expect_error("split-sizes", "add up to 2", [&] { x.split({1, 1}, 1); });
    expect_error("split-sizes", "2 equal parts", [&] { x.chunk(2, 1); });
    expect_error("expand-rank", "more axes", [&] { x.expand({3}); });
    return x;
  });
}

}  // namespace
}  // namespace rlx
