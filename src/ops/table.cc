#include "rlx/ops/ops.h"

namespace rlx {

namespace {
constexpr const OpDef* kLeafOps[] = {&op::input, &op::param, &op::constant};
constexpr Family kLeaves{"leaves", kLeafOps};
}  // namespace

const OpTable& op_table() {
  static const OpTable table = [] {
    OpTable t;
    static constexpr const Family* kFamilies[] = {
        &kLeaves,        &kElementwise,    &kArithmetic, &kMath,     &kActivations,
        &kMovement,      &kShaping,        &kScatter,    &kSorting,  &kReduce,
        &kStatistics,    &kCumulative,     &kLinalg,     &kEinsum,   &kFactor,
        &kMatrix,        &kComplexNumbers, &kFft,        &kNn,       &kNorms,
        &kConv,          &kPool,           &kResize,     &kSequence, &kFused,
        &kLosses,        &kQuantise,       &kExperts,    &kBackward, &kRandom,
        &kDistributions, &kSplat,          &kControl,    &kLoops,    &kRegions,
    };
    for (const Family* f : kFamilies) t.add(*f);
    return t;
  }();
  return table;
}

Graph parse(std::string_view text, const TextStore* store) {
  return parse(text, op_table(), store);
}

}  // namespace rlx
