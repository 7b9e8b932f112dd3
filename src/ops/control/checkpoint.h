// Rematerialisation: functions whose values reverse mode computes again instead of keeping them.
//
//   Values y = b.emit(op::checkpoint.def, CheckpointAttrs{.body = block}, Values{x, w});
//   Value h = op::checkpoint_name(b, x, {.name = "h"});       // CheckpointAttrs{.save = names, .names = {"h"}}
//
// A checkpoint is its body. Its reverse rule is one more checkpoint, over the derivative of the body, which begins with
// the body's own values: computed again from the operands, and from those values that the policy saved. So derivatives
// of any order, in any mix with the other transforms, keep no more than the first one.
//
// Where a checkpoint that computes again becomes its definition, the operands it begins with go through `barrier`: x
// itself, but a value of its own, so that equal expressions before and behind it stay two, no region grows over it, and
// no rule looks through it. It is a view: it costs nothing. The order of nodes is the order of time, and reverse mode
// writes a checkpoint's derivative where it is needed first, so what is computed again lives there alone.
//
// Wrong bodies raise Error(user) with the codes "body-inputs", "body-outputs"; "checkpoint" for numbers that do not fit.
#pragma once

#include <string>
#include <vector>

#include "rlx/ir/op.h"

namespace rlx {

// What reverse mode keeps of a checkpoint besides its operands.
enum class SavePolicy : uint8_t {
  nothing,
  products,  // the results of products, convolutions and attention
  names,     // values that checkpoint_name names
};
inline std::span<const std::string_view> enum_names(SavePolicy) {
  static constexpr std::string_view names[] = {"nothing", "products", "names"};
  return names;
}

struct CheckpointAttrs {
  Body body = {};
  SavePolicy save = SavePolicy::nothing;
  std::vector<std::string> names = {};
  // How many reverse rules have made it: 0 for a program as it is written. The first `guarded` operands are what a
  // reverse rule's begins with.
  int64_t again = 0, guarded = 0;
  static constexpr auto fields() {
    return Fields<&CheckpointAttrs::body, &CheckpointAttrs::save, &CheckpointAttrs::names,
                  &CheckpointAttrs::again, &CheckpointAttrs::guarded>();
  }
};

struct CheckpointNameAttrs {
  std::string name;
  int64_t index = -1;  // in a body whose saved values have been chosen: which of them it is
  static constexpr auto fields() {
    return Fields<&CheckpointNameAttrs::name, &CheckpointNameAttrs::index>();
  }
};

struct BarrierAttrs {
  int64_t again = 0;  // barriers with other numbers are other values
  static constexpr auto fields() { return Fields<&BarrierAttrs::again>(); }
};

namespace op {
extern const Op<CheckpointAttrs> checkpoint;
extern const Op<CheckpointNameAttrs> checkpoint_name;
extern const Op<BarrierAttrs> barrier;
}  // namespace op

extern const Family kCheckpoints;

}  // namespace rlx
