// Convolutions work on channels that lie together: this pass chooses that layout once for the whole graph.
//
// It walks the graph once. A convolution that pays becomes conv_channels_last, or, with a kernel of one element, a product of
// its pixels with its weights; what was asked for is a transpose of that, which is a view. Whoever reads the transpose and can
// work on channels-last values as well does so: elementwise ops, pools, reductions, concat, pad, slices, gathers along an axis,
// resizing.
// So transposes stay at the edges of the convolutional part of a program, and where nobody reads them they are dead. Weights
// are read through transposes too, which cost nothing where they are packed once.
#include <algorithm>
#include <map>

#include "rlx/ops/image/conv.h"
#include "rlx/ops/image/pool.h"
#include "rlx/ops/image/resize.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/reduce/reduce.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/passes/passes.h"

namespace rlx {

namespace {

// Products of a pixel that pay for moving one of its channels.
constexpr int64_t kWorthMoving = 8;
// With fewer results per group the kernel's vectors would be mostly empty.
constexpr int64_t kFewestChannels = 8;

bool is_reduction_over_axes(const Node& n) {
  return n.op == &op::reduce_sum || n.op == &op::reduce_max || n.op == &op::reduce_min ||
         n.op == &op::reduce_prod || n.op == &op::reduce_mean;
}

int64_t product_of(const Ints& list) {
  int64_t p = 1;
  for (int64_t v : list) p *= v;
  return p;
}

class ChannelsLast {
 public:
  ChannelsLast(Graph&& g, const PassOptions& o) : o_(o), r_(std::move(g), "channels_last") {}

  Graph run() {
    for (int32_t i = 0; i < r_.size(); ++i) {
      const Node n = r_.node(i);  // NOLINT: a copy, the graph grows
      const Result y = n.out.size() == 1 ? convert(n) : Result{};
      if (y.value.valid())
        r_.replace(i, {y.last ? first_of(y.value) : y.value});
      else
        r_.keep(i);
    }
    return r_.finish();
  }

 private:
  // What takes the place of a node: with channels last, or just what it was. No value: the node stays.
  struct Result {
    Value value = kNone;
    bool last = true;
  };

  // Where axis a of a value of this rank is when channels are last.
  static int64_t moved(int64_t a, int64_t rank) { return a == 0 ? 0 : a == 1 ? rank - 1 : a - 1; }

  template <class T>
  static T moved_list(const T& list) {
    T out = list;
    const auto rank = static_cast<int64_t>(list.size());
    for (int64_t a = 0; a < rank; ++a) out[at(moved(a, rank))] = list[at(a)];
    return out;
  }

  // The value with channels first of one with channels last.
  Value first_of(Value last) {
    const Value first = transpose_to(r_.builder(), last, channels_to_first(rank_of(last)));
    last_of_[first] = last;
    return first;
  }
  // The other way; kNone where none was made.
  Value last_of(Value first) const {
    const auto found = last_of_.find(first);
    return found == last_of_.end() ? kNone : found->second;
  }
  int64_t rank_of(Value v) const { return r_.graph().type(v).rank(); }

  // With channels last, from what was made or by a transpose (of one that came from there, that one's operand).
  Value make_last(Value first) {
    if (const Value last = last_of(first); last.valid()) return last;
    const Ints perm = channels_to_last(rank_of(first));
    const Node& n = r_.graph().node(first);
    if (n.op == &op::transpose && n.get<TransposeAttrs>().perm == channels_to_first(rank_of(first)))
      return n.in[0];
    return transpose_to(r_.builder(), first, perm);
  }
  bool is_last(Value first) const {
    if (last_of(first).valid()) return true;
    const Node& n = r_.graph().node(first);
    return n.op == &op::transpose &&
           n.get<TransposeAttrs>().perm == channels_to_first(rank_of(first));
  }

  Result convert(const Node& n) {
    if (n.op == &op::conv) return {convolution(n)};
    if (n.op == &op::conv_backward_input) return {transposed(n)};
    const bool reads =
        std::any_of(n.in.begin(), n.in.end(), [&](Value v) { return last_of(v).valid(); });
    if (!reads) return {};
    r_.stamp(n);
    if (n.op->kind == Kind::elementwise) return {elementwise(n)};
    if (n.op == &op::pool) return {pool(n)};
    if (n.op == &op::concat) return {concat(n)};
    if (is_reduction_over_axes(n)) return reduction(n);
    if (n.op == &op::transpose && last_of(n.in[0]).valid() &&
        n.get<TransposeAttrs>().perm == channels_to_last(n.type().rank()))
      return {last_of(n.in[0]), false};
    return {movement(n)};
  }

  // ---- convolutions

  Value convolution(const Node& n) {
    const Decision pays = pays_off(n);
    if (!pays) {
      refuse(n, std::string(pays.why()));
      return kNone;
    }
    r_.stamp(n);
    Builder& b = r_.builder();
    const auto& c = n.get<ConvAttrs>();
    const Value x = make_last(n.in[0]);
    if (is_product(n)) {
      const Shape w = b.shape(n.in[1]);
      return op::matmul(b, x, reshape_to(b, n.in[1], {w[0], w[1]}), {.transpose_b = true});
    }
    const int64_t rank = n.type().rank();
    Ints weight;
    for (int64_t a = 2; a < rank; ++a) weight.push_back(a);
    weight.push_back(1), weight.push_back(0);
    const Value y = op::conv_channels_last(b, x, transpose_to(b, n.in[1], weight), c);
    if (!kept(y)) {
      refuse(n, "the target has no kernel for conv_channels_last");
      return kNone;
    }
    return y;
  }

  // What leads back to x, as a forward sum where it is one. It follows its operand, it does not begin.
  Value transposed(const Node& n) {
    const auto& c = n.get<ConvBackwardInputAttrs>();
    const Shape w = r_.graph().type(n.in[1]).shape;
    if (!last_of(n.in[0]).valid() || n.type().dtype != DType::F32) return kNone;
    if (!w[0].is_static() || !w[1].is_static()) return kNone;
    r_.stamp(n);
    if (stands_apart(n)) return spread(n);
    const bool depthwise = c.groups == w[0] && w[1] == Dim(1);
    const bool one =
        std::all_of(c.stride.begin(), c.stride.end(), [](int64_t s) { return s == 1; });
    if (!one || !(c.groups == Dim(1) || depthwise) ||
        w[1].value() * c.groups.value() < kFewestChannels)
      return kNone;
    return turned(n);
  }

  // Whether each pixel of dy makes pixels of its own.
  bool stands_apart(const Node& n) const {
    const auto& c = n.get<ConvBackwardInputAttrs>();
    const Shape &w = r_.graph().type(n.in[1]).shape, &dy = r_.graph().type(n.in[0]).shape;
    bool apart = c.groups == Dim(1);
    for (size_t a = 0; a < c.stride.size(); ++a)
      apart = apart && Dim(c.stride[a]) == w[a + 2] && c.low[a] == 0 && c.dilation[a] == 1 &&
              c.size[a] == dy[a + 2] * c.stride[a];
    return apart;
  }

  // A product of the pixels with all taps, and the taps beside each other.
  Value spread(const Node& n) {
    Builder& b = r_.builder();
    const auto& c = n.get<ConvBackwardInputAttrs>();
    const Shape w = b.shape(n.in[1]);
    const auto axes = static_cast<int64_t>(c.stride.size());
    Ints taps{0};
    for (int64_t a = 0; a < axes; ++a) taps.push_back(a + 2);
    taps.push_back(1);
    const Dim columns = w[1] * taps_of(w);
    const Value y = op::matmul(b, last_of(n.in[0]),
                               reshape_to(b, transpose_to(b, n.in[1], taps), {w[0], columns}));
    Shape apart = b.shape(y);  // [N, y.., k.., C]
    apart.pop_back();
    Shape whole{apart[0]};
    Ints beside{0};
    for (int64_t a = 0; a < axes; ++a) {
      apart.push_back(w[at(a + 2)]);
      whole.push_back(c.size[at(a)]);
      beside.push_back(1 + a), beside.push_back(1 + axes + a);
    }
    apart.push_back(w[1]), whole.push_back(w[1]), beside.push_back(1 + 2 * axes);
    return reshape_to(b, transpose_to(b, reshape_to(b, y, apart), beside), whole);
  }

  // A convolution of dy with the weights turned around.
  Value turned(const Node& n) {
    const auto& c = n.get<ConvBackwardInputAttrs>();
    const Shape w = r_.graph().type(n.in[1]).shape, dy = r_.graph().type(n.in[0]).shape;
    const bool depthwise = c.groups != Dim(1);
    ConvAttrs back{c.stride, c.dilation, c.low, c.high, c.groups};
    Ints axes, perm;
    for (size_t a = 0; a < c.stride.size(); ++a) {
      const int64_t reach = c.dilation[a] * (w[a + 2].value() - 1);
      const auto more = (c.size[a] - dy[a + 2]).static_value();
      if (!more) return kNone;
      back.low[a] = reach - c.low[a];
      back.high[a] = *more + c.low[a];
      axes.push_back(static_cast<int64_t>(a));
      perm.push_back(static_cast<int64_t>(a) + 2);
    }
    perm.push_back(depthwise ? 1 : 0), perm.push_back(depthwise ? 0 : 1);
    Builder& b = r_.builder();
    const Value turned = op::reverse(b, transpose_to(b, n.in[1], perm), {axes});
    const Value x = op::conv_channels_last(b, last_of(n.in[0]), turned, back);
    return kept(x) ? x : kNone;
  }

  bool kept(Value v) const { return !o_.keeps || o_.keeps(r_.graph().node(v), r_.graph()); }

  // One tap, nothing skipped and nothing padded: pixels times weights.
  bool is_product(const Node& n) const {
    const auto& c = n.get<ConvAttrs>();
    const auto all = [](const Ints& list, int64_t v) {
      return std::all_of(list.begin(), list.end(), [&](int64_t x) { return x == v; });
    };
    return c.groups == Dim(1) && taps(n) == 1 && all(c.stride, 1) && all(c.low, 0) &&
           all(c.high, 0);
  }

  static int64_t taps_of(const Shape& w) {
    int64_t taps = 1;
    for (size_t a = 2; a < w.size(); ++a) taps *= w[a].value();
    return taps;
  }
  int64_t taps(const Node& n) const { return taps_of(r_.graph().type(n.in[1]).shape); }

  Decision pays_off(const Node& n) const {
    const Shape& w = r_.graph().type(n.in[1]).shape;
    const auto& c = n.get<ConvAttrs>();
    if (n.type().dtype != DType::F32) return Decision::no("it is of {}", n.type().dtype);
    if (!w[0].is_static() || !w[1].is_static() || !c.groups.is_static())
      return Decision::no("how many channels it has is not known");
    const int64_t groups = c.groups.value(), out = w[0].value(), in = w[1].value() * groups;
    if (out == 0 || in == 0) return Decision::no("it has no channels");
    const bool depthwise = groups == in && groups == out && groups > 1;
    if (!depthwise && !is_product(n) && out / groups < kFewestChannels)
      return Decision::no("a group has {} results a pixel, fewer than {}", out / groups,
                          kFewestChannels);
    if (is_last(n.in[0])) return Decision::yes();
    const int64_t products = taps(n) * w[1].value() * out, moves = in * product_of(c.stride) + out;
    if (products < kWorthMoving * moves)
      return Decision::no("{} products a pixel do not pay for moving {} channels", products, moves);
    return Decision::yes();
  }

  void refuse(const Node& n, std::string why) const {
    if (!o_.fusion) return;
    const Node& w = r_.graph().node(n.in[1]);
    o_.fusion->refusals.push_back({w.op == &op::param
                                       ? fmt::format("conv by {}", w.get<LeafAttrs>().name)
                                       : fmt::format("conv by {}", w.type()),
                                   "channels_last", "channels stay first: " + std::move(why)});
  }

  // ---- what follows

  // Operands that have channels last, against those of the result's size that have not.
  Value elementwise(const Node& n) {
    const int64_t rank = n.type().rank();
    int64_t balance = 0;
    for (Value v : n.in)
      if (r_.graph().type(v).shape == n.type().shape) balance += is_last(v) ? 1 : -1;
    const bool any = std::any_of(n.in.begin(), n.in.end(), [&](Value v) {
      return last_of(v).valid() && r_.graph().type(v).shape == n.type().shape;
    });
    if (!any || balance < 0) return kNone;
    Builder& b = r_.builder();
    Values in;
    for (Value v : n.in) {
      const Shape shape = b.shape(v);
      if (shape.empty()) {
        in.push_back(v);
        continue;
      }
      Shape whole(at(rank) - shape.size(), Dim(1));
      whole.insert(whole.end(), shape.begin(), shape.end());
      in.push_back(make_last(shape.size() == at(rank) ? v : reshape_to(b, v, whole)));
    }
    return b.emit(*n.op, n.attrs, in)[0];
  }

  Value pool(const Node& n) {
    const auto& p = n.get<PoolAttrs>();
    if (std::ssize(p.kernel) + 2 != n.type().rank()) return kNone;
    const Value y = op::pool_channels_last(r_.builder(), last_of(n.in[0]), p);
    return kept(y) ? y : kNone;
  }

  // Only where the axes that stay keep their places or their order.
  Result reduction(const Node& n) {
    auto a = n.get<ReduceAttrs>();
    const Value x = last_of(n.in[0]);
    const int64_t rank = rank_of(x);
    const auto count = static_cast<int64_t>(a.axes.size());
    const bool channels = std::find(a.axes.begin(), a.axes.end(), 1) != a.axes.end();
    const bool images = std::find(a.axes.begin(), a.axes.end(), 0) != a.axes.end();
    const bool all_spatial = count - channels - images == rank - 2;
    if (!a.keepdims && !all_spatial && !channels) return {};
    for (int64_t& axis : a.axes) axis = moved(axis, rank);
    std::sort(a.axes.begin(), a.axes.end());
    return {r_.builder().emit(*n.op, a, Values{x})[0], a.keepdims};
  }

  Value movement(const Node& n) {
    Builder& b = r_.builder();
    const Value x = last_of(n.in[0]);
    if (!x.valid()) return kNone;
    if (n.op == &op::pad) {
      auto a = n.get<PadAttrs>();
      a.low = moved_list(a.low), a.high = moved_list(a.high);
      return op::pad(b, x, n.in[1], a);
    }
    if (n.op == &op::slice) {
      auto a = n.get<SliceAttrs>();
      a.start = moved_list(a.start), a.limit = moved_list(a.limit);
      a.stride = moved_list(a.stride);
      return op::slice(b, x, a);
    }
    if (n.op == &op::gather) {
      const int64_t axis = n.get<AxisAttrs>().axis;
      if (axis < 2 || rank_of(n.in[1]) < 1) return kNone;
      return op::gather(b, x, n.in[1], {.axis = axis - 1});
    }
    if (n.op == &op::resize) {
      auto a = n.get<ResizeAttrs>();
      for (int64_t& axis : a.axes) axis = moved(axis, rank_of(x));
      return op::resize(b, x, a);
    }
    if (n.op == &op::broadcast && n.type().rank() == rank_of(n.in[0]))
      return op::broadcast(b, x, {moved_list(n.get<ShapeAttrs>().shape)});
    return kNone;
  }

  Value concat(const Node& n) {
    int64_t balance = 0;
    for (Value v : n.in) balance += is_last(v) ? 1 : -1;
    if (balance < 0) return kNone;
    Values in;
    for (Value v : n.in) in.push_back(make_last(v));
    return r_.builder().emit(*n.op, AxisAttrs{moved(n.get<AxisAttrs>().axis, n.type().rank())},
                             in)[0];
  }

  const PassOptions& o_;
  Rebuild r_;
  std::map<Value, Value> last_of_;
};

// Derivatives by weights work with channels first.
bool has_derivatives(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(),
                     [](const Node& n) { return n.op == &op::conv_backward_weight; });
}

Graph run_channels_last(Graph&& g, const PassOptions& o) {
  if (has_derivatives(g)) {
    if (o.fusion)
      o.fusion->refusals.push_back({"convolutions", "channels_last",
                                    "channels stay first: derivatives by weights read them"});
    return std::move(g);
  }
  return ChannelsLast(std::move(g), o).run();
}

}  // namespace

constinit const Pass pass::channels_last{
    "channels_last", "Convolutions, and what is around them, with channels behind the pixels.",
    run_channels_last};

}  // namespace rlx
