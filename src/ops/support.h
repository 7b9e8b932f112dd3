// The support matrix: every op's answer to every question, and the holes. `rlx ops` prints it; a
// test fails on a hole.
//
//   for (const Support& s : support(op::softmax.def, {}))
//     fmt::print("{} {}\n", s.column, name(s.answer));
//
// An answer is read off the op's entry, so it cannot drift from what transforms and backends do.
#pragma once

#include <set>

#include "rlx/ir/op.h"

namespace rlx {

enum class Answer : uint8_t {
  native,          // the op states it
  generated,       // made from the op's scalar form
  derived,         // follows from another rule or from the decomposition
  not_applicable,  // 'no', with the reason
  missing,         // a hole
};
std::string_view name(Answer answer);

struct Support {
  std::string_view column;
  Answer answer = Answer::missing;
  std::string how;  // the rule it follows from, or the reason
};

// The columns in order: infer eval decompose jvp vjp vmap text bytes cpu.
std::span<const std::string_view> support_columns();

// One answer per column. `cpu_kernels` names the ops for which the CPU backend has kernels of its
// own.
std::vector<Support> support(const OpDef& op, const std::set<std::string_view>& cpu_kernels);

// The specification's names for what the op does, one by one.
std::vector<std::string> reference_names(const OpDef& op);

}  // namespace rlx
