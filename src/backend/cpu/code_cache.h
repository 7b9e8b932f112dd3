// Machine code on disk, so that a program that was compiled before, by any process, is compiled without generating code.
//
//   if (CodeCache* cache = CodeCache::of_process())
//     if (std::optional<std::string> object = cache->load(key)) ...
//
// An entry is a file: its key (everything that the code depends on, whole), the code, a checksum. It is used only when
// all of it is as it was written and the key is the one asked for. Entries appear whole or not at all, whoever is killed
// or writes at the same time. The least recently used ones go when there are too many bytes, or too many files: each
// save looks through the folder once.
//
// Code from a file is run, so the folder must belong to this user and be closed to all others (mode 0700, which it is
// made with). One that is not, cannot be written or is full, and entries that are broken, count as empty; that is said
// once per folder, on stderr. Nothing here raises, but for memory that runs out.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace rlx::cpu {

class CodeCache {
 public:
  static constexpr int64_t kMaxBytes = 256 << 20, kMaxEntries = 4096;

  explicit CodeCache(std::filesystem::path folder, int64_t max_bytes = kMaxBytes,
                     int64_t max_entries = kMaxEntries);
  CodeCache(const CodeCache&) = delete;

  std::optional<std::string> load(std::string_view key);
  void store(std::string_view key, std::string_view code);
  const std::filesystem::path& folder() const { return folder_; }

  // In the folder of RLX_CACHE_DIR, else $XDG_CACHE_HOME/rlx, else ~/.cache/rlx. nullptr: RLX_CACHE=0, or there is no
  // such folder.
  static CodeCache* of_process();

 private:
  bool usable();  // the folder is there, ours and closed to others
  std::filesystem::path path_of(std::string_view key) const;
  void complain(std::string_view why);
  void bound(const std::filesystem::path& fresh, int64_t bytes);

  std::filesystem::path folder_;
  int64_t max_bytes_, max_entries_;
  std::once_flag checked_;
  bool usable_ = false;
  std::atomic<bool> writes_ = true, complained_ = false;
  std::mutex mutex_;
  int64_t bytes_ = -1, entries_ = 0;  // in the folder, about; -1: not counted yet
};

}  // namespace rlx::cpu
