#include "rlx/compile/compile.h"
#include "rlx/runtime/runtime.h"

namespace rlx {

Session::Session(Device device, CompileOptions options)
    : device_(std::move(device)), options_(std::move(options)), backend_(backend_for(device_)) {}

CompiledGraph Session::compile(const Graph& g, const CompileOptions& options) const {
  return within_memory([&] { return CompiledGraph(rlx::compile(g, backend_, options)); });
}

CompiledGraph Session::compile(const GraphModule& program, const CompileOptions& options) const {
  return within_memory([&] { return CompiledGraph(rlx::compile(program, backend_, options)); });
}

}  // namespace rlx
