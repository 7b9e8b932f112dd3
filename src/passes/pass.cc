#include "rlx/passes/pass.h"

#include "rlx/base/clock.h"
#include "rlx/base/file.h"
#include "rlx/ir/verify.h"

namespace rlx {

std::string PassOptions::argument(std::string_view name, std::string_view otherwise) const {
  auto it = arguments.find(name);
  return it == arguments.end() ? std::string(otherwise) : it->second;
}

std::vector<std::string> PassOptions::list(std::string_view name) const {
  std::vector<std::string> out;
  const std::string text = argument(name);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('|', at), text.size());
    if (end > at) out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string to_string(const Pipeline& pipeline) {
  std::string out;
  for (const PassUse& use : pipeline) {
    out += (out.empty() ? "" : ",") + std::string(use.pass->name);
    std::string inner;
    for (const auto& [name, value] : use.arguments)
      inner += fmt::format("{}{}={}", inner.empty() ? "" : ",", name, value);
    if (!inner.empty()) out += "(" + inner + ")";
  }
  return out;
}

std::string PassReport::to_string() const {
  std::string out;
  for (const PassRecord& r : passes) {
    out += fmt::format("{:<16} {:>8.3f} ms  {:>6} -> {:<6} nodes\n", r.pass, r.seconds * 1e3,
                       r.nodes_before, r.nodes_after);
    for (const auto& [rule, count] : r.rules.hits)
      out += fmt::format("    {:<32} {:>6}\n", rule, count);
  }
  return out;
}

std::string PassReport::recognition() const {
  std::string found, missed;
  for (const PassRecord& r : passes) {
    if (r.pass != "recognise" && r.pass != "fuse_quantised" && r.pass != "fold_scales") continue;
    for (const auto& [rule, count] : r.rules.hits)
      found += fmt::format("{}{} {}", found.empty() ? "" : ", ", count, rule);
    for (const NearMiss& m : r.rules.misses)
      missed += fmt::format("  {} is no {}: {}\n", m.node, m.rule, m.why);
  }
  return fmt::format("recognised: {}\n{}", found.empty() ? "nothing" : found, missed);
}

namespace {

// The node with every body run through the pass.
void run_in_bodies(Node& n, const Pass& pass, const PassOptions& options) {
  n.attrs = map_bodies(n.attrs, [&](const Body& body) {
    Graph after = run_pass(*body, pass, options);
    return after == *body ? body : Body(std::move(after));
  });
}

using Signature = std::vector<std::pair<std::string, Type>>;

Signature signature(const Graph& g) {
  Signature out;
  for (Value v : g.inputs()) out.emplace_back(g.node(v).get<LeafAttrs>().name, g.type(v));
  for (const Type& t : g.output_types()) out.emplace_back("", t);
  for (const Update& u : g.updates) out.emplace_back(u.param, g.type(u.value));
  return out;
}

// Constants too large for the text go to files beside it, named by their hash.
void dump(const Graph& g, const std::string& dir, size_t number, std::string_view name) {
  make_folder(dir);
  TextStore store;
  write_file(fmt::format("{}/{:02}-{}.rlx", dir, number, name), print(g, &store));
  for (const auto& [hash, tensor] : store.constants)
    write_file(fmt::format("{}/{:016x}.bin", dir, hash),
               {reinterpret_cast<const char*>(tensor.raw()), tensor.bytes()});
}

}  // namespace

Graph run_pass(Graph g, const Pass& pass, const PassOptions& options) {
  if (!options.work) {
    double work = kPassWork;
    PassOptions all = options;
    all.work = &work;
    return run_pass(std::move(g), pass, all);
  }
  if (pass.in_bodies)
    for (Node& n : g.nodes)
      if (!bodies(n.attrs).empty()) run_in_bodies(n, pass, options);
  return pass.run(std::move(g), options);
}

Graph run_passes(Graph g, const Pipeline& pipeline, const PassContext& context) {
  return within_memory([&] {
    if (!context.dump_dir.empty()) dump(g, context.dump_dir, 0, "input");
    size_t number = 0;
    double work = kPassWork;
    for (const PassUse& use : pipeline) {
      PassRecord record{std::string(use.pass->name), 0, g.size(), 0, {}};
      PassOptions options{context.fast_math, context.keeps, context.alone, context.schedule,
                          context.fusion,    use.arguments, &record.rules, &work};
      const std::string name = g.name;
      const bool same_signature = context.verify && use.pass->keeps_signature;
      const auto before = same_signature ? signature(g) : Signature();
      const auto start = Clock::now();
      g = run_pass(std::move(g), *use.pass, options);
      record.seconds = seconds_since(start);
      record.nodes_after = g.size();
      if (context.verify) verify(g, use.pass->name);
      check(!same_signature || signature(g) == before, "{}: changed the signature of \"{}\"",
            use.pass->name, name);
      if (!context.dump_dir.empty()) dump(g, context.dump_dir, ++number, use.pass->name);
      if (context.watch) context.watch(record, g);
      if (context.report) context.report->passes.push_back(std::move(record));
    }
    return std::move(g);
  });
}

}  // namespace rlx
