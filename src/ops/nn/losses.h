// Losses, with the meaning they have in PyTorch.
//
//   Value loss = op::mse_loss(b, prediction, target);                           // the mean
//   Value each = op::huber_loss(b, prediction, target, {.reduction = Reduction::none, .delta = 2});
//   Value ce = op::cross_entropy(b, logits, labels, {.axis = -1, .label_smoothing = 0.1});
//
// The first operand is the prediction. Operands broadcast where the op is elementwise. Class labels are
// integers or f32/f64-encoded ids; one outside [0, C) that is not ignore_index raises "index-range"
// when the program runs. f16 and bf16 are computed in f32 and rounded once, behind the reduction.
// The mean over nothing is NaN. Errors: "loss-shape", "loss-attr", "labels", "broadcast",
// "dtype-mixed", "axis-range".
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

enum class Reduction : uint8_t { none, mean, sum };
inline std::span<const std::string_view> enum_names(Reduction) {
  static constexpr std::string_view names[] = {"none", "mean", "sum"};
  return names;
}

struct LossAttrs {
  Reduction reduction = Reduction::mean;
  static constexpr auto fields() { return Fields<&LossAttrs::reduction>(); }
};
struct SmoothL1Attrs {  // beta 0 is the l1 loss
  Reduction reduction = Reduction::mean;
  double beta = 1;
  static constexpr auto fields() {
    return Fields<&SmoothL1Attrs::reduction, &SmoothL1Attrs::beta>();
  }
};
struct HuberAttrs {
  Reduction reduction = Reduction::mean;
  double delta = 1;
  static constexpr auto fields() { return Fields<&HuberAttrs::reduction, &HuberAttrs::delta>(); }
};
struct MarginAttrs {
  Reduction reduction = Reduction::mean;
  double margin = 0;
  static constexpr auto fields() { return Fields<&MarginAttrs::reduction, &MarginAttrs::margin>(); }
};
struct HingeAttrs {
  Reduction reduction = Reduction::mean;
  double margin = 1;
  static constexpr auto fields() { return Fields<&HingeAttrs::reduction, &HingeAttrs::margin>(); }
};
struct ClassLossAttrs {  // axis: that of the classes
  Reduction reduction = Reduction::mean;
  int64_t axis = 1, ignore_index = -100;
  double label_smoothing = 0;
  static constexpr auto fields() {
    return Fields<&ClassLossAttrs::reduction, &ClassLossAttrs::axis, &ClassLossAttrs::ignore_index,
                  &ClassLossAttrs::label_smoothing>();
  }
};
struct SoftTargetAttrs {
  Reduction reduction = Reduction::mean;
  int64_t axis = 1;
  double label_smoothing = 0;
  static constexpr auto fields() {
    return Fields<&SoftTargetAttrs::reduction, &SoftTargetAttrs::axis,
                  &SoftTargetAttrs::label_smoothing>();
  }
};
struct KlDivAttrs {
  Reduction reduction = Reduction::mean;
  bool log_target = false;
  static constexpr auto fields() {
    return Fields<&KlDivAttrs::reduction, &KlDivAttrs::log_target>();
  }
};
struct PoissonAttrs {
  Reduction reduction = Reduction::mean;
  bool log_input = true, full = false;
  double eps = 1e-8;
  static constexpr auto fields() {
    return Fields<&PoissonAttrs::reduction, &PoissonAttrs::log_input, &PoissonAttrs::full,
                  &PoissonAttrs::eps>();
  }
};
struct GaussianAttrs {
  Reduction reduction = Reduction::mean;
  bool full = false;
  double eps = 1e-6;
  static constexpr auto fields() {
    return Fields<&GaussianAttrs::reduction, &GaussianAttrs::full, &GaussianAttrs::eps>();
  }
};
struct TripletAttrs {
  Reduction reduction = Reduction::mean;
  double margin = 1, p = 2, eps = 1e-6;
  bool swap = false;
  static constexpr auto fields() {
    return Fields<&TripletAttrs::reduction, &TripletAttrs::margin, &TripletAttrs::p,
                  &TripletAttrs::eps, &TripletAttrs::swap>();
  }
};

namespace op {
extern const Op<LossAttrs> mse_loss, l1_loss;     // x, target
extern const Op<SmoothL1Attrs> smooth_l1_loss;    // x, target
extern const Op<HuberAttrs> huber_loss;           // x, target
extern const Op<LossAttrs> bce_loss;              // probability, target
extern const Op<LossAttrs> bce_with_logits_loss;  // logit, target, pos_weight (optional)
extern const Op<KlDivAttrs> kl_div_loss;          // log-probability, target
extern const Op<HingeAttrs> hinge_loss, hinge_embedding_loss;  // x, target of -1 and 1
extern const Op<MarginAttrs> margin_ranking_loss;              // x1, x2, target of -1 and 1
extern const Op<MarginAttrs> cosine_embedding_loss;  // x1 [.., D], x2 [.., D], target [..]
extern const Op<TripletAttrs> triplet_margin_loss;   // anchor, positive, negative, all [.., D]
extern const Op<PoissonAttrs> poisson_nll_loss;      // x, target
extern const Op<GaussianAttrs> gaussian_nll_loss;    // x, target, variance
// x [N, C, ..], labels [N, ..], weight [C] (optional); C stands at the axis.
extern const Op<ClassLossAttrs> nll_loss, cross_entropy;
// logits, probabilities of the same shape, weight [C] (optional)
extern const Op<SoftTargetAttrs> soft_cross_entropy;
}  // namespace op

extern const Family kLosses;

}  // namespace rlx
