#include "rlx/codegen/kernel.h"

#include <algorithm>

#include "rlx/base/error.h"
#include "rlx/base/hash.h"

namespace rlx::codegen {
namespace {

constexpr DTypeSet kValueFloats{DType::F32, DType::F64};
constexpr DTypeSet kValueNumbers = kValueFloats | kInts;
constexpr DTypeSet kValues = kValueNumbers | kBools;
constexpr DTypeSet kBits = kInts | kBools;

using enum OpForm;
constexpr OpInfo kOps[] = {
    {KernelOp::Const, "const", Structure, 0, kValues},
    {KernelOp::SizeValue, "size", Structure, 0, {}},
    {KernelOp::Argument, "argument", Structure, 0, kValues},
    {KernelOp::Loop, "loop", Structure, 0, {}},
    {KernelOp::Carry, "carry", Structure, 1, kValues},
    {KernelOp::Update, "update", Structure, 2, kValues},
    {KernelOp::End, "end", Structure, 1, {}},
    {KernelOp::Result, "result", Structure, 1, kValues},
    {KernelOp::Load, "load", Memory, 0, {}},
    {KernelOp::Store, "store", Memory, 1, kValues},
    {KernelOp::Add, "add", Arithmetic, 2, kValueNumbers},
    {KernelOp::Sub, "sub", Arithmetic, 2, kValueNumbers},
    {KernelOp::Mul, "mul", Arithmetic, 2, kValueNumbers},
    {KernelOp::Div, "div", Arithmetic, 2, kValueNumbers, true},
    {KernelOp::Rem, "rem", Arithmetic, 2, kValueNumbers, true},
    {KernelOp::Min, "min", Arithmetic, 2, kValues},
    {KernelOp::Max, "max", Arithmetic, 2, kValues},
    {KernelOp::Pow, "pow", Arithmetic, 2, kValueFloats, true},
    {KernelOp::CopySign, "copysign", Arithmetic, 2, kValueFloats},
    {KernelOp::UMulHi, "umulhi", Arithmetic, 2, {DType::U32}},
    {KernelOp::Fma, "fma", Arithmetic, 3, kValueFloats},
    {KernelOp::Neg, "neg", Arithmetic, 1, kValueNumbers},
    {KernelOp::Abs, "abs", Arithmetic, 1, kValueNumbers},
    {KernelOp::Sqrt, "sqrt", Arithmetic, 1, kValueFloats, true},
    {KernelOp::Exp, "exp", Arithmetic, 1, kValueFloats, true},
    {KernelOp::Log, "log", Arithmetic, 1, kValueFloats, true},
    {KernelOp::Tanh, "tanh", Arithmetic, 1, kValueFloats, true},
    {KernelOp::Erf, "erf", Arithmetic, 1, kValueFloats, true},
    {KernelOp::Sin, "sin", Arithmetic, 1, kValueFloats, true},
    {KernelOp::Cos, "cos", Arithmetic, 1, kValueFloats, true},
    {KernelOp::Floor, "floor", Arithmetic, 1, kValueFloats},
    {KernelOp::Ceil, "ceil", Arithmetic, 1, kValueFloats},
    {KernelOp::Trunc, "trunc", Arithmetic, 1, kValueFloats},
    {KernelOp::Rint, "rint", Arithmetic, 1, kValueFloats},
    {KernelOp::And, "and", Arithmetic, 2, kBits},
    {KernelOp::Or, "or", Arithmetic, 2, kBits},
    {KernelOp::Xor, "xor", Arithmetic, 2, kBits},
    {KernelOp::Shl, "shl", Arithmetic, 2, kInts},
    {KernelOp::Shr, "shr", Arithmetic, 2, kInts},
    {KernelOp::Not, "not", Arithmetic, 1, kBits},
    {KernelOp::Eq, "eq", Compare, 2, kValues},
    {KernelOp::Ne, "ne", Compare, 2, kValues},
    {KernelOp::Lt, "lt", Compare, 2, kValues},
    {KernelOp::Le, "le", Compare, 2, kValues},
    {KernelOp::Gt, "gt", Compare, 2, kValues},
    {KernelOp::Ge, "ge", Compare, 2, kValues},
    {KernelOp::Select, "select", Choice, 3, kValues},
    {KernelOp::Cast, "cast", Convert, 1, kValues},
    {KernelOp::Round, "round", Convert, 1, kValueFloats},
};
constexpr int kOpCount = static_cast<int>(std::size(kOps));
static_assert([] {
  for (int i = 0; i < kOpCount; ++i)
    if (static_cast<int>(kOps[i].op) != i) return false;
  return kOpCount == static_cast<int>(KernelOp::Round) + 1;
}());

}  // namespace

const OpInfo& info(KernelOp op) { return kOps[static_cast<size_t>(op)]; }
int op_count() { return kOpCount; }

bool same_structure(const Kernel& a, const Kernel& b) {
  return a.parameters == b.parameters && a.sizes == b.sizes && a.buffers == b.buffers &&
         a.body == b.body;
}

namespace {

// Everything that same_structure() compares, as numbers; lists with their lengths.
template <class F>
void each_number(const Kernel& kernel, F&& visit) {
  auto add = [&](auto v) { visit(static_cast<uint64_t>(v)); };
  auto add_size = [&](Size s) { add(s.scale), add(s.argument); };
  add(kernel.parameters), add(kernel.sizes), add(kernel.buffers.size()), add(kernel.body.size());
  for (const BufferDecl& b : kernel.buffers) {
    add(b.dtype), add(b.access), add(b.length), add(b.slot);
  }
  for (const Instr& i : kernel.body) {
    add(i.op), add(i.dtype), add(i.memory), add(i.kind), add(i.combine), add(i.bits), add(i.free);
    for (ValueId v : i.args) add(v.id);
    add(i.buffer.id);
    add_size(i.extent.total), add_size(i.extent.tile), add(i.extent.outer.id);
    add(i.address.size());
    for (const Term& t : i.address) add_size(t.stride), add(t.index.id);
  }
}

}  // namespace

uint64_t structural_hash(const Kernel& kernel) {
  uint64_t h = 0;
  each_number(kernel, [&](uint64_t v) { h = mix(h, v); });
  return h;
}

std::string structure_bytes(const Kernel& kernel) {
  std::string out;
  each_number(kernel, [&](uint64_t v) { out.append(reinterpret_cast<const char*>(&v), sizeof v); });
  return out;
}

// ---- Hoisting

namespace {

// Moves instructions by choosing for each the loop it ends up in (-1: outside all), then re-emits
// the body: what leaves a loop is placed directly before that loop, in the old order.
class Hoister {
 public:
  explicit Hoister(const Kernel& kernel) : k_(kernel), n_(static_cast<int>(kernel.body.size())) {
    home_.resize(n_), parent_.assign(n_, -1), written_.assign(k_.buffers.size(), false);
    for (const Instr& i : k_.body)
      if (i.op == KernelOp::Store) written_[i.buffer.id] = true;
  }

  Kernel run() {
    int open = -1;
    std::vector<int> loop_of(n_);
    for (int i = 0; i < n_; ++i) {
      const Instr& in = k_.body[i];
      if (in.op == KernelOp::End) open = parent_[open];
      loop_of[i] = open;
      home_[i] = open;
      if (movable(in)) home_[i] = outermost_home(in, open);
      if (in.op == KernelOp::Loop) parent_[i] = open, open = i;
    }
    // before_[l]: what moves to directly before loop l.
    before_.resize(n_);
    std::vector<bool> moved(n_, false);
    for (int i = 0; i < n_; ++i) {
      if (home_[i] == loop_of[i]) continue;
      int l = loop_of[i];
      while (parent_[l] != home_[i]) l = parent_[l];
      before_[l].push_back(i);
      moved[i] = true;
    }
    Kernel out = k_;
    out.body.clear();
    renamed_.assign(n_, ValueId{});
    for (int i = 0; i < n_; ++i) {
      if (moved[i]) continue;
      for (int j : before_[i]) emit(out, j);
      emit(out, i);
    }
    return out;
  }

 private:
  bool movable(const Instr& in) const {
    if (in.op == KernelOp::Load) return !written_[in.buffer.id];
    if (in.op == KernelOp::Const || in.op == KernelOp::SizeValue || in.op == KernelOp::Argument)
      return true;
    OpForm form = info(in.op).form;
    return form != Structure && form != Memory;
  }

  // The loop whose body the instruction must stay in: climb while no operand lives in the loop.
  int outermost_home(const Instr& in, int loop) const {
    while (loop >= 0) {
      if (in.op == KernelOp::Load && !surely_runs(k_.body[loop])) break;
      bool depends = false;
      for (ValueId v : in.args) depends |= v && lives_in(v.id, loop);
      for (const Term& t : in.address) depends |= t.index && lives_in(t.index.id, loop);
      if (depends) break;
      loop = parent_[loop];
    }
    return loop;
  }

  // Whether value v is the index of `loop` or is computed in its body.
  bool lives_in(int v, int loop) const {
    if (v == loop) return true;
    for (int l = home_[v]; l >= 0; l = parent_[l])
      if (l == loop) return true;
    return false;
  }

  static bool surely_runs(const Instr& loop) {
    if (loop.kind == LoopKind::Block || loop.extent.is_tile()) return true;
    return loop.extent.total.is_constant() && loop.extent.total.scale > 0;
  }

  void emit(Kernel& out, int i) {
    Instr in = k_.body[i];
    auto rename = [&](ValueId& v) {
      if (v) v = renamed_[v.id];
    };
    for (ValueId& v : in.args) rename(v);
    rename(in.extent.outer);
    for (Term& t : in.address) rename(t.index);
    renamed_[i] = ValueId{static_cast<int32_t>(out.body.size())};
    out.body.push_back(std::move(in));
  }

  const Kernel& k_;
  int n_;
  std::vector<int> home_;    // per instruction: the loop whose body it belongs in
  std::vector<int> parent_;  // per loop: the enclosing one
  std::vector<bool> written_;
  std::vector<std::vector<int>> before_;
  std::vector<ValueId> renamed_;
};

}  // namespace

Kernel hoist_invariants(const Kernel& kernel) { return Hoister(kernel).run(); }

}  // namespace rlx::codegen
