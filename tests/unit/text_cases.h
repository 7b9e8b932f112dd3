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
// RLX_UPDATE_TEXT=1 writes the expectations instead of comparing; review the diff.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "rlx/base/error.h"

namespace rlx::text_cases {

struct Case {
  std::string title, passes;
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
      file.cases.push_back({line.substr(4), {}, false, {}, {}});
      after = false;
    } else if (file.cases.empty()) {
      file.comment += line + "\n";
    } else if (Case& c = file.cases.back(); !after && line.starts_with("passes: ")) {
      c.passes = line.substr(8);
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
  for (const Case& c : file.cases)
    out << "=== " << c.title << "\npasses: " << c.passes << "\n"
        << (c.fast_math ? "fast_math\n" : "") << c.input << "---\n"
        << c.expected;
}

inline std::filesystem::path root() {
  return std::filesystem::path(RLX_SOURCE_DIR) / "tests" / "text";
}

inline std::vector<File> all() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root()))
    if (entry.path().extension() == ".txt") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<File> files;
  for (const auto& p : paths) files.push_back(read(p));
  return files;
}

}  // namespace rlx::text_cases
