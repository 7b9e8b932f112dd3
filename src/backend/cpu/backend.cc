#include "rlx/backend/cpu/backend.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "rlx/backend/cpu/executable.h"
#include "rlx/backend/cpu/kernel_list.h"
#include "rlx/base/clock.h"
#include "rlx/base/file.h"
#include "rlx/base/parallel.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/verify.h"
#include "rlx/lower/lower.h"
#include "rlx/ops/core.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/passes/passes.h"

namespace rlx::cpu {

namespace {

void require_static(const Graph& g) {
  const auto symbols = g.symbols();
  user_check(symbols.empty(), "unbound-dim",
             "compile: the size of dim ?{} is not known; bind it in the compile options",
             symbols.empty() ? "" : symbols[0]);
}

void write_text(const std::string& dir, const std::string& name, const std::string& text) {
  write_file(dir + "/" + name, text);
}

void count_work(const Program& p, CompileInfo& info) {
  for (const Step& s : p.steps) {
    ++info.kernels;
    if (s.kernel) info.flops += s.kernel->flops();
    for (const auto& body : s.bodies) count_work(*body, info);
  }
}

int64_t constant_bytes(const Program& p) {
  int64_t bytes = 0;
  for (const Tensor& t : p.constants) bytes += static_cast<int64_t>(t.bytes());
  for (const Step& s : p.steps)
    for (const auto& body : s.bodies) bytes += constant_bytes(*body);
  return bytes;
}

void map_params(Compiled& c) {
  const auto params = c.signature.params();
  c.param_updated.assign(params.size(), false);
  std::unordered_map<std::string_view, size_t> position;
  for (size_t k = 0; k < params.size(); ++k)
    position.emplace(c.signature.node(params[k]).get<LeafAttrs>().name, k);
  for (Value v : c.program.graph.params()) {
    const auto found = position.find(c.program.graph.node(v).get<LeafAttrs>().name);
    check(found != position.end(), "a pass invented a parameter");
    c.param_of.push_back(found->second);
  }
  check(c.param_of.size() == c.program.param_buffers.size(), "a pass lost a parameter");
  for (size_t k = 0; k < c.param_of.size(); ++k)
    c.param_updated[c.param_of[k]] = c.program.param_updated[k];
}

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }

  // The kernel list, what lowering does itself (leaves, views, copies, control flow), and the
  // reductions of regions.
  std::vector<std::string> native_ops() const override {
    std::set<std::string> names;
    for (const KernelRow& row : kernel_list())
      if (!row.op->scalar) names.emplace(row.op->name);
    const auto user = user_kernels();
    for (const auto& [op, kernel] : *user) names.emplace(op->name);
    for (const auto& entry : op_table().entries()) {
      const Kind kind = entry.op->kind;
      const bool lowered = kind == Kind::leaf || kind == Kind::control || entry.op == &op::region ||
                           (kind == Kind::movement && is_lowered_movement(*entry.op));
      if (lowered) names.emplace(entry.op->name);
    }
    for (const OpDef* op :
         {&op::reduce_sum, &op::reduce_max, &op::reduce_min, &op::reduce_prod, &op::iota})
      names.emplace(op->name);
    return {names.begin(), names.end()};
  }

  std::unique_ptr<Executable> compile(const Graph& g,
                                      const CompileOptions& options) const override {
    const auto start = Clock::now();
    user_check(host_vector_bits() > 0, "cpu", "this CPU has no AVX2; use the reference backend");
    auto compiled = std::make_shared<Compiled>();
    compiled->threads = options.threads > 0 ? options.threads : hardware_threads();
    compiled->poison = options.poison;
    compiled->signature = options.dims.empty() ? g : bind(g, options.dims);
    require_static(compiled->signature);

    CpuTarget target({.vector_bits = options.vector_bits,
                      .compile_threads = compiled->threads > 1 ? 2 : 1,
                      .dump_directory = options.dump_dir});
    PassContext context;
    context.verify = false;  // the session verified the input; tests verify between passes
    context.dump_dir = options.dump_dir;
    context.fast_math = options.fast_math;
    // Regions in the program as given are opened: the grower makes its own.
    context.keeps = [&](const Node& n, const Graph& at) {
      return n.op != &op::region && target.accepts(n, at);
    };
    Graph optimised = run_passes(compiled->signature, default_pipeline(), context);
    FusionReport report;
    Graph fused = fuse_program(optimised, &report, options.fuse,
                               [&](const Node& n) { return target.has_user_kernel(n); });

    verify(fused, "fuse_regions");
    compiled->program = lower(fused, target);
    map_params(*compiled);
    const auto codegen_start = Clock::now();
    target.finish();
    compiled->jit = target.jit();
    compiled->resident_bytes = compiled->jit->resident_bytes() + constant_bytes(compiled->program);

    CompileInfo& info = compiled->info;
    info.codegen_seconds = seconds_since(codegen_start);
    info.nodes = g.size();
    count_work(compiled->program, info);
    info.generated = target.generated();
    info.kernels_before_fusion = info.kernels - report.regions + report.nodes_before;
    int64_t beside = compiled->program.scratch_bytes * compiled->threads;  // the arena
    for (const View& v : compiled->program.outputs) beside += v.type().bytes();
    info.planned_bytes = compiled->program.arena_bytes + beside;
    info.unshared_bytes = compiled->program.unshared_bytes + beside;
    for (Value v : compiled->signature.params())
      info.param_bytes += compiled->signature.type(v).bytes();
    info.fusion_report = report.to_string();
    info.plan = to_string(compiled->program);
    if (!options.dump_dir.empty()) {
      write_text(options.dump_dir, "fused.rlx", print(fused));
      write_text(options.dump_dir, "fusion.txt", info.fusion_report);
      write_text(options.dump_dir, "plan.txt", info.plan);
    }
    info.seconds = seconds_since(start);
    return make_executable(std::move(compiled));
  }
};

}  // namespace

std::shared_ptr<const Backend> make_cpu_backend() { return std::make_shared<CpuBackend>(); }

}  // namespace rlx::cpu
