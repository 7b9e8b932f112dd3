// rlx bench train-step: our side of the training-step benchmark; bench/train_step/MODEL.md defines
// model, files and protocol.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "rlx/base/clock.h"
#include "rlx/cli/cli.h"
#include "rlx/cli/interrupt.h"
#include "rlx/cli/output.h"
#include "rlx/cli/process_memory.h"
#include "rlx/formats/npy.h"
#include "rlx/models/gpt.h"
#include "rlx/version.h"

namespace rlx::cli {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kLossSteps = 20;

struct StepArguments {
  std::string dir;
  bool json_lines = false, profile = false;
  std::string dump_dir;
};

struct Batch {
  Tensor x, y;
};
struct Model {
  GptConfig config;
  NamedTensors weights;
  std::vector<Batch> batches;
};

Model load_model(const fs::path& dir) {
  Model m;
  json config;
  try {
    config = json::parse(read_file(dir / "config.json"));
    auto read = [&](const char* name, int64_t& to) { to = config.at(name).get<int64_t>(); };
    read("vocab", m.config.vocab), read("width", m.config.width), read("layers", m.config.layers);
    read("heads", m.config.heads), read("block", m.config.block), read("batch", m.config.batch);
    read("steps", m.config.steps);
    for (int64_t i = 0, n = config.at("batches").get<int64_t>(); i < n; ++i)
      m.batches.push_back(
          {read_npy(dir / fmt::format("x_{}.npy", i)), read_npy(dir / fmt::format("y_{}.npy", i))});
  } catch (const json::exception& e) {
    fail(ErrorKind::data, "bench-config", "{}: {}", (dir / "config.json").string(), e.what());
  }
  data_check(!m.batches.empty(), "bench-config", "{}: no batches", dir.string());
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() == ".npy" && !name.starts_with("x_") && !name.starts_with("y_"))
      m.weights[name] = read_npy(entry.path());
  }
  return m;
}

// The compiled step with the folder's weights; everything else (the optimiser's state) starts at
// zero.
class Step {
 public:
  Step(const Model& m, const StepArguments& options, int threads)
      : model_(m),
        step_(Session(default_device())
                  .compile(gpt_train_step(m.config),
                           {.threads = threads, .dump_dir = options.dump_dir})) {
    const Graph& g = step_.signature();
    NamedTensors state = m.weights;
    for (Value v : g.params()) {
      const Type& t = g.type(v);
      const std::string& name = g.node(v).get<LeafAttrs>().name;
      if (!state.contains(name)) state.emplace(name, Tensor(t.dtype, t.shape.sizes()));
    }
    step_.set_params(state);
    x_ = step_.input_index("x"), y_ = step_.input_index("y");
    for (const Batch& b : m.batches)
      for (const Tensor* t : {&b.x, &b.y})
        data_check(t->type() == g.type(g.inputs()[x_]), "bench-config",
                   "a batch is {}, the step wants {}", t->type(), g.type(g.inputs()[x_]));
  }

  float run(int64_t i, const RunOptions& options = {}) {
    const Batch& b = model_.batches[static_cast<size_t>(i) % model_.batches.size()];
    step_.bind_input(x_, b.x.raw());
    step_.bind_input(y_, b.y.raw());
    step_.run(options);
    return *static_cast<const float*>(step_.output(0));
  }
  const CompiledGraph& compiled() const { return step_; }

 private:
  const Model& model_;
  CompiledGraph step_;
  size_t x_ = 0, y_ = 0;
};

void emit(const json& line) {
  say("{}\n", line.dump());
  flush_output();
}

std::vector<double> timed_steps(Step& step, int64_t first, int64_t count) {
  std::vector<double> seconds;
  for (int64_t i = first; i < first + count; ++i) {
    const auto start = Clock::now();
    step.run(i);
    seconds.push_back(seconds_since(start));
  }
  return seconds;
}

void serve(const StepArguments& options, int threads) {
  end_on_interrupt();
  reset_peak_memory();
  const int64_t baseline = resident_bytes();
  emit({{"event", "ready"},
        {"name", "RLX"},
        {"versions", {{"rlx", RLX_VERSION}}},
        {"rss_bytes", baseline}});
  const Model model = load_model(options.dir);

  const auto start = Clock::now();
  Step step(model, options, threads);
  std::vector<float> losses{step.run(0)};
  const CompileInfo& info = step.compiled().info();
  emit({{"event", "compiled"},
        {"seconds", seconds_since(start)},
        {"codegen_seconds", info.codegen_seconds},
        {"kernels", info.kernels},
        {"kernels_before_fusion", info.kernels_before_fusion},
        {"flops", info.flops}});
  while (losses.size() < kLossSteps)
    losses.push_back(step.run(static_cast<int64_t>(losses.size())));
  emit({{"event", "losses"}, {"losses", losses}});

  int64_t done = kLossSteps;
  const int64_t peak = peak_resident_bytes();
  const bool steady = reset_peak_memory();
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string word;
    int64_t count = 0;
    if (!(words >> word)) continue;
    if (word == "quit") break;
    user_check(word == "run" && words >> count && count >= 0, "bench-command",
               "unknown command \"{}\"; expected 'run N' or 'quit'", line);
    emit({{"event", "times"}, {"seconds", timed_steps(step, done, count)}});
    done += count;
  }
  const int64_t last = peak_resident_bytes();
  json memory{{"event", "memory"},
              {"peak_rss_above_baseline_bytes", std::max(peak, last) - baseline}};
  if (steady) memory["steady_peak_rss_above_baseline_bytes"] = last - baseline;
  emit(memory);
}

// For a person: the step's time and, on request, where it goes.
void summarise(const StepArguments& options, int threads) {
  const Model model = load_model(options.dir);
  const auto start = Clock::now();
  Step step(model, options, threads);
  const float first = step.run(0);
  const double compile = seconds_since(start);
  timed_steps(step, 1, 5);
  std::vector<double> seconds = timed_steps(step, 6, 30);
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const CompileInfo& info = step.compiled().info();
  say("first step {:.2f} s (compile {:.2f}, of it code {:.2f}); loss {:.4f}; {} kernels, {} before "
      "fusion\n",
      compile, info.seconds, info.codegen_seconds, first, info.kernels, info.kernels_before_fusion);
  say("step {:.1f} ms (median of {}; min {:.1f}), {:.0f} GF/s on {} threads\n", median * 1e3,
      seconds.size(), seconds[0] * 1e3, info.flops / median * 1e-9, threads);
  if (!options.profile) return;
  step.run(36, {.profile = true});
  std::vector<StepTime> times = step.compiled().times();
  std::sort(times.begin(), times.end(),
            [](const StepTime& a, const StepTime& b) { return a.seconds > b.seconds; });
  for (const StepTime& t : times)
    say("{:8.1f} us {:7.1f} GF/s  {:<28} {}\n", t.seconds * 1e6, t.flops / t.seconds * 1e-9,
        t.kernel, t.label);
}

}  // namespace

void add_bench_train_step(Cli& cli, CLI::App* bench) {
  auto options = std::make_shared<StepArguments>();
  CLI::App* c = cli.command(
      "train-step", "The training step of the character GPT (bench/train_step/MODEL.md)",
      "python bench/train_step/gen_weights.py --out w && rlx bench train-step --dir w --profile",
      bench);
  c->add_option("--dir", options->dir, "Folder made by bench/train_step/gen_weights.py")
      ->required();
  c->add_flag("--json", options->json_lines, "Speak the benchmark's protocol on stdin and stdout");
  c->add_flag("--profile", options->profile, "List the kernels by time");
  c->add_option("--dump", options->dump_dir, "Folder for the IR after each pass and the kernels");
  c->callback([&cli, options] {
    cli.action = [&cli, options] {
      const int threads = thread_count(cli.globals);
      options->json_lines ? serve(*options, threads) : summarise(*options, threads);
    };
  });
}

}  // namespace rlx::cli
