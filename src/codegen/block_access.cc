#include "rlx/codegen/block_access.h"

#include <algorithm>
#include <cstdlib>

namespace rlx::codegen {

BlockAccess::BlockAccess(const Kernel& kernel, std::span<const int64_t> sizes, int64_t blocks)
    : k_(kernel), sizes_(sizes), blocks_(blocks), parent_(kernel.body.size(), -1) {
  int32_t open = -1;
  for (int32_t i = 0; i < static_cast<int32_t>(k_.body.size()); ++i) {
    const Instr& in = k_.body[static_cast<size_t>(i)];
    if (in.op == KernelOp::End) {
      open = parent_[static_cast<size_t>(open)];
    } else if (in.op == KernelOp::Loop) {
      if (in.kind == LoopKind::Block) block_ = i;
      parent_[static_cast<size_t>(i)] = open;
      open = i;
    } else if (in.op == KernelOp::Load || in.op == KernelOp::Store) {
      Access a{i, open, in.buffer, {}};
      for (const Term& t : in.address) {
        const int64_t stride = value(t.stride);
        if (t.index)
          add(a.address, linear(t.index), stride);
        else
          a.address.constant += stride;
      }
      accesses_.push_back(std::move(a));
    }
  }
}

int64_t BlockAccess::value(Size s) const {
  return s.is_constant() ? s.scale : s.scale * sizes_[static_cast<size_t>(s.argument)];
}

// ---- addresses as sums

void BlockAccess::add(Linear& to, const Linear& from, int64_t factor) {
  to.constant += factor * from.constant;
  for (const auto& [atom, coefficient] : from.terms) {
    const auto it = to.terms.try_emplace(atom, 0).first;
    it->second += factor * coefficient;
    if (it->second == 0) to.terms.erase(it);
  }
}

const BlockAccess::Linear& BlockAccess::linear(ValueId v) {
  if (auto it = memo_.find(v.id); it != memo_.end()) return it->second;
  Linear x = compute(v);
  return memo_[v.id] = std::move(x);
}

BlockAccess::Linear BlockAccess::compute(ValueId v) {
  const Instr& in = k_[v];
  Linear itself{{{v.id, 1}}, 0};
  auto operand = [&](size_t i) { return linear(in.args[i]); };
  Linear sum;
  switch (in.op) {
    case KernelOp::Const:
      sum.constant = static_cast<int64_t>(in.bits);
      return sum;
    case KernelOp::SizeValue:
      sum.constant = value(in.extent.total);
      return sum;
    case KernelOp::Add:
    case KernelOp::Sub:
      sum = operand(0);
      add(sum, operand(1), in.op == KernelOp::Add ? 1 : -1);
      return sum;
    case KernelOp::Mul: {
      const Linear a = operand(0), b = operand(1);
      if (!a.terms.empty() && !b.terms.empty()) return itself;
      add(sum, a.terms.empty() ? b : a, a.terms.empty() ? a.constant : b.constant);
      return sum;
    }
    case KernelOp::Div: {
      const Linear a = operand(0), b = operand(1);
      if (!b.terms.empty() || b.constant <= 0 || a.terms.empty()) return itself;
      // A quotient of a quotient is one of what was divided first.
      Quotient q{a, b.constant};
      if (a.terms.size() == 1 && a.constant == 0 && a.terms.begin()->second == 1)
        if (auto it = quotients_.find(a.terms.begin()->first); it != quotients_.end())
          q = {it->second.of, it->second.by * b.constant};
      for (const auto& [atom, known] : quotients_)
        if (known.of == q.of && known.by == q.by) return {{{atom, 1}}, 0};
      quotients_[v.id] = std::move(q);
      return itself;
    }
    default:
      return itself;
  }
}

// ---- bounds

std::optional<BlockAccess::Range> BlockAccess::atom_bounds(int32_t atom) const {
  const Instr& in = k_.body[static_cast<size_t>(atom)];
  auto below = [](int64_t count) { return Range{0, std::max<int64_t>(count, 1) - 1}; };
  if (atom == block_) return below(blocks_);
  if (in.op == KernelOp::Loop) {
    const int64_t total = value(in.extent.total);
    return below(in.extent.is_tile() ? std::min(value(in.extent.tile), total) : total);
  }
  if (auto it = quotients_.find(atom); it != quotients_.end()) {
    const auto x = bounds(it->second.of);
    if (x && x->low >= 0) return Range{x->low / it->second.by, x->high / it->second.by};
  }
  return std::nullopt;
}

void BlockAccess::Range::add(const Range& r, int64_t factor) {
  low += std::min(factor * r.low, factor * r.high);
  high += std::max(factor * r.low, factor * r.high);
}

// The factor with which x contains `part`; 0: it does not.
int64_t BlockAccess::factor_of(const Linear& part, const Linear& x) {
  int64_t factor = 0;
  for (const auto& [atom, coefficient] : part.terms) {
    const auto it = x.terms.find(atom);
    if (it == x.terms.end() || it->second % coefficient) return 0;
    const int64_t own = it->second / coefficient;
    if (factor && own != factor) return 0;
    factor = own;
  }
  return factor;
}

// Where x has multiples of both y and y / n: y is n * (y / n) plus a remainder, which goes into
// `rest`.
void BlockAccess::take_remainders(Linear& x, Range& rest) const {
  std::vector<std::pair<int64_t, int32_t>> present;  // divisor, quotient
  for (const auto& [atom, coefficient] : x.terms)
    if (auto it = quotients_.find(atom); it != quotients_.end())
      present.push_back({it->second.by, atom});
  std::sort(present.begin(), present.end());
  for (size_t first = 0; first < present.size(); ++first) {
    const Linear& of = quotients_.at(present[first].second).of;
    const auto range = bounds(of);
    if (!range || range->low < 0) continue;
    Linear previous = of;
    int64_t by = 1;
    for (size_t k = first; k < present.size(); ++k) {
      const auto [divisor, q] = present[k];
      if (!(quotients_.at(q).of == of) || divisor % by) continue;
      const Linear quotient{{{q, 1}}, 0};
      const int64_t factor = factor_of(previous, x), ratio = divisor / by;
      add(x, previous, -factor);
      add(x, quotient, factor * ratio);
      rest.add({0, ratio - 1}, factor);
      previous = quotient;
      by = divisor;
    }
  }
}

// tile * outer + i, i in the tile, is one index below the total.
void BlockAccess::join_tiles(Linear& x, Range& rest) const {
  std::vector<std::pair<int32_t, int64_t>> tiles;
  for (const auto& [atom, coefficient] : x.terms) {
    const Instr& in = k_.body[static_cast<size_t>(atom)];
    if (in.op == KernelOp::Loop && in.extent.is_tile()) tiles.push_back({atom, coefficient});
  }
  for (const auto& [atom, coefficient] : tiles) {
    const Extent& e = k_.body[static_cast<size_t>(atom)].extent;
    const Linear index{{{e.outer.id, value(e.tile)}, {atom, 1}}, 0};
    if (factor_of(index, x) != coefficient) continue;
    add(x, index, -coefficient);
    rest.add({0, std::max<int64_t>(value(e.total), 1) - 1}, coefficient);
  }
}

std::optional<BlockAccess::Range> BlockAccess::bounds(Linear x) const {
  Range r;
  take_remainders(x, r);
  join_tiles(x, r);
  r.low += x.constant, r.high += x.constant;
  for (const auto& [atom, coefficient] : x.terms) {
    const auto own = atom_bounds(atom);
    if (!own) return std::nullopt;
    r.add(*own, coefficient);
  }
  return r;
}

// ---- what blocks touch

std::optional<BlockSpan> BlockAccess::span(const Access& a) const {
  Linear x = a.address;
  int64_t stride = 0;
  bool divided = false;  // the number of the block, by something
  for (const auto& [atom, coefficient] : x.terms)
    if (auto it = quotients_.find(atom); it != quotients_.end())
      divided = divided || it->second.of.terms.contains(block_);
  if (auto it = x.terms.find(block_); it != x.terms.end() && !divided) {
    stride = it->second;
    x.terms.erase(it);
  }
  const auto range = bounds(std::move(x));
  if (!range) return std::nullopt;
  return BlockSpan{stride, range->low, range->high};
}

std::optional<BlockSpan> BlockAccess::span(BufferId buffer) const {
  BlockSpan all;
  for (const Access& a : accesses_) {
    if (!(a.buffer == buffer)) continue;
    const auto one = span(a);
    if (!one) return std::nullopt;
    all = joined(all, *one, blocks_);
  }
  if (k_[buffer].dtype == DType::C64) return std::nullopt;  // addressed by halves of elements
  return all;
}

std::vector<int32_t> BlockAccess::loops_around(const Access& a) const {
  std::vector<int32_t> loops;
  for (int32_t l = a.loop; l >= 0; l = parent_[static_cast<size_t>(l)]) loops.push_back(l);
  return loops;
}

// Whether each iteration of the loops around the access has an address of its own.
bool BlockAccess::is_injective(const Access& a) const {
  for (const auto& [atom, coefficient] : a.address.terms)
    if (k_.body[static_cast<size_t>(atom)].op != KernelOp::Loop) return false;
  std::vector<std::pair<int64_t, int64_t>> strides;  // with how often
  for (int32_t l : loops_around(a)) {
    const auto it = a.address.terms.find(l);
    const auto range = atom_bounds(l);
    if (range->high == 0) continue;
    if (it == a.address.terms.end()) return false;
    strides.push_back({std::abs(it->second), range->high});
  }
  std::sort(strides.begin(), strides.end());
  int64_t reach = 0;
  for (const auto& [stride, most] : strides) {
    if (stride <= reach) return false;
    reach += stride * most;
  }
  return true;
}

// Whether within a block nothing is loaded that the store has written.
bool BlockAccess::reads_before(const Access& load, const Access& store) const {
  if (load.at > store.at) return false;
  if (load.address == store.address && is_injective(store)) return true;
  // Else all of the block's loads must come before its stores: nothing but the block is repeated
  // around both.
  const std::vector<int32_t> a = loops_around(load), b = loops_around(store);
  for (int32_t l : a)
    if (l != block_ && std::find(b.begin(), b.end(), l) != b.end()) return false;
  return true;
}

bool BlockAccess::may_overwrite(BufferId read, BufferId written) const {
  if (size_of(k_[read].dtype) != size_of(k_[written].dtype)) return false;
  const auto from = span(read), to = span(written);
  if (!from || !to || !apart(*from, *to, blocks_)) return false;
  for (const Access& load : accesses_)
    for (const Access& store : accesses_)
      if (load.buffer == read && store.buffer == written && !reads_before(load, store))
        return false;
  return true;
}

}  // namespace rlx::codegen
