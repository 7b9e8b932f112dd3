// Scans that keep few carries: the schedules, the memory, and gradients bit for bit.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <random>

#include "../support/expect_error.h"
#include "../support/hidden_checks.h"
#include "rlx/front/trace.h"
#include "rlx/lower/lir.h"
#include "rlx/ops/custom.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/ops.h"
#include "rlx/ops/rules.h"
#include "rlx/runtime/extend.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {
namespace {

constexpr DType f32 = DType::F32;

Tensor noise(DType dtype, const Ints& sizes, uint32_t seed) {
  std::mt19937 random(seed);
  Tensor t(dtype, sizes);
  for (int64_t i = 0; i < t.elements(); ++i)
    t.set_float(i, std::uniform_real_distribution<double>(-1, 1)(random));
  return t;
}

// ---- schedules

// The least number of evaluations that takes `length` steps back from a carry at hand with so many slots: by trying all
// places of the next snapshot.
int64_t least_evaluations(int64_t length, int64_t slots) {
  static std::map<std::pair<int64_t, int64_t>, int64_t> known;
  if (length <= 1) return 0;
  if (slots == 0) return length * (length - 1) / 2;
  auto [it, fresh] = known.try_emplace({length, slots}, 0);
  if (!fresh) return it->second;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t m = 1; m < length; ++m)
    least =
        std::min(least, m + least_evaluations(length - m, slots - 1) + least_evaluations(m, slots));
  return known[{length, slots}] = least;
}

// What following next_snapshot takes.
int64_t followed(int64_t length, int64_t slots) {
  if (length <= 1) return 0;
  if (slots == 0) return length * (length - 1) / 2;
  const int64_t m = next_snapshot(length, slots);
  EXPECT_GE(m, 1);
  EXPECT_LT(m, length);
  return m + followed(length - m, slots - 1) + followed(m, slots);
}

TEST(Snapshots, TakeTheFewestEvaluations) {
  for (int64_t slots = 1; slots <= 6; ++slots)
    for (int64_t length = 2; length <= 60; ++length) {
      ASSERT_EQ(followed(length, slots), least_evaluations(length, slots))
          << length << ", " << slots;
      ASSERT_EQ(sweep_evaluations(length, slots), least_evaluations(length, slots))
          << length << ", " << slots;
    }
}

// The least number that Griewank and Walther give for c carries and l steps, by their formula.
int64_t by_the_formula(int64_t l, int64_t c) {
  const auto choose = [](int64_t n, int64_t k) {
    double out = 1;
    for (int64_t i = 1; i <= k; ++i)
      out = out * static_cast<double>(n - k + i) / static_cast<double>(i);
    return std::llround(out);
  };
  int64_t r = 0;
  while (choose(c + r, r) < l) ++r;
  return r * l - (r > 0 ? choose(c + r, r - 1) : 0);
}

TEST(Snapshots, TheForwardRunLeavesTheFirst) {
  for (const auto& [length, checkpoints] : std::vector<std::pair<int64_t, int64_t>>{
           {3, 2}, {10, 3}, {60, 7}, {70, 69}, {65536, 32}, {65536, 40}}) {
    const Ints times = snapshot_times(length, checkpoints - 1);
    EXPECT_EQ(std::ssize(times), checkpoints);
    EXPECT_EQ(times[0], 0);
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    EXPECT_LT(times.back(), length);
    // The forward run takes all steps; then from each snapshot, the last one first.
    int64_t counted = length, end = length;
    for (int64_t k = checkpoints; k-- > 0; end = times[static_cast<size_t>(k)])
      counted += followed(end - times[static_cast<size_t>(k)], checkpoints - 1 - k);
    EXPECT_EQ(binomial_evaluations(length, checkpoints), counted);
    EXPECT_EQ(by_the_formula(length, checkpoints), sweep_evaluations(length, checkpoints - 1));
    // It takes the last step, too, and does not keep what enters it.
    EXPECT_EQ(counted, by_the_formula(length, checkpoints) + length - times.back());
  }
}

TEST(Snapshots, EvenSegments) {
  const Dim n = Dim::symbol("n");
  for (const auto& [length, checkpoints] : std::vector<std::pair<int64_t, int64_t>>{
           {4096, 64}, {10, 3}, {7, 4}, {100, 99}, {9, 1}, {130, 70}}) {
    const ScanSegments s = even_segments(length, checkpoints);
    EXPECT_EQ(s.each * s.count + s.rest, Dim(length));
    EXPECT_EQ(s.has_rest, s.rest != Dim(0));
    EXPECT_LE(s.count + s.has_rest, checkpoints);
    const ScanSegments any = even_segments(n, checkpoints);
    EXPECT_EQ(any.each * any.count + any.rest, n);
    EXPECT_EQ(any.count, checkpoints);
    EXPECT_EQ(any.each.bind({{"n", length}}), length / checkpoints);
  }
}

// ---- programs

struct Kept {
  int64_t checkpoints = 0;
  bool binomial = false;
};

// Three carries that feed each other, two of which a constant and the stacked inputs move; a stacked output.
Graph recurrence(int64_t length, int64_t width, const Kept& kept, bool reverse = false,
                 DType dtype = f32, bool stacks = true) {
  return trace("recurrence", [&](Tracer& t) {
    const TracedTensor xs = t.input("xs", {length, width}, dtype), w = t.param("w", {width}, dtype),
                       h = t.input("h", {width}, dtype);
    const auto cell = [&](Tracer&, const TracedTensors& c, const TracedTensors& x) -> ScanResult {
      const TracedTensor a = (c[0] * w + x[0]).tanh(), b = (c[1] + a * c[2]).sin(),
                         d = c[2] * 0.9 + b * x[0];
      return {{a, b, d}, stacks ? TracedTensors{a * b} : TracedTensors{}};
    };
    const ScanResult r =
        t.scan({h, h * 2, h * 3}, {xs}, cell,
               {.reverse = reverse, .checkpoints = kept.checkpoints, .binomial = kept.binomial});
    const TracedTensor last = r.carries[0].sum() + r.carries[1].sum() * r.carries[2].sum();
    return stacks ? last + (r.ys[0] * r.ys[0]).mean() : last;
  });
}

NamedTensors leaves_of(int64_t length, int64_t width, DType dtype = f32) {
  return {{"xs", noise(dtype, {length, width}, 1)},
          {"w", noise(dtype, {width}, 2)},
          {"h", noise(dtype, {width}, 3)}};
}

struct Ran {
  std::vector<Tensor> outputs;
  int64_t arena, resident;
};

Ran run_on(const std::string& device, const Graph& g, const NamedTensors& leaves) {
  CompileOptions options;
  options.threads = 1;
  CompiledGraph f = Session(device).compile(g, options);
  NamedTensors inputs;
  for (const auto& [name, value] : leaves)
    if (g.node(g.find_leaf(name)).op == &op::param)
      f.set_param(name, value);
    else
      inputs[name] = value;
  Ran out;
  out.outputs = f.run(inputs);
  out.arena = f.info().program->arena_bytes;
  out.resident = f.resident_bytes();  // besides what was given
  for (const auto& [name, value] : leaves) out.resident -= static_cast<int64_t>(value.bytes());
  return out;
}

void expect_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].same_bits(b[i])) << "output " << i;
}

const std::vector<std::string> kAll{"w", "h", "xs"};

TEST(ScanCheckpoints, GradientsAreThoseOfThePlainScanBitForBit) {
  register_hidden_devices();
  struct Case {
    int64_t length;
    bool reverse;
    std::vector<Kept> kept;
  };
  const Case cases[] = {
      {2, false, {{1}, {2, true}}},
      {9, true, {{1}, {7}, {9}, {2, true}, {500, true}}},
      {70, false, {{8}, {69}, {3, true}, {6, true}}},
      {131, true, {{7}, {5, true}}},
  };
  for (const auto& [length, reverse, kept] : cases) {
    const NamedTensors leaves = leaves_of(length, 9);
    const auto want =
        run_on("cpu", value_and_grad(recurrence(length, 9, {}, reverse), kAll), leaves);
    for (const Kept& k : kept) {
      const Graph g = value_and_grad(recurrence(length, 9, k, reverse), kAll);
      expect_same_bits(run_on("cpu", g, leaves).outputs, want.outputs);
      if (length == 70) expect_same_bits(run_on("hidden", g, leaves).outputs, want.outputs);
    }
  }
}

// The same without a stacked output, whose cotangents would be kept either way.
Graph long_recurrence(int64_t length, int64_t width, const Kept& kept) {
  return value_and_grad(recurrence(length, width, kept, false, f32, false), {"w", "h"});
}

TEST(ScanCheckpoints, KeepTheirPartOfTheMemory) {
  constexpr int64_t length = 4096, width = 512;
  const NamedTensors leaves = leaves_of(length, width);
  const Ran plain = run_on("cpu", long_recurrence(length, width, {}), leaves),
            even = run_on("cpu", long_recurrence(length, width, {64}), leaves);
  const auto percent = [](int64_t a, int64_t b) {
    return 100 * static_cast<double>(a) / static_cast<double>(b);
  };
  fmt::print("arena {} of {} bytes ({:.2f} %), after a run {} of {} ({:.2f} %)\n", even.arena,
             plain.arena, percent(even.arena, plain.arena), even.resident, plain.resident,
             percent(even.resident, plain.resident));
  expect_same_bits(even.outputs, plain.outputs);
  EXPECT_LT(percent(even.arena, plain.arena), 5);
  EXPECT_LT(percent(even.resident, plain.resident), 5);
}

// x as it is, counted: how often a body runs forward, and how often its reverse does. The reverse of a body that ends with it
// has no use for its value, so what is counted forward are runs of the body itself.
std::atomic<int64_t> forward_runs = 0, reverse_runs = 0;
void hand_on(std::span<const HostView> in, std::span<const HostView> out) {
  int64_t bytes = size_of(in[0].dtype);
  for (int64_t d : in[0].dims) bytes *= d;
  std::memcpy(out[0].data, in[0].data, static_cast<size_t>(bytes));
}
constinit const Op<> counted_back = OpDef{
    .name = "test_counted_back",
    .infer = infer_same,
    .eval = [](const EvalArgs& e) -> Tensors { return {e.in[0]}; },
};
constinit const Op<> counted = OpDef{
    .name = "test_counted",
    .infer = infer_same,
    .eval = [](const EvalArgs& e) -> Tensors { return {e.in[0]}; },
    .vjp = [](Builder& b, const VjpArgs& a) -> Values {
      return {counted_back(b, a.cotangents[0])};
    },
};
void register_counters() {
  if (op_table().find("test_counted")) return;
  register_op(counted.def);
  register_op(counted_back.def);
  register_cpu_kernel(counted.def, [](const Node&, auto in, auto out) {
    ++forward_runs;
    hand_on(in, out);
  });
  register_cpu_kernel(counted_back.def, [](const Node&, auto in, auto out) {
    ++reverse_runs;
    hand_on(in, out);
  });
}

// `carries` values that feed each other; the gradients of all that goes in.
Graph counted_recurrence(int64_t length, int64_t width, int64_t carries, const Kept& kept) {
  register_counters();
  return value_and_grad(
      trace("counted",
            [&](Tracer& t) {
              const TracedTensor w = t.param("w", {width}), h = t.input("h", {width});
              const auto cell = [&](Tracer&, const TracedTensors& c,
                                    const TracedTensors&) -> ScanResult {
                TracedTensors next;
                for (size_t i = 0; i < c.size(); ++i)
                  next.push_back((c[i] * w + c[(i + 1) % c.size()] * 0.3).tanh());
                next[0] = counted(next[0]);
                return {next, {}};
              };
              TracedTensors start;
              for (int64_t i = 0; i < carries; ++i) start.push_back(h * static_cast<double>(i + 1));
              const ScanResult r = t.scan(
                  start, {}, cell,
                  {.length = length, .checkpoints = kept.checkpoints, .binomial = kept.binomial});
              TracedTensor last = r.carries[0].sum();
              for (size_t i = 1; i < r.carries.size(); ++i) last = last + r.carries[i].sum();
              return last;
            }),
      {"w", "h"});
}

// 65,536 steps in the memory of 40 carries, all copies that the work needs included, with each step run forward four times on
// average; both as measured by a run.
TEST(ScanCheckpoints, BinomialKeepsToItsMemoryAndItsEvaluations) {
  constexpr int64_t length = 65536, width = 64, checkpoints = 32;
  NamedTensors leaves = leaves_of(1, width);
  leaves.erase("xs");
  for (const int64_t carries : {1, 3}) {
    SCOPED_TRACE(carries);
    const int64_t carry = carries * width * 4;
    const Graph plain = counted_recurrence(length, width, carries, {});
    forward_runs = reverse_runs = 0;
    const Ran want = run_on("cpu", plain, leaves);
    EXPECT_EQ(forward_runs, length);
    EXPECT_EQ(reverse_runs, length);
    EXPECT_GT(want.arena, length * carry);
    const Graph g = counted_recurrence(length, width, carries, {checkpoints, true});
    forward_runs = reverse_runs = 0;
    const Ran ran = run_on("cpu", g, leaves);
    fmt::print("{} carries: an arena of {:.2f}, each step {:.4f} times\n", carries,
               static_cast<double>(ran.arena) / static_cast<double>(carry),
               static_cast<double>(forward_runs) / static_cast<double>(length));
    EXPECT_LE(ran.arena, 40 * carry);
    EXPECT_LE(forward_runs, 4 * length);
    EXPECT_EQ(forward_runs, binomial_evaluations(length, checkpoints));
    EXPECT_EQ(reverse_runs, length);
    expect_same_bits(ran.outputs, want.outputs);
  }
}

// Stacked results that nobody reads are not made.
TEST(ScanCheckpoints, BinomialDropsWhatNobodyReads) {
  const auto program = [](bool reads) {
    return value_and_grad(
        trace("f",
              [&](Tracer& t) {
                const TracedTensor w = t.param("w", {64}), h = t.input("h", {64});
                const auto cell = [&](Tracer&, const TracedTensors& c,
                                      const TracedTensors&) -> ScanResult {
                  const TracedTensor next = (c[0] * w).tanh();
                  return {{next}, {next * 2}};
                };
                const ScanResult r =
                    t.scan({h}, {}, cell, {.length = 500, .checkpoints = 5, .binomial = true});
                return reads ? r.carries[0].sum() + r.ys[0].sum() : r.carries[0].sum();
              }),
        {"w"});
  };
  NamedTensors leaves = leaves_of(1, 64);
  leaves.erase("xs");
  EXPECT_GT(run_on("cpu", program(true), leaves).arena, 500 * 64 * 4);
  EXPECT_LT(run_on("cpu", program(false), leaves).arena, 20 * 64 * 4);
}

// Two sweeps over the same snapshots, which each of them writes over.
TEST(ScanCheckpoints, SnapshotsThatAreReadAgainAreCopied) {
  constexpr int64_t length = 70, width = 9;
  Graph g = value_and_grad(recurrence(length, width, {5, true}), kAll);
  const auto is_sweep = [](const Node& n) { return n.op == &op::scan_sweep; };
  const auto sweep = std::ranges::find_if(g.nodes, is_sweep) - g.nodes.begin();
  ASSERT_LT(sweep, std::ssize(g.nodes));
  Builder b("twice");
  b.mutable_graph() = g;
  const Node n = g.nodes[static_cast<size_t>(sweep)];
  Values in = n.in;
  for (int64_t i = 0; i < n.get<ScanSweepAttrs>().num_carries; ++i) {
    Value& v = in[static_cast<size_t>(i)];
    v = op::mul(b, v, b.constant_like(v, 2));
  }
  for (Value v : b.emit(*n.op, n.attrs, in)) b.output(v);
  g = b.finish();
  const NamedTensors leaves = leaves_of(length, width);
  const Tensors want = evaluate(g, leaves).outputs, got = run_on("cpu", g, leaves).outputs;
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    for (int64_t k = 0; k < got[i].elements(); ++k)
      ASSERT_NEAR(got[i].get_float(k), want[i].get_float(k),
                  1e-3 * (1 + std::fabs(want[i].get_float(k))))
          << "output " << i;
}

// Further snapshots than those that are given.
TEST(ScanCheckpoints, SweepsPlaceTheRest) {
  constexpr int64_t length = 70, width = 9;
  const NamedTensors leaves = leaves_of(length, width);
  const Graph plain = value_and_grad(recurrence(length, width, {5, true}), kAll);
  const auto want = run_on("cpu", plain, leaves);
  for (const Ints& times : {Ints{0}, Ints{0, 1}, Ints{0, 40, 41, 69}}) {
    const Graph g = rebuild(plain, [&](Builder& b, int32_t i, Operands in) -> Values {
      const Node& n = plain.node(i);
      if (n.op == &op::scan_snapshots) {
        auto s = n.get<ScanSnapshotsAttrs>();
        s.times = times;
        return b.emit(*n.op, s, in);
      }
      if (n.op == &op::scan_sweep) {
        auto s = n.get<ScanSweepAttrs>();
        s.times = times;
        return b.emit(*n.op, s, in);
      }
      return b.clone(n, in);
    });
    expect_same_bits(run_on("cpu", g, leaves).outputs, want.outputs);
  }
}

TEST(ScanCheckpoints, ComposeWithEveryTransform) {
  constexpr DType f64 = DType::F64;
  constexpr int64_t length = 7, width = 3;
  NamedTensors leaves = leaves_of(length, width, f64);
  leaves["tangent_w"] = noise(f64, {width}, 4);
  leaves["tangent_xs"] = noise(f64, {length, width}, 5);
  const auto second = [](const Graph& g) {
    Graph d = grad(g, {"w"});
    Builder b("second");
    const Value dw = d.outputs[0];
    d.outputs.clear();
    b.mutable_graph() = d;
    b.output(op::reduce_sum(b, op::mul(b, dw, dw), {.axes = {0}}));
    return b.finish();
  };
  const std::pair<const char*, std::function<Graph(const Graph&)>> transforms[] = {
      {"grad", [](const Graph& g) { return value_and_grad(g, kAll); }},
      {"jvp", [](const Graph& g) { return jvp(g, {"w", "xs"}); }},
      {"hvp", [](const Graph& g) { return hvp(g, {"w", "xs"}); }},
      {"grad of grad", [&](const Graph& g) { return value_and_grad(second(g), kAll); }},
      {"grad of jvp", [](const Graph& g) { return grad(jvp(g, {"xs"}), {"w"}, {.output = 1}); }},
      {"vmap of grad", [](const Graph& g) { return vmap(value_and_grad(g, kAll), {{"w", 0}}, 2); }},
      {"grad of vmap",
       [](const Graph& g) {
         Graph v = vmap(g, {{"w", 0}}, 2);
         Builder b("sum");
         const Value y = v.outputs[0];
         v.outputs.clear();
         b.mutable_graph() = v;
         b.output(op::reduce_sum(b, y, {.axes = {0}}));
         return value_and_grad(b.finish(), kAll);
       }},
  };
  for (const auto& [name, transform] : transforms)
    for (const bool reverse : {false, true}) {
      const Graph plain = transform(recurrence(length, width, {}, reverse, f64));
      NamedTensors used;
      for (const auto& [leaf, value] : leaves)
        if (const Value v = plain.find_leaf(leaf); v.valid())
          used[leaf] = plain.type(v).rank() == value.rank() ? value : noise(f64, {2, width}, 9);
      const Tensors want = evaluate(plain, used).outputs;
      for (const Kept kept : {Kept{3}, Kept{4, true}, Kept{2, true}}) {
        const Graph g = transform(recurrence(length, width, kept, reverse, f64));
        const Tensors reference = evaluate(g, used).outputs;
        const bool compiled = kept.checkpoints == 4 && !reverse;
        const Tensors got = compiled ? run_on("cpu", g, used).outputs : reference;
        ASSERT_EQ(got.size(), want.size()) << name;
        for (size_t i = 0; i < got.size(); ++i)
          for (int64_t k = 0; k < got[i].elements(); ++k) {
            const double y = want[i].get_float(k), most = 1e-11 * (1 + std::fabs(y));
            ASSERT_NEAR(got[i].get_float(k), y, most) << name << ", output " << i;
            ASSERT_NEAR(reference[i].get_float(k), y, most) << name << ", output " << i;
          }
      }
    }
}

// vmap keeps the snapshots of a sweep.
TEST(ScanCheckpoints, VmapKeepsTheSnapshots) {
  const Graph g = vmap(value_and_grad(recurrence(70, 9, {5, true}), kAll), {{"w", 0}}, 2);
  std::function<int(const Graph&)> sweeps = [&](const Graph& at) {
    int out = 0;
    for (const Node& n : at.nodes) {
      out += n.op == &op::scan_sweep;
      for (const NamedBody& b : bodies(n.attrs)) out += sweeps(b.graph);
    }
    return out;
  };
  EXPECT_GE(sweeps(g), 1);
}

TEST(ScanCheckpoints, OfOneCarryByItsOldName) {
  Builder body("f");
  const Value y = body.input("y", {f32, {9}}), w = body.input("w", {f32, {9}}),
              x = body.input("x", {f32, {9}});
  body.output(op::tanh(body, op::add(body, op::mul(body, y, w), x)));
  const Graph f = body.finish();
  const auto loss = [&](int64_t checkpoints) {
    Builder b("loss");
    const Values in{b.input("h", {f32, {9}}), b.param("w", {f32, {9}}),
                    b.input("xs", {f32, {70, 9}})};
    const Value last =
        b.emit(op::scan_checkpointed.def, ScanCheckpointedAttrs{f, 70, 1, checkpoints}, in)[0];
    b.output(op::reduce_sum(b, last, {.axes = {0}}));
    return value_and_grad(b.finish(), kAll);
  };
  const NamedTensors leaves = leaves_of(70, 9);
  expect_same_bits(run_on("cpu", loss(8), leaves).outputs, run_on("cpu", loss(0), leaves).outputs);
}

// The segments are cut when the length is bound, which may be shorter than there are checkpoints.
TEST(ScanCheckpoints, ALengthThatIsNotKnown) {
  const auto program = [](const Kept& kept, bool reverse) {
    return trace("f", [&](Tracer& t) {
      const TracedTensor xs = t.input("xs", {Dim::symbol("n"), 3}), w = t.param("w", {3});
      const auto cell = [&](Tracer&, const TracedTensors& c, const TracedTensors& x) -> ScanResult {
        const TracedTensor next = (c[0] * x[0] + w).tanh();
        return {{next, c[1] * w + next}, {next * c[1]}};
      };
      const ScanResult r =
          t.scan({t.ones({3}), w}, {xs}, cell,
                 {.reverse = reverse, .checkpoints = kept.checkpoints, .binomial = kept.binomial});
      return r.carries[0].sum() + r.carries[1].sum() + (r.ys[0] * r.ys[0]).sum();
    });
  };
  const std::vector<std::string> wrt{"w", "xs"};
  for (const bool reverse : {false, true}) {
    CompiledGraph plain = Session("cpu").compile(value_and_grad(program({}, reverse), wrt));
    for (const int64_t checkpoints : {1, 4}) {
      const Graph g = value_and_grad(program({checkpoints}, reverse), wrt);
      CompiledGraph f = Session("cpu").compile(g);
      for (const int64_t n : {1, 3, 4, 7, 64}) {
        SCOPED_TRACE(fmt::format("{} checkpoints, {} steps", checkpoints, n));
        const Tensor xs = noise(f32, {n, 3}, 1), w = noise(f32, {3}, 2);
        plain.set_param("w", w), f.set_param("w", w);
        const Tensors want = plain.run({{"xs", xs}}), got = f.run({{"xs", xs}});
        expect_same_bits(got, want);
        const Tensors reference = evaluate(g, NamedTensors{{"xs", xs}, {"w", w}}).outputs;
        for (size_t i = 0; i < want.size(); ++i)
          for (int64_t k = 0; k < want[i].elements(); ++k)
            ASSERT_NEAR(reference[i].get_float(k), want[i].get_float(k), 1e-4);
      }
    }
  }
  expect_error("scan-symbolic", "a number, not ?n", [&] { grad(program({4, true}, false), wrt); });
  expect_error("scan-checkpoints", "-1 checkpoints", [&] { program({-1}, false); });
}

// The carries that enter segments, and those of one segment, not of all steps.
TEST(ScanCheckpoints, KeepTheirPartWhereTheLengthIsNotKnown) {
  constexpr int64_t length = 4096, width = 512;
  const auto program = [](int64_t checkpoints) {
    return value_and_grad(
        trace("f",
              [&](Tracer& t) {
                const TracedTensor xs = t.input("xs", {Dim::symbol("n"), 1}),
                                   w = t.param("w", {width});
                const auto cell = [&](Tracer&, const TracedTensors& c,
                                      const TracedTensors& x) -> ScanResult {
                  return {{(c[0] * w + x[0]).tanh()}, {}};
                };
                return t.scan({t.ones({width})}, {xs}, cell, {.checkpoints = checkpoints})
                    .carries[0]
                    .sum();
              }),
        {"w"});
  };
  const auto arena = [&](int64_t checkpoints) {
    CompiledGraph f = Session("cpu").compile(program(checkpoints));
    f.set_param("w", noise(f32, {width}, 2));
    f.run({{"xs", noise(f32, {length, 1}, 1)}});
    return f.resident_bytes();
  };
  EXPECT_LT(15 * (arena(64) - length * 4), arena(0));
}

}  // namespace
}  // namespace rlx::testing
