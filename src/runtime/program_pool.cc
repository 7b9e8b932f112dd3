#include "rlx/runtime/program_pool.h"

namespace rlx {

ProgramPool::ProgramPool(CompiledGraph program)
    : shared_(std::make_shared<Shared>(std::move(program))) {
  shared_->prototype.prepare();
}

ProgramPool::Lease ProgramPool::take() {
  const std::lock_guard lock(shared_->mutex);
  auto& idle = shared_->idle;
  if (idle.empty()) idle.push_back(std::make_unique<CompiledGraph>(shared_->prototype.clone()));
  Lease lease(shared_, std::move(idle.back()));
  idle.pop_back();
  return lease;
}

ProgramPool::Lease& ProgramPool::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  home_ = std::move(other.home_);
  program_ = std::move(other.program_);
  return *this;
}

void ProgramPool::Lease::give_back() noexcept {
  if (!program_) return;
  try {
    program_->unbind();
    const std::lock_guard lock(home_->mutex);
    home_->idle.push_back(std::move(program_));
  } catch (const std::exception&) {  // then it is gone
    program_.reset();
  }
}

size_t ProgramPool::clones() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->idle.size();
}

int64_t ProgramPool::resident_bytes() const {
  const std::lock_guard lock(shared_->mutex);
  const int64_t own = shared_->prototype.resident_bytes();
  int64_t bytes = own;
  for (const auto& f : shared_->idle) bytes += f->resident_bytes() - own;
  return bytes;
}

}  // namespace rlx
