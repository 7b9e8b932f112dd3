#include "rlx/ops/custom.h"

#include <cstdio>
#include <mutex>
#include <shared_mutex>

#include "rlx/ir/builder.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/rules.h"

namespace rlx {
namespace {

struct Registry {
  std::shared_mutex mutex;
  std::map<std::string, std::shared_ptr<const CustomOp>, std::less<>> ops;
};

Registry& registry() {
  static Registry r;
  return r;
}

std::shared_ptr<const CustomOp> custom_of(const Attrs& attrs) {
  const std::string& name = attrs.get<CustomAttrs>().name;
  auto op = find_custom_op(name);
  user_check(op != nullptr, "custom-unknown", "custom: no op \"{}\" is registered; there are: {}",
             name, fmt::join(custom_op_names(), ", "));
  return op;
}

[[noreturn]] void lacks(const CustomOp& op, std::string_view code, std::string_view rule) {
  fail(ErrorKind::user, code, "custom: \"{}\" states neither {} nor a decomposition", op.name,
       rule);
}

Types infer_custom(const InferArgs& a) {
  const auto op = custom_of(a.attrs);
  if (static_cast<int>(a.in.size()) != op->num_inputs)
    bad_operands(
        a, "custom-arity",
        fmt::format("\"{}\" takes {} operands, not {}", op->name, op->num_inputs, a.in.size()));
  const auto& attrs = a.get<CustomAttrs>();
  if (attrs.dtype) return {{*attrs.dtype, attrs.shape}};
  return op->infer(a.in, attrs.attrs);
}

Tensors eval_custom(const EvalArgs& e) {
  const auto op = custom_of(e.node.attrs);
  if (!op->compute) {
    Types types;
    for (const Tensor& t : e.in) types.push_back(t.type());
    return evaluate(decomposed(e.node, types), e.in);
  }
  Tensors out = op->compute(e.in, e.get<CustomAttrs>().attrs);
  bool fits = out.size() == e.node.out.size();
  for (size_t i = 0; fits && i < out.size(); ++i) fits = out[i].type() == e.node.out[i];
  user_check(fits, "custom-type", "custom: \"{}\" computed other types than it infers: [{}]",
             op->name, fmt::join(e.node.out, ", "));
  return out;
}

// A rule that is not stated follows from the decomposition: rules return {} to ask for it.
Values decompose_custom(Builder& b, const Node& n, Operands in) {
  const auto op = custom_of(n.attrs);
  if (!op->decompose)
    fail(ErrorKind::user, "custom-rule", "custom: \"{}\" has no decomposition", op->name);
  return op->decompose(b, n, in);
}

Values jvp_custom(Builder& b, const JvpArgs& a) {
  const auto op = custom_of(a.node.attrs);
  if (op->jvp) return op->jvp(b, a);
  if (!op->decompose) lacks(*op, "no-gradient", "jvp");
  return {};
}

Values vjp_custom(Builder& b, const VjpArgs& a) {
  const auto op = custom_of(a.node.attrs);
  if (op->vjp) return op->vjp(b, a);
  if (!op->decompose) lacks(*op, "no-gradient", "vjp");
  return {};
}

Values vmap_custom(Builder& b, const VmapArgs& a) {
  const auto op = custom_of(a.node.attrs);
  if (op->vmap) return op->vmap(b, a);
  if (!op->decompose) lacks(*op, "no-vmap", "vmap");
  return {};
}

}  // namespace

void register_custom_op(CustomOp op) {
  user_check(!op.name.empty(), "op-name", "a custom op needs a name");
  user_check(op.infer && (op.compute || op.decompose), "custom-rule",
             "custom op \"{}\" must state infer, and compute or decompose", op.name);
  Registry& r = registry();
  const std::unique_lock lock(r.mutex);
  auto& place = r.ops[op.name];
  if (place)
    fmt::print(stderr, "rlx: custom op \"{}\" is registered again; the new one replaces it\n",
               op.name);
  place = std::make_shared<const CustomOp>(std::move(op));
}

std::shared_ptr<const CustomOp> find_custom_op(std::string_view name) {
  Registry& r = registry();
  const std::shared_lock lock(r.mutex);
  const auto found = r.ops.find(name);
  return found == r.ops.end() ? nullptr : found->second;
}

std::vector<std::string> custom_op_names() {
  Registry& r = registry();
  const std::shared_lock lock(r.mutex);
  std::vector<std::string> out;
  for (const auto& [name, op] : r.ops) out.push_back(name);
  return out;
}

Values custom_op(Builder& b, std::string_view name, std::string attrs, Operands in) {
  return b.emit(op::custom.def, CustomAttrs{.name = std::string(name), .attrs = std::move(attrs)},
                in);
}

namespace op {
constinit const Op<CustomAttrs> custom = OpDef{
    .name = "custom",
    .doc =
        "A function that the program registered under a name (ops/custom.h); its types, values, "
        "derivatives "
        "and batching are what it states.",
    .reference = "Custom",
    .numerics = Numerics::exact,
    .arity = kVariadic,
    .operands = "xs..",
    .infer = infer_custom,
    .eval = eval_custom,
    .decompose = decompose_custom,
    .jvp = jvp_custom,
    .vjp = vjp_custom,
    .vmap = vmap_custom,
};
}  // namespace op

namespace {
constexpr const OpDef* kCustomOps[] = {&op::custom};
}  // namespace
constinit const Family kCustom{"custom", kCustomOps};

}  // namespace rlx
