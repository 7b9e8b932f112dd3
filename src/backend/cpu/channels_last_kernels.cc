// Native kernels: convolutions and pools with channels last, f32.
#include "rlx/backend/cpu/kernel_list.h"
#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/image/channels_last.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/image/pool.h"

namespace rlx::cpu {
namespace {

using Views = std::span<const View>;

// ---- windows

void set_axes(LastWindows& w, const View& x, const View& y, const Ints& kernel, const Ints& stride,
              const Ints& dilation, const Ints& low) {
  const size_t axes = kernel.size(), missing = 3 - axes;
  for (size_t a = 0; a < 3; ++a)
    w.x[a] = w.y[a] = w.kernel[a] = w.stride[a] = w.dilation[a] = 1, w.low[a] = w.x_axis[a] = 0;
  for (size_t a = 0; a < axes; ++a) {
    w.x[missing + a] = x.dims[x.dims.size() - 1 - axes + a];
    w.y[missing + a] = y.dims[y.dims.size() - 1 - axes + a];
    w.x_axis[missing + a] = x.strides[x.dims.size() - 1 - axes + a];
    w.kernel[missing + a] = kernel[a], w.stride[missing + a] = stride[a];
    w.dilation[missing + a] = dilation[a], w.low[missing + a] = low[a];
  }
}

// A pixel's channels must lie together; the rest may lie as it will. (A whole vector is read at a time, but no element
// that is not there.)
Decision pixels_together(const View& v) {
  if (v.strides.back() == 1 || v.dims.back() == 1) return Decision::yes();
  return Decision::no("the channels of a pixel must lie together");
}

Decision conv_view(const Node&, size_t i, const View& v) {
  return i == 1 ? Decision::yes() : pixels_together(v);  // weights are packed
}

// ---- convolution

bool is_depthwise(const Type& x, const Type& w, const ConvAttrs& c) {
  return w.shape[w.shape.size() - 2] == Dim(1) && c.groups == x.shape.back() &&
         w.shape.back() == x.shape.back();
}

int64_t taps_of(const Type& w) {
  int64_t taps = 1;
  for (size_t i = 0; i + 2 < w.shape.size(); ++i) taps *= w.shape[i].static_value().value_or(1);
  return taps;
}

Decision takes_conv(const Node& n, const Graph& g) {
  const Type &x = g.type(n.in[0]), &w = g.type(n.in[1]);
  if (x.dtype != DType::F32) return Decision::no("it multiplies f32 only, not {}", x.dtype);
  if (is_depthwise(x, w, n.get<ConvAttrs>()) && taps_of(w) > kPlainTerms)
    return Decision::no("a channel has more than {} taps", kPlainTerms);
  return Decision::yes();
}

// Packs weights that may change.
class LastPackKernel final : public BlockKernel {
 public:
  explicit LastPackKernel(std::shared_ptr<const LastConvPlan> plan) : plan_(std::move(plan)) {}
  std::string name() const override { return "conv_channels_last (packing)"; }
  int64_t blocks() const override { return plan_->pack_blocks(); }
  int64_t work() const override { return static_cast<int64_t>(plan_->packed_bytes()) / 4; }
  void run(const StepMemory& m, int64_t begin, int64_t end) const override {
    for (int64_t b = begin; b < end; ++b)
      plan_->pack_block(b, static_cast<const float*>(m.operands[0]),
                        static_cast<float*>(m.operands[1]));
  }

 private:
  std::shared_ptr<const LastConvPlan> plan_;
};

class LastConvKernel final : public BlockKernel {
 public:
  explicit LastConvKernel(std::shared_ptr<const LastConvPlan> plan, std::string form,
                          bool is_packed = false)
      : plan_(std::move(plan)), form_(std::move(form)), packed_(is_packed) {}

  std::shared_ptr<const StepKernel> packed(int in) const override {
    return in == 1 ? std::make_shared<LastConvKernel>(plan_, form_, true) : nullptr;
  }
  std::shared_ptr<const StepKernel> packing(int in) const override {
    return in == 1 && !packed_ ? std::make_shared<LastPackKernel>(plan_) : nullptr;
  }
  int64_t packed_bytes() const override { return static_cast<int64_t>(plan_->packed_bytes()); }
  std::string packed_form() const override { return form_; }
  void pack(const void* source, void* target) const override {
    plan_->pack(static_cast<const float*>(source), static_cast<float*>(target));
  }
  std::string name() const override {
    return packed_ ? "conv_channels_last (packed weights)" : "conv_channels_last";
  }
  int64_t blocks() const override { return plan_->tiles(); }
  size_t scratch_bytes() const override { return plan_->scratch_bytes(); }
  int64_t work() const override { return static_cast<int64_t>(flops() / 8); }
  double flops() const override {
    const LastConvProblem& p = plan_->problem();
    return 2.0 * static_cast<double>(p.rows()) * static_cast<double>(p.groups * p.out) *
           static_cast<double>(p.depth());
  }
  int64_t rows() const override { return plan_->full_rows() ? plan_->problem().rows() : 0; }
  int64_t rows_per_block() const override { return plan_->rows_per_tile(); }
  std::optional<BlockSpan> span(size_t operand) const override {
    if (rows() == 0 || operand < 2) return std::nullopt;
    const int64_t elements = rows_per_block() * plan_->problem().out;
    return BlockSpan{elements, 0, elements - 1};
  }
  void run(const StepMemory& m, int64_t begin, int64_t end) const override {
    for (int64_t t = begin; t < end; ++t)
      plan_->run(t, static_cast<const float*>(m.operands[0]),
                 static_cast<const float*>(m.operands[1]), packed_,
                 static_cast<float*>(m.operands[2]), m.scratch);
  }

 private:
  std::shared_ptr<const LastConvPlan> plan_;
  std::string form_;
  bool packed_;
};

std::string weight_form(std::string_view how, Isa isa, const View& w, int64_t groups) {
  return fmt::format("{} {} {} strides {} in {} groups", how, isa_name(isa), fmt::join(w.dims, "x"),
                     fmt::join(w.strides, ", "), groups);
}

// Depthwise: rows of some pixels, the weights as [taps, channels].
class LastDepthwiseKernel final : public BlockKernel {
 public:
  struct Plan {
    LastDepthwise problem;
    LastWindowFns fns;
    View w;
    int64_t rows, per_block;
    std::string form;
    int64_t weights() const { return taps() * problem.channels; }
    int64_t taps() const {
      const int64_t* const k = problem.at.kernel;
      return k[0] * k[1] * k[2];
    }
  };
  explicit LastDepthwiseKernel(std::shared_ptr<const Plan> plan, bool is_packed = false)
      : plan_(std::move(plan)), packed_(is_packed) {}

  std::shared_ptr<const StepKernel> packed(int in) const override {
    return in == 1 ? std::make_shared<LastDepthwiseKernel>(plan_, true) : nullptr;
  }
  int64_t packed_bytes() const override { return 4 * plan_->weights(); }
  std::string packed_form() const override { return plan_->form; }
  void pack(const void* source, void* target) const override {
    const View& w = plan_->w;
    const size_t axes = w.dims.size() - 2;
    const auto* const from = static_cast<const float*>(source);
    auto* to = static_cast<float*>(target);
    for_each_index(Ints(w.dims.begin(), w.dims.end() - 2), [&](const Ints& tap) {
      int64_t at = 0;
      for (size_t a = 0; a < axes; ++a) at += tap[a] * w.strides[a];
      for (int64_t c = 0; c < plan_->problem.channels; ++c) *to++ = from[at + c * w.strides.back()];
    });
  }
  std::string name() const override {
    return packed_ ? "conv_channels_last (depthwise, packed weights)"
                   : "conv_channels_last (depthwise)";
  }
  int64_t blocks() const override { return ceil_div(plan_->rows, plan_->per_block); }
  size_t scratch_bytes() const override {
    return packed_ ? 0 : static_cast<size_t>(packed_bytes());
  }
  int64_t work() const override { return static_cast<int64_t>(flops() / 4); }
  double flops() const override {
    return 2.0 * static_cast<double>(plan_->rows) * static_cast<double>(plan_->weights());
  }
  int64_t rows() const override { return plan_->rows; }
  int64_t rows_per_block() const override { return plan_->per_block; }
  std::optional<BlockSpan> span(size_t operand) const override {
    if (operand < 2) return std::nullopt;
    const int64_t elements = plan_->per_block * plan_->problem.channels;
    return BlockSpan{elements, 0, elements - 1};
  }
  void run(const StepMemory& m, int64_t begin, int64_t end) const override {
    const auto* w = static_cast<const float*>(m.operands[1]);
    if (!packed_) {
      pack(w, m.scratch);
      w = reinterpret_cast<const float*>(m.scratch);
    }
    plan_->fns.depthwise(plan_->problem, static_cast<const float*>(m.operands[0]), w,
                         static_cast<float*>(m.operands[2]), begin * plan_->per_block,
                         std::min(end * plan_->per_block, plan_->rows));
  }

 private:
  std::shared_ptr<const Plan> plan_;
  bool packed_;
};

// Rows of a block of about 32,000 products or folds: a power of two, so that neighbours agree.
int64_t rows_of_block(int64_t row_work) {
  int64_t rows = 128;
  while (rows > 8 && rows * row_work > 1 << 15) rows /= 2;
  return rows;
}

std::shared_ptr<const StepKernel> make_conv(Isa isa, const Node& n, Views in, Views out) {
  const auto& c = n.get<ConvAttrs>();
  const View &x = in[0], &w = in[1], &y = out[0];
  const Ints kernel(w.dims.begin(), w.dims.end() - 2);
  LastWindows windows;
  set_axes(windows, x, y, kernel, c.stride, c.dilation, c.low);
  windows.x_image = x.strides[0];
  const int64_t groups = c.groups.value(), rows = product_of(y.dims, 0, y.dims.size() - 1);
  if (is_depthwise(x.type(), w.type(), c)) {
    const int64_t channels = x.dims.back();
    auto plan = std::make_shared<LastDepthwiseKernel::Plan>(
        LastDepthwiseKernel::Plan{{windows, channels},
                                  last_window_fns(isa),
                                  w,
                                  rows,
                                  rows_of_block(taps_of(w.type()) * channels),
                                  weight_form("depthwise", isa, w, groups)});
    return std::make_shared<LastDepthwiseKernel>(std::move(plan));
  }
  LastConvProblem p;
  p.windows = windows;
  p.images = x.dims[0], p.groups = groups;
  p.in = w.dims[w.dims.size() - 2], p.out = w.dims.back() / groups;
  p.w_in = w.strides[w.dims.size() - 2], p.w_out = w.strides.back();
  for (size_t a = 0; a < kernel.size(); ++a) p.w_axis[3 - kernel.size() + a] = w.strides[a];
  return std::make_shared<LastConvKernel>(std::make_shared<const LastConvPlan>(p, isa),
                                          weight_form("channels last", isa, w, groups));
}

// ---- pooling

constexpr int64_t kMostPoolTaps = 16;  // of a line, and lines: float sums are formed in runs

Decision takes_pool(const Node& n, const Graph& g) {
  const auto& p = n.get<PoolAttrs>();
  const Type& x = g.type(n.in[0]);
  if (x.dtype != DType::F32) return Decision::no("it folds f32 only, not {}", x.dtype);
  if (p.kind == PoolKind::prod) return Decision::no("it has no products");
  int64_t lines = 1;
  for (size_t i = 0; i + 1 < p.kernel.size(); ++i) lines *= std::min<int64_t>(p.kernel[i], 1 << 16);
  if (p.kernel.back() > kMostPoolTaps || lines > kMostPoolTaps)
    return Decision::no("windows have more than {} taps in a line, or lines", kMostPoolTaps);
  return Decision::yes();
}

class LastPoolKernel final : public BlockKernel {
 public:
  LastPoolKernel(const LastPool& p, const LastWindowFns& fns, int64_t rows, int64_t taps)
      : p_(p), fns_(fns), rows_(rows), taps_(taps), per_block_(rows_of_block(taps * p.channels)) {}
  std::string name() const override { return "pool_channels_last"; }
  int64_t blocks() const override { return ceil_div(rows_, per_block_); }
  int64_t work() const override { return rows_ * taps_ * p_.channels / 2; }
  int64_t rows() const override { return rows_; }
  int64_t rows_per_block() const override { return per_block_; }
  std::optional<BlockSpan> span(size_t operand) const override {
    if (operand == 0) return std::nullopt;
    const int64_t elements = per_block_ * p_.channels;
    return BlockSpan{elements, 0, elements - 1};
  }
  void run(const StepMemory& m, int64_t begin, int64_t end) const override {
    fns_.pool(p_, static_cast<const float*>(m.operands[0]), static_cast<float*>(m.operands[1]),
              begin * per_block_, std::min(end * per_block_, rows_));
  }

 private:
  LastPool p_;
  LastWindowFns fns_;
  int64_t rows_, taps_, per_block_;
};

Decision pool_view(const Node& n, size_t, const View& v) {
  if (v.dims.size() - n.get<PoolAttrs>().kernel.size() > 2)
    return Decision::no("of the axes in front, one may have a stride of its own");
  return pixels_together(v);
}

// The axes in front of the pooled ones are images.
std::shared_ptr<const StepKernel> make_pool(Isa isa, const Node& n, Views in, Views out) {
  const auto& a = n.get<PoolAttrs>();
  const View &x = in[0], &y = out[0];
  const size_t axes = a.kernel.size(), lead = x.dims.size() - 1 - axes;
  LastPool p;
  set_axes(p.at, x, y, a.kernel, a.stride, a.dilation, a.low);
  p.at.x_image = lead ? x.strides[lead - 1] : 0;
  int64_t taps = 1;
  for (size_t i = 0; i < 3; ++i) p.high[i] = 0;
  for (size_t i = 0; i < axes; ++i) p.high[3 - axes + i] = a.high[i], taps *= a.kernel[i];
  p.channels = x.dims.back();
  p.fold = a.kind == PoolKind::max    ? LastFold::Max
           : a.kind == PoolKind::min  ? LastFold::Min
           : a.kind == PoolKind::mean ? LastFold::Mean
                                      : LastFold::Sum;
  p.count_padding = a.count_include_pad;
  return std::make_shared<LastPoolKernel>(p, last_window_fns(isa),
                                          product_of(y.dims, 0, y.dims.size() - 1), taps);
}

constexpr KernelRow kChannelsLastKernels[] = {
    {&op::conv_channels_last, "conv_channels_last", takes_conv, conv_view, make_conv},
    {&op::pool_channels_last, "pool_channels_last", takes_pool, pool_view, make_pool},
};

}  // namespace

std::span<const KernelRow> channels_last_kernels() { return kChannelsLastKernels; }

}  // namespace rlx::cpu
