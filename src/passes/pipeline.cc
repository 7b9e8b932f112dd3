// The table of passes, the default pipeline and its text form.
#include <algorithm>

#include "rlx/base/suggest.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/passes/named_passes.h"
#include "rlx/passes/passes.h"

namespace rlx {

const Pipeline& default_pipeline() {
  static const Pipeline pipeline{
      // Local identities first, while composites are whole: less for everybody after.
      pass::simplify,
      // What simplify brought together out of constants becomes one constant.
      pass::fold_constants,
      // Gradients repeat much of the forward program; equal expressions are computed once.
      pass::cse,
      // What was written out in primitives becomes what it means, as long as equal parts are one
      // and nothing is decomposed.
      pass::recognise,
      // Products between dequantize and quantize are of integers; both are ops until they are decomposed.
      pass::fuse_quantised,
      // Composites that the target has no kernel for become their definitions.
      pass::legalise,
      // Definitions are written for clarity, not for the operands at hand; transposes go into
      // products and broadcasts into operands: the forms that kernels accept.
      pass::canonicalise,
      // Batch norms with given statistics are scales and shifts by now.
      pass::fold_scales,
      // Scales and counts that the definitions computed.
      pass::fold_constants,
      // Definitions share parts with each other.
      pass::cse,
      // What no step of a loop changes, now that it is spelled out: before what tidies up around it.
      pass::hoist_invariants,
      // Constants that became ones and zeros, operands that became equal.
      pass::canonicalise,
      // What the last rules made twice.
      pass::cse,
      // Convolutions with channels behind the pixels, now that what goes into their weights is there.
      pass::channels_last,
      // Products of one value as one, now that weights lie as they will and equal values are one.
      pass::join_products,
      // Parameters and nodes that nobody reads any more.
      pass::dead_code,
  };
  return pipeline;
}

namespace {

constexpr PassArgument kFuseArguments[] = {
    {"grow", "yes (the default), or no: each node is a region of its own"}};

bool grows(const PassOptions& o) {
  const std::string grow = o.argument("grow", "yes");
  user_check(grow == "yes" || grow == "no", "pass-option",
             "fuse_regions: grow is yes or no, not {}", quote(grow));
  return grow == "yes";
}

}  // namespace

constinit const Pass pass::fuse_regions{
    .name = "fuse_regions",
    .doc = "Groups the nodes that run as one kernel.",
    .run =
        [](Graph&& g, const PassOptions& o) {
          const auto alone = [&](const Node& n) { return o.alone && o.alone(n); };
          return fuse_program(g, o.fusion, {grows(o), alone, o.schedule, true});
        },
    .in_bodies = false,  // it sees to those of control flow itself; regions stay as they are
    .arguments = kFuseArguments};

std::span<const Pass* const> all_passes() {
  static const Pass* const passes[] = {
      &pass::simplify,
      &pass::recognise,
      &pass::insert_q_dq,
      &pass::quant_propagate,
      &pass::fuse_quantised,
      &pass::canonicalise,
      &pass::fold_scales,
      &pass::channels_last,
      &pass::cse,
      &pass::fold_constants,
      &pass::hoist_invariants,
      &pass::dead_code,
      &pass::join_products,
      &pass::lower_blocks,
      &pass::decompose,
      &pass::legalise,
      &pass::auto_mixed_precision,
      &pass::rematerialise,
      &pass::fuse_regions,
      &pass::fuse_matmul_bias_act,
      &pass::fuse_residual_ln,
      &pass::fuse_residual_rms_norm,
      &pass::fuse_rms_norm_reshape,
      &pass::fuse_swiglu_dual_matmul,
      &pass::fuse_shared_input_matmul,
      &pass::fuse_swiglu,
      &pass::fuse_attention_block,
      &pass::fuse_transformer_layer,
      &pass::mark_elementwise_regions,
      &pass::unfuse_elementwise_regions,
      &pass::lower_control_flow,
      &pass::lower_dot_general,
      &pass::legalize_broadcast,
      &pass::grad,
      &pass::value_and_grad,
      &pass::jvp,
      &pass::vmap,
      &pass::jacfwd,
      &pass::jacrev,
      &pass::hessian,
      &pass::jet,
      &pass::linear_transpose,
  };
  return passes;
}

const Pass* find_pass(std::string_view name) {
  for (const Pass* p : all_passes())
    if (p->name == name) return p;
  return nullptr;
}

namespace {

std::string names_of_passes() {
  std::string out;
  for (const Pass* p : all_passes()) out += (out.empty() ? "" : ", ") + std::string(p->name);
  return out;
}

std::string names_of_arguments(const Pass& pass) {
  std::string out;
  for (const PassArgument& a : pass.arguments)
    out += (out.empty() ? "" : ", ") + std::string(a.name);
  return out.empty() ? "none" : out;
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

// Splits at commas outside brackets.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> out;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      out.push_back(trim(text.substr(start, i - start)));
      start = i + 1;
    } else {
      depth += (text[i] == '(') - (text[i] == ')');
    }
  }
  return out;
}

PassArguments parse_arguments(const Pass& pass, std::string_view text) {
  PassArguments out;
  if (trim(text).empty()) return out;
  for (std::string_view item : split(text)) {
    const size_t equals = item.find('=');
    user_check(equals != item.npos && equals > 0, "pipeline",
               "pass {}: expected option=value, got \"{}\"", pass.name, item);
    const std::string_view name = trim(item.substr(0, equals)),
                           value = trim(item.substr(equals + 1));
    const bool known = std::any_of(pass.arguments.begin(), pass.arguments.end(),
                                   [&](const PassArgument& a) { return a.name == name; });
    std::vector<std::string_view> names;
    for (const PassArgument& a : pass.arguments) names.push_back(a.name);
    user_check(known, "pass-option", "pass {}: has no option {}; allowed: {}{}", pass.name, name,
               names_of_arguments(pass), did_you_mean(name, names));
    user_check(out.emplace(name, value).second, "pass-option", "pass {}: option {} is given twice",
               pass.name, name);
  }
  return out;
}

}  // namespace

Pipeline parse_pipeline(std::string_view text) {
  Pipeline out;
  if (trim(text).empty()) return out;
  for (std::string_view item : split(text)) {
    const size_t open = item.find('(');
    const std::string_view name = trim(item.substr(0, open));
    user_check(!name.empty(), "pipeline", "expected the name of a pass in \"{}\"", text);
    const Pass* pass = find_pass(name);
    std::vector<std::string_view> names;
    for (const Pass* p : all_passes()) names.push_back(p->name);
    user_check(pass != nullptr, "pass-unknown", "there is no pass {}; passes are {}{}", name,
               names_of_passes(), did_you_mean(name, names));
    PassArguments arguments;
    if (open != item.npos) {
      user_check(item.back() == ')', "pipeline", "pass {}: expected ')' at the end of \"{}\"", name,
                 item);
      arguments = parse_arguments(*pass, item.substr(open + 1, item.size() - open - 2));
    }
    out.emplace_back(*pass, std::move(arguments));
  }
  return out;
}

}  // namespace rlx
