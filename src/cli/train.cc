// rlx train: a character-level GPT on a text, with a report at the end.
#include <algorithm>
#include <cmath>
#include <optional>

#include "rlx/base/clock.h"
#include "rlx/base/file.h"
#include "rlx/cli/cli.h"
#include "rlx/cli/input.h"
#include "rlx/cli/interrupt.h"
#include "rlx/cli/output.h"
#include "rlx/cli/process_memory.h"
#include "rlx/cli/progress.h"
#include "rlx/formats/checkpoint.h"
#include "rlx/formats/plot.h"
#include "rlx/models/trainer.h"
#include "rlx/models/trigram.h"

namespace rlx::cli {

namespace {

namespace fs = std::filesystem;

constexpr double kLongStep = 0.4;  // seconds; longer steps are interrupted inside
constexpr int64_t kValidationBatches = 8;
constexpr double kLeastScale = LossScaleOptions().least;
constexpr size_t kSmoothing = 10;  // steps before and after
constexpr const char *kCheckpoint = "train.ckpt", *kPlot = "loss.svg";

struct TrainArguments {
  std::string text, out, resume, precision = "f32";
  bool demo = false;
  GptConfig model;
  int64_t stop_at = 0, validate_every = 0, save_every = 500, sample = 400;
  int64_t memory_budget = 0;
  double temperature = 0.8;
};

// Thousands apart.
std::string grouped(double v) {
  std::string s = fmt::format("{:.0f}", v);
  for (auto at = static_cast<std::ptrdiff_t>(s.size()) - 3; at > (s[0] == '-' ? 1 : 0); at -= 3)
    s.insert(static_cast<size_t>(at), ",");
  return s;
}

std::string mebibytes(int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

// Of those that are finite: a skipped step may have no loss.
double mean_of_last(const std::vector<float>& v, size_t n) {
  double sum = 0;
  int64_t count = 0;
  for (size_t i = v.size() - std::min(n, v.size()); i < v.size(); ++i)
    if (std::isfinite(v[i])) sum += v[i], ++count;
  return count ? sum / static_cast<double>(count) : 0;
}

// Where the results go. Asked for before any work is done.
void require_folder(const fs::path& out) {
  make_folder(out);
  for (const char* name : {kCheckpoint, kPlot}) require_writable(out / name);
}

// Refuses a model that cannot fit before memory is filled with it. A lower bound: the parameters with both
// moments of the optimiser, the batch, and what programs of this model take per layer while they are
// compiled (measured: 800 KiB, whatever the sizes).
void require_memory(const GptConfig& c) {
  constexpr double kProgramBytesPerLayer = 768 << 10, kBytesPerParam = 3 * sizeof(float);
  const auto width = static_cast<double>(c.width), layers = static_cast<double>(c.layers),
             vocab = static_cast<double>(c.vocab), block = static_cast<double>(c.block);
  const double params = width * (2 * vocab + block) + layers * 12 * width * width;
  const double tokens = static_cast<double>(c.batch) * block * 2 * sizeof(int32_t);
  const double needed = layers * kProgramBytesPerLayer + params * kBytesPerParam + tokens;
  const auto limit = static_cast<double>(memory_limit());
  if (needed > limit)
    fail(
        ErrorKind::resource, "out-of-memory",
        "a model of {} layers of width {} needs at least {:.0f} MiB to train, and there are {:.0f} "
        "MiB",
        c.layers, c.width, needed / (1 << 20), limit / (1 << 20));
}

class TrainCommand {
 public:
  TrainCommand(const TrainArguments& o, const Globals& globals)
      : o_(o),
        threads_(thread_count(globals)),
        seed_(globals.seed),
        corpus_(make_corpus(o.demo ? demo_text() : read_input(o.text), o.model.block)) {
    o_.model.vocab = corpus_.vocab();
    o_.model.warmup = std::min<int64_t>(100, o_.model.steps / 10);
    if (o_.validate_every <= 0) o_.validate_every = std::max<int64_t>(o_.model.steps / 10, 1);
    if (o_.stop_at <= 0 || o_.stop_at > o_.model.steps) o_.stop_at = o_.model.steps;
  }

  void run() {
    baseline_bytes_ = resident_bytes();
    // What cannot be read is found before any work is done.
    std::optional<NamedTensors> from;
    if (!o_.resume.empty()) from = read_checkpoint(o_.resume);
    require_memory(o_.model);
    const auto start = Clock::now();
    Trainer trainer(corpus_, o_.model,
                    {.seed = seed_,
                     .threads = threads_,
                     .memory_budget = o_.memory_budget,
                     .poll = check_interrupt});
    compile_seconds_ = seconds_since(start);
    if (from) trainer.load(*std::exchange(from, std::nullopt), o_.resume);
    note("{} training and {} validation characters, {} different; compiled in {:.2f} s\n",
         grouped(static_cast<double>(corpus_.train.size())),
         grouped(static_cast<double>(corpus_.validation.size())), corpus_.vocab(),
         compile_seconds_);
    release_free_memory();  // what compiling no longer needs
    reset_peak_memory();
    skipped_ = trainer.skipped_steps();
    train(trainer);
    peak_bytes_ = peak_resident_bytes() - baseline_bytes_;
    finish(trainer);
    if (lost_) throw Error(*lost_);
  }

 private:
  fs::path file(const char* name) const { return fs::path(o_.out) / name; }

  // A file that cannot be written is no reason to throw the work away: the old one stays, and the
  // error is kept for later.
  template <class F>
  static void attempt(std::optional<Error>& lost, F&& write) {
    try {
      write();
    } catch (const Error& e) {
      if (!e.code().starts_with("file-")) throw;
      lost = e;
    }
  }

  // A run that has diverged is found out before its state replaces a good one; one that is asked to stop
  // keeps its steps.
  void finish(Trainer& trainer) {
    const bool whole = trainer.step_number() == o_.model.steps;  // else stopped on request
    auto keep = [&] {
      if (!o_.out.empty()) attempt(lost_, [&] { save(trainer); });
    };
    double bits = 0;
    try {
      if (whole) bits = trainer.validate(0);
    } catch (const Error& e) {
      if (e.code() == "cancelled") keep();
      throw;
    }
    check_finite(bits, trainer.step_number());
    keep();
    if (whole) report(trainer, bits);
  }

  void train(Trainer& trainer) {
    Progress progress("step", o_.stop_at, std::max<int64_t>(o_.model.steps / 20, 1),
                      trainer.step_number());
    validate_if_due(trainer, progress);  // where the run that is gone on from was stopped
    while (trainer.step_number() < o_.stop_at) {
      stop_if_asked(trainer, progress);
      const auto start = Clock::now();
      const bool is_long = !step_seconds_.empty() && step_seconds_.back() > kLongStep;
      trainer.step({.cancel = is_long ? &cancel_flag() : nullptr});
      step_seconds_.push_back(seconds_since(start));
      after_step(trainer, progress);
    }
    stop_if_asked(trainer, progress);
  }

  void stop_if_asked(const Trainer& trainer, Progress& progress) const {
    if (!interrupted()) return;
    if (!o_.out.empty()) save(trainer);
    progress.note(o_.out.empty()
                      ? "stopped"
                      : fmt::format("stopped; go on with --resume {}", file(kCheckpoint).string()));
    check_interrupt();
  }

  // A request to stop ends a validation without a result; it is due again where the run goes on.
  void validate_if_due(Trainer& trainer, Progress& progress) const {
    const int64_t n = trainer.step_number();
    auto& done = trainer.history.validation;
    if (n == 0 || n % o_.validate_every != 0 || n >= o_.model.steps) return;
    if (!done.empty() && done.back().first == n) return;
    double bits = 0;
    try {
      bits = trainer.validate(kValidationBatches);
    } catch (const Error& e) {
      if (e.code() == "cancelled") return;
      throw;
    }
    check_finite(bits, n);
    done.emplace_back(n, bits);
    progress.note(fmt::format("step {:5}  training {:.3f}  validation {:.3f} bits/char", n,
                              mean_of_last(trainer.history.training, 50), bits));
  }

  static void check_finite(double bits, int64_t step) {
    user_check(
        std::isfinite(bits), "diverged",
        "training has diverged: the validation loss after step {} is not finite; lower --rate",
        step);
  }

  void after_step(Trainer& trainer, Progress& progress) {
    const int64_t n = trainer.step_number();
    const std::vector<float>& losses = trainer.history.training;
    const bool skipped = std::exchange(skipped_, trainer.skipped_steps()) != skipped_;
    user_check(std::isfinite(losses.back()) || (skipped && trainer.loss_scale() > kLeastScale),
               "diverged", "training has diverged: the loss of step {} is not finite; lower --rate",
               n - 1);
    total_seconds_ += step_seconds_.back();
    progress.show(n, fmt::format("{:.3f} bits/char  {} tokens/s", mean_of_last(losses, 20),
                                 grouped(tokens_per_second())));
    validate_if_due(trainer, progress);
    if (!o_.out.empty() && o_.save_every > 0 && n % o_.save_every == 0 && n < o_.stop_at) {
      std::optional<Error> lost;
      attempt(lost, [&] { save(trainer); });
      if (lost)
        progress.note(fmt::format("rlx: warning: step {} was not saved: {}", n, lost->message()));
    }
  }

  double tokens_per_second() const {
    const auto tokens = static_cast<double>(o_.model.batch * o_.model.block) *
                        static_cast<double>(step_seconds_.size());
    return total_seconds_ > 0 ? tokens / total_seconds_ : 0;
  }

  // A state that nothing can be done with does not replace one that is good.
  void save(const Trainer& trainer) const {
    user_check(
        trainer.is_finite(), "diverged",
        "training has diverged: after step {} not all parameters are finite; lower --rate. {} is "
        "left as it was",
        trainer.step_number(), file(kCheckpoint).string());
    trainer.save(file(kCheckpoint));
  }

  void write_plot(const History& h, double baseline) const {
    std::vector<double> losses(h.training.begin(), h.training.end());
    for (size_t i = 0; i < losses.size(); ++i)  // a skipped step may have none
      if (!std::isfinite(losses[i])) losses[i] = i > 0 ? losses[i - 1] : 0;
    const std::vector<double> means = centred_means(losses, kSmoothing);
    Curve raw{"", "#4c72b0", {}, 0.7, 0.25, false}, smooth{"training", "#4c72b0", {}},
        validation{"validation", "#c44e52", {}, 2.5}, trigram{"trigram model", "#555555", {}};
    trigram.dashes = "6 4";
    for (size_t i = 0; i < losses.size(); ++i) {
      raw.points.emplace_back(i + 1, losses[i]);
      smooth.points.emplace_back(i + 1, means[i]);
    }
    for (const auto& [step, bits] : h.validation) validation.points.emplace_back(step, bits);
    trigram.points = {{1, baseline}, {static_cast<double>(losses.size()), baseline}};
    write_file(file(kPlot), svg_plot({"Character GPT: loss", "step", "bits per character"},
                                     {raw, smooth, validation, trigram}));
  }

  void report(Trainer& trainer, double bits) {
    trainer.history.validation.emplace_back(trainer.step_number(), bits);
    const Trigram trigram = Trigram::fit(corpus_.train, corpus_.vocab());
    const double baseline = trigram.bits_per_token(corpus_.validation);
    if (!o_.out.empty()) attempt(lost_, [&] { write_plot(trainer.history, baseline); });
    if (o_.sample > 0) print_sample(trainer);
    print_table(trainer, bits, trigram, baseline);
    if (!o_.out.empty() && !lost_)
      say("\nwritten: {}, {}\n", file(kPlot).string(), file(kCheckpoint).string());
  }

  // What the model writes after a piece of text that it has not seen.
  void print_sample(Trainer& trainer) const {
    const std::vector<int32_t> prompt = sample_prompt(corpus_, o_.model.block);
    const std::vector<int32_t> drawn = trainer.sample(prompt, o_.sample, o_.temperature);
    say("\n---- a piece of the validation text ----\n{}\n---- how this model goes on ----\n{}\n"
        "----------------\n\n",
        corpus_.decode(prompt), corpus_.decode(drawn));
  }

  void print_table(const Trainer& trainer, double bits, const Trigram& trigram,
                   double baseline) const {
    const CompileInfo& info = trainer.info();
    auto row = [](std::string_view name, const std::string& value) {
      say("{:<48} {}\n", name, value);
    };
    row("validation, this model", fmt::format("{:.3f} bits/char", bits));
    const auto& d = trigram.discounts();
    row("validation, trigram (interpolated Kneser-Ney)",
        fmt::format(
            "{:.3f} bits/char  (discounts {:.2f} {:.2f} {:.2f}, tuned on held-out training text)",
            baseline, d[0], d[1], d[2]));
    if (o_.model.precision != Precision::F32)
      row("precision of products", std::string(to_string(o_.model.precision)));
    if (trainer.is_scaled())
      row("steps skipped for overflow, loss scale",
          fmt::format("{}, {}", trainer.skipped_steps(), trainer.loss_scale()));
    row("kernels before and after fusion",
        fmt::format("{} -> {}", info.kernels_before_fusion, info.kernels));
    row("compile time", fmt::format("{:.2f} s  (training step, loss)", compile_seconds_));
    row("memory planned (arena, outputs, parameters)",
        mebibytes(info.planned_bytes + info.param_bytes));
    row("memory without reuse", mebibytes(info.unshared_bytes + info.param_bytes));
    row("memory measured (peak resident while training)", mebibytes(peak_bytes_));
    if (step_seconds_.empty()) return;
    row("tokens per second", grouped(tokens_per_second()));
    std::vector<double> seconds = step_seconds_;
    std::nth_element(seconds.begin(),
                     seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2),
                     seconds.end());
    const double median = seconds[seconds.size() / 2], rate = info.flops / median * 1e-9;
    row("training step, median",
        fmt::format("{:.1f} ms, {:.0f} GF/s on {} threads", median * 1e3, rate, threads_));
    if (const double peak = backend_for(default_device())->peak_gflops(threads_); peak > 0)
      row("share of the measured FMA peak",
          fmt::format("{:.0f} % of {:.0f} GF/s", 100 * rate / peak, peak));
  }

  TrainArguments o_;
  int threads_;
  uint64_t seed_;
  Corpus corpus_;
  double compile_seconds_ = 0, total_seconds_ = 0;
  int64_t baseline_bytes_ = 0, peak_bytes_ = 0;
  int64_t skipped_ = 0;
  std::vector<double> step_seconds_;
  std::optional<Error> lost_;  // why a result is not in its file
};

}  // namespace

void add_train(Cli& cli) {
  auto o = std::make_shared<TrainArguments>();
  o->model.steps = 1200;
  o->model.rate = 4e-3;
  CLI::App* c = cli.command(
      "train", "Trains a character-level GPT on a text and reports",
      "rlx train --text book.txt --steps 2000 --out out/book\n"
      "  rlx train --text book.txt --steps 2000 --out out/book --resume out/book/train.ckpt");
  CLI::Option* text = c->add_option("--text", o->text, "File to learn; - is standard input");
  CLI::Option* demo =
      c->add_flag("--demo", o->demo, "Learn the project's own documents and sources");
  text->excludes(demo);
  const CLI::Validator positive = positive_number(), at_least_1 = whole_number(1);
  c->add_option("--steps", o->model.steps, "Length of the run")
      ->check(at_least_1)
      ->capture_default_str();
  c->add_option("--stop-at", o->stop_at, "Stop after this step; --resume goes on")
      ->check(whole_number(0));
  c->add_option("--out", o->out,
                "Folder for train.ckpt and loss.svg (default for --demo: out/demo)");
  c->add_option("--resume", o->resume, "Checkpoint to go on from, bit for bit");
  c->add_option("--save-every", o->save_every, "Steps between checkpoints; 0: only at the end")
      ->check(whole_number(0))
      ->capture_default_str();
  c->add_option("--validate-every", o->validate_every,
                "Steps between validations (default: a tenth of the run)")
      ->check(whole_number(0));
  c->add_option("--sample", o->sample, "Characters to write at the end")
      ->check(whole_number(0))
      ->capture_default_str();
  c->add_option("--temperature", o->temperature, "Of the sample")
      ->check(positive)
      ->capture_default_str();
  c->add_option("--rate", o->model.rate, "Highest learning rate")
      ->check(positive)
      ->capture_default_str();
  const auto precisions = enum_names(Precision{});
  c->add_option(
       "--precision", o->precision,
       "Of products and attention: f32, bf16, or f16 with a scaled loss; parameters stay f32")
      ->check(CLI::IsMember(std::vector<std::string>(precisions.begin(), precisions.end())))
      ->capture_default_str();
  c->add_option("--layers", o->model.layers)->check(at_least_1)->capture_default_str();
  c->add_option("--width", o->model.width)->check(at_least_1)->capture_default_str();
  c->add_option("--heads", o->model.heads)->check(at_least_1)->capture_default_str();
  c->add_option("--block", o->model.block, "Characters that the model sees")
      ->check(at_least_1)
      ->capture_default_str();
  c->add_option("--batch", o->model.batch, "Blocks per step")
      ->check(at_least_1)
      ->capture_default_str();
  add_memory_budget(*c, o->memory_budget);
  c->callback([&cli, o] {
    if (o->demo == !o->text.empty())
      throw CLI::ValidationError("train", "give either --text FILE or --demo");
    if (o->out == "-")
      throw CLI::ValidationError("--out", "train: the results are files; - is none");
    if (o->demo && o->out.empty()) o->out = "out/demo";
    o->model.precision = parse_precision(o->precision);
    cli.action = [&cli, o] {
      const OutputIsOptional optional;
      std::optional<LockFile> lock;  // one run at a time writes the results of a folder
      if (!o->out.empty()) {
        require_folder(o->out);
        lock.emplace(std::filesystem::path(o->out) / ".train.lock");
        user_check(lock->held(), "running",
                   "another rlx train writes to {}; give another --out, or wait for it", o->out);
      }
      TrainCommand(*o, cli.globals).run();
    };
  });
}

}  // namespace rlx::cli
