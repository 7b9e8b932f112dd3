#include "rlx/quantise/observe_bodies.h"

#include <algorithm>
#include <charconv>
#include <mutex>

#include "rlx/ops/custom.h"
#include "rlx/quantise/run_values.h"

namespace rlx {

namespace {

// One observation under way; any thread may hand in a value.
struct Watch {
  std::mutex mutex;
  std::vector<Observer> observers;
  std::vector<bool> seen;
};

// Those there are, by number: a node of the watched program says its watch and its tap.
class Watches {
 public:
  static Watches& all() {
    static Watches w;
    return w;
  }
  int64_t open(Watch& w) {
    const std::scoped_lock lock(mutex_);
    open_[++last_] = &w;
    return last_;
  }
  void close(int64_t number) {
    const std::scoped_lock lock(mutex_);
    open_.erase(number);
  }
  void see(int64_t number, size_t tap, const Tensor& value) {
    Watch* w = nullptr;
    {
      const std::scoped_lock lock(mutex_);
      w = open_.at(number);
    }
    const std::scoped_lock lock(w->mutex);
    w->observers[tap].add(value);
    w->seen[tap] = true;
  }

 private:
  std::mutex mutex_;
  std::map<int64_t, Watch*> open_;
  int64_t last_ = 0;
};

constexpr std::string_view kSeen = "rlx.observed";

// x, which the watch is shown when it is computed.
void register_seen() {
  static std::once_flag once;
  std::call_once(once, [] {
    register_custom_op(
        {.name = std::string(kSeen),
         .doc = "x, shown to the calibration that runs the program.",
         .infer = [](std::span<const Type> in, std::string_view) -> Types { return {in[0]}; },
         .compute = [](std::span<const Tensor> in, std::string_view attrs) -> Tensors {
           int64_t watch = 0;
           size_t tap = 0;
           const char* const begin = attrs.begin();
           const char* const end = attrs.end();
           const char* const next = std::from_chars(begin, end, watch).ptr;
           std::from_chars(next + 1, end, tap);
           Watches::all().see(watch, tap, in[0]);
           return {in[0]};
         }});
  });
}

bool holds_seen(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const Node& n) {
    if (n.op == &op::custom) return true;
    const auto inside = bodies(n.attrs);
    return std::any_of(inside.begin(), inside.end(),
                       [](const NamedBody& b) { return holds_seen(b.graph); });
  });
}

class Tapped {
 public:
  Tapped(int64_t watch, std::span<const BodyTap> taps) : watch_(watch), taps_(taps) {}

  Graph graph(const Graph& g, const std::vector<BodyPlace>& in) const {
    return rebuild(g, [&](Builder& b, int32_t i, Operands operands) -> Values {
      const Node& n = g.node(i);
      Values out =
          holds_taps(in, i) ? b.emit(*n.op, bodies_of(n, in, i), operands) : b.clone(n, operands);
      for (size_t t = 0; t < taps_.size(); ++t)
        if (taps_[t].in == in && taps_[t].value.node == i) {
          Value& v = out[static_cast<size_t>(taps_[t].value.index)];
          v = custom_op(b, kSeen, fmt::format("{} {}", watch_, t), {&v, 1})[0];
        }
      return out;
    });
  }

 private:
  bool holds_taps(const std::vector<BodyPlace>& in, int32_t i) const {
    return std::any_of(taps_.begin(), taps_.end(), [&](const BodyTap& t) {
      return t.in.size() > in.size() && std::equal(in.begin(), in.end(), t.in.begin()) &&
             t.in[in.size()].node == i;
    });
  }
  Attrs bodies_of(const Node& n, const std::vector<BodyPlace>& in, int32_t i) const {
    size_t number = 0;
    return map_bodies(n.attrs, [&](const Body& body) {
      std::vector<BodyPlace> place = in;
      place.push_back({i, number++});
      return Body(graph(*body, place));
    });
  }

  int64_t watch_;
  std::span<const BodyTap> taps_;
};

}  // namespace

std::vector<std::optional<Observer>> observe_in_bodies(const Graph& g, const NamedTensors& params,
                                                       Batches data, const Device& device,
                                                       std::span<const BodyTap> taps) {
  std::vector<std::optional<Observer>> out(taps.size());
  if (taps.empty()) return out;
  user_check(!data.empty(), "calibration-data",
             "calibrate: there is no data; {} values of \"{}\" depend on it", taps.size(), g.name);
  register_seen();
  Watch watch;
  for (const BodyTap& t : taps) watch.observers.emplace_back(t.name);
  watch.seen.resize(taps.size());
  struct Opened {
    int64_t number;
    explicit Opened(Watch& w) : number(Watches::all().open(w)) {}
    ~Opened() { Watches::all().close(number); }
    Opened(const Opened&) = delete;
  } opened(watch);

  // What the bodies make is needed, and nothing else.
  Graph watched = Tapped(opened.number, taps).graph(g, {});
  Values values;
  for (int32_t i = 0; i < watched.size(); ++i) {
    const auto inside = bodies(watched.node(i).attrs);
    if (std::none_of(inside.begin(), inside.end(),
                     [](const NamedBody& b) { return holds_seen(b.graph); }))
      continue;
    for (size_t k = 0; k < watched.node(i).out.size(); ++k)
      values.push_back({i, static_cast<int32_t>(k)});
  }
  ValueRunner run(watched, values, params, device);
  for (const NamedTensors& batch : data) run(batch);
  for (size_t t = 0; t < taps.size(); ++t)
    if (watch.seen[t]) out[t] = std::move(watch.observers[t]);
  return out;
}

}  // namespace rlx
