#include <fmt/format.h>

#include <bit>
#include <iterator>

#include "rlx/codegen/kernel.h"

namespace rlx::codegen {
namespace {

constexpr std::string_view kKinds[] = {"block", "serial", "vector"};
constexpr std::string_view kCombines[] = {"none", "add", "mul", "max", "min", "and", "or"};
constexpr std::string_view kAccesses[] = {"read", "write", "readwrite", "scratch"};

std::string text(ValueId v) { return fmt::format("%{}", v.id); }

std::string text(Size s) {
  if (s.is_constant()) return fmt::format("{}", s.scale);
  return s.scale == 1 ? fmt::format("n{}", s.argument) : fmt::format("{}*n{}", s.scale, s.argument);
}

std::string text(const Extent& e) {
  if (!e.is_tile()) return text(e.total);
  return fmt::format("min({}, {} - {}*{})", text(e.tile), text(e.total), text(e.tile),
                     text(e.outer));
}

std::string text(const Address& address) {
  std::string s;
  for (const Term& t : address) {
    if (!s.empty()) s += " + ";
    if (!t.index)
      s += text(t.stride);
    else if (t.stride.is(1))
      s += text(t.index);
    else
      s += fmt::format("{}*{}", text(t.stride), text(t.index));
  }
  return s.empty() ? "0" : s;
}

std::string constant(const Instr& in) {
  if (in.dtype == DType::F32)
    return fmt::format("{}", std::bit_cast<float>(static_cast<uint32_t>(in.bits)));
  if (in.dtype == DType::F64) return fmt::format("{}", std::bit_cast<double>(in.bits));
  if (!info(in.dtype).is_signed) return fmt::format("{}", in.bits);
  int unused = 64 - 8 * size_of(in.dtype);
  return fmt::format("{}", static_cast<int64_t>(in.bits << unused) >> unused);
}

std::string operands(const Instr& in) {
  switch (in.op) {
    case KernelOp::Const:
      return constant(in);
    case KernelOp::SizeValue:
    case KernelOp::Argument:
      return text(in.extent);
    case KernelOp::Loop:
      return fmt::format("{} {}", kKinds[static_cast<int>(in.kind)], text(in.extent));
    case KernelOp::Carry:
      return fmt::format("{} {}", kCombines[static_cast<int>(in.combine)], text(in.args[0]));
    case KernelOp::Load:
      return fmt::format("b{}[{}]", in.buffer.id, text(in.address));
    case KernelOp::Store:
      return fmt::format("b{}[{}], {}", in.buffer.id, text(in.address), text(in.args[0]));
    default:
      break;
  }
  std::string s;
  for (ValueId v : in.args)
    if (v) s += (s.empty() ? "" : ", ") + text(v);
  if (in.op == KernelOp::Round) s += fmt::format(" to {}", in.memory);
  return s;
}

bool has_value(KernelOp op) {
  return op != KernelOp::Update && op != KernelOp::End && op != KernelOp::Store;
}

}  // namespace

std::string to_string(const Kernel& kernel) {
  std::string out;
  auto to = std::back_inserter(out);
  fmt::format_to(to, "kernel {} sizes={} {{\n", kernel.name, kernel.sizes);
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const BufferDecl& b = kernel.buffers[i];
    fmt::format_to(to, "  b{} = {} {}", i, kAccesses[static_cast<int>(b.access)], b.dtype);
    if (b.access == Access::Scratch) fmt::format_to(to, "[{}]", b.length);
    out += '\n';
  }
  int depth = 1;
  for (size_t i = 0; i < kernel.body.size(); ++i) {
    const Instr& in = kernel.body[i];
    if (in.op == KernelOp::End) --depth;
    fmt::format_to(to, "{:{}}", "", 2 * depth);
    if (has_value(in.op)) fmt::format_to(to, "%{} = ", i);
    fmt::format_to(to, "{}", info(in.op).name);
    if (has_value(in.op) && in.op != KernelOp::Loop) fmt::format_to(to, ".{}", in.dtype);
    fmt::format_to(to, " {}\n", operands(in));
    if (in.op == KernelOp::Loop) ++depth;
  }
  return out + "}\n";
}

}  // namespace rlx::codegen
