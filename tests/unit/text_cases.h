// Cases of tests/text: data files anyone can read.
//
//   # comment
//   === title
//   passes: simplify,cse
//   fast_math                      (optional)
//   graph @"g" { ... }
//   ---
//   graph @"g" { ... }             what comes out
//
// Cases of the stages after the passes say `to: fuse` (lower, plan, kernel: support/lowered.h) instead, with
// passes that come first, if any.
//
// RLX_UPDATE_TEXT=1 writes the expectations instead of comparing; review the diff.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "rlx/base/error.h"

namespace rlx::text_cases {

struct Case {
  std::string title, passes, to;
  bool fast_math = false;
  std::string input, expected;
};

struct File {
  std::filesystem::path path;
  std::string comment;
  std::vector<Case> cases;
};

inline File read(const std::filesystem::path& path) {
  File file{path, {}, {}};
  std::ifstream in(path);
  bool after = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("=== ")) {
      file.cases.push_back({line.substr(4), {}, {}, false, {}, {}});
      after = false;
    } else if (file.cases.empty()) {
      file.comment += line + "\n";
    } else if (Case& c = file.cases.back(); !after && line.starts_with("passes: ")) {
      c.passes = line.substr(8);
    } else if (!after && line.starts_with("to: ")) {
      c.to = line.substr(4);
    } else if (!after && line == "fast_math") {
      c.fast_math = true;
    } else if (line == "---") {
      after = true;
    } else {
      (after ? c.expected : c.input) += line + "\n";
    }
  }
  return file;
}

inline void write(const File& file) {
  std::ofstream out(file.path);
  out << file.comment;
  for (const Case& c : file.cases) {
    out << "=== " << c.title << "\n";
    if (!c.passes.empty()) out << "passes: " << c.passes << "\n";
    if (!c.to.empty()) out << "to: " << c.to << "\n";
    out << (c.fast_math ? "fast_math\n" : "") << c.input << "---\n" << c.expected;
  }
}

inline std::filesystem::path root() {
  return std::filesystem::path(RLX_SOURCE_DIR) / "tests" / "text";
}

inline std::vector<File> all_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".txt") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<File> files;
  for (const auto& p : paths) files.push_back(read(p));
  return files;
}

// Those of the passes.
inline std::vector<File> all() {
  std::vector<File> files = all_of(root());
  std::erase_if(files, [](const File& f) {
    return std::any_of(f.cases.begin(), f.cases.end(), [](const Case& c) { return !c.to.empty(); });
  });
  return files;
}

inline bool updating() { return std::getenv("RLX_UPDATE_TEXT") != nullptr; }

}  // namespace rlx::text_cases
