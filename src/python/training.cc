#include "rlx/python/training.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "rlx/formats/checkpoint.h"
#include "rlx/python/array.h"
#include "rlx/train/optimizer.h"

namespace rlx::python {

namespace {

// The fields of an options struct from a dict with a value for each.
struct OptionValues {
  const nb::dict& values;
  template <class T>
  void get(const char* name, T& field) const {
    field = nb::cast<T>(values[name]);
  }
};

// The rate as a further input of the program that asks for it.
TracedTensor rate_input(const TracedTensor& step) {
  return step.make(step.builder().input("rate", step.type()));
}

Schedule make_schedule(const std::string& kind, const nb::tuple& a) {
  auto number = [&](size_t i) { return nb::cast<double>(a[i]); };
  auto count = [&](size_t i) { return nb::cast<int64_t>(a[i]); };
  if (kind == "cosine") return cosine_rate(number(0), count(1), number(2));
  if (kind == "linear") return linear_rate(number(0), number(1), count(2));
  if (kind == "exponential")
    return exponential_rate(number(0), number(1), count(2), nb::cast<bool>(a[3]));
  if (kind == "piecewise")
    return piecewise_rate(number(0), nb::cast<std::vector<std::pair<int64_t, double>>>(a[1]));
  check(kind == "warmup_cosine", "there is no schedule {}", kind);
  return warmup_cosine(
      {.peak = number(0), .warmup = count(1), .total = count(2), .floor = number(3)});
}

Graph schedule_program(const std::string& kind, const nb::tuple& arguments,
                       const std::string& dtype) {
  const Schedule schedule = make_schedule(kind, arguments);
  Builder b(kind);
  b.output(schedule(TracedTensor(b, b.input("step", {*parse_dtype(dtype), {}}))).value());
  return b.finish();
}

// Gradients of these types -> their norm and the factor to clip by, of `dtype`.
Graph clip_program(const nb::sequence& gradients, double max_norm, const std::string& dtype) {
  Builder b("clip_by_global_norm");
  TracedTensors in;
  for (nb::handle h : gradients) {
    const Array* a = as_array(h);
    check(a != nullptr, "clip_program takes arrays");
    in.emplace_back(b, b.input(fmt::format("g{}", in.size()), a->type()));
  }
  const ClippedNorm c = clip_factor(in, max_norm, *parse_dtype(dtype));
  b.output(c.norm.value());
  b.output(c.factor.value());
  return b.finish();
}

// ---- checkpoints

void save_arrays(const std::filesystem::path& path, const nb::dict& arrays) {
  NamedTensors tensors;
  for (const auto& [name, value] : arrays) {
    const Array* a = as_array(value);
    check(a != nullptr, "save_checkpoint takes arrays");
    tensors.emplace(nb::cast<std::string>(name), tensor_of(*a));
  }
  nb::gil_scoped_release unlocked;
  save_checkpoint(path, tensors);
}

nb::dict load_arrays(const std::filesystem::path& path) {
  NamedTensors tensors;
  {
    nb::gil_scoped_release unlocked;
    tensors = load_checkpoint(path);
  }
  nb::dict out;
  for (const auto& [name, t] : tensors) out[nb::cast(name)] = wrap(t);
  return out;
}

}  // namespace

Optimizer make_optimizer(const std::string& kind, const nb::dict& values, Schedule rate,
                         bool decays) {
  const OptionValues given{values};
  const ParamFilter filter = [decays](const std::string&, const Type&) { return decays; };
  auto fill = [&](auto o) {
    o.rate = std::move(rate), o.decays = filter;
    given.get("weight_decay", o.weight_decay);
    return o;
  };
  if (kind == "sgd") {
    SgdOptions o = fill(SgdOptions{});
    given.get("momentum", o.momentum), given.get("nesterov", o.nesterov);
    return sgd(o);
  }
  auto betas = [&](auto o) {
    given.get("beta1", o.beta1), given.get("beta2", o.beta2);
    return o;
  };
  if (kind == "lion") return lion(betas(fill(LionOptions{})));
  auto with_eps = [&](auto o) {
    given.get("eps", o.eps);
    return o;
  };
  if (kind == "adam") return adam(with_eps(betas(fill(AdamOptions{}))));
  check(kind == "adamw", "there is no optimiser {}", kind);
  return adamw(with_eps(betas(fill(AdamWOptions{}))));
}

void bind_training(nb::module_& m) {
  // Which state a parameter has; raises what is wrong with the options.
  m.def("optimizer_slots", [](const std::string& kind, const nb::dict& options) {
    return make_optimizer(kind, options, rate_input, true).slots;
  });
  // step, rate -> scalars
  m.def("optimizer_prepare", [](const std::string& kind, const nb::dict& options,
                                const std::string& dtype) {
    return prepare_program(make_optimizer(kind, options, rate_input, true), *parse_dtype(dtype));
  });
  // parameter, gradient, state.., scalars.. -> next parameter, next state..
  m.def("optimizer_update",
        [](const std::string& kind, const nb::dict& options, const std::string& dtype,
           nb::handle shape, bool decays, size_t scalars) {
          return update_program(make_optimizer(kind, options, rate_input, decays), "",
                                {*parse_dtype(dtype), read_shape(shape)}, scalars);
        });
  m.def("schedule_program", schedule_program);
  m.def("clip_program", clip_program);
  m.def("save_checkpoint", save_arrays);
  m.def("load_checkpoint", load_arrays);
}

}  // namespace rlx::python
