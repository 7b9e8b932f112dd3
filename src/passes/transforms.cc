// The transforms as passes, so that pipelines and the command line can name them:
// `simplify,grad(wrt=w|b),cse`.
#include <charconv>

#include "rlx/passes/passes.h"
#include "rlx/transform/transform.h"

namespace rlx {

namespace {

// The leaves that `wrt` names; without it all parameters.
std::vector<std::string> wrt_of(const Graph& g, const PassOptions& o) {
  std::vector<std::string> names = o.list("wrt");
  if (names.empty())
    for (Value v : g.params())
      if (is_differentiable(g.type(v).dtype)) names.push_back(g.node(v).get<LeafAttrs>().name);
  user_check(!names.empty(), "pass-option", "wrt: \"{}\" has no parameters; say wrt=name|name",
             g.name);
  return names;
}

template <class T = int64_t>
T integer_of(std::string_view option, std::string_view text) {
  T value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  user_check(status == std::errc() && end == text.data() + text.size(), "pass-option",
             "{}: expected an integer, got \"{}\"", option, text);
  return value;
}

bool bool_of(std::string_view option, std::string_view text) {
  user_check(text == "true" || text == "false", "pass-option",
             "{}: expected true or false, got \"{}\"", option, text);
  return text == "true";
}

GradOptions grad_options(const PassOptions& o) {
  return {.zero_missing = bool_of("zero_missing", o.argument("zero_missing", "false")),
          .output = integer_of<int>("output", o.argument("output", "0"))};
}

// `x|y:1` is x with the batch axis at 0 and y with it at 1.
std::map<std::string, int64_t> batched_of(const PassOptions& o) {
  std::map<std::string, int64_t> out;
  for (const std::string& item : o.list("over")) {
    const size_t colon = item.find(':');
    out[item.substr(0, colon)] =
        colon == item.npos ? 0 : integer_of("over", std::string_view(item).substr(colon + 1));
  }
  user_check(!out.empty(), "pass-option", "vmap: say over=name|name:axis");
  return out;
}

// A number, or a symbol as `?b`.
Dim size_of_batch(const PassOptions& o) {
  const std::string text = o.argument("size");
  user_check(!text.empty(), "pass-option", "vmap: say size=number or size=?symbol");
  return text[0] == '?' ? Dim::symbol(text.substr(1)) : Dim(integer_of("size", text));
}

constexpr PassArgument kGradArguments[] = {
    {"wrt", "leaves to differentiate by, name|name; all parameters when left out"},
    {"output", "which output is the loss; 0"},
    {"zero_missing", "zeros instead of an error where no gradient arrives; false"},
};
constexpr PassArgument kJvpArguments[] = {
    {"wrt", "leaves that move, name|name; all parameters when left out"}};
constexpr PassArgument kJacobianArguments[] = {
    {"wrt", "leaves to differentiate by, name|name; all parameters when left out"}};
constexpr PassArgument kJetArguments[] = {
    {"wrt", "leaves that move, name|name; all parameters when left out"},
    {"order", "of the highest derivative; 2"},
};
constexpr PassArgument kTransposeArguments[] = {
    {"wrt", "leaves it is linear in, name|name; all parameters when left out"}};
constexpr PassArgument kVmapArguments[] = {
    {"over", "leaves that gain the batch axis, name|name:axis"},
    {"size", "of the batch, a number or ?symbol"},
    {"out_axis", "where outputs have the batch axis; 0"},
};

}  // namespace

constinit const Pass pass::grad{
    .name = "grad",
    .doc = "The graph of the gradients of a scalar output.",
    .run = [](Graph&& g,
              const PassOptions& o) { return rlx::grad(g, wrt_of(g, o), grad_options(o)); },
    .in_bodies = false,
    .keeps_signature = false,
    .arguments = kGradArguments};

constinit const Pass pass::value_and_grad{
    .name = "value_and_grad",
    .doc = "The graph with the gradients of a scalar output appended to its outputs.",
    .run =
        [](Graph&& g, const PassOptions& o) {
          return rlx::value_and_grad(g, wrt_of(g, o), grad_options(o));
        },
    .in_bodies = false,
    .keeps_signature = false,
    .arguments = kGradArguments};

constinit const Pass pass::jvp{
    .name = "jvp",
    .doc = "The graph with tangents of its outputs along tangents of leaves.",
    .run = [](Graph&& g, const PassOptions& o) { return rlx::jvp(g, wrt_of(g, o)); },
    .in_bodies = false,
    .keeps_signature = false,
    .arguments = kJvpArguments};

constinit const Pass pass::jacfwd{
    .name = "jacfwd",
    .doc = "The Jacobians of the outputs by leaves, forward mode.",
    .run = [](Graph&& g, const PassOptions& o) { return rlx::jacfwd(g, wrt_of(g, o)); },
    .in_bodies = false,
    .keeps_signature = false,
    .arguments = kJacobianArguments};

constinit const Pass pass::jacrev{
    .name = "jacrev",
    .doc = "The Jacobians of the outputs by leaves, reverse mode.",
    .run = [](Graph&& g, const PassOptions& o) { return rlx::jacrev(g, wrt_of(g, o)); },
    .in_bodies = false,
    .keeps_signature = false,
    .arguments = kJacobianArguments};

constinit const Pass pass::hessian{
    .name = "hessian",
    .doc = "The second derivatives of output 0, a scalar, by leaves.",
    .run = [](Graph&& g, const PassOptions& o) { return rlx::hessian(g, wrt_of(g, o)); },
    .in_bodies = false,
    .keeps_signature = false,
    .arguments = kJacobianArguments};

constinit const Pass pass::jet{
    .name = "jet",
    .doc = "The graph with its outputs' derivatives of every order up to one along a curve.",
    .run =
        [](Graph&& g, const PassOptions& o) {
          return rlx::jet(g, wrt_of(g, o), integer_of<int>("order", o.argument("order", "2")));
        },
    .in_bodies = false,
    .keeps_signature = false,
    .arguments = kJetArguments};

constinit const Pass pass::linear_transpose{
    .name = "linear_transpose",
    .doc = "The transpose of a graph that is linear in leaves.",
    .run = [](Graph&& g, const PassOptions& o) { return rlx::linear_transpose(g, wrt_of(g, o)); },
    .in_bodies = false,
    .keeps_signature = false,
    .arguments = kTransposeArguments};

constinit const Pass pass::vmap{.name = "vmap",
                                .doc = "The graph for one sample as the graph for a batch.",
                                .run =
                                    [](Graph&& g, const PassOptions& o) {
                                      return rlx::vmap(
                                          g, batched_of(o), size_of_batch(o),
                                          integer_of("out_axis", o.argument("out_axis", "0")));
                                    },
                                .in_bodies = false,
                                .keeps_signature = false,
                                .arguments = kVmapArguments};

}  // namespace rlx
