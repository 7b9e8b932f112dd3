#include "rlx/base/error.h"
#include "rlx/codegen/kernel.h"

namespace rlx::codegen {
namespace {

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel)
      : k_(kernel), n_(static_cast<int32_t>(kernel.body.size())), scope_(n_, kUnseen) {}

  void run() {
    buffers();
    for (at_ = 0; at_ < n_; ++at_) {
      const Instr& in = k_.body[at_];
      instruction(in);
      scope_[at_] = kOpen;
      if (in.op == KernelOp::End) end();
      if (!loops_.empty()) bodies_.back().push_back(at_);
      if (in.op == KernelOp::Loop) begin(in);
    }
    at_ = n_ - 1;
    require(loops_.empty(), "a loop is not ended");
    require(blocks_ == 1, "there must be one block loop");
  }

 private:
  static constexpr int kUnseen = 0, kOpen = 1, kClosed = 2;

  template <class... Args>
  void require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
    if (ok) return;
    std::string_view name = at_ >= 0 && at_ < n_ ? info(k_.body[at_].op).name : "buffers";
    check(false, "kernel {}, %{} {}: {}", k_.name, at_, name,
          fmt::format(format, std::forward<Args>(args)...));
  }

  void buffers() {
    int64_t scratch = 0;
    int32_t slot = 0;
    for (const BufferDecl& b : k_.buffers) {
      if (b.access != Access::Scratch) {
        require(b.slot == slot++, "parameter slots must count up");
        continue;
      }
      require(b.length > 0 && b.length <= kMaxScratchBytes, "scratch of {} elements", b.length);
      scratch += b.length * size_of(b.dtype);
    }
    require(slot == k_.parameters, "{} parameters declared, {} counted", k_.parameters, slot);
    require(scratch <= kMaxScratchBytes, "{} bytes of scratch", scratch);
  }

  void value(ValueId v) {
    require(v.id >= 0 && v.id < at_, "operand %{} is not defined before", v.id);
    require(scope_[v.id] == kOpen, "operand %{} is out of scope", v.id);
    KernelOp op = k_[v].op;
    require(op != KernelOp::Update && op != KernelOp::End && op != KernelOp::Store,
            "operand %{} has no value", v.id);
    bool hidden = op == KernelOp::Carry && k_[v].combine != Combine::None;
    require(!hidden, "accumulator %{} cannot be read inside its loop", v.id);
  }

  void size(Size s) {
    require(s.argument < k_.sizes, "size argument n{} does not exist", s.argument);
  }

  void extent(const Extent& e) {
    size(e.total);
    if (!e.total.is_constant()) require(e.total.scale >= 0, "a negative extent");
    if (!e.is_tile()) return;
    size(e.tile);
    require(e.tile.scale > 0, "tile {}", e.tile.scale);
    value(e.outer);
    require(k_[e.outer].op == KernelOp::Loop, "the outer index of a tail must be a loop index");
  }

  void access(const Instr& in) {
    require(in.buffer.id >= 0 && in.buffer.id < static_cast<int32_t>(k_.buffers.size()),
            "no buffer b{}", in.buffer.id);
    bool varies = !vector_open();
    for (const Term& t : in.address) {
      size(t.stride);
      if (!t.index) continue;
      value(t.index);
      require(k_[t.index].dtype == DType::I64, "index %{} is {}", t.index.id, k_[t.index].dtype);
      varies |= defined_in_vector_loop(t.index);
    }
    Access a = k_[in.buffer].access;
    if (in.op == KernelOp::Store) {
      require(a != Access::Read, "store to the read-only b{}", in.buffer.id);
      require(varies, "a store in a vector loop to one address");
    }
    if (in.op == KernelOp::Load)
      require(a != Access::Write, "load from the write-only b{}", in.buffer.id);
  }

  void begin(const Instr& in) {
    if (in.kind == LoopKind::Block) {
      require(loops_.empty(), "a block loop inside a loop");
      require(!in.extent.is_tile(), "a block loop cannot be a tile");
      ++blocks_;
    } else {
      require(!loops_.empty(), "a loop outside the block loop");
    }
    if (in.kind == LoopKind::Vector) require(!vector_open(), "a vector loop inside a vector loop");
    loops_.push_back(at_);
    bodies_.emplace_back();
    updates_.emplace_back();
  }

  void end() {
    const Instr& in = k_.body[at_];
    for (int32_t i = loops_.back() + 1; i < at_ && k_.body[i].op == KernelOp::Carry; ++i) {
      int count = 0;
      for (int32_t carry : updates_.back()) count += carry == i;
      require(count == 1, "accumulator %{} has {} updates", i, count);
    }
    require(in.args[0].id == loops_.back(), "ends loop %{} instead of %{}", in.args[0].id,
            loops_.back());
    scope_[loops_.back()] = kClosed;
    for (int32_t i : bodies_.back()) scope_[i] = kClosed;
    loops_.pop_back(), bodies_.pop_back(), updates_.pop_back();
  }

  void instruction(const Instr& in) {
    switch (in.op) {
      case KernelOp::Const:
        return require(info(in.op).operands.has(in.dtype), "no values of {}", in.dtype);
      case KernelOp::SizeValue:
        return require(in.dtype == DType::I64, "a size is i64"), size(in.extent.total);
      case KernelOp::Argument:
        require(info(in.op).operands.has(in.dtype), "no values of {}", in.dtype);
        require(in.extent == Extent(Size::arg(in.extent.total.argument)) &&
                    in.extent.total.argument >= 0,
                "an argument is one word");
        return size(in.extent.total);
      case KernelOp::Loop:
        require(in.dtype == DType::I64, "an index is i64");
        return extent(in.extent);
      case KernelOp::Carry:
        return carry(in);
      case KernelOp::Update:
        return update(in);
      case KernelOp::End:
        return require(!loops_.empty(), "no loop is open");
      case KernelOp::Result:
        return result(in);
      case KernelOp::Load:
        access(in);
        return require(in.dtype == value_dtype(k_[in.buffer].dtype), "load of {} as {}",
                       k_[in.buffer].dtype, in.dtype);
      case KernelOp::Store:
        access(in);
        value(in.args[0]);
        return require(k_[in.args[0]].dtype == value_dtype(k_[in.buffer].dtype),
                       "store of {} to {}", k_[in.args[0]].dtype, k_[in.buffer].dtype);
      case KernelOp::Cast:
        value(in.args[0]);
        return require(info(in.op).operands.has(in.dtype), "cast to {}", in.dtype);
      case KernelOp::Round:
        value(in.args[0]);
        require(in.dtype == DType::F32 && is_float(k_[in.args[0]].dtype), "round of {}",
                k_[in.args[0]].dtype);
        return require(is_narrow(in.memory), "round to {}", in.memory);
      default:
        return arithmetic(in);
    }
  }

  void arithmetic(const Instr& in) {
    const OpInfo& row = info(in.op);
    for (int i = 0; i < row.arity; ++i) value(in.args[i]);
    DType type = k_[in.args[row.arity - 1]].dtype;
    require(row.operands.has(type), "does not take {}", type);
    for (int i = in.op == KernelOp::Select; i < row.arity; ++i)
      require(k_[in.args[i]].dtype == type, "operands of {} and {}", k_[in.args[i]].dtype, type);
    if (in.op == KernelOp::Select)
      require(is_bool(k_[in.args[0]].dtype), "the condition must be bool");
    require(in.dtype == (row.form == OpForm::Compare ? DType::Bool : type), "gives {}", in.dtype);
  }

  void carry(const Instr& in) {
    require(!loops_.empty(), "no loop is open");
    for (int32_t i = loops_.back() + 1; i < at_; ++i)
      require(k_.body[i].op == KernelOp::Carry, "accumulators stand directly after their loop");
    value(in.args[0]);
    require(in.args[0].id < loops_.back(), "the init value must come from outside the loop");
    require(in.dtype == k_[in.args[0]].dtype, "init of another type");
    LoopKind kind = k_.body[loops_.back()].kind;
    require(kind != LoopKind::Block, "blocks are independent: no accumulators");
    if (kind == LoopKind::Vector)
      require(in.combine != Combine::None, "a vector loop's accumulator needs a combine operation");
    bool arithmetic = in.combine == Combine::Add || in.combine == Combine::Mul;
    bool bits = in.combine == Combine::And || in.combine == Combine::Or;
    require(!(arithmetic && is_bool(in.dtype)), "sum of bools");
    require(!(bits && is_float(in.dtype)), "bit operation on {}", in.dtype);
  }

  void update(const Instr& in) {
    require(!loops_.empty(), "no loop is open");
    ValueId c = in.args[0];
    require(
        c.id > loops_.back() && c.id < at_ && k_[c].op == KernelOp::Carry && scope_[c.id] == kOpen,
        "%{} is not an accumulator of the innermost loop", c.id);
    updates_.back().push_back(c.id);
    value(in.args[1]);
    require(k_[in.args[1]].dtype == k_[c].dtype, "update of {} with {}", k_[c].dtype,
            k_[in.args[1]].dtype);
  }

  void result(const Instr& in) {
    ValueId c = in.args[0];
    require(c.id >= 0 && c.id < at_ && k_[c].op == KernelOp::Carry, "%{} is not an accumulator",
            c.id);
    int32_t loop = c.id;
    while (k_.body[loop].op != KernelOp::Loop) --loop;
    require(scope_[loop] == kClosed, "its loop has not ended");
    // The End must stand in a body that is still open.
    for (int32_t i = loop + 1; i < at_; ++i) {
      if (k_.body[i].op == KernelOp::End && k_.body[i].args[0].id == loop)
        require(scope_[i] == kOpen, "its loop is out of scope");
    }
    require(in.dtype == k_[c].dtype, "of another type");
  }

  bool vector_open() const {
    for (int32_t l : loops_)
      if (k_.body[l].kind == LoopKind::Vector) return true;
    return false;
  }
  bool defined_in_vector_loop(ValueId v) const {
    for (int32_t l : loops_)
      if (k_.body[l].kind == LoopKind::Vector) return v.id >= l;
    return false;
  }

  const Kernel& k_;
  int32_t n_;
  int32_t at_ = -1;
  int blocks_ = 0;
  std::vector<int> scope_;
  std::vector<int32_t> loops_;
  std::vector<std::vector<int32_t>> bodies_;
  std::vector<std::vector<int32_t>> updates_;
};

}  // namespace

void verify(const Kernel& kernel) { Verifier(kernel).run(); }

}  // namespace rlx::codegen
