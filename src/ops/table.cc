#include "rlx/ops/ops.h"

namespace rlx {

namespace {
constexpr const OpDef* kLeafOps[] = {&op::input, &op::param, &op::constant};
constexpr Family kLeaves{"leaves", kLeafOps};
}  // namespace

const OpTable& op_table() {
  static const OpTable table = [] {
    OpTable t;
    for (const Family* f : {&kLeaves, &kElementwise, &kArithmetic, &kMovement, &kReduce, &kLinalg,
                            &kNn, &kRandom, &kControl, &kRegions})
      t.add(*f);
    return t;
  }();
  return table;
}

Graph parse(std::string_view text, const TextStore* store) {
  return parse(text, op_table(), store);
}

}  // namespace rlx
