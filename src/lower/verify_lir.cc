// The verifier of LIR. Each step alone, one after the other, would be right by the meaning of the
// graph; what chains, blocks and the memory plan add is proved not to change it:
//
// 1. Tiles do not meet. No tile of a chain (no block of a single step) touches memory that another
//    tile writes. Then tiles may run in any order, at once, and a tile reads only rows that it has
//    written itself or that were there before the chain.
// 2. A result lies in the memory of an operand of its own step only where the kernel allows it, for
//    every operand that lies there.
// 3. Taken one after the other, each step finds in memory what was written for it: whole, and not
//    written over since; a parameter is read before its update is written, and a donated input before the output that
//    lies in its memory.
// 4. Only donated inputs hold outputs, each at most one, of as many bytes.
//
// What a tile touches comes from StepKernel::span: for generated kernels from the addresses of
// their loads and stores, for native ones from what they state (tests run them on poisoned memory).
#include <algorithm>
#include <limits>
#include <map>

#include "rlx/lower/lower.h"

namespace rlx {

namespace {

// A piece of memory, in bytes; of the arena or of a buffer of its own.
struct Piece {
  int32_t space = 0;  // -1: the arena; else the buffer that stands for the memory (memory_of)
  int64_t begin = 0, end = 0;
  bool meets(const Piece& o) const { return space == o.space && begin < o.end && o.begin < end; }
  bool operator==(const Piece&) const = default;
};

// An operand of a step: all of it, and what one tile touches.
struct Touch {
  int32_t step = 0;
  size_t operand = 0;  // inputs, then results
  bool written = false;
  Piece all;
  BlockSpan tile;  // bytes from the start of the space
  bool known = false;
};

class LirVerifier {
 public:
  explicit LirVerifier(const Program& p) : p_(p), writers_(p.buffers.size()) {}

  void run() {
    int32_t next = 0;
    for (const Chain& c : p_.chains) {
      check(c.begin == next && c.end > c.begin, "LIR: a chain covers steps [{}, {}), not from {}",
            c.begin, c.end, next);
      next = c.end;
    }
    check(next == count(), "LIR: chains cover {} of {} steps", next, count());
    donations();
    for (int32_t s = 0; s < count(); ++s) inside(s);
    for (const Chain& c : p_.chains) chain(c);
    values();
  }

 private:
  int32_t count() const { return static_cast<int32_t>(p_.steps.size()); }
  const Step& step(int32_t s) const { return p_.steps[static_cast<size_t>(s)]; }
  const Buffer& buffer(int32_t b) const { return p_.buffers[static_cast<size_t>(b)]; }
  std::string name(int32_t s, size_t operand) const {
    const bool result = operand >= step(s).in.size();
    return fmt::format("step {} ({}), {} {}", s, step(s).label, result ? "result" : "operand",
                       result ? operand - step(s).in.size() : operand);
  }

  // The buffer that stands for the parameter's memory: that of its value from before the run.
  int32_t old_value(int32_t b) const {
    return p_.param_buffers[static_cast<size_t>(buffer(b).index)];
  }

  // The buffer that stands for the memory in which b lies, outside of the arena.
  int32_t memory_of(int32_t b) const {
    if (buffer(b).place == Place::param) return old_value(b);
    return buffer(b).place == Place::output && buffer(b).shares >= 0 ? buffer(b).shares : b;
  }

  Piece whole(int32_t b) const {
    const bool in_arena = buffer(b).place == Place::arena;
    const int64_t at = in_arena ? buffer(b).offset : 0;
    return {in_arena ? -1 : memory_of(b), at, at + buffer(b).bytes};
  }

  // ---- donated inputs

  void donations() const {
    std::vector<bool> given(p_.donated.size(), false);
    const auto give = [&](int32_t b, int32_t to) {
      const Buffer& from = buffer(b);
      check(from.place == Place::input && static_cast<size_t>(from.index) < given.size() &&
                p_.donated[static_cast<size_t>(from.index)],
            "LIR: output b{} lies in b{}, which is no donated input", to, b);
      check(from.bytes == buffer(to).bytes, "LIR: output b{} of {} bytes lies in b{} of {}", to,
            buffer(to).bytes, b, from.bytes);
      check(!given[static_cast<size_t>(from.index)], "LIR: two outputs lie in b{}", b);
      given[static_cast<size_t>(from.index)] = true;
    };
    for (int32_t b = 0; b < static_cast<int32_t>(p_.buffers.size()); ++b)
      if (buffer(b).place == Place::output && buffer(b).shares >= 0) give(buffer(b).shares, b);
    for (const View& v : p_.outputs) {
      if (buffer(v.buffer).place != Place::input) continue;
      check(covers(v, buffer(v.buffer)), "LIR: an output is a part of b{}", v.buffer);
      give(v.buffer, v.buffer);
    }
  }

  Piece piece(const View& v) const {
    Piece all = whole(v.buffer);
    if (buffer(v.buffer).place == Place::packed) return all;  // in the kernel's own form
    if (v.elements() == 0) return {all.space, all.begin, all.begin};
    int64_t low = v.offset, high = v.offset;
    for (size_t d = 0; d < v.dims.size(); ++d) {
      const int64_t reach = (v.dims[d] - 1) * v.strides[d];
      (reach < 0 ? low : high) += reach;
    }
    const int64_t size = size_of(v.dtype);
    return {all.space, all.begin + low * size, all.begin + (high + 1) * size};
  }

  void inside(int32_t s) const {
    for (size_t i = 0; i < operand_count(step(s)); ++i) {
      const View& v = operand_of(step(s), i);
      const Piece part = piece(v), all = whole(v.buffer);
      check(part.begin >= all.begin && part.end <= all.end,
            "LIR: {} lies outside of its buffer b{}", name(s, i), v.buffer);
      const Place place = buffer(v.buffer).place;
      check(i < step(s).in.size() || place == Place::arena || place == Place::output ||
                place == Place::param,
            "LIR: {} is written to an input or a constant", name(s, i));
    }
  }

  // ---- chains

  Touch touch(const Chain& c, int32_t s, size_t i) const {
    const Step& at = step(s);
    const View& v = operand_of(at, i);
    Touch t{s, i, i >= at.in.size(), piece(v), {}, false};
    const auto span = at.kernel ? at.kernel->span(i) : std::nullopt;
    if (!span) {
      t.tile = {0, t.all.begin, t.all.end - 1};
      return t;
    }
    t.known = true;
    if (span->empty()) return t;
    const int64_t blocks = c.rows ? c.tile / at.kernel->rows_per_block() : 1;  // of a tile
    const BlockSpan one = span->hull(blocks);
    const int64_t size = size_of(v.dtype), first = whole(v.buffer).begin + v.offset * size;
    t.tile = {span->stride * blocks * size, first + one.low * size,
              first + one.high * size + size - 1};
    return t;
  }

  void chain(const Chain& c) {
    int64_t tiles = 1;
    if (c.rows) {
      tiles = ceil_div(c.rows, c.tile);
      for (int32_t s = c.begin; s < c.end; ++s) {
        const StepKernel* k = step(s).kernel.get();
        check(k && k->rows() == c.rows && k->rows_per_block() > 0 &&
                  c.tile % k->rows_per_block() == 0 &&
                  k->blocks() == ceil_div(c.rows, k->rows_per_block()),
              "LIR: step {} ({}) cannot run in tiles of {} of {} rows", s, step(s).label, c.tile,
              c.rows);
      }
    } else {
      check(c.end == c.begin + 1, "LIR: steps [{}, {}) are a chain without rows", c.begin, c.end);
      if (step(c.begin).kernel) tiles = step(c.begin).kernel->blocks();
    }
    touches_.clear();
    for (int32_t s = c.begin; s < c.end; ++s)
      for (size_t i = 0; i < operand_count(step(s)); ++i) touches_.push_back(touch(c, s, i));
    for (const Touch& w : touches_)
      if (w.written)
        for (const Touch& t : touches_) pair(w, t, tiles);
  }

  // A result and whatever else its chain touches.
  void pair(const Touch& w, const Touch& t, int64_t tiles) const {
    if (!w.all.meets(t.all)) return;
    const bool itself = w.step == t.step && w.operand == t.operand;
    if (w.step == t.step && !itself) {
      check(!t.written, "LIR: {} and {} share memory", name(w.step, w.operand),
            name(t.step, t.operand));
      check(
          w.all == t.all && may_share(step(w.step), t.operand, w.operand - step(w.step).in.size()),
          "LIR: {} is written over {}, which its kernel does not allow", name(w.step, w.operand),
          name(t.step, t.operand));
    }
    // A native kernel alone may share without saying what its blocks touch.
    if (w.step == t.step && !(w.known && t.known)) return;
    check(apart(w.tile, t.tile, tiles), "LIR: {} is written by one tile and touched by another: {}",
          name(w.step, w.operand), name(t.step, t.operand));
  }

  // ---- values

  void values() {
    for (int32_t s = 0; s < count(); ++s)
      for (const View& v : step(s).out) {
        Writers& w = writers_[static_cast<size_t>(v.buffer)];
        w.last = s;
        int32_t& first = writers_[static_cast<size_t>(memory_of(v.buffer))].first;
        first = std::min(first, s);
        w.bytes += v.elements() * size_of(v.dtype);
      }
    for (int32_t s = 0; s < count(); ++s) {
      // The memory of bodies, while operands and results are in use.
      if (step(s).workspace >= 0) take(step(s).workspace);
      for (size_t i = 0; i < step(s).in.size(); ++i) read(s, i);
      for (const View& v : step(s).out) take(v.buffer);
      if (step(s).workspace >= 0) holds(s, "the workspace", step(s).workspace);
    }
    for (const View& v : p_.outputs) {
      if (from_the_start(v.buffer))
        unchanged(v.buffer, count(), "an output");
      else
        complete(v.buffer, count(), "an output");
    }
  }

  void read(int32_t s, size_t i) const {
    const int32_t b = step(s).in[i].buffer;
    if (from_the_start(b)) return unchanged(b, s, name(s, i));
    complete(b, s, name(s, i));
    holds(s, name(s, i), b);
  }

  bool from_the_start(int32_t b) const {
    const Place place = buffer(b).place;
    return place == Place::param ? b == old_value(b)
                                 : place != Place::arena && place != Place::output;
  }

  // What is there from the start, a parameter's value from before the run or an input, is read before it is written
  // over.
  void unchanged(int32_t b, int32_t reader, const std::string& who) const {
    const Writers& w = writers_[static_cast<size_t>(b)];
    check(w.first >= reader, "LIR: {} reads {} b{} after step {} writes {}", who,
          buffer(b).place == Place::param ? "parameter" : "input", b, w.first,
          buffer(b).place == Place::param ? "its update" : "an output over it");
  }

  void complete(int32_t b, int32_t reader, const std::string& who) const {
    const Writers& w = writers_[static_cast<size_t>(b)];
    check(w.bytes >= buffer(b).bytes, "LIR: {} reads b{}, of which {} of {} bytes are written", who,
          b, w.bytes, buffer(b).bytes);
    check(w.last < reader, "LIR: {} reads b{} before step {} writes it", who, b, w.last);
  }

  // From here on the arena holds buffer b where b lies.
  void take(int32_t b) {
    const Piece at = whole(b);
    if (at.space >= 0 || at.begin == at.end) return;
    auto it = held_.lower_bound(at.begin);
    if (it != held_.begin() && std::prev(it)->second.end > at.begin) {
      --it;
      const Held before = it->second;
      it->second.end = at.begin;
      if (before.end > at.end) held_.emplace(at.end, before);
      ++it;
    }
    while (it != held_.end() && it->first < at.end) {
      const Held other = it->second;
      it = held_.erase(it);
      if (other.end > at.end) held_.emplace(at.end, other);
    }
    held_[at.begin] = {at.end, b};
  }

  void holds(int32_t s, const std::string& who, int32_t b) const {
    const Piece at = whole(b);
    if (at.space >= 0 || at.begin == at.end) return;
    auto it = held_.upper_bound(at.begin);
    check(it != held_.begin(), "LIR: {} is never written", who);
    --it;
    check(it->second.buffer == b && it->second.end >= at.end,
          "LIR: at step {} the memory of {} (b{}) holds b{}", s, who, b,
          it->second.buffer == b && std::next(it) != held_.end() ? std::next(it)->second.buffer
                                                                 : it->second.buffer);
  }

  struct Writers {
    int32_t first =
        std::numeric_limits<int32_t>::max();  // to the memory that the buffer stands for
    int32_t last = -1;
    int64_t bytes = 0;
  };
  struct Held {
    int64_t end = 0;
    int32_t buffer = -1;
  };

  const Program& p_;
  std::vector<Writers> writers_;
  std::vector<Touch> touches_;    // of the chain at hand
  std::map<int64_t, Held> held_;  // the arena: what lies where, by first byte
};

}  // namespace

void verify(const Program& p) { LirVerifier(p).run(); }

}  // namespace rlx
