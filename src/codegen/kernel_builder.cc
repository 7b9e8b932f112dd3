#include "rlx/codegen/kernel_builder.h"

#include <bit>
#include <cmath>

#include "rlx/base/error.h"

namespace rlx::codegen {

KernelBuilder::KernelBuilder(std::string name) { kernel_.name = std::move(name); }

BufferId KernelBuilder::parameter(DType dtype, Access access) {
  check(access != Access::Scratch, "{}: a scratch buffer is not a parameter", kernel_.name);
  kernel_.buffers.push_back({dtype, access, 0, kernel_.parameters++});
  return BufferId{static_cast<int32_t>(kernel_.buffers.size()) - 1};
}

void KernelBuilder::make_readable(BufferId output) {
  BufferDecl& b = kernel_.buffers[static_cast<size_t>(output.id)];
  check(b.access == Access::Write || b.access == Access::ReadWrite, "{}: b{} is not an output",
        kernel_.name, output.id);
  b.access = Access::ReadWrite;
}

BufferId KernelBuilder::scratch(DType dtype, int64_t length) {
  kernel_.buffers.push_back({dtype, Access::Scratch, length, -1});
  return BufferId{static_cast<int32_t>(kernel_.buffers.size()) - 1};
}

void KernelBuilder::resize_scratch(BufferId scratch, int64_t length) {
  kernel_.buffers[static_cast<size_t>(scratch.id)].length = length;
}

ValueId KernelBuilder::push(Instr instr) {
  kernel_.body.push_back(std::move(instr));
  return ValueId{static_cast<int32_t>(kernel_.body.size()) - 1};
}

ValueId KernelBuilder::constant(DType dtype, double value) {
  if (const NarrowFloat* f = info(dtype).narrow) {
    value = f->to_float(f->from_double(value));
    dtype = DType::F32;
  }
  if (!is_float(dtype)) {
    check(value == std::trunc(value) && std::abs(value) < 0x1p63, "{}: {} is no {} constant",
          kernel_.name, value, dtype);
    return integer(dtype, static_cast<int64_t>(value));
  }
  Instr in{.op = KernelOp::Const, .dtype = dtype};
  in.bits = dtype == DType::F64 ? std::bit_cast<uint64_t>(value)
                                : std::bit_cast<uint32_t>(static_cast<float>(value));
  return push(in);
}

ValueId KernelBuilder::integer(DType dtype, int64_t value) {
  if (is_float(dtype)) return constant(dtype, static_cast<double>(value));
  check(!is_complex(dtype), "{}: no complex constants", kernel_.name);
  Instr in{.op = KernelOp::Const, .dtype = dtype};
  int bits = 8 * size_of(dtype);
  in.bits = static_cast<uint64_t>(value);
  if (is_bool(dtype)) in.bits = value != 0;
  if (bits < 64) in.bits &= (uint64_t{1} << bits) - 1;
  return push(in);
}

ValueId KernelBuilder::free(ValueId constant) {
  Instr& in = kernel_.body[static_cast<size_t>(constant.id)];
  check(in.op == KernelOp::Const, "{}: only a constant can be free", kernel_.name);
  in.free = true;
  return constant;
}

ValueId KernelBuilder::size_value(Size size) {
  if (size.is_constant()) return integer(DType::I64, size.scale);
  Instr in{.op = KernelOp::SizeValue};
  in.extent = size;
  return push(in);
}

ValueId KernelBuilder::begin_loop(LoopKind kind, Extent extent) {
  Instr in{.op = KernelOp::Loop};
  in.kind = kind;
  in.extent = extent;
  open_loops_.push_back(push(in));
  return open_loops_.back();
}

ValueId KernelBuilder::carry(Combine combine, ValueId init) {
  Instr in{.op = KernelOp::Carry, .dtype = dtype(init)};
  in.combine = combine;
  in.args[0] = init;
  return push(in);
}

void KernelBuilder::update(ValueId carry, ValueId value) {
  Instr in{.op = KernelOp::Update};
  in.args = {carry, value, ValueId{}};
  push(in);
}

void KernelBuilder::end_loop() {
  check(!open_loops_.empty(), "{}: end of a loop that was not begun", kernel_.name);
  Instr in{.op = KernelOp::End};
  in.args[0] = open_loops_.back();
  push(in);
  open_loops_.pop_back();
}

ValueId KernelBuilder::result(ValueId carry) {
  Instr in{.op = KernelOp::Result, .dtype = dtype(carry)};
  in.args[0] = carry;
  return push(in);
}

ValueId KernelBuilder::load(BufferId buffer, Address address) {
  Instr in{.op = KernelOp::Load, .dtype = value_dtype(kernel_[buffer].dtype)};
  in.buffer = buffer;
  in.address = std::move(address);
  return push(in);
}

void KernelBuilder::store(BufferId buffer, Address address, ValueId value) {
  Instr in{.op = KernelOp::Store};
  in.buffer = buffer;
  in.address = std::move(address);
  in.args[0] = value;
  push(in);
}

ValueId KernelBuilder::apply(KernelOp op, std::span<const ValueId> args) {
  const OpInfo& row = info(op);
  check(row.form == OpForm::Arithmetic || row.form == OpForm::Compare || row.form == OpForm::Choice,
        "{}: {} is not an arithmetic operation", kernel_.name, row.name);
  check(static_cast<int>(args.size()) == row.arity, "{}: {} takes {} operands, not {}",
        kernel_.name, row.name, row.arity, args.size());
  Instr in{.op = op};
  for (size_t i = 0; i < args.size(); ++i) in.args[i] = args[i];
  DType last = dtype(args.back());
  in.dtype = row.form == OpForm::Compare ? DType::Bool : last;
  for (size_t i = op == KernelOp::Select; i < args.size(); ++i)
    check(dtype(args[i]) == last, "{}: {} of {} and {}", kernel_.name, row.name, dtype(args[i]),
          last);
  check(row.operands.has(last), "{}: {} does not take {}", kernel_.name, row.name, last);
  return push(in);
}

ValueId KernelBuilder::cast(ValueId x, DType to) {
  check(!is_complex(to), "{}: no cast to {}", kernel_.name, to);
  if (is_narrow(to)) {
    return round(is_float(dtype(x)) ? x : cast(x, DType::F32), to);
  }
  if (dtype(x) == to) return x;
  Instr in{.op = KernelOp::Cast, .dtype = to};
  in.args[0] = x;
  return push(in);
}

ValueId KernelBuilder::round(ValueId x, DType precision) {
  Instr in{.op = KernelOp::Round, .dtype = DType::F32, .memory = precision};
  in.args[0] = x;
  return push(in);
}

std::vector<ValueId> KernelBuilder::unflatten(ValueId index, std::span<const Size> dims) {
  std::vector<ValueId> coordinates(dims.size());
  for (size_t i = dims.size(); i-- > 1;) {
    if (dims[i].is(1)) {
      coordinates[i] = integer(DType::I64, 0);
      continue;
    }
    ValueId n = size_value(dims[i]);
    ValueId rest = div(index, n);
    coordinates[i] = sub(index, mul(rest, n));
    index = rest;
  }
  if (!dims.empty()) coordinates[0] = index;
  return coordinates;
}

// Zero stays: it costs no register and no load, and few programs differ in where their zeros are. So do
// divisors and shifts of integers: a division by a known number is a product, by an unknown one twenty times
// slower.
void KernelBuilder::make_arguments(std::vector<int64_t>& words) {
  for (const Instr& in : kernel_.body) {
    const bool keeps = (in.op == KernelOp::Div || in.op == KernelOp::Rem ||
                        in.op == KernelOp::Shl || in.op == KernelOp::Shr) &&
                       !is_float(in.dtype);
    ValueId by = in.args[1];
    while (keeps && kernel_[by].op == KernelOp::Cast) by = kernel_[by].args[0];
    if (keeps) kernel_.body[static_cast<size_t>(by.id)].free = false;
  }
  for (Instr& in : kernel_.body) {
    if (in.free && in.bits != 0 && !is_bool(in.dtype)) {
      words.push_back(static_cast<int64_t>(in.bits));
      in = Instr{.op = KernelOp::Argument, .dtype = in.dtype, .extent = Extent(size())};
    }
    in.free = false;
  }
}

Kernel KernelBuilder::finish(std::vector<int64_t>* words) {
  check(open_loops_.empty(), "{}: {} loops are still open", kernel_.name, open_loops_.size());
  if (words) {
    check(static_cast<int32_t>(words->size()) == kernel_.sizes, "{}: {} words for {} sizes",
          kernel_.name, words->size(), kernel_.sizes);
    make_arguments(*words);
  } else {
    for (Instr& in : kernel_.body) in.free = false;
  }
  Kernel kernel = hoist_invariants(kernel_);
  verify(kernel);
  return kernel;
}

}  // namespace rlx::codegen
