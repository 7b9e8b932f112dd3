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

void verify_region(const RegionAttrs& region) {
  const Graph& body = *region.body;
  const bool rows = region.kind == RegionKind::row;
  const RegionForm form{region.domain, rows ? region.axes.size() : 0, !rows};
  const auto is_member = [](const Node& n) {
    return n.op->kind != Kind::leaf && !is_generated_leaf(n);
  };
  for (const Node& n : body.nodes) {
    if (!is_member(n)) continue;
    const Shape& s = n.type().shape;
    check(is_region_reduction(n)
              ? region.kind != RegionKind::elementwise && n.get<ReduceAttrs>().axes == region.axes
              : s == form.domain || form.is_row_value(s),
          "region: {} of {} in a region over {}", n.op->name, s, form.domain);
    for (Value v : n.in) {
      if (!is_member(body.node(v))) continue;
      const Decision fits = may_read(form, n, body.node(v));
      check(static_cast<bool>(fits), "region: {} reads {}: {}", n.op->name, body.node(v).op->name,
            fits.why());
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
