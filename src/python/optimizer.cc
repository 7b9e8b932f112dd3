#include "rlx/python/optimizer.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "rlx/opt/autodiff.h"
#include "rlx/opt/dispatch.h"
#include "rlx/opt/fusion_report.h"
#include "rlx/python/array.h"
#include "rlx/python/dims.h"
#include "rlx/python/training_programs.h"

namespace rlx::python {

namespace {

using Words = std::vector<std::string>;

opt::Wrts by_name(const Words& names) { return {names.begin(), names.end()}; }

template <class Enum>
Enum parse_enum(std::string_view what, const std::string& text) {
  const auto names = enum_names(Enum{});
  const auto at = std::find(names.begin(), names.end(), text);
  user_check(at != names.end(), "enum", "{} is {}, not {}", what, fmt::join(names, ", "),
             quote(text));
  return static_cast<Enum>(at - names.begin());
}

opt::KernelDispatchConfig config_of(const std::string& policy, const Words& common,
                                    const Words& native) {
  return {parse_enum<opt::KernelDispatchPolicy>("policy", policy), common, native};
}

nb::list offenders_of(const opt::LegalizeResult& errors) {
  nb::list out;
  for (const opt::Offender& o : errors) out.append(nb::make_tuple(o.where, o.kind));
  return out;
}

nb::tuple reported(const opt::KernelDispatchReport& r) {
  return nb::make_tuple(r.to_json(), opt::format_dispatch_report(r));
}

Words names_of(const opt::Passes& passes) {
  Words out;
  for (const opt::PassPtr& p : passes) out.emplace_back(p->name());
  return out;
}

}  // namespace

void bind_optimizer(nb::module_& top) {
  nb::module_ m = top.def_submodule("opt");
  // By class: (name, text for parse_pipeline, doc).
  m.def("named_passes", [] {
    nb::dict out;
    for (const opt::NamedPass& p : opt::named_passes())
      out[nb::cast(std::string(p.cls))] =
          nb::make_tuple(std::string(p.pass->name()), p.pass->text(), std::string(p.pass->doc()));
    return out;
  });
  bind_training_programs(m);
  m.def("run_passes", [](const Graph& g, const std::string& passes, bool fast_math) {
    return run_passes(g, parse_pipeline(passes), {.fast_math = fast_math});
  });
  m.def("cse", [](const Graph& g) { return opt::cse(g); });
  m.def("inline_if", [](const Graph& g) { return inline_if(g); });
  m.def("unroll_while", [](const Graph& g) { return unroll_while(g); });
  m.def("unfuse", [](const Graph& g) { return opt::unfuse_fused_for_autodiff(g); });
  m.def("promote",
        [](const Graph& g, const Words& names) { return opt::promote_params_to_inputs(g, names); });
  m.def("specialize", [](const Graph& g, const std::map<std::string, Array>& values) {
    std::map<std::string, Tensor> tensors;
    for (const auto& [name, array] : values) tensors.emplace(name, tensor_of(array));
    return opt::specialize_params(g, tensors);
  });
  m.def("grad_with_loss", [](const Graph& g, const Words& wrt, bool zero_missing) {
    return opt::grad_with_loss_opts(g, by_name(wrt), {zero_missing});
  });
  m.def("grad", [](const Graph& g, const Words& wrt) { return opt::grad(g, by_name(wrt)); });
  m.def("grad_subgraph",
        [](const Graph& g, const Words& wrt) { return opt::grad_subgraph(g, by_name(wrt)); });
  m.def("nth_order_grad", [](const Graph& g, const std::string& wrt, int order, bool fuse) {
    return opt::nth_order_grad_with_options(g, wrt, order, {fuse});
  });
  m.def("directional_nth_grad",
        [](const Graph& g, const std::string& wrt, const Words& directions) {
          return opt::directional_nth_grad(g, wrt, directions);
        });
  m.def("prepare_graph_for_ad", [](const Graph& g) { return opt::prepare_graph_for_ad(g); });
  m.def("convert_scans_for_ad", [](const Graph& g) { return opt::convert_scans_for_ad(g); });
  m.def("inline_custom_fn", [](const Graph& g) { return opt::inline_custom_fn_for_autodiff(g); });
  m.def("prepare_grad_graph_for_jvp",
        [](const Graph& g) { return opt::prepare_grad_graph_for_jvp(g); });
  m.def("decompose_backward",
        [](const Graph& g, size_t index) { return opt::decompose_backward_for_ad(g, index); });
  m.def("fusion_report", [](const Graph& before, const Graph& after) {
    const auto r = opt::fusion_report::FusionReport::analyze(before, after);
    return nb::make_tuple(r.to_json(), r.to_string());
  });
  m.def("supported_for_target", [](const std::string& target) {
    return opt::supported_for_target(parse_enum<opt::FusionTarget>("target", target));
  });
  m.def("supports_op", [](const Words& claim, const std::string& op) {
    return opt::supports_op(claim, std::string_view(op));
  });
  m.def("fusion_passes", [](const std::optional<std::string>& target, const Words& claim, bool skip,
                            bool unfuse) {
    const opt::FusionOptions options{skip, unfuse, {}};
    if (!target) return names_of(opt::fusion_passes_for_supported(claim, options));
    return names_of(opt::fusion_passes(parse_enum<opt::FusionTarget>("target", *target), options));
  });
  m.def("legalize", [](const Graph& g, const Words& claim) {
    return offenders_of(opt::legalize_for_backend(g, claim));
  });
  m.def("rewrite", [](const Graph& g, const Words& claim, const std::string& policy,
                      const Words& common, const Words& native) {
    return opt::rewrite_for_backend_with_config(g, claim, config_of(policy, common, native));
  });
  m.def("analyze_dispatch", [](const Graph& g, const std::string& backend, const Words& claim,
                               const std::string& policy, const Words& common,
                               const Words& native) {
    return reported(opt::analyze_dispatch(g, backend, claim, config_of(policy, common, native)));
  });
  m.def("prepare_for_backend", [](const Graph& g, const std::string& backend, const Words& claim,
                                  const std::string& policy, const Words& common,
                                  const Words& native) {
    auto [graph, report] = opt::prepare_graph_for_backend_with_report(
        g, backend, claim, config_of(policy, common, native));
    return nb::make_tuple(std::move(graph), report.to_json(), opt::format_dispatch_report(report));
  });
}

}  // namespace rlx::python
