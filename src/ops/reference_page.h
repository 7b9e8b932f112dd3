// An op's part of the op reference.
#pragma once

#include "rlx/ops/support.h"

namespace rlx {

struct AttributeInfo {
  std::string name, type, default_text;
};
std::vector<AttributeInfo> attributes_of(const OpDef& op);

// "layer_norm(x, gamma, beta)": the op with its operands, ? behind those that may be left out, .. behind one
// that stands for any number.
std::string signature(const OpDef& op);

// As Markdown: heading, the example (a block of Markdown, or nothing), the signature and what it computes,
// attributes; then what only those who work on the op need.
std::string reference_page(const OpDef& op, const std::vector<Support>& support,
                           const std::string& example = {});

}  // namespace rlx
