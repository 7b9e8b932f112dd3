#include "rlx/formats/graph_file.h"

#include "rlx/formats/checkpoint.h"
#include "rlx/ops/core.h"

namespace rlx {

namespace {

std::filesystem::path side_file(std::filesystem::path path) { return path += ".consts"; }

std::string key(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace

Graph load_graph(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  if (is_graph_bytes(text)) return from_bytes(text, path.string());
  TextStore store;
  if (std::filesystem::exists(side_file(path)))
    for (auto& [name, tensor] : load_checkpoint(side_file(path))) {
      const uint64_t hash = tensor.hash();
      data_check(name == key(hash), "constant-hash", "{}: the constant \"{}\" has the hash {}",
                 side_file(path).string(), name, key(hash));
      store.constants.emplace(hash, tensor);
    }
  try {
    return parse(text, &store);
  } catch (const Error& e) {
    throw Error(e.kind(), e.code(), fmt::format("{}: {}", path.string(), e.message()))
        .at(e.where());
  }
}

void save_graph(const std::filesystem::path& path, const Graph& g) {
  if (path.extension() == ".rlxb") return write_file(path, to_bytes(g));
  TextStore store;
  const std::string text = print(g, &store);
  NamedTensors constants;
  for (const auto& [hash, tensor] : store.constants) constants.emplace(key(hash), tensor);
  if (!constants.empty()) save_checkpoint(side_file(path), constants);
  write_file(path, text);
  if (constants.empty()) std::filesystem::remove(side_file(path));
}

}  // namespace rlx
