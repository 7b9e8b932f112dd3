// The memory plan: one arena from live ranges. A buffer lives from the step that first writes it to
// the last that touches it. A result may take over the memory of an operand that dies at the same
// step, where the kernel allows it; an output also that of a donated input that was read for the last time before.
#include <algorithm>
#include <map>

#include "rlx/lower/arena.h"
#include "rlx/lower/lower.h"

namespace rlx {

namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kMaxArenaBytes = int64_t{1} << 48;

void touch(Buffer& b, int32_t step) {
  if (b.first < 0) b.first = step;
  b.last = step;
}

int32_t root_of(const Program& p, int32_t b) {
  while (p.buffers[static_cast<size_t>(b)].shares >= 0)
    b = p.buffers[static_cast<size_t>(b)].shares;
  return b;
}

// Whether the other steps of the chain touch the buffer only at the rows they work on.
bool chain_allows(const Program& p, const Chain& chain, size_t s, int32_t root) {
  for (int32_t t = chain.begin; t < chain.end; ++t) {
    if (t == static_cast<int32_t>(s)) continue;
    const Step& other = p.steps[static_cast<size_t>(t)];
    for (size_t i = 0; i < other.in.size(); ++i)
      if (root_of(p, other.in[i].buffer) == root && !touches_own_rows(p, other, i)) return false;
  }
  return true;
}

using ChainOfStep = std::vector<const Chain*>;

// Whether result `o` of step s may be written over operand `i`, of whose memory `root` is the buffer: no other operand of
// the step lies there, and no other step of the chain minds.
bool may_write_over(const Program& p, const Chain& chain, size_t s, size_t i, size_t o,
                    int32_t root) {
  const Step& step = p.steps[s];
  if (!covers(step.in[i], p.buffers[static_cast<size_t>(step.in[i].buffer)]) ||
      !may_share(step, i, o))
    return false;
  for (size_t j = 0; j < step.in.size(); ++j)
    if (j != i && root_of(p, step.in[j].buffer) == root) return false;
  return chain_allows(p, chain, s, root);
}

// Lets results take over operands that die here.
void share_in_place(Program& p, const ChainOfStep& chain_of) {
  for (size_t s = 0; s < p.steps.size(); ++s) {
    const Step& step = p.steps[s];
    if (!step.kernel) continue;
    std::vector<int32_t> taken;
    for (size_t o = 0; o < step.out.size(); ++o) {
      Buffer& out = p.buffers[static_cast<size_t>(step.out[o].buffer)];
      if (out.place != Place::arena || out.first != static_cast<int32_t>(s) || out.shares >= 0)
        continue;
      for (size_t i = 0; i < step.in.size(); ++i) {
        const int32_t root = root_of(p, step.in[i].buffer);
        Buffer& in = p.buffers[static_cast<size_t>(root)];
        if (in.place != Place::arena || in.last != static_cast<int32_t>(s) || in.bytes != out.bytes)
          continue;
        // It can be taken only once.
        if (std::find(taken.begin(), taken.end(), root) != taken.end() ||
            !may_write_over(p, *chain_of[s], s, i, o, root))
          continue;
        taken.push_back(root);
        out.shares = root;
        in.last = std::max(in.last, out.last);
        break;
      }
    }
  }
}

// Lets outputs lie in the memory of donated inputs of as many bytes: best where a step writes its result over what it
// reads last, else where the input was read for the last time before. What an output lies in is its own from then on.
class Donations {
 public:
  Donations(Program& p, const ChainOfStep& chain_of)
      : p_(p), chain_of_(chain_of), given_(p.donated.size()) {
    for (const View& v : p.outputs)  // a donated input itself
      if (at(v.buffer).place == Place::input)
        given_[static_cast<size_t>(at(v.buffer).index)] = true;
  }

  void run() {
    for (size_t s = 0; s < p_.steps.size(); ++s) in_place(s);
    afterwards();
  }

 private:
  Buffer& at(int32_t b) { return p_.buffers[static_cast<size_t>(b)]; }
  bool is_free(int32_t b) {
    return at(b).place == Place::input && p_.donated[static_cast<size_t>(at(b).index)] &&
           !given_[static_cast<size_t>(at(b).index)];
  }
  void give(int32_t input, int32_t output) {
    at(output).shares = input;
    given_[static_cast<size_t>(at(input).index)] = true;
  }

  void in_place(size_t s) {
    const Step& step = p_.steps[s];
    for (size_t o = 0; o < step.out.size(); ++o) {
      const Buffer& out = at(step.out[o].buffer);
      if (out.place != Place::output || out.first != static_cast<int32_t>(s) || out.bytes == 0 ||
          !covers(step.out[o], out))
        continue;
      for (size_t i = 0; i < step.in.size(); ++i) {
        const int32_t input = step.in[i].buffer;
        if (!is_free(input) || at(input).last != static_cast<int32_t>(s) ||
            at(input).bytes != out.bytes || !may_write_over(p_, *chain_of_[s], s, i, o, input))
          continue;
        give(input, step.out[o].buffer);
        break;
      }
    }
  }

  // Outputs in the order in which they are begun take inputs in that in which these are done with: whoever finds none
  // would find none in any other order.
  void afterwards() {
    std::map<int64_t, std::vector<int32_t>> inputs;  // by bytes; the one that is read last first
    for (const int32_t b : p_.input_buffers)
      if (is_free(b)) inputs[at(b).bytes].push_back(b);
    for (auto& [bytes, list] : inputs)
      std::stable_sort(list.begin(), list.end(),
                       [&](int32_t a, int32_t b) { return at(a).last > at(b).last; });
    std::vector<int32_t> outputs;
    for (const View& v : p_.outputs)
      if (const Buffer& b = at(v.buffer);
          b.place == Place::output && b.shares < 0 && b.first >= 0 && b.bytes > 0)
        outputs.push_back(v.buffer);
    std::stable_sort(outputs.begin(), outputs.end(),
                     [&](int32_t a, int32_t b) { return at(a).first < at(b).first; });
    for (const int32_t b : outputs) {
      const auto found = inputs.find(at(b).bytes);
      if (found == inputs.end() || found->second.empty()) continue;
      const int32_t input = found->second.back(), last = at(input).last;
      // The steps of a chain take turns.
      if (last >= chain_of_[static_cast<size_t>(at(b).first)]->begin) continue;
      give(input, b);
      found->second.pop_back();
    }
  }

  Program& p_;
  const ChainOfStep& chain_of_;
  std::vector<bool> given_;  // by input
};

}  // namespace

int32_t donor_of(const Program& p, size_t output) {
  const Buffer& b = p.buffers[static_cast<size_t>(p.outputs[output].buffer)];
  if (b.place == Place::input) return b.index;
  return b.place == Place::output && b.shares >= 0 ? p.buffers[static_cast<size_t>(b.shares)].index
                                                   : -1;
}

bool may_share(const Step& s, size_t in, size_t out) {
  const auto carries = static_cast<size_t>(s.carries);
  switch (s.control) {
    case Step::Control::none:
      return s.kernel->may_share(static_cast<int>(in), static_cast<int>(out));
    case Step::Control::scan:  // carries are read by the first step and written by the last
      return s.length >= 2 && in < carries && out < carries;
    case Step::Control::loop:  // written behind the last step, which may be none
      return in == out && in < carries;
    case Step::Control::cond:
    case Step::Control::sweep:
      return false;
  }
  return false;
}

bool touches_own_rows(const Program& p, const Step& s, size_t i) {
  const View& v = operand_of(s, i);
  const StepKernel& kernel = *s.kernel;
  if (!covers(v, p.buffers[static_cast<size_t>(v.buffer)])) return false;
  const int64_t elements = v.elements();
  if (elements == 0) return true;
  const auto span = kernel.span(i);
  if (!span || kernel.rows() <= 0 || elements % kernel.rows()) return false;
  // Linear in the block, so the first and the last one tell.
  const int64_t own = elements / kernel.rows() * kernel.rows_per_block();
  for (const int64_t b : {int64_t{0}, kernel.blocks() - 1})
    if (span->stride * b + span->low < own * b || span->stride * b + span->high >= own * (b + 1))
      return false;
  return true;
}

void plan_memory(Program& p) {
  for (size_t s = 0; s < p.steps.size(); ++s) {
    const auto step = static_cast<int32_t>(s);
    for (const View& v : p.steps[s].in) touch(p.buffers[static_cast<size_t>(v.buffer)], step);
    for (const View& v : p.steps[s].out) touch(p.buffers[static_cast<size_t>(v.buffer)], step);
    if (p.steps[s].workspace >= 0)
      touch(p.buffers[static_cast<size_t>(p.steps[s].workspace)], step);
  }
  ChainOfStep chain_of(p.steps.size());
  for (const Chain& c : p.chains)
    for (int32_t s = c.begin; s < c.end; ++s) chain_of[static_cast<size_t>(s)] = &c;
  share_in_place(p, chain_of);
  if (std::find(p.donated.begin(), p.donated.end(), true) != p.donated.end())
    Donations(p, chain_of).run();
  // The steps of a chain take turns, so whatever one of them touches is alive during all of it: the
  // moments of a life are chains.
  std::vector<int64_t> moment(p.steps.size());
  for (size_t c = 0; c < p.chains.size(); ++c)
    for (int32_t s = p.chains[c].begin; s < p.chains[c].end; ++s)
      moment[static_cast<size_t>(s)] = static_cast<int64_t>(c);

  std::vector<int32_t> order;
  for (size_t b = 0; b < p.buffers.size(); ++b) {
    const Buffer& buffer = p.buffers[b];
    if (buffer.place != Place::arena || buffer.first < 0) continue;
    p.unshared_bytes += align_up(std::max<int64_t>(buffer.bytes, 1), kAlignment);
    if (buffer.shares < 0) order.push_back(static_cast<int32_t>(b));
  }
  auto at = [&](int32_t b) -> Buffer& { return p.buffers[static_cast<size_t>(b)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return at(a).bytes > at(b).bytes; });

  // Largest first, each at the lowest gap that is free for its whole life.
  Arena arena(static_cast<int64_t>(p.steps.size()));
  for (int32_t b : order) {
    const int64_t bytes = align_up(std::max<int64_t>(at(b).bytes, 1), kAlignment);
    user_check(arena.bytes() <= kMaxArenaBytes && bytes <= kMaxArenaBytes, "program-too-large",
               "the program needs more than {} bytes at once", kMaxArenaBytes);
    at(b).offset = arena.place(moment[static_cast<size_t>(at(b).first)],
                               moment[static_cast<size_t>(at(b).last)], bytes);
  }
  user_check(arena.bytes() <= kMaxArenaBytes, "program-too-large",
             "the program needs more than {} bytes at once", kMaxArenaBytes);
  p.arena_bytes = arena.bytes();
  for (size_t b = 0; b < p.buffers.size(); ++b)
    if (p.buffers[b].shares >= 0)
      p.buffers[b].offset = at(root_of(p, static_cast<int32_t>(b))).offset;
}

std::string to_string(const Program& p) {
  std::string out = fmt::format("arena {} bytes (unshared {}), scratch {} bytes per worker\n",
                                p.arena_bytes, p.unshared_bytes, p.scratch_bytes);
  static constexpr std::string_view places[] = {"arena",    "input",  "output", "param",
                                                "constant", "joined", "packed"};
  auto show = [&](const View& v) {
    const Buffer& b = p.buffers[static_cast<size_t>(v.buffer)];
    const std::string donated =
        b.place == Place::output && b.shares >= 0
            ? fmt::format(" in input {}", p.buffers[static_cast<size_t>(b.shares)].index)
            : "";
    return fmt::format(
        "b{}({}{}{}) {}{}", v.buffer, places[static_cast<size_t>(b.place)],
        b.place == Place::arena ? fmt::format("+{}", b.offset) : fmt::format(" {}", b.index),
        donated, v.type(),
        v.is_dense() ? "" : fmt::format(" strides [{}]", fmt::join(v.strides, ", ")));
  };
  size_t chain = 0;
  for (size_t s = 0; s < p.steps.size(); ++s) {
    while (p.chains[chain].end <= static_cast<int32_t>(s)) ++chain;
    const Chain& c = p.chains[chain];
    if (c.rows && c.begin == static_cast<int32_t>(s))
      out += fmt::format("     steps {} to {} in tiles of {} of {} rows\n", c.begin, c.end - 1,
                         c.tile, c.rows);
    const Step& step = p.steps[s];
    out +=
        fmt::format("{:4} {} [{}]\n", s, step.label, step.kernel ? step.kernel->name() : "control");
    for (const View& v : step.in) out += fmt::format("       in  {}\n", show(v));
    for (const View& v : step.out) out += fmt::format("       out {}\n", show(v));
  }
  return out;
}

}  // namespace rlx
