// LinkedCode: object files of this process's own machine, as code that can be called.
//
//   LinkedCode code(address_of);                       // finds what the objects call
//   code.add(object, [&](std::string_view symbol, void* address) { .. });
//
// The code lives as long as the LinkedCode, which keeps its pages and nothing of LLVM's: a program
// that is kept for one small kernel costs these. Raises Error (device, "llvm") for an object that
// cannot be linked, and std::bad_alloc or (resource, "out-of-memory"), after which what LLVM had begun
// is abandoned (jit.cc says why).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "rlx/base/function_ref.h"

namespace rlx::cpu {

class LinkedCode {
 public:
  // What an object refers to and does not define; nullptr: unknown.
  using Resolve = void* (*)(std::string_view symbol);
  explicit LinkedCode(Resolve resolve) : resolve_(resolve) {}
  ~LinkedCode();
  LinkedCode(const LinkedCode&) = delete;

  // Calls `found` with every symbol that the object defines for others.
  void add(std::span<const char> object, FunctionRef<void(std::string_view, void*)> found);
  int64_t bytes() const;  // of pages

  struct Pages {
    void* begin = nullptr;
    size_t bytes = 0;
  };

 private:
  Resolve resolve_;
  std::vector<Pages> pages_;
};

}  // namespace rlx::cpu
