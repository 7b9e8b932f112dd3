#include "rlx/ops/region.h"

#include "rlx/ops/evaluate.h"
#include "rlx/ops/rules.h"

namespace rlx {
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
