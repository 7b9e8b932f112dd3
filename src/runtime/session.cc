#include <algorithm>

#include "rlx/ir/verify.h"
#include "rlx/runtime/runtime.h"

namespace rlx {

namespace {

void check_dims(const Graph& g, const DimBinding& dims) {
  const std::vector<std::string> symbols = g.symbols();
  auto known = [&](const std::string& s) {
    return std::find(symbols.begin(), symbols.end(), s) != symbols.end();
  };
  for (const auto& [name, size] : dims) {
    user_check(known(name), "dim-unknown", "graph \"{}\" has no dim ?{}; it has {}", g.name, name,
               symbols.empty() ? "none" : fmt::format("?{}", fmt::join(symbols, ", ?")));
    user_check(size >= 0, "negative-dim", "dim ?{} cannot have the size {}", name, size);
  }
  for (const std::string& s : symbols)
    user_check(
        dims.contains(s), "unbound-dim",
        "compile of \"{}\": the size of dim ?{} is not known; bind it in the compile options",
        g.name, s);
}

}  // namespace

Session::Session(Device device, CompileOptions options)
    : device_(device), options_(std::move(options)), backend_(backend_for(device)) {}

CompiledGraph Session::compile(const Graph& g, const CompileOptions& options) const {
  return within_memory([&] {
    user_check(options.threads >= 0, "threads", "the number of threads cannot be {}; 0 means all",
               options.threads);
    check_dims(g, options.dims);
    verify(g);
    return CompiledGraph(backend_->compile(g, options));
  });
}

}  // namespace rlx
