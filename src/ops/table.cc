#include "rlx/ops/ops.h"

namespace rlx {

namespace {
constexpr const OpDef* kLeafOps[] = {&op::input, &op::param, &op::constant};
constexpr Family kLeaves{"leaves", kLeafOps};
}  // namespace

namespace {
OpTable& mutable_table() {
  static OpTable table = [] {
    static constexpr const Family* kFamilies[] = {
        &kLeaves,
        &kElementwise,
        &kArithmetic,
        &kMath,
        &kActivations,
        &kMovement,
        &kShaping,
        &kScatter,
        &kSorting,
        &kReduce,
        &kStatistics,
        &kCumulative,
        &kLinalg,
        &kEinsum,
        &kFactor,
        &kMatrix,
        &kComplexNumbers,
        &kFft,
        &kNn,
        &kNorms,
        &kConv,
        &kPool,
        &kResize,
        &kSequence,
        &kFused,
        &kLosses,
        &kQuantise,
        &kExperts,
        &kBackward,
        &kRandom,
        &kDistributions,
        &kSplat,
        &kControl,
        &kLoops,
        &kCustom,
        &kCheckpoints,
        &kScanCheckpoints,
        &kRegions,
        &kHirBlocks,
    };
    return OpTable(kFamilies);
  }();
  return table;
}
}  // namespace

const OpTable& op_table() { return mutable_table(); }

void register_op(const OpDef& op, std::string_view family) {
  within_memory([&] { mutable_table().add(op, family); });
}

Graph parse(std::string_view text, const TextStore* store) {
  return within_memory([&] { return parse(text, op_table(), store); });
}

Graph from_bytes(std::string_view bytes, const std::string& what) {
  return within_memory([&] { return from_bytes(bytes, op_table(), what); });
}

}  // namespace rlx
