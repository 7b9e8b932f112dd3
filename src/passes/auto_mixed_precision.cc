#include "rlx/passes/auto_mixed_precision.h"

namespace rlx {

namespace {

constexpr PassArgument kPrecisionArguments[] = {
    {"policy",
     "f32 (the default), f16, bf16, always_f16, auto_mixed_conservative, auto_mixed or "
     "auto_mixed_bf16"},
    {"f32", "ops or kinds of op that are computed in f32 besides, name|name"},
    {"f16", "those in f16"},
    {"bf16", "those in bf16"},
    {"keep", "those in the precision that their operands come in"},
};

PrecisionPolicy policy_of(const PassOptions& o) {
  PrecisionPolicy out = PrecisionPolicy::parse(o.argument("policy", "f32"));
  for (const std::string_view p : enum_names(Precision{}))
    for (const std::string& name : o.list(p)) out.set(name, {parse_precision(p)});
  return out.keep(o.list("keep"));
}

}  // namespace

AutoMixedPrecision::operator PassUse() const {
  PassArguments arguments;
  const auto add = [&](std::string_view name, const PrecisionPolicy::Rule& rule) {
    std::string& list = arguments[rule.follows ? "keep" : std::string(to_string(rule.precision))];
    list += (list.empty() ? "" : "|") + std::string(name);
  };
  for (size_t k = 0; k < kPrecisionOpKinds; ++k) {
    const auto kind = static_cast<PrecisionOpKind>(k);
    add(enum_names(kind)[k], policy.rule(kind));
  }
  for (const auto& [name, rule] : policy.ops()) add(name, rule);
  return {pass::auto_mixed_precision, std::move(arguments)};
}

constinit const Pass pass::auto_mixed_precision{
    .name = "auto_mixed_precision",
    .doc = "Computes products in f16 or bf16 and what a policy says besides.",
    .run = [](Graph&& g, const PassOptions& o) { return mixed_precision(g, policy_of(o)); },
    .in_bodies = false,  // it goes into bodies itself: a policy is for the program as a whole
    .arguments = kPrecisionArguments};

}  // namespace rlx
