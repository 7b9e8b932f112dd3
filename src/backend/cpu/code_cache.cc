#include "rlx/backend/cpu/code_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "rlx/base/error.h"
#include "rlx/base/file.h"
#include "rlx/base/hash.h"

namespace rlx::cpu {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kEnding = ".code";

struct Header {
  char magic[8] = {'r', 'l', 'x', 'c', 'o', 'd', 'e', '1'};
  uint64_t key_bytes = 0, code_bytes = 0, checksum = 0;
};

uint64_t checksum_of(std::string_view key, std::string_view code) {
  return hash_bytes(code.data(), code.size(), hash_bytes(key.data(), key.size()));
}

// The code of an entry, if the file is one, whole, and of this key.
std::optional<std::string> code_of(const std::string& file, std::string_view key) {
  Header h;
  if (file.size() < sizeof h) return std::nullopt;
  std::memcpy(&h, file.data(), sizeof h);
  const std::string_view rest = std::string_view(file).substr(sizeof h);
  if (std::memcmp(h.magic, Header().magic, sizeof h.magic) != 0 || h.key_bytes > rest.size() ||
      h.code_bytes != rest.size() - h.key_bytes)
    return std::nullopt;
  const std::string_view code = rest.substr(h.key_bytes);
  if (h.checksum != checksum_of(rest.substr(0, h.key_bytes), code)) return std::nullopt;
  if (rest.substr(0, h.key_bytes) != key) return std::nullopt;
  return std::string(code);
}

struct Entry {
  fs::path path;
  int64_t bytes;
  timespec used;
};

std::vector<Entry> entries_in(const fs::path& folder) {
  std::vector<Entry> out;
  for (const std::string& name : names_in(folder)) {
    struct stat info{};
    fs::path path = folder / name;
    if (name.ends_with(kEnding) && ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode))
      out.push_back({std::move(path), info.st_size, info.st_mtim});
  }
  return out;
}

const char* text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text && *text ? text : nullptr;
}

}  // namespace

CodeCache::CodeCache(fs::path folder, int64_t max_bytes, int64_t max_entries)
    : folder_(std::move(folder)), max_bytes_(max_bytes), max_entries_(max_entries) {}

CodeCache* CodeCache::of_process() {
  static const std::unique_ptr<CodeCache> cache = []() -> std::unique_ptr<CodeCache> {
    if (const char* wanted = text_of("RLX_CACHE"); wanted && std::string_view(wanted) == "0")
      return nullptr;
    if (const char* folder = text_of("RLX_CACHE_DIR")) return std::make_unique<CodeCache>(folder);
    if (const char* base = text_of("XDG_CACHE_HOME"))
      return std::make_unique<CodeCache>(fs::path(base) / "rlx");
    if (const char* home = text_of("HOME"))
      return std::make_unique<CodeCache>(fs::path(home) / ".cache" / "rlx");
    return nullptr;
  }();
  return cache.get();
}

void CodeCache::complain(std::string_view why) {
  if (!complained_.exchange(true))
    fmt::print(stderr, "rlx: the cache of generated code in {} is not used in full: {}\n",
               folder_.string(), why);
}

bool CodeCache::usable() {
  std::call_once(checked_, [&] {
    try {
      make_private_folder(folder_);
    } catch (const Error& e) {
      return complain(e.message());
    }
    struct stat info{};
    if (::stat(folder_.c_str(), &info) < 0)
      return complain(fmt::format("it cannot be looked at: {}", std::strerror(errno)));
    if (!S_ISDIR(info.st_mode)) return complain("it is no folder");
    if (info.st_uid != ::geteuid()) return complain("it belongs to another user");
    if (info.st_mode & 077) return complain("others may look into it; its mode must be 0700");
    usable_ = true;
  });
  return usable_;
}

fs::path CodeCache::path_of(std::string_view key) const {
  return folder_ / fmt::format("{:016x}{}", hash_text(key), kEnding);
}

std::optional<std::string> CodeCache::load(std::string_view key) {
  if (!usable()) return std::nullopt;
  const fs::path path = path_of(key);
  struct stat info{};
  if (::lstat(path.c_str(), &info) < 0) return std::nullopt;  // there is none
  try {
    if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) {
      complain(fmt::format("{} is no file of this user's", path.filename().string()));
      return std::nullopt;
    }
    std::optional<std::string> code = code_of(read_file(path), key);
    if (code)
      ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now
    else
      complain(fmt::format("{} is broken or of another program", path.filename().string()));
    return code;
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::resource && e.code() == "out-of-memory") throw;
    complain(e.what());
    return std::nullopt;
  }
}

void CodeCache::store(std::string_view key, std::string_view code) {
  if (!usable() || !writes_) return;
  Header h;
  h.key_bytes = key.size();
  h.code_bytes = code.size();
  h.checksum = checksum_of(key, code);
  const auto total = static_cast<int64_t>(sizeof h + key.size() + code.size());
  if (total > max_bytes_) return;
  try {
    const fs::path path = path_of(key);
    AtomicFile file(path, "code");
    file.write(&h, sizeof h);
    file.write(key);
    file.write(code);
    file.commit(/*durable=*/false);  // a file that the power took is found broken
    bound(path, total);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::resource && e.code() == "out-of-memory") throw;
    writes_ = false;
    complain(e.what());
  }
}

// Removes the least recently used entries until three quarters of the bounds are left; the one just written stays.
void CodeCache::bound(const fs::path& fresh, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const bool counted = bytes_ >= 0;
  bytes_ += bytes, ++entries_;
  if (counted && bytes_ <= max_bytes_ && entries_ <= max_entries_) return;
  std::vector<Entry> entries = entries_in(folder_);
  bytes_ = 0;
  for (const Entry& e : entries) bytes_ += e.bytes;
  entries_ = static_cast<int64_t>(entries.size());
  if (bytes_ <= max_bytes_ && entries_ <= max_entries_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (const Entry& e : entries) {
    if (bytes_ <= max_bytes_ / 4 * 3 && entries_ <= max_entries_ / 4 * 3) break;
    if (e.path == fresh) continue;
    remove_file(e.path);
    bytes_ -= e.bytes, --entries_;
  }
}

}  // namespace rlx::cpu
