// ProgramPool: one compiled program that any number of threads run at once, each on a clone of its own.
//
//   ProgramPool pool(Session().compile(graph));
//   ProgramPool::Lease f = pool.take();            // in each thread; a clone that waits, or a new one
//   f->run({{"x", x}});                            // given back when f goes
//
// Clones share code, constants and the parameters that no update writes; one that was given back keeps its memory, the
// inputs that it was given and its parameters, set or updated, for who takes it next, but nothing that was bound to memory
// of others. Thread-safe. A lease belongs to one thread and may outlive the pool.
#pragma once

#include <mutex>

#include "rlx/runtime/runtime.h"

namespace rlx {

class ProgramPool {
 public:
  explicit ProgramPool(CompiledGraph program);  // with its parameters set, which are prepared here

  class Lease;
  Lease take();

  const Graph& signature() const { return shared_->prototype.signature(); }
  const CompileInfo& info() const { return shared_->prototype.info(); }
  Device device() const { return shared_->prototype.device(); }
  size_t clones() const;  // that wait
  // Code, constants and the memory of clones that wait.
  int64_t resident_bytes() const;

 private:
  struct Shared {
    explicit Shared(CompiledGraph f) : prototype(std::move(f)) {}
    std::mutex mutex;
    CompiledGraph prototype;  // of which clones are made; never runs, so it has no memory for that
    std::vector<std::unique_ptr<CompiledGraph>> idle;
  };
  std::shared_ptr<Shared> shared_;
};

class ProgramPool::Lease {
 public:
  Lease(Lease&&) noexcept = default;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { give_back(); }
  CompiledGraph& operator*() const { return *program_; }
  CompiledGraph* operator->() const { return program_.get(); }

 private:
  friend class ProgramPool;
  Lease(std::shared_ptr<Shared> home, std::unique_ptr<CompiledGraph> program)
      : home_(std::move(home)), program_(std::move(program)) {}
  void give_back() noexcept;

  std::shared_ptr<Shared> home_;
  std::unique_ptr<CompiledGraph> program_;
};

}  // namespace rlx
