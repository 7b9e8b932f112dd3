#include "rlx/formats/graph_file.h"

#include <fstream>
#include <set>

#include "rlx/base/hash.h"
#include "rlx/formats/checkpoint.h"
#include "rlx/ops/core.h"

namespace rlx {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSideEnding = ".consts";

std::string key(uint64_t hash) { return fmt::format("{:016x}", hash); }

// NAME.<16 hex digits>.consts
bool is_side_file(std::string_view name, std::string_view of) {
  if (!name.starts_with(of) || !name.ends_with(kSideEnding)) return false;
  name.remove_prefix(of.size());
  name.remove_suffix(std::min(kSideEnding.size(), name.size()));
  return name.size() == 17 && name[0] == '.' &&
         name.find_first_not_of("0123456789abcdef", 1) == std::string_view::npos;
}

// Before texts named their side file it was NAME.consts.
fs::path unnamed_side_file(fs::path path) { return path += kSideEnding; }

// Also no for a name that no file can have.
bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

TextStore read_side_file(const fs::path& path) {
  TextStore store;
  for (auto& [name, tensor] : load_checkpoint(path)) {
    const uint64_t hash = tensor.hash();
    data_check(name == key(hash), "constant-hash", "{}: the constant \"{}\" has the hash {}",
               path.string(), name, key(hash));
    store.constants.emplace(hash, tensor);
  }
  return store;
}

// Text names a file beside it: a name, no path.
void require_plain_name(const std::string& name, const std::string& what) {
  data_check(name.ends_with(kSideEnding) && name.find('/') == std::string::npos && is_utf8(name),
             "constant-file",
             "{}: the constants must be in a file beside it whose name ends in {}, not in {}", what,
             kSideEnding, quote(name));
}

Graph parse_text(std::string_view text, const std::string& what, const TextStore& store) {
  try {
    return parse(text, &store);
  } catch (const Error& e) {
    const Error error(e.kind(), e.code(), fmt::format("{}: {}", what, e.message()));
    throw e.where().empty() ? error : error.at(e.where());
  }
}

// The hash of the constants, each of which is named by its own.
uint64_t hash_of(const TextStore& store) {
  uint64_t h = hash_text(kSideEnding);
  for (const auto& [hash, tensor] : store.constants) h = mix(h, hash);
  return h;
}

// The side file that a file of the folder names, if it is a text that names one.
std::string side_file_of(const fs::path& path) {
  constexpr size_t kMost = 4096;  // of a first line
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return {};
  std::ifstream in(path, std::ios::binary);
  std::string begin(kMost, 0);
  in.read(begin.data(), kMost);
  begin.resize(static_cast<size_t>(in.gcount()));
  try {
    return constants_file(begin);
  } catch (const Error&) {
    return {};  // no text
  }
}

// Removes the side files of `target` but for the one called `kept` and those that copies of earlier texts name.
void remove_old_side_files(const fs::path& target, const std::string& kept) {
  const std::string name = target.filename().string();
  const fs::path folder = folder_of(target);
  const std::vector<std::string> names = names_in(folder);
  std::set<std::string> old;
  for (const std::string& other : names)
    if (other != kept && (is_side_file(other, name) || other == unnamed_side_file(name)) &&
        is_checkpoint(folder / other))
      old.insert(other);
  for (size_t i = 0; i < names.size() && !old.empty(); ++i)
    if (!old.contains(names[i])) old.erase(side_file_of(folder / names[i]));
  for (const std::string& other : old) remove_file(folder / other);
}

}  // namespace

std::string constants_file(std::string_view text) {
  Lexer lex(text);
  return lex.accept("constants") ? lex.quoted() : std::string();
}

Graph read_graph(std::string_view content, const std::string& what, const fs::path& folder) {
  return within_memory([&] {
    if (is_graph_bytes(content)) return from_bytes(content, what);
    const std::string side = constants_file(content);
    if (side.empty()) return parse_text(content, what, {});
    require_plain_name(side, what);
    data_check(is_there(folder / side), "constant-file",
               "{}: its constants are in {}, which is not there", what, (folder / side).string());
    return parse_text(content, what, read_side_file(folder / side));
  });
}

namespace {

Graph load_once(const fs::path& path, const fs::path& target, const std::string& content) {
  const std::string side = is_graph_bytes(content) ? "" : constants_file(content);
  if (side.empty() && !is_graph_bytes(content) && is_there(unnamed_side_file(path)))
    return parse_text(content, path.string(), read_side_file(unnamed_side_file(path)));
  // A link to a text stands beside a link to its side file, or alone.
  const fs::path folder =
      side.empty() || is_there(folder_of(path) / side) ? folder_of(path) : folder_of(target);
  return read_graph(content, path.string(), folder);
}

}  // namespace

Graph load_graph(const fs::path& path) {
  return within_memory([&] {
    const fs::path target = follow_links(path);
    const std::string content = read_file(path);
    try {
      return load_once(path, target, content);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::resource) throw;
      // The program may have been replaced before its side file was read. Whether it was cannot be
      // seen: the same one may be back. So once more, while nobody saves.
      const FolderLock lock(folder_of(target));
      return load_once(path, target, read_file(path));
    }
  });
}

void save_graph(const fs::path& path, const Graph& g) {
  within_memory([&] {
    if (path.extension() == ".rlxb") return write_file(path, to_bytes(g));
    if (is_pipe_or_device(path)) return write_file(path, print(g));
    TextStore store;
    std::string text = print(g, &store);
    const fs::path target = follow_links(path);
    const FolderLock lock(folder_of(target));  // side files that others are about to name stay
    AtomicFile file(path);                     // raises before a side file is written
    std::string side;
    if (!store.constants.empty()) {
      side = fmt::format("{}.{}{}", target.filename().string(), key(hash_of(store)), kSideEnding);
      NamedTensors constants;
      for (const auto& [hash, tensor] : store.constants) constants.emplace(key(hash), tensor);
      save_checkpoint(folder_of(target) / side, constants, target.filename().string());
      text = fmt::format("constants {}\n{}", quote(side), text);
    }
    file.write(text);
    file.commit();
    remove_old_side_files(target, side);
  });
}

}  // namespace rlx
