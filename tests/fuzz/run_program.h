// What mutated files load is not only valid but runs: compiled for every device and run, it ends in
// results or in an Error that does not blame us. Programs that would take much memory are left out
// here; those that take much time are cancelled.
#pragma once

#include <sys/time.h>

#include <atomic>
#include <csignal>

#include "rlx/ir/builder.h"
#include "rlx/ops/core.h"
#include "rlx/runtime/runtime.h"

namespace rlx::fuzz {

inline std::atomic<bool> g_cancel{false};

// Sets g_cancel after so much time of this process on the processor, whatever else the machine does.
class CancelAfter {
 public:
  explicit CancelAfter(int seconds) {
    g_cancel = false;
    std::signal(SIGPROF, [](int) { g_cancel = true; });
    const itimerval limit{{0, 0}, {seconds, 0}};
    setitimer(ITIMER_PROF, &limit, nullptr);
  }
  CancelAfter(const CancelAfter&) = delete;
  ~CancelAfter() {
    const itimerval none{};
    setitimer(ITIMER_PROF, &none, nullptr);
  }
};

// All results of all nodes, bodies included, one after the other. Infinite where it overflows.
inline double bytes_of(const Graph& g) {
  double sum = 0;
  for (const Node& n : g.nodes) {
    for (const Type& t : n.out) {
      double bytes = static_cast<double>(size_of(t.dtype));
      for (const Dim& d : t.shape) bytes *= static_cast<double>(d.value());
      sum += bytes;
    }
    for (const FieldInfo& f : n.attrs.fields())
      if (f.is<Body>()) sum += bytes_of(**static_cast<const Body*>(f.member_of(n.attrs.data())));
  }
  return sum;
}

inline void compile_and_run(const Graph& g) {
  constexpr double kMostBytes = 4 << 20;
  DimBinding dims;
  for (const std::string& s : g.symbols()) dims.emplace(s, 2);
  const Graph bound = rlx::bind(g, dims);
  if (!(bytes_of(bound) < kMostBytes)) return;
  for (const Device& device : {Device("reference"), Device("cpu")}) {
    if (!is_available(device)) continue;
    const CancelAfter limit(2);
    try {
      CompiledGraph f = Session(device).compile(bound, {.threads = 1});
      const Graph& s = f.signature();
      for (Value v : s.inputs())
        f.set_input(s.node(v).get<LeafAttrs>().name,
                    Tensor::full(s.type(v).dtype, s.type(v).shape.sizes(), 1));
      for (Value v : s.params())
        f.set_param(s.node(v).get<LeafAttrs>().name,
                    Tensor::full(s.type(v).dtype, s.type(v).shape.sizes(), 1));
      f.run({.cancel = &g_cancel});
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::internal || e.kind() == ErrorKind::device)
        fail(ErrorKind::internal, "run", "{}: {}", name(device), e.what());
    }
  }
}

// Every fifth input that is valid is run: compiling takes a hundred times as long as reading.
inline void compile_and_run_some(const Graph& g) {
  constexpr int kEvery = 5;
  static int count = 0;
  if (count++ % kEvery == 0) compile_and_run(g);
}

}  // namespace rlx::fuzz
