// StopPoll: how a kernel whose blocks take long asks whether its results are still wanted. Plain
// pointers, so that files compiled for one instruction set can ask without code of their own.
//
//   for (int64_t t = 0; t < steps; ++t) {
//     if (t % 64 == 0 && stop()) return;      // results do not matter any more
#pragma once

namespace rlx::cpu {

struct StopPoll {
  bool (*ask)(void* of) = nullptr;
  void* of = nullptr;
  __attribute__((always_inline)) bool operator()() const { return ask && ask(of); }
};

}  // namespace rlx::cpu
