#include "rlx/python/training_programs.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "rlx/opt/training.h"
#include "rlx/python/array.h"
#include "rlx/python/training.h"
#include "rlx/stages/inspect.h"
#include "rlx/train/schedule.h"

namespace rlx::python {

namespace {

using Arrays = std::map<std::string, Array>;

NamedTensors tensors_of(const Arrays& arrays) {
  NamedTensors out;
  for (const auto& [name, array] : arrays) out.emplace(name, tensor_of(array));
  return out;
}

nb::list listed(const Tensors& tensors) {
  nb::list out;
  for (const Tensor& t : tensors) out.append(wrap(t));
  return out;
}

nb::dict named(const NamedTensors& tensors) {
  nb::dict out;
  for (const auto& [name, t] : tensors) out[nb::cast(name)] = wrap(t);
  return out;
}

// What compile_training gave, and for which device.
struct Programs {
  opt::TrainingCompileResult result;
  std::string device;
};

// (kind, rate, options), clip_norm
using Step = std::pair<std::tuple<std::string, double, nb::dict>, double>;

Programs compile_for(const Graph& g, const std::vector<std::string>& wrt, const std::string& device,
                     const std::optional<Step>& step) {
  opt::TrainingOptions options;
  if (step) {
    const auto& [kind, rate, values] = step->first;
    options.step = TrainOptions{};
    options.step->optimizer = make_optimizer(kind, values, constant_rate(rate), true);
    options.step->clip_norm = step->second;
  }
  nb::gil_scoped_release unlocked;
  const opt::CompilePipeline pipeline(backend_for(device));
  return {opt::compile_training(pipeline, g, {wrt.begin(), wrt.end()}, options), device};
}

}  // namespace

void bind_training_programs(nb::module_& m) {
  nb::class_<opt::CompiledTraining>(m, "CompiledTraining")
      .def("set_params",
           [](opt::CompiledTraining& f, const Arrays& values) { f.set_params(tensors_of(values)); })
      .def("params", [](const opt::CompiledTraining& f) { return named(f.params()); })
      .def("forward",
           [](opt::CompiledTraining& f, const Arrays& inputs) {
             const NamedTensors given = tensors_of(inputs);
             Tensors out;
             {
               nb::gil_scoped_release unlocked;
               out = f.forward(given);
             }
             return listed(out);
           })
      .def("backward", [](opt::CompiledTraining& f, const Arrays& inputs) {
        const NamedTensors given = tensors_of(inputs);
        Tensors out;
        {
          nb::gil_scoped_release unlocked;
          out = f.backward(given);
        }
        return listed(out);
      });
  nb::class_<Programs>(m, "TrainingCompileResult")
      .def_prop_ro("forward", [](const Programs& p) { return inspect_lir(p.result.forward.lir); })
      .def_prop_ro("backward", [](const Programs& p) { return inspect_lir(p.result.backward.lir); })
      .def_prop_ro("joint", [](const Programs& p) { return p.result.joint; })
      .def_prop_ro("saved", [](const Programs& p) { return p.result.saved; })
      .def_prop_ro("state", [](const Programs& p) { return named(p.result.state); })
      .def_prop_ro("weights",
                   [](const Programs& p) {
                     nb::dict out;
                     for (const WeightSlot& s : p.result.weights.slots)
                       out[nb::cast(s.name)] = nb::make_tuple(s.offset, s.size);
                     return out;
                   })
      .def("program",
           [](const Programs& p) { return opt::CompiledTraining(p.result, Session(p.device)); });
  m.def("compile_training", compile_for, nb::arg("graph"), nb::arg("wrt"), nb::arg("device"),
        nb::arg("step").none());
}

}  // namespace rlx::python
