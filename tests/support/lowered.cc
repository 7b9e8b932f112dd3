#include "lowered.h"

#include <algorithm>
#include <map>

#include "rlx/ir/text.h"
#include "rlx/ops/core.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/passes/passes.h"

namespace rlx::testing {
namespace {

constexpr std::string_view kPlaces[] = {"arena",    "input",  "output", "param",
                                        "constant", "joined", "packed"};

std::string text(const Program& p, const View& v) {
  const Buffer& b = p.buffers[static_cast<size_t>(v.buffer)];
  std::string out = fmt::format("b{} {}", v.buffer, v.type());
  if (b.place != Place::arena)
    out += fmt::format(" {} {}", kPlaces[static_cast<size_t>(b.place)], b.index);
  if (!v.is_dense()) out += fmt::format(" strides [{}]", fmt::join(v.strides, ", "));
  if (v.offset != 0) out += fmt::format(" from {}", v.offset);
  return out;
}

std::string indented(const std::string& lines) {
  std::string out;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = lines.find('\n', at);
    out += "    " + lines.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return out;
}

std::string steps_text(const Program& p) {
  std::string out;
  for (const Chain& c : p.chains) {
    if (c.rows && c.end > c.begin + 1)
      out += fmt::format("steps {} to {} in tiles of {} of {} rows\n", c.begin, c.end - 1, c.tile,
                         c.rows);
    for (int32_t s = c.begin; s < c.end; ++s) {
      const Step& step = p.steps[static_cast<size_t>(s)];
      out +=
          fmt::format("{} {} [{}]", s, step.label, step.kernel ? step.kernel->name() : "control");
      if (step.kernel) out += fmt::format(" {} blocks", step.kernel->blocks());
      out += "\n";
      for (const View& v : step.in) out += fmt::format("  in  {}\n", text(p, v));
      for (const View& v : step.out) out += fmt::format("  out {}\n", text(p, v));
      for (const auto& body : step.bodies) out += "  body\n" + indented(steps_text(*body));
    }
  }
  for (const View& v : p.outputs) out += fmt::format("return {}\n", text(p, v));
  return out;
}

std::string plan_text(const Program& p) {
  std::string out =
      fmt::format("arena {} bytes, {} without reuse\n", p.arena_bytes, p.unshared_bytes);
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    const Buffer& b = p.buffers[i];
    if (b.place != Place::arena || b.first < 0) continue;
    out +=
        fmt::format("b{} at {}, {} bytes, steps {} to {}", i, b.offset, b.bytes, b.first, b.last);
    if (b.shares >= 0) out += fmt::format(", in place of b{}", b.shares);
    out += "\n";
  }
  for (size_t i = 0; i < p.joined.size(); ++i)
    out += fmt::format("joined {}\n", i) + indented(plan_text(*p.joined[i].program));
  for (const PackedWeight& w : p.packed)
    out += fmt::format("packed for step {}: {}\n", w.step, text(p, w.source));
  for (size_t s = 0; s < p.steps.size(); ++s)
    for (const auto& body : p.steps[s].bodies)
      out += fmt::format("body of step {}\n", s) + indented(plan_text(*body));
  return out;
}

}  // namespace

Lowered lower_for_cpu(const Graph& g, int vector_bits, const Donated& donated) {
  auto target = std::make_shared<cpu::CpuTarget>(cpu::CpuJitOptions{.vector_bits = vector_bits});
  PassContext context;
  context.keeps = [&](const Node& n, const Graph& at) {
    return n.op != &op::region && target->accepts(n, at);
  };
  Graph fused = fuse_program(run_passes(g, default_pipeline(), context));
  Program program = lower(fused, *target, donated);
  return {std::move(target), std::move(fused), std::move(program)};
}

std::string stage_text(const Lowered& l, Stage stage) {
  switch (stage) {
    case Stage::fuse:
      return print(l.fused);
    case Stage::lower:
      return steps_text(l.program);
    case Stage::plan:
      return plan_text(l.program);
    case Stage::kernel: {
      std::string out;
      for (const auto& kernel : l.target->code()) out += codegen::to_string(*kernel);
      return out;
    }
  }
  return {};
}

std::string stage_text(const Graph& g, Stage stage) {
  return stage_text(lower_for_cpu(g, 256), stage);
}

namespace {

// The same of outputs in donated inputs.
std::string donation_faults(const Program& p, const std::vector<int32_t>& chain_of) {
  std::string out;
  std::map<int32_t, int32_t> holder;  // by input's buffer, the output's
  const auto take = [&](int32_t input, int32_t output) {
    const Buffer &from = p.buffers[static_cast<size_t>(input)],
                 &to = p.buffers[static_cast<size_t>(output)];
    if (from.place != Place::input || p.donated.empty() ||
        !p.donated[static_cast<size_t>(from.index)])
      out += fmt::format("output b{} lies in b{}, which nobody gave\n", output, input);
    if (from.bytes != to.bytes) out += fmt::format("b{} and b{} differ in size\n", output, input);
    if (const auto [at, fresh] = holder.emplace(input, output); !fresh)
      out += fmt::format("b{} and b{} lie in b{}\n", at->second, output, input);
  };
  for (const View& v : p.outputs) {
    const Buffer& b = p.buffers[static_cast<size_t>(v.buffer)];
    if (b.place == Place::input) take(v.buffer, v.buffer);
    if (b.place == Place::output && b.shares >= 0) take(b.shares, v.buffer);
  }
  for (const auto& [input, output] : holder) {
    int32_t last = -1, first = static_cast<int32_t>(p.steps.size());
    for (int32_t s = first - 1; s >= 0; --s) {
      const Step& step = p.steps[static_cast<size_t>(s)];
      for (const View& v : step.in)
        if (v.buffer == input) last = std::max(last, s);
      for (const View& v : step.out)
        if (v.buffer == output) first = s;
    }
    if (input == output || last < 0 || first == static_cast<int32_t>(p.steps.size())) continue;
    if (last != first &&
        chain_of[static_cast<size_t>(last)] >= chain_of[static_cast<size_t>(first)])
      out += fmt::format("b{} is read in step {}, and its memory is b{}'s from step {} on\n", input,
                         last, output, first);
  }
  return out;
}

}  // namespace

std::string plan_faults(const Program& p) {
  // Lives are counted in chains: the steps of one take turns.
  std::vector<int32_t> chain_of(p.steps.size());
  for (size_t c = 0; c < p.chains.size(); ++c)
    for (int32_t s = p.chains[c].begin; s < p.chains[c].end; ++s)
      chain_of[static_cast<size_t>(s)] = static_cast<int32_t>(c);
  struct Life {
    int32_t buffer, born, dies;  // chains
    int32_t maker, last;         // steps
    int64_t begin, end;          // bytes
  };
  std::vector<Life> lives;
  std::vector<int32_t> position(p.buffers.size(), -1);
  auto see = [&](int32_t b, int32_t s) {
    const Buffer& buffer = p.buffers[static_cast<size_t>(b)];
    if (buffer.place != Place::arena) return;
    int32_t& at = position[static_cast<size_t>(b)];
    const int32_t c = chain_of[static_cast<size_t>(s)];
    if (at < 0) {
      at = static_cast<int32_t>(lives.size());
      lives.push_back({b, c, c, s, s, buffer.offset, buffer.offset + buffer.bytes});
    }
    lives[static_cast<size_t>(at)].dies = c;
    lives[static_cast<size_t>(at)].last = s;
  };
  for (size_t s = 0; s < p.steps.size(); ++s) {
    const auto step = static_cast<int32_t>(s);
    for (const View& v : p.steps[s].in) see(v.buffer, step);
    for (const View& v : p.steps[s].out) see(v.buffer, step);
    if (p.steps[s].workspace >= 0) see(p.steps[s].workspace, step);
  }
  std::string out;
  for (const View& v : p.outputs)
    if (p.buffers[static_cast<size_t>(v.buffer)].place == Place::arena)
      out += fmt::format("an output lies in the arena, in b{}\n", v.buffer);
  for (const Life& l : lives)
    if (l.begin < 0 || l.end > p.arena_bytes || l.begin % 64 != 0)
      out += fmt::format("b{} at [{}, {}) is not in the arena of {} bytes, or not aligned\n",
                         l.buffer, l.begin, l.end, p.arena_bytes);
  for (const Life& a : lives)
    for (const Life& b : lives) {
      if (a.maker > b.maker || (a.maker == b.maker && a.buffer >= b.buffer))
        continue;  // a before b
      if (a.begin >= b.end || b.begin >= a.end || a.dies < b.born) continue;
      // Made in place: exactly where a lies, by the step that reads a last.
      const Step& maker = p.steps[static_cast<size_t>(b.maker)];
      const auto reads_a = [&](const View& v) { return v.buffer == a.buffer; };
      const bool in_place = p.buffers[static_cast<size_t>(b.buffer)].shares >= 0 &&
                            a.begin == b.begin && a.end == b.end && a.last == b.maker &&
                            std::any_of(maker.in.begin(), maker.in.end(), reads_a);
      // Further down a line of such takings a is dead already, in the same chain.
      const bool dead = p.buffers[static_cast<size_t>(b.buffer)].shares >= 0 &&
                        a.begin == b.begin && a.end == b.end && a.last < b.maker;
      if (!in_place && !dead)
        out += fmt::format("b{} [{}, {}), alive in steps {} to {}, meets b{} [{}, {}), {} to {}\n",
                           a.buffer, a.begin, a.end, a.maker, a.last, b.buffer, b.begin, b.end,
                           b.maker, b.last);
    }
  out += donation_faults(p, chain_of);
  for (const Step& s : p.steps)
    for (const auto& body : s.bodies) out += plan_faults(*body);
  return out;
}

}  // namespace rlx::testing
