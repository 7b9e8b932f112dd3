// An op's part of the op reference.
#pragma once

#include "rlx/ops/support.h"

namespace rlx {

struct AttributeInfo {
  std::string name, type, default_text;
};
std::vector<AttributeInfo> attributes_of(const OpDef& op);

// Heading, what it computes, operands, attributes and support, as Markdown.
std::string reference_page(const OpDef& op, const std::vector<Support>& support);

}  // namespace rlx
