#include "rlx/ops/region.h"

#include "rlx/ops/evaluate.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/reduce/reduce.h"
#include "rlx/ops/rules.h"

namespace rlx {

Shape RegionForm::row_shape(bool keepdims) const {
  Shape s(domain.begin(), domain.end() - static_cast<int64_t>(inner));
  if (keepdims) s.insert(s.end(), inner, Dim(1));
  return s;
}

bool RegionForm::is_row_value(const Shape& shape) const {
  return inner && (shape == row_shape(false) || shape == row_shape(true));
}

bool is_region_reduction(const OpDef& op) {
  return op.kind == Kind::reduction && op.attr_type == &kAttrType<ReduceAttrs>;
}

bool is_generated_leaf(const Node& n) {
  return n.op == &op::dim_size || (n.op == &op::iota && !is_complex(n.type().dtype));
}

Decision may_read(const RegionForm& form, const Node& reader, const Node& read) {
  const Shape &s = read.type().shape, &result = reader.type().shape;
  if (form.in_parts && is_region_reduction(read))
    return Decision::no("the producer is a reduction in parts, which ends its region");
  if (is_region_reduction(reader))
    return s == form.domain ? Decision::yes()
                            : Decision::no("it reduces another shape than the region's domain");
  if (reader.op == &op::reshape)
    return form.is_row_value(s) && form.is_row_value(result)
               ? Decision::yes()
               : Decision::no("a reshape inside a region may only add or drop the reduced axes");
  if (reader.op == &op::broadcast && !(form.is_row_value(s) && result == form.domain))
    return Decision::no("a broadcast inside a region must spread a value per row over the row");
  if (result == form.domain) {
    if (s == form.domain || s.empty() || (form.inner && s == form.row_shape(true)))
      return Decision::yes();
    return Decision::no("the value per row {} does not line up with the rows of {}", s,
                        form.domain);
  }
  if (!form.is_row_value(result))
    return Decision::no("the result {} is not of the region's domain {}", result, form.domain);
  return form.is_row_value(s) ? Decision::yes()
                              : Decision::no("a value per row cannot read a value per element");
}

namespace {

bool is_leaf(const Node& n) { return n.op->kind == Kind::leaf || is_generated_leaf(n); }

Decision axes_fit(const RegionAttrs& region) {
  const auto rank = static_cast<int64_t>(region.domain.size()),
             count = static_cast<int64_t>(region.axes.size());
  if (region.kind == RegionKind::elementwise ? count > 0
                                             : count == 0 && region.kind == RegionKind::row)
    return Decision::no("a region of kind {} has {} axes",
                        enum_names(region.kind)[static_cast<size_t>(region.kind)], count);
  for (int64_t k = 0; k < count; ++k) {
    const int64_t axis = region.axes[static_cast<size_t>(k)];
    const int64_t least = region.kind == RegionKind::row ? rank - count + k
                          : k == 0                       ? 0
                                   : region.axes[static_cast<size_t>(k) - 1] + 1;
    if (axis < least || axis >= rank || (region.kind == RegionKind::row && axis != least))
      return Decision::no(
          "the axes [{}] of {} are {}", fmt::join(region.axes, ", "), region.domain,
          region.kind == RegionKind::row ? "not its last ones" : "none of it, or do not ascend");
  }
  return Decision::yes();
}

// A leaf: what kernels read, or make where they need it.
Decision leaf_fits(const Node& n) {
  if (n.op == &op::constant && n.get<ConstantAttrs>().value.elements() != 1)
    return Decision::no("a constant of a region is one number, and one is {}", n.type());
  if (n.op != &op::input && n.op != &op::constant && !is_generated_leaf(n))
    return Decision::no("a region holds no {}", n.op->name);
  return Decision::yes();
}

Decision member_fits(const RegionAttrs& region, const RegionForm& form, const Node& n) {
  const Graph& body = *region.body;
  const Shape& s = n.type().shape;
  const bool moves = n.op == &op::reshape || n.op == &op::broadcast;
  if (is_region_reduction(n)) {
    if (n.op == &op::reduce_mean || n.get<ReduceAttrs>().axes != region.axes ||
        !(body.type(n.in[0]).shape == form.domain))
      return Decision::no("{} of {} in a region over {} that reduces the axes [{}]", n.op->name,
                          body.type(n.in[0]), form.domain, fmt::join(region.axes, ", "));
  } else if (!moves && !n.op->scalar) {
    return Decision::no("{} has no scalar form", n.op->name);
  } else if (!(s == form.domain) && !form.is_row_value(s)) {
    return Decision::no("{} of {} in a region over {}", n.op->name, s, form.domain);
  }
  for (Value v : n.in) {
    const Node& read = body.node(v);
    if (is_leaf(read)) {  // elementwise operands align at the right, whatever their shape is
      if (moves) return Decision::no("{} reads what the region does not compute", n.op->name);
    } else if (Decision fits = may_read(form, n, read); !fits) {
      return Decision::no("{} reads {}: {}", n.op->name, read.op->name, fits.why());
    }
  }
  return Decision::yes();
}

}  // namespace

Decision region_fits(const RegionAttrs& region) {
  const Graph& body = *region.body;
  if (Decision fits = axes_fit(region); !fits) return fits;
  const bool rows = region.kind == RegionKind::row;
  const RegionForm form{region.domain, rows ? region.axes.size() : 0, !rows};
  for (const Node& n : body.nodes) {
    if (n.out.size() != 1 || is_complex(n.type().dtype))
      return Decision::no("{} is no value that kernels are generated for", n.op->name);
    if (Decision fits = is_leaf(n) ? leaf_fits(n) : member_fits(region, form, n); !fits)
      return fits;
  }
  for (Value v : body.outputs) {
    const Node& n = body.node(v);
    const Shape& s = n.type().shape;
    if (!is_region_reduction(n) && !(s == form.domain) && (is_leaf(n) || !form.is_row_value(s)))
      return Decision::no("the result {} of {} is no value of a region over {}", n.op->name, s,
                          form.domain);
  }
  if (!body.updates.empty()) return Decision::no("a region updates no parameters");
  return Decision::yes();
}

void require_regions(const Graph& g) {
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    if (n.op == &op::region) {
      const Decision fits = region_fits(n.get<RegionAttrs>());
      user_check(static_cast<bool>(fits), "region-form",
                 "%{} of \"{}\" is no region that a kernel is made of: {}", i, g.name, fits.why());
    } else {
      for (const NamedBody& body : bodies(n.attrs)) require_regions(body.graph);
    }
  }
}

namespace op {

constinit const Op<RegionAttrs> region = OpDef{
    .name = "region",
    .doc = "Runs its body as one kernel. Made by fusion.",
    .reference = "ElementwiseRegion",
    .arity = kVariadic,
    .operands = "xs..",
    .variadic_results = true,
    .infer = [](const InferArgs& a) -> Types {
      const Graph& body = *a.get<RegionAttrs>().body;
      const auto inputs = body.inputs();
      if (inputs.size() != a.in.size())
        bad_operands(a, "body-arity", fmt::format("the body takes {} operands", inputs.size()));
      for (size_t i = 0; i < inputs.size(); ++i)
        if (!(body.type(inputs[i]) == a.in[i]))
          bad_operands(a, "body-type",
                       fmt::format("the body's input {} is {}", i, body.type(inputs[i])));
      if (body.outputs.empty()) bad_operands(a, "body-results", "the body has no results");
      return body.output_types();
    },
    .eval = [](const EvalArgs& e) -> Tensors {
      return e.evaluate(*e.get<RegionAttrs>().body, e.in);
    },
    .decompose = [](Builder& b, const Node& n, Operands in) -> Values {
      return b.inline_graph(*n.get<RegionAttrs>().body, in);
    },
    .cost = [](const Node& n,
               std::span<const Type>) { return evaluation_cost(*n.get<RegionAttrs>().body); },
};

}  // namespace op

namespace {
constexpr const OpDef* kRegionsOps[] = {&op::region};
}
constinit const Family kRegions{"regions", kRegionsOps};

}  // namespace rlx
