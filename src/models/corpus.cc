#include "rlx/models/corpus.h"

#include <algorithm>
#include <array>

#include "rlx/base/error.h"
#include "rlx/base/file.h"
#include "rlx/base/hash.h"

namespace rlx {

namespace {

namespace fs = std::filesystem;

constexpr size_t kParts = 10;

bool is_source_root(const fs::path& p) {
  return fs::exists(p / "src" / "ir" / "graph.h") && fs::exists(p / "CMakeLists.txt");
}

fs::path source_root() {
  std::error_code none;
  for (const fs::path& start :
       {fs::read_symlink("/proc/self/exe", none), fs::current_path(none) / "x"})
    for (fs::path p = start.parent_path(); !p.empty(); p = p.parent_path()) {
      if (is_source_root(p)) return p;
      if (p == p.root_path()) break;
    }
  fail(ErrorKind::user, "demo-source",
       "--demo reads the project's sources, which are not here; use --text FILE");
}

bool is_text(const fs::path& p) {
  return p.extension() == ".md" || p.extension() == ".h" || p.extension() == ".cc";
}

// Everything but hidden folders and what builds and runs write.
std::vector<fs::path> text_files(const fs::path& root) {
  std::vector<fs::path> out;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator();
       ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory() &&
        (name.starts_with('.') || (it.depth() == 0 && (name == "build" || name == "out"))))
      it.disable_recursion_pending();
    else if (it->is_regular_file() && is_text(it->path()))
      out.push_back(it->path());
  }
  std::sort(out.begin(), out.end(),
            [](const fs::path& a, const fs::path& b) { return a.string() < b.string(); });
  return out;
}

}  // namespace

int32_t Corpus::token_of(char byte) const {
  const auto at = byte_of.find(byte);
  return at == std::string::npos ? -1 : static_cast<int32_t>(at);
}

std::string Corpus::decode(const std::vector<int32_t>& tokens) const {
  std::string out;
  for (int32_t t : tokens) out += byte_of[static_cast<size_t>(t)];
  return out;
}

Corpus make_corpus(std::string_view text, int64_t block) {
  Corpus c;
  c.hash = hash_text(text);
  std::array<int32_t, 256> token{};
  token.fill(-1);
  for (char ch : text) token[static_cast<unsigned char>(ch)] = 0;
  for (size_t byte = 0; byte < token.size(); ++byte)
    if (token[byte] == 0) {
      token[byte] = static_cast<int32_t>(c.byte_of.size());
      c.byte_of += static_cast<char>(byte);
    }
  for (size_t part = 0; part < kParts; ++part) {
    const size_t begin = text.size() * part / kParts, end = text.size() * (part + 1) / kParts;
    const size_t cut = end - (end - begin) / kParts;
    for (size_t i = begin; i < end; ++i)
      (i < cut ? c.train : c.validation).push_back(token[static_cast<unsigned char>(text[i])]);
  }
  const auto least = std::min(static_cast<size_t>(block), SIZE_MAX / kParts - 2) + 2;
  user_check(c.validation.size() >= least && c.train.size() >= least, "text-short",
             "the text has {} bytes; blocks of {} tokens need at least {}", text.size(), block,
             least * kParts);
  return c;
}

std::string demo_text() {
  std::string out;
  for (const fs::path& p : text_files(source_root())) out += read_file(p);
  return out;
}

}  // namespace rlx
