#include <algorithm>

#include "rlx/base/suggest.h"
#include "rlx/ops/table.h"
#include "rlx/transform/precision.h"

namespace rlx {

namespace {

template <class E>
std::string_view name_of(E value) {
  return enum_names(value)[static_cast<size_t>(value)];
}

std::optional<size_t> place_in(std::span<const std::string_view> names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<size_t>(found - names.begin());
}

using Rule = PrecisionPolicy::Rule;

// One precision for each kind but the leaves.
PrecisionPolicy by_kinds(Rule compute, Rule reduction, Rule elementwise, Rule data_movement) {
  const Rule rules[] = {compute, reduction, elementwise, data_movement};
  PrecisionPolicy out;
  for (size_t i = 0; i < std::size(rules); ++i)
    out.set(std::string(name_of(static_cast<PrecisionOpKind>(i))), rules[i]);
  return out;
}

struct NamedPolicy {
  std::string_view name;
  PrecisionPolicy (*make)();
};
constexpr NamedPolicy kPolicies[] = {
    {"f32", PrecisionPolicy::always_f32},
    {"f16", [] { return PrecisionPolicy::mixed(Precision::F16); }},
    {"bf16", [] { return PrecisionPolicy::mixed(Precision::BF16); }},
    {"always_f32", PrecisionPolicy::always_f32},
    {"always_f16", PrecisionPolicy::always_f16},
    {"auto_mixed_conservative", PrecisionPolicy::auto_mixed_conservative},
    {"auto_mixed", PrecisionPolicy::auto_mixed},
    {"auto_mixed_bf16", PrecisionPolicy::auto_mixed_bf16},
};

}  // namespace

DType dtype(Precision p) {
  constexpr DType dtypes[] = {DType::F32, DType::F16, DType::BF16};
  return dtypes[static_cast<size_t>(p)];
}

std::string_view to_string(Precision p) { return name_of(p); }

Precision parse_precision(std::string_view name) {
  const auto names = enum_names(Precision{});
  const auto found = place_in(names, name);
  user_check(found.has_value(), "precision", "there is no precision {}; there are {}{}",
             quote(name), fmt::join(names, ", "), did_you_mean(name, {names.begin(), names.end()}));
  return static_cast<Precision>(*found);
}

PrecisionPolicy PrecisionPolicy::mixed(Precision p) {
  return by_kinds({p}, {}, {p, true}, {p, true});
}
PrecisionPolicy PrecisionPolicy::always_f16() { return auto_mixed(); }
PrecisionPolicy PrecisionPolicy::auto_mixed_conservative() {
  return auto_mixed().deny({std::string(name_of(PrecisionOpKind::reduction))});
}
PrecisionPolicy PrecisionPolicy::auto_mixed() {
  const Rule f16{Precision::F16};
  return by_kinds(f16, f16, f16, f16);
}
PrecisionPolicy PrecisionPolicy::auto_mixed_bf16() {
  const Rule bf16{Precision::BF16};
  return by_kinds(bf16, bf16, bf16, bf16);
}
PrecisionPolicy PrecisionPolicy::custom(const std::map<PrecisionOpKind, Precision>& kinds) {
  PrecisionPolicy out;
  for (const auto& [kind, p] : kinds) out.set(std::string(name_of(kind)), {p});
  return out;
}

PrecisionPolicy PrecisionPolicy::parse(std::string_view name) {
  std::vector<std::string_view> names;
  for (const NamedPolicy& p : kPolicies) {
    if (p.name == name) return p.make();
    names.push_back(p.name);
  }
  fail(ErrorKind::user, "precision", "there is no precision policy {}; there are {}{}", quote(name),
       fmt::join(names, ", "), did_you_mean(name, names));
}

PrecisionPolicy& PrecisionPolicy::set(const std::string& name, Rule rule) {
  const auto kinds = enum_names(PrecisionOpKind{});
  if (const auto kind = place_in(kinds, name)) {
    user_check(rule.precision == Precision::F32 || kinds_ + *kind != &kinds_[kPrecisionOpKinds - 1],
               "policy", "a precision policy: leaves keep their dtypes; boundary is f32, not {}",
               to_string(rule.precision));
    kinds_[*kind] = rule;
    return *this;
  }
  std::vector<std::string_view> names(kinds.begin(), kinds.end());
  for (const OpTable::Entry& e : op_table().entries()) names.push_back(e.op->name);
  user_check(op_table().find(name) != nullptr, "policy-op",
             "a precision policy names {}, which is neither an op nor a kind of op ({}){}",
             quote(name), fmt::join(kinds, ", "), did_you_mean(name, names));
  ops_[name] = rule;
  return *this;
}

PrecisionPolicy& PrecisionPolicy::allow(const std::vector<std::string>& names) {
  const Precision p = narrow();
  user_check(p != Precision::F32 || names.empty(), "policy",
             "a precision policy allows {}, but computes nothing in f16 or bf16; begin with one "
             "that does",
             fmt::join(names, ", "));
  for (const std::string& name : names) set(name, {p});
  return *this;
}
PrecisionPolicy& PrecisionPolicy::deny(const std::vector<std::string>& names) {
  for (const std::string& name : names) set(name, {});
  return *this;
}
PrecisionPolicy& PrecisionPolicy::keep(const std::vector<std::string>& names) {
  const Precision p = narrow();
  for (const std::string& name : names) set(name, {p, true});
  return *this;
}

const Rule* PrecisionPolicy::rule(const OpDef& op) const {
  if (ops_.empty()) return nullptr;
  const auto found = ops_.find(std::string(op.name));
  return found == ops_.end() ? nullptr : &found->second;
}

bool PrecisionPolicy::asks_by_name() const {
  for (const auto& [name, rule] : ops_)
    if (!rule.follows && rule.precision != Precision::F32) return true;
  return std::none_of(std::begin(kPolicies), std::end(kPolicies), [&](const NamedPolicy& p) {
    const PrecisionPolicy policy = p.make();
    return std::equal(std::begin(kinds_), std::end(kinds_), std::begin(policy.kinds_));
  });
}

Precision PrecisionPolicy::narrow() const {
  for (const Rule& r : kinds_)
    if (r.precision != Precision::F32) return r.precision;
  for (const auto& [name, r] : ops_)
    if (r.precision != Precision::F32) return r.precision;
  return Precision::F32;
}

bool PrecisionPolicy::uses(Precision p) const {
  return std::any_of(std::begin(kinds_), std::end(kinds_),
                     [&](const Rule& r) { return r.precision == p; }) ||
         std::any_of(ops_.begin(), ops_.end(),
                     [&](const auto& o) { return o.second.precision == p; });
}

}  // namespace rlx
