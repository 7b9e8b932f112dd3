#include "rlx/models/trainer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "rlx/base/philox.h"
#include "rlx/formats/checkpoint.h"

namespace rlx {

namespace {

constexpr double kBitsPerNat = 1 / std::numbers::ln2;
// Streams of random numbers that belong to one seed.
enum class DrawStream : uint32_t { batches = 1, samples = 2 };

uint64_t draw(uint64_t seed, DrawStream stream, uint64_t index) {
  PhiloxBlock counter = philox_counter(index);
  counter[2] = static_cast<uint32_t>(stream);
  const PhiloxBlock r = philox4x32(philox_key(seed), counter);
  return (uint64_t{r[1]} << 32) | r[0];
}

// Uniform in [0, n).
size_t draw_below(uint64_t seed, DrawStream stream, uint64_t index, size_t n) {
  return static_cast<size_t>((static_cast<unsigned __int128>(draw(seed, stream, index)) * n) >> 64);
}

// Row `row` of x and y: the `block` tokens at `at` and their successors.
void fill_row(Tensor& x, Tensor& y, int64_t row, const std::vector<int32_t>& text, size_t at) {
  const int64_t block = x.sizes()[1];
  const int32_t* from = text.data() + at;
  std::copy_n(from, block, x.mutable_data<int32_t>() + row * block);
  std::copy_n(from + 1, block, y.mutable_data<int32_t>() + row * block);
}

CompiledGraph compile(const Graph& g, int threads, Precision precision, int64_t memory_budget) {
  CompileOptions options;
  options.threads = threads;
  options.precision = PrecisionPolicy::mixed(precision);
  options.memory_budget = memory_budget;
  return Session(default_device(), options).compile(g);
}

Tensor history_tensor(const std::vector<std::pair<int64_t, double>>& points) {
  std::vector<double> flat;
  for (const auto& [step, bits] : points)
    flat.insert(flat.end(), {static_cast<double>(step), bits});
  return Tensor::from<double>({static_cast<int64_t>(points.size()), 2}, flat);
}

}  // namespace

Trainer::Trainer(const Corpus& corpus, const GptConfig& config, const TrainerOptions& options)
    : corpus_(corpus),
      config_(config),
      options_(options),
      x_(DType::I32, {config.batch, config.block}),
      y_(DType::I32, {config.batch, config.block}),
      step_(
          compile(gpt_train_step(config), options.threads, Precision::F32, options.memory_budget)),
      loss_(compile(gpt_loss(config), options.threads, config.precision, 0)) {
  step_.set_params(gpt_train_state(config, gpt_init(config, options.seed)));
  for (CompiledGraph* g : {&step_, &loss_}) {
    g->bind_input(g->input_index("x"), x_.raw());
    g->bind_input(g->input_index("y"), y_.raw());
  }
}

float Trainer::step(const RunOptions& options) {
  const auto n = static_cast<uint64_t>(step_number()), batch = static_cast<uint64_t>(config_.batch);
  const size_t places = corpus_.train.size() - static_cast<size_t>(config_.block);
  for (uint64_t row = 0; row < batch; ++row)
    fill_row(x_, y_, static_cast<int64_t>(row), corpus_.train,
             draw_below(options_.seed, DrawStream::batches, n * batch + row, places));
  torn_ = true;  // until all updates are written
  step_.run(options);
  torn_ = false;
  const float loss = *static_cast<const float*>(step_.output(0));
  history.training.push_back(static_cast<float>(loss * kBitsPerNat));
  return history.training.back();
}

bool Trainer::is_scaled() const { return step_.signature().find_leaf(kLossScale).valid(); }
int64_t Trainer::skipped_steps() const {
  return is_scaled() ? step_.param(kSkippedSteps).get_int(0) : 0;
}
double Trainer::loss_scale() const {
  return is_scaled() ? step_.param(kLossScale).get_float(0) : 1;
}

NamedTensors Trainer::model_params() const {
  NamedTensors out;
  const Graph& g = loss_.signature();
  for (Value v : g.params()) {
    const std::string& name = g.node(v).get<LeafAttrs>().name;
    out.emplace(name, step_.param(name));
  }
  return out;
}

double Trainer::validate(int64_t batches) {
  loss_.set_params(model_params());
  const std::vector<int32_t>& text = corpus_.validation;
  const auto block = static_cast<size_t>(config_.block), rows = static_cast<size_t>(config_.batch);
  const size_t windows = (text.size() - 1) / block;
  const size_t all = std::max<size_t>(windows / rows, 1);
  const size_t count = batches > 0 ? std::min(static_cast<size_t>(batches), all) : all;
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    options_.poll();
    const size_t first = (batches > 0 ? i * all / count : i) * rows;
    for (size_t row = 0; row < rows; ++row)  // a text of fewer windows than rows is read again
      fill_row(x_, y_, static_cast<int64_t>(row), text, (first + row) % windows * block);
    loss_.run();
    sum += *static_cast<const float*>(loss_.output(0));
  }
  return sum / static_cast<double>(count) * kBitsPerNat;
}

std::vector<int32_t> sample_prompt(const Corpus& corpus, int64_t block) {
  const std::vector<int32_t>& text = corpus.validation;
  const int32_t line_end = corpus.token_of('\n');
  auto begin = std::find(text.begin(), text.end(), line_end);
  begin = begin == text.end() || text.end() - begin <= block ? text.begin() : begin + 1;
  auto end = begin + std::max<int64_t>(block / 2, 1);
  for (auto at = end; at > begin + 1; --at)
    if (at[-1] == line_end) {
      end = at;
      break;
    }
  return {begin, end};
}

std::vector<int32_t> Trainer::sample(const std::vector<int32_t>& prompt, int64_t length,
                                     double temperature) {
  GptConfig one = config_;
  one.batch = 1;
  CompiledGraph logits = compile(gpt_logits(one), options_.threads, config_.precision, 0);
  logits.set_params(model_params());
  Tensor x(DType::I32, {1, config_.block}), position(DType::I32, {});
  logits.bind_input(logits.input_index("x"), x.raw());
  logits.bind_input(logits.input_index("position"), position.raw());

  std::vector<int32_t> text = prompt;
  std::vector<double> weights(static_cast<size_t>(corpus_.vocab()));
  for (int64_t i = 0; i < length; ++i) {
    options_.poll();
    const auto window = std::min<size_t>(text.size(), static_cast<size_t>(config_.block));
    std::copy_n(text.end() - static_cast<std::ptrdiff_t>(window), window,
                x.mutable_data<int32_t>());
    position.mutable_data<int32_t>()[0] = static_cast<int32_t>(window) - 1;
    logits.run();
    const auto* scores = static_cast<const float*>(logits.output(0));
    const float top = *std::max_element(scores, scores + weights.size());
    double total = 0;
    for (size_t t = 0; t < weights.size(); ++t)
      total += weights[t] = std::exp((scores[t] - top) / temperature);
    const uint64_t bits = draw(options_.seed, DrawStream::samples, static_cast<uint64_t>(i));
    double left = static_cast<double>(bits >> 11) * 0x1p-53 * total;
    size_t token = 0;
    while (token + 1 < weights.size() && (left -= weights[token]) >= 0) ++token;
    text.push_back(static_cast<int32_t>(token));
  }
  return {text.begin() + std::ssize(prompt), text.end()};
}

// ---- checkpoints

namespace {

// What must be equal for a run to go on as if it had never stopped, in the order of the fingerprint.
enum class Entry : uint8_t { number, real, natural, hash, precision };
struct FingerprintRow {
  const char* name;
  Entry entry;
};
constexpr std::array<FingerprintRow, 13> kFingerprint = {{{"vocabulary", Entry::number},
                                                          {"width", Entry::number},
                                                          {"layers", Entry::number},
                                                          {"heads", Entry::number},
                                                          {"block", Entry::number},
                                                          {"batch", Entry::number},
                                                          {"steps", Entry::number},
                                                          {"warm-up", Entry::number},
                                                          {"rate", Entry::real},
                                                          {"seed", Entry::natural},
                                                          {"training text", Entry::hash},
                                                          {"alphabet", Entry::hash},
                                                          {"precision", Entry::precision}}};
// Those that there were before mixed precision: a run in f32.
constexpr int64_t kFirstFingerprint = 12;

// ": 200, not 100"; a hash tells the user nothing.
std::string values_of(const FingerprintRow& row, int64_t was, int64_t is) {
  auto shown = [&](int64_t v) {
    return row.entry == Entry::real      ? fmt::format("{}", std::bit_cast<double>(v))
           : row.entry == Entry::natural ? fmt::format("{}", static_cast<uint64_t>(v))
           : row.entry == Entry::precision
               ? fmt::format("{}", v >= 0 && v < 3 ? to_string(static_cast<Precision>(v)) : "?")
               : fmt::format("{}", v);
  };
  return row.entry == Entry::hash ? "" : fmt::format(": {}, not {}", shown(was), shown(is));
}

}  // namespace

Tensor Trainer::fingerprint() const {
  const GptConfig& c = config_;
  return Tensor::from<int64_t>(
      {std::ssize(kFingerprint)},
      {c.vocab, c.width, c.layers, c.heads, c.block, c.batch, c.steps, c.warmup,
       std::bit_cast<int64_t>(c.rate), static_cast<int64_t>(options_.seed),
       static_cast<int64_t>(corpus_.hash), static_cast<int64_t>(hash_text(corpus_.byte_of)),
       static_cast<int64_t>(c.precision)});
}

bool Trainer::is_finite() const {
  for (const auto& [name, value] : model_params())
    for (int64_t i = 0; i < value.elements(); ++i)
      if (!std::isfinite(value.data<float>()[i])) return false;
  return true;
}

void Trainer::save(const std::filesystem::path& path) const {
  user_check(!torn_, "torn-state",
             "a step was stopped in the middle; its state is not one to go on from, so {} is not "
             "written",
             path.string());
  NamedTensors out;
  for (const auto& [name, value] : step_.params()) out.emplace("state/" + name, value);
  out.emplace("run/fingerprint", fingerprint());
  out.emplace("run/training", Tensor::from<float>({step_number()}, history.training));
  out.emplace("run/validation", history_tensor(history.validation));
  save_checkpoint(path, out);
}

void Trainer::load(const NamedTensors& all, const std::filesystem::path& path) {
  auto at = [&](const std::string& name, DType dtype) -> const Tensor& {
    const auto it = all.find(name);
    data_check(it != all.end() && it->second.dtype() == dtype, "resume",
               "{} is not a checkpoint of rlx train: no {} ({})", path.string(), name, dtype);
    return it->second;
  };
  const Tensor wanted = fingerprint(), &found = at("run/fingerprint", DType::I64);
  data_check(found.sizes() == wanted.sizes() || found.sizes() == Ints{kFirstFingerprint}, "resume",
             "{}: the fingerprint has another form", path.string());
  for (size_t i = 0; i < kFingerprint.size(); ++i) {
    const auto at_i = static_cast<int64_t>(i);
    const int64_t was = at_i < found.elements() ? found.get_int(at_i) : 0;
    const int64_t is = wanted.get_int(at_i);
    user_check(was == is, "resume", "{} was made with another {}{}", path.string(),
               kFingerprint[i].name, values_of(kFingerprint[i], was, is));
  }
  const Tensor &training = at("run/training", DType::F32),
               &validation = at("run/validation", DType::F64);
  data_check(training.rank() == 1 && training.elements() <= config_.steps &&
                 validation.rank() == 2 && validation.sizes()[1] == 2,
             "resume", "{}: the history has another form", path.string());
  NamedTensors state;
  for (const auto& [name, value] : all)
    if (name.starts_with("state/")) state.emplace(name.substr(6), value);
  data_check(state.size() == step_.signature().params().size(), "resume",
             "{}: {} parameters, the model has {}", path.string(), state.size(),
             step_.signature().params().size());
  step_.set_params(state);
  torn_ = false;
  history.training.assign(training.data<float>(), training.data<float>() + training.elements());
  history.validation.clear();
  for (int64_t i = 0; i < validation.sizes()[0]; ++i)
    history.validation.emplace_back(static_cast<int64_t>(validation.get_float(2 * i)),
                                    validation.get_float(2 * i + 1));
}

}  // namespace rlx
