// rlx quantise: weights and products of a float program in fewer bits.
#include "rlx/quantise/quantise.h"

#include <algorithm>
#include <filesystem>

#include "rlx/base/file.h"
#include "rlx/cli/cli.h"
#include "rlx/cli/input.h"
#include "rlx/cli/output.h"
#include "rlx/formats/checkpoint.h"
#include "rlx/formats/graph_file.h"

namespace rlx::cli {

namespace {

namespace fs = std::filesystem;

struct QuantiseArguments {
  std::string file, out, checkpoint, data, json, backend, method = "min_max";
  std::vector<std::string> params, inputs, layers, ops;
  bool per_tensor = false;
  QuantiseOptions options;
};

std::vector<fs::path> sorted(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const std::string& name : names_in(folder)) out.push_back(folder / name);
  std::sort(out.begin(), out.end());
  return out;
}

// The .npy files of a folder, by their names.
NamedTensors read_batch(const fs::path& folder) {
  NamedTensors out;
  for (const fs::path& p : sorted(folder))
    if (p.extension() == ".npy") out.emplace(p.stem().string(), read_tensor(p.string()));
  return out;
}

// A folder of .npy files is one batch, a folder of such folders a batch each.
std::vector<NamedTensors> read_batches(const std::string& folder) {
  std::error_code none;
  user_check(fs::is_directory(folder, none), "file-open", "--data: there is no folder {}", folder);
  std::vector<NamedTensors> out;
  if (NamedTensors here = read_batch(folder); !here.empty()) out.push_back(std::move(here));
  for (const fs::path& p : sorted(folder))
    if (fs::is_directory(p, none)) {
      out.push_back(read_batch(p));
      user_check(!out.back().empty(), "calibration-data", "--data: the folder {} has no .npy file",
                 p.string());
    }
  return out;
}

// Where the parameters go. What is read to make them stays, and nothing is written where the program cannot be.
std::string parameters_file(const QuantiseArguments& a) {
  user_check(a.out != "-", "standard-output",
             "-o -: the parameters go to a file beside the program, so it needs a name");
  std::string out = a.out + ".ckpt";
  std::error_code none;
  user_check(a.checkpoint.empty() || !fs::equivalent(a.checkpoint, out, none), "file-same",
             "-o {}: its parameters would replace {}, which --params reads; another name is needed",
             a.out, a.checkpoint);
  return out;
}

void quantise_file(QuantiseArguments& a) {
  const std::string out = parameters_file(a);
  const Graph g = read_program(a.file);
  NamedTensors params = a.checkpoint.empty() ? NamedTensors() : read_checkpoint(a.checkpoint);
  for (auto& [name, value] : read_tensors(a.params, "--param"))
    params.insert_or_assign(name, value);
  std::vector<NamedTensors> data;
  if (!a.data.empty()) data = read_batches(a.data);
  if (!a.inputs.empty()) data.push_back(read_tensors(a.inputs, "--input"));
  QuantiseOptions& o = a.options;
  o.calibration.activations.method = parse_calibration_method(a.method);
  o.calibration.per_channel = !a.per_tensor;
  o.calibration.device = device_of(a.backend);
  for (const auto& [name, format] : assignments(a.layers, "--layer"))
    o.layers.emplace_back(name, format);
  for (const auto& [name, format] : assignments(a.ops, "--op")) o.ops.emplace_back(name, format);
  const Quantised q = quantise(g, params, data, o);
  {  // raises while the old parameters are there
    const AtomicFile program(a.out);
    if (!a.json.empty() && a.json != "-") const AtomicFile table(a.json);
  }
  save_checkpoint(out, q.params);
  save_graph(a.out, q.graph);
  if (a.json == "-") return say("{}\n", q.report.to_json());
  if (!a.json.empty()) write_file(a.json, q.report.to_json() + "\n");
  say("{}", q.report.to_string());
}

}  // namespace

void add_quantise(Cli& cli) {
  auto a = std::make_shared<QuantiseArguments>();
  QuantiseOptions& o = a->options;
  CLI::App* c =
      cli.command("quantise", "Stores weights and computes products in fewer bits",
                  "rlx quantise model.rlx -o small.rlx --params model.ckpt --data batches "
                  "--method entropy --layer \"head*=float\"");
  c->add_option("FILE", a->file, "Graph, as text or bytes; - is standard input")->required();
  c->add_option("-o,--out", a->out,
                "File to write; its parameters go to FILE.ckpt beside it, a file of its own")
      ->required();
  c->add_option("--params", a->checkpoint, "Checkpoint with the parameters");
  c->add_option("--param", a->params, "NAME=FILE.npy, once per parameter");
  c->add_option("--data", a->data,
                "Folder of .npy files called after the inputs: one batch; of such folders: a batch "
                "each. int8 needs data, other formats measure errors with it");
  c->add_option("--input", a->inputs, "NAME=FILE.npy, once per input: one batch more");
  c->add_option("--format", o.format,
                "int8 (weights and activations, products of integers), or for weights alone q4_0, "
                "q8_0, q4k, int4/32 and all others of docs/quantisation.md; float")
      ->capture_default_str();
  c->add_option("--layer", a->layers, "NAME=FORMAT for one layer, or NAME*=FORMAT; once per layer");
  c->add_option("--op", a->ops, "matmul, conv or gather=FORMAT for all of that op");
  c->add_option("--method", a->method, "Ranges of activations: min_max, percentile, entropy or mse")
      ->capture_default_str();
  c->add_option("--percentile", o.calibration.activations.percentile,
                "How many of a hundred values stay in range, for percentile")
      ->capture_default_str();
  c->add_flag("--asymmetric", o.calibration.activations.asymmetric,
              "All codes of an activation between its lowest and its highest value");
  c->add_flag("--per-tensor", a->per_tensor,
              "One scale for a weight, in the place of one per output channel");
  c->add_option("--json", a->json,
                "File for the table as JSON; - is standard output, in the place of the table");
  c->add_option("--backend", a->backend, "Device (default: the best there is)")
      ->check(CLI::IsMember(device_names()));
  for (CLI::Option* many :
       c->get_options([](const CLI::Option* opt) { return opt->get_items_expected_max() > 1; }))
    many->allow_extra_args(false);
  c->callback([&cli, a] { cli.action = [a] { quantise_file(*a); }; });
}

}  // namespace rlx::cli
