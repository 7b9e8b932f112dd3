// Ops of the user, in two ways.
//
// An entry of the table, as every op of the language is written (ir/op.h, CONTRIBUTING.md): it has
// text, bytes, derivatives, batching and code like any other.
//
//   constinit const Op<> triple = OpDef{.name = "triple", .doc = "3 x.", .infer = infer_same, .decompose = ...};
//   register_op(triple.def);                       // once, before graphs with it are parsed
//   register_cpu_kernel(triple.def, run_triple);   // optional (runtime/extend.h)
//
// A function known by name at run time, for languages and plug-ins that cannot write entries:
//
//   register_custom_op({.name = "my.scale", .num_inputs = 1, .infer = .., .compute = .., .vjp = ..});
//   Values y = custom_op(b, "my.scale", "factor=2", Values{x});
//
// It is a node of the op `custom` with the name and a text of attributes; `compute` runs it on every
// backend. Without vjp and jvp a gradient through it raises "no-gradient", without vmap a batched
// call raises "no-vmap"; `decompose` gives all three at once. Raises "op-name" (the name is taken or
// empty), "custom-unknown", "custom-arity", "custom-type" (compute made another type than infer).
#pragma once

#include <functional>

#include "rlx/ir/op.h"

namespace rlx {

// Adds an entry to op_table(); the op must outlive all graphs. At any time: other threads see it in what
// they parse or compile from then on. Raises Error(user) "op-name" (taken or empty), "op-rule" (it states
// no infer, or neither eval nor decompose).
void register_op(const OpDef& op, std::string_view family = "user");

struct CustomOp {
  std::string name;
  int num_inputs = 1;
  std::string doc = {};
  std::function<Types(std::span<const Type> in, std::string_view attrs)> infer;
  std::function<Tensors(std::span<const Tensor> in, std::string_view attrs)> compute = {};
  std::function<Values(Builder&, const Node&, Operands in)> decompose = {};
  std::function<Values(Builder&, const JvpArgs&)> jvp = {};
  std::function<Values(Builder&, const VjpArgs&)> vjp = {};
  std::function<Values(Builder&, const VmapArgs&)> vmap = {};
};

// Registering a name again replaces the function, for graphs made before, too, and says so on stderr.
void register_custom_op(CustomOp op);
// nullptr when there is none.
std::shared_ptr<const CustomOp> find_custom_op(std::string_view name);
std::vector<std::string> custom_op_names();

// With a dtype the one result is declared: `dtype` and `shape`, whatever `infer` says (several results
// packed into one, say).
struct CustomAttrs {
  std::string name, attrs;
  std::optional<DType> dtype = std::nullopt;
  Shape shape = {};
  static constexpr auto fields() {
    return Fields<&CustomAttrs::name, &CustomAttrs::attrs, &CustomAttrs::dtype,
                  &CustomAttrs::shape>();
  }
};

namespace op {
extern const Op<CustomAttrs> custom;
}  // namespace op

Values custom_op(Builder& b, std::string_view name, std::string attrs, Operands in);

extern const Family kCustom;

}  // namespace rlx
