// rlx run: a graph file on inputs from .npy files.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "rlx/base/clock.h"
#include "rlx/base/file.h"
#include "rlx/base/printable.h"
#include "rlx/base/suggest.h"
#include "rlx/cli/cli.h"
#include "rlx/cli/input.h"
#include "rlx/cli/interrupt.h"
#include "rlx/cli/output.h"
#include "rlx/explain/trace.h"
#include "rlx/formats/checkpoint.h"
#include "rlx/formats/npy.h"
#include "rlx/runtime/sizes.h"

namespace rlx::cli {

namespace {

namespace fs = std::filesystem;

struct RunArguments {
  std::string file, out, backend, dump_dir, trace, checkpoint, precision = "f32";
  std::vector<std::string> inputs, params, dims, hints;
  bool explain = false, check_nan = false, fast_math = false;
  int64_t memory_budget = 0;
};

// What is given must be there, and of the declared rank: else the sizes that are missing would be blamed.
void check_given(const Graph& g, const Values& leaves, const NamedTensors& given,
                 std::string_view what) {
  std::vector<std::string_view> names;
  for (Value v : leaves) names.push_back(g.node(v).get<LeafAttrs>().name);
  for (const auto& [name, tensor] : given) {
    const auto at = std::ranges::find(names, name);
    if (at == names.end())
      fail(ErrorKind::user, fmt::format("{}-unknown", what),
           "there is no {0} {1}{2}; the {0}s are {3}", what, name, did_you_mean(name, names),
           names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
    const Type& declared = g.type(leaves[static_cast<size_t>(at - names.begin())]);
    user_check(declared.rank() == tensor.rank() && declared.dtype == tensor.dtype(),
               fmt::format("{}-type", what), "{} {} is {}, given is {}", what, name, declared,
               tensor.type());
  }
}

// Sizes that follow from no tensor must be said.
void check_sizes(const Graph& g, const NamedTensors& inputs, const NamedTensors& params,
                 const DimBinding& dims) {
  std::vector<SizedLeaf> leaves;
  for (const auto& [given, what] : {std::pair(&inputs, "input"), {&params, "param"}})
    for (const auto& [name, tensor] : *given)
      leaves.push_back({fmt::format("{} \"{}\"", what, name), &g.type(g.find_leaf(name)).shape,
                        &tensor.sizes()});
  require_dims(g, infer_sizes(leaves, dims));
}

// Names of parameters come from the file: only harmless characters reach the file system.
std::string file_name(const std::string& name) {
  std::string out;
  for (char c : name)
    out += std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' ||
                   (c == '.' && !out.empty())
               ? c
               : '_';
  return out;
}

// NaN has no sign that means anything.
double shown_number(double v) { return std::isnan(v) ? std::fabs(v) : v; }

std::string summary(const Tensor& t) {
  std::vector<std::string> values;
  const int64_t shown = std::min<int64_t>(t.elements(), 8);
  for (int64_t i = 0; i < shown; ++i) {
    const Complex v = t.get_complex(i);
    const double real = shown_number(v.real()), imag = shown_number(v.imag());
    values.push_back(is_complex(t.dtype()) ? fmt::format("{}{:+}i", real, imag)
                                           : fmt::format("{:g}", real));
  }
  return fmt::format("{} {}{}", t.type(), fmt::join(values, " "),
                     shown < t.elements() ? " ..." : "");
}

void explain(const CompiledGraph& f) {
  const CompileInfo& i = f.info();
  std::string sizes;
  for (const auto& [name, size] : f.sizes()) sizes += fmt::format(" {}={}", name, size);
  if (!sizes.empty())
    say("sizes:{}; {}\n", sizes,
        i.per_size.empty() ? "one compilation for all" : "compiled for these alone: " + i.per_size);
  say("compiled {} nodes in {:.3f} s: {} kernels ({} before fusion), {} generated, {} of them "
      "earlier\n",
      i.nodes, i.seconds, i.kernels, i.kernels_before_fusion, i.generated, i.cached);
  say("memory: {} bytes planned ({} without reuse), {} of parameters\n\n", i.planned_bytes,
      i.unshared_bytes, i.param_bytes);
  say("{}\n{}\n{}\n", i.recognition_report, i.fusion_report, i.plan());
  for (const StepTime& t : f.times())
    say("{:10.1f} us {:8.1f} GF/s  {:<28} {}\n", t.seconds * 1e6,
        t.seconds > 0 ? t.flops / t.seconds * 1e-9 : 0, t.kernel, t.label);
}

// Everything is computed before the first file is written.
void write_results(const RunArguments& o, const CompiledGraph& f,
                   const std::vector<Tensor>& outputs) {
  std::map<std::string, Tensor> files;
  for (size_t i = 0; i < outputs.size(); ++i)
    files.emplace(fmt::format("output_{}.npy", i), outputs[i]);
  for (const Update& u : f.signature().updates) {
    const std::string name = fmt::format("param_{}.npy", file_name(u.param));
    user_check(files.emplace(name, f.param(u.param)).second, "file-name",
               "two parameters would be written to {}", name);
  }
  make_folder(o.out);
  for (const auto& [name, tensor] : files) {
    check_interrupt();
    write_npy(fs::path(o.out) / name, tensor);
    say("{} {}\n", (fs::path(o.out) / name).string(), tensor.type());
  }
}

// What happened when, one phase after the other.
class Phases {
 public:
  Phases() : start_(Clock::now()), last_(start_) {}
  void end(std::string_view name) {
    const double begin = std::chrono::duration<double>(last_ - start_).count();
    last_ = Clock::now();
    const double end = std::chrono::duration<double>(last_ - start_).count();
    spans_.push_back({std::string(name), "", begin, end - begin, 0, 0});
  }
  void write(const std::string& file, const RunTrace& run) const {
    const std::string text = chrome_trace(run, spans_, start_);
    if (is_standard_output(file)) return say("{}\n", text);
    write_file(file, text);
  }

 private:
  Clock::time_point start_, last_;
  std::vector<RunSpan> spans_;
};

void run_file(const RunArguments& o, const Globals& globals) {
  Phases phases;
  RunTrace trace;
  const Graph g = read_program(o.file);
  const NamedTensors inputs = read_tensors(o.inputs, "--input");
  NamedTensors params = read_tensors(o.params, "--param");
  if (!o.checkpoint.empty()) params.merge(read_checkpoint(o.checkpoint));
  CompileOptions options{.threads = globals.threads,
                         .dims = read_dims(o.dims),
                         .hints = read_hints(o.hints),
                         .fast_math = o.fast_math,
                         .precision = PrecisionPolicy::parse(o.precision),
                         .memory_budget = o.memory_budget,
                         .dump_dir = o.dump_dir};
  check_given(g, g.inputs(), inputs, "input");
  check_given(g, g.params(), params, "param");
  check_sizes(g, inputs, params, options.dims);
  phases.end("read");
  CompiledGraph f = Session(device_of(o.backend)).compile(g, options);
  phases.end("compile");
  f.set_params(params);
  phases.end("set parameters");
  const std::vector<Tensor> outputs = f.run(inputs, {.cancel = &cancel_flag(),
                                                     .check_nan = o.check_nan,
                                                     .profile = o.explain,
                                                     .trace = o.trace.empty() ? nullptr : &trace});
  phases.end("run");
  if (!o.trace.empty()) phases.write(o.trace, trace);
  if (o.explain) explain(f);
  if (!is_standard_output(o.out)) return write_results(o, f, outputs);
  for (size_t i = 0; i < outputs.size(); ++i) say("output {}: {}\n", i, summary(outputs[i]));
  for (const Update& u : f.signature().updates)
    say("param {}: {}\n", printable(u.param), summary(f.param(u.param)));
}

}  // namespace

void add_run(Cli& cli) {
  auto o = std::make_shared<RunArguments>();
  CLI::App* c =
      cli.command("run", "Runs a graph",
                  "rlx run model.rlx --input x=x.npy --param w=w.npy --out results --explain");
  c->add_option("FILE", o->file, "Graph, as text or bytes; - is standard input")->required();
  c->add_option("--input", o->inputs, "NAME=FILE.npy, once per input; - is standard input");
  c->add_option("--param", o->params, "NAME=FILE.npy, once per parameter");
  c->add_option("--params", o->checkpoint, "Checkpoint with parameters; --param goes first");
  c->add_option("--dim", o->dims,
                "NAME=SIZE of a symbolic dim, once per dim; those of given tensors are known");
  c->add_option("--hint", o->hints, kHintHelp);
  c->add_option("--out", o->out,
                "Folder for output_<i>.npy and param_<name>.npy of updated parameters; without it, "
                "or for -, a "
                "summary");
  c->add_option("--backend", o->backend, "Device (default: the best there is)")
      ->check(CLI::IsMember(device_names()));
  c->add_flag("--explain", o->explain, "What fused, where buffers lie, how long each kernel took");
  c->add_option("--trace", o->trace,
                "File for what ran when, as Chrome's trace format: ui.perfetto.dev shows it");
  c->add_flag("--check-nan", o->check_nan,
              "Fail at the first kernel that makes a NaN, and name it");
  c->add_flag("--fast-math", o->fast_math, "Allow algebra that changes values");
  c->add_option("--precision", o->precision, kPrecisionHelp)->capture_default_str();
  add_memory_budget(*c, o->memory_budget);
  c->add_option("--dump", o->dump_dir, "Folder for the IR after each pass and the kernels");
  for (CLI::Option* many :
       c->get_options([](const CLI::Option* opt) { return opt->get_items_expected_max() > 1; }))
    many->allow_extra_args(false);  // --input a=.. --input b=..
  c->callback([&cli, o] { cli.action = [&cli, o] { run_file(*o, cli.globals); }; });
}

}  // namespace rlx::cli
