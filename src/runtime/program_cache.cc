#include "rlx/runtime/program_cache.h"

#include <algorithm>

namespace rlx {

ProgramCache::ProgramCache(int64_t limit_bytes)
    : programs_(limit_bytes, [](const Program& p) { return p->resident_bytes(); }) {}

std::shared_ptr<ProgramPool> ProgramCache::compile(const Graph& g, const Device& device,
                                                   int64_t memory_budget,
                                                   const std::vector<size_t>& donate) {
  uint64_t hash = mix(mix(g.hash(), rlx::hash(device)), static_cast<uint64_t>(memory_budget));
  for (const size_t input : donate) hash = mix(hash, input);
  const auto same = [&](const Key& k) {
    return k.device == device && k.memory_budget == memory_budget && k.donate == donate &&
           *k.graph == g;
  };
  const Key key{device, memory_budget, donate, {std::shared_ptr<const Graph>(), &g}};
  std::promise<Program> made;
  std::shared_future<Program> others;
  {
    const std::lock_guard lock(mutex_);
    if (const Program* hit = programs_.find(hash, same)) {
      ++hits_;
      return *hit;
    }
    const auto same_one = [&](const Pending& p) { return p.hash == hash && same(*p.key); };
    if (const auto found = std::find_if(pending_.begin(), pending_.end(), same_one);
        found != pending_.end()) {
      ++hits_;
      others = found->program;
    } else {
      ++compilations_;
      pending_.push_back({hash, &key, made.get_future().share()});
    }
  }
  if (others.valid()) return others.get();
  // Whoever waits is told before the next one asks.
  const auto done = [&](const Program& program) {
    const std::lock_guard lock(mutex_);
    std::erase_if(pending_, [&](const Pending& p) { return p.key == &key; });
    if (!program) return;
    const Graph& own = program->signature();  // without blocks
    programs_.insert(
        hash,
        {device, memory_budget, donate,
         own == g ? std::shared_ptr<const Graph>(program, &own) : std::make_shared<const Graph>(g)},
        program);
  };
  try {
    auto program = std::make_shared<ProgramPool>(
        Session(device).compile(g, {.memory_budget = memory_budget, .donate = donate}));
    done(program);
    made.set_value(program);
    return program;
  } catch (...) {
    done(nullptr);
    made.set_exception(std::current_exception());
    throw;
  }
}

ProgramCache::Counts ProgramCache::counts() const {
  const std::lock_guard lock(mutex_);
  return {hits_, compilations_, programs_.size(), programs_.bytes()};
}

void ProgramCache::clear() {
  const std::lock_guard lock(mutex_);
  programs_.clear();
}

}  // namespace rlx
