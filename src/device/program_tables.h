// The tables of a program that runs: where its buffers lie, what its steps are launched with. Made once, reused by every run.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "rlx/device/executable.h"
#include "rlx/lower/lir.h"

namespace rlx::running {

// What tensors of the host have become in memory of the device: programs of other sizes have the same constants.
class Uploads {
 public:
  MemoryBlock of(const Tensor& t, const Backend& backend, Stream& stream) {
    Upload& u = there_[t.storage().get()];
    if (!u.block || u.source.expired()) {
      u = {t.storage(), backend.allocate(static_cast<int64_t>(t.bytes()))};
      stream.upload(u.block.get(), t.raw(), static_cast<int64_t>(t.bytes()));
    }
    return u.block;
  }
  void forget_dead() {
    std::erase_if(there_, [](const auto& u) { return u.second.source.expired(); });
  }

 private:
  struct Upload {
    std::weak_ptr<const void> source;  // while it lives, its address is that of no other tensor
    MemoryBlock block;
  };
  std::map<const std::byte*, Upload> there_;
};

// Constants in memory of the device; all clones read the same.
struct Constants {
  Constants() = default;
  Constants(const Program& p, const Backend& backend, Stream& stream, Uploads& uploads) {
    for (const Tensor& t : p.constants) {
      const auto bytes = static_cast<int64_t>(t.bytes());
      total += bytes;
      if (backend.map(t.storage().get()) == t.raw()) {  // the host's memory is the device's
        blocks.push_back(t.storage());
        continue;
      }
      blocks.push_back(uploads.of(t, backend, stream));
    }
    for (const Step& s : p.steps)
      for (const auto& body : s.bodies) {
        bodies.push_back(std::make_unique<Constants>(*body, backend, stream, uploads));
        total += bodies.back()->total;
      }
  }
  std::vector<MemoryBlock> blocks;
  std::vector<std::unique_ptr<Constants>> bodies;  // in the order of steps and their bodies
  int64_t total = 0;                               // bytes
};

// The run-time tables of one program; bodies of control flow have their own. Made once, reused by
// every run.
struct Frame {
  Frame(const Program& program, const Constants& constants, size_t& steps)
      : p(program), constants(constants), base(program.buffers.size(), nullptr), first_step(steps) {
    steps += p.steps.size();
    size_t operand_count = 0;
    auto body_constants = constants.bodies.begin();
    for (const Step& s : p.steps) {
      first_operand.push_back(operand_count);
      operand_count += s.in.size() + s.out.size();
      bodies.emplace_back();
      for (const auto& body : s.bodies)
        bodies.back().push_back(std::make_unique<Frame>(*body, **body_constants++, steps));
      if (s.control == Step::Control::none) continue;
      in.resize(std::max(in.size(), s.in.size()));
      out.resize(std::max(out.size(), std::max(s.out.size(), static_cast<size_t>(s.entering))));
      if (s.control == Step::Control::sweep)
        snapshots.resize(std::max(snapshots.size(), static_cast<size_t>(s.slots) + 1));
    }
    operands.resize(operand_count);
    workspaces.resize(p.steps.size());
  }
  int64_t bytes() const {
    size_t sum = sizeof(Frame) + 8 * 16;
    sum += base.size() * sizeof(base[0]) + operands.size() * sizeof(operands[0]);
    sum += p.steps.size() * (sizeof(first_operand[0]) + sizeof(workspaces[0]) +
                             sizeof(decltype(bodies)::value_type) + sizeof(double));
    auto total = static_cast<int64_t>(sum);
    for (const auto& of_step : bodies)
      for (const auto& body : of_step) total += body->bytes();
    return total;
  }
  const Program& p;
  const Constants& constants;
  std::vector<std::byte*> base;                             // per buffer
  std::vector<void*> operands;                              // of all steps, inputs then results
  std::vector<size_t> first_operand;                        // per step
  std::vector<std::byte*> workspaces;                       // per step
  std::vector<std::vector<std::unique_ptr<Frame>>> bodies;  // per step
  std::vector<const std::byte*> in;                         // of the body that runs
  std::vector<std::byte*> out;
  std::vector<int64_t> snapshots;  // of the sweep that runs: the steps that they enter
  size_t first_step;               // where its steps stand among those of all frames
};

// What an executable has for a program at certain sizes.
struct Binding {
  Binding(std::shared_ptr<const Bound> b, std::shared_ptr<const Constants> c)
      : bound(std::move(b)),
        constants(std::move(c)),
        frame(*bound->program, *constants, steps),
        joined(bound->program->joined.size()),
        packed(bound->program->packed.size()),
        times(bound->program->steps.size(), 0) {
    static const Constants none;
    keeps_joined.resize(joined.size());
    see_joined(*bound->program);
    for (const JoinedWeight& w : bound->program->joined)
      joined_frames.push_back(std::make_unique<Frame>(*w.program, none, steps));
    bytes += static_cast<int64_t>(sizeof(Binding)) + frame.bytes();
    for (const auto& f : joined_frames) bytes += f->bytes();
  }
  const Program& program() const { return *bound->program; }

  // Marks the joined weights that steps, results or other joined weights read.
  void see_joined(const Program& p) {
    const auto see = [&](int32_t buffer) {
      const Buffer& b = p.buffers[static_cast<size_t>(buffer)];
      if (b.place == Place::joined) keeps_joined[static_cast<size_t>(b.index)] = true;
    };
    for (const Step& s : p.steps)
      for (const View& v : s.in) see(v.buffer);
    for (const View& v : p.outputs) see(v.buffer);
    for (const JoinedWeight& w : p.joined)
      for (int32_t source : w.sources) see(source);
  }

  std::shared_ptr<const Bound> bound;
  std::shared_ptr<const Constants> constants;
  size_t steps = 0;  // of all frames
  Frame frame;
  std::vector<std::unique_ptr<Frame>> joined_frames;
  std::vector<MemoryBlock> joined, packed;  // nullptr: not made since a weight was set, or let go
  std::vector<bool> keeps_joined;           // those that are read as they are, not only packed
  std::vector<double> times;
  bool ready = false;  // the stream has what its launches need
  int64_t bytes = 0;   // of these tables
};

// What is made of a weight: of a parameter by its place in the signature, of a constant by its memory, of a joined weight
// by its label among programs of one origin; how it is packed, or as it is joined.
struct Form {
  Place place = Place::param;
  size_t param = 0;
  std::weak_ptr<const void> owner;  // of constants and joined weights
  std::string how;                  // the label; what is packed of it, and how
  bool operator<(const Form& o) const {
    if (owner.owner_before(o.owner) != o.owner.owner_before(owner))
      return owner.owner_before(o.owner);
    return std::tie(place, param, how) < std::tie(o.place, o.param, o.how);
  }
  bool is_owned_by(const std::shared_ptr<const void>& o) const {
    return !owner.owner_before(o) && !o.owner_before(owner);
  }
  bool is_dead() const { return place != Place::param && owner.expired(); }
};

// What was made of weights in a form that kernels of any size read.
struct Prepared {
  MemoryBlock block;
  int64_t bytes = 0;
  std::vector<size_t> params;  // of which it was made
};

inline Form joined_form(const Binding& b, size_t k) {
  return {.place = Place::joined, .owner = b.program().origin, .how = b.program().joined[k].label};
}
inline Form packed_form(const Binding& b, size_t k) {
  const Program& p = b.program();
  const PackedWeight& w = p.packed[k];
  const Buffer& from = p.buffers[static_cast<size_t>(w.source.buffer)];
  const auto i = static_cast<size_t>(from.index);
  Form f;
  if (from.place == Place::joined)
    f = joined_form(b, i);
  else if (from.place == Place::constant)
    f = {.place = from.place, .owner = p.constants[i].storage()};
  else
    f = {.param = b.bound->param_of[i]};
  f.how += fmt::format(": {} at {}", w.source.dtype, w.source.offset);
  for (size_t d = 0; d < w.source.dims.size(); ++d)  // others are repeated for some size or other
    if (w.source.dims[d] != 1 && w.source.strides[d] != 0)
      f.how += fmt::format(" {}*{}", w.source.dims[d], w.source.strides[d]);
  f.how += " " + w.form;
  return f;
}

}  // namespace rlx::running
