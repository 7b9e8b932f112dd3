#include "rlx/backend/hidden/stream.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <thread>

#include "rlx/lower/lir.h"

namespace rlx::hidden {

namespace {

constexpr size_t kPile = 64;  // so much may wait before work begins

// What a stream and its events share. Jobs are numbered from 1; one begins when it is demanded.
class Queue {
 public:
  int64_t add(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    ++added_;
    if (jobs_.size() > kPile) demand(added_ - static_cast<int64_t>(kPile) / 2);
    return added_;
  }
  int64_t last() {
    const std::lock_guard lock(mutex_);
    return added_;
  }
  bool is_done(int64_t job) {
    const std::lock_guard lock(mutex_);
    return done_ >= job;
  }
  void wait(int64_t job) {
    std::unique_lock lock(mutex_);
    demand(job);
    changed_.wait(lock, [&] { return done_ >= job; });
  }
  void raise() {
    std::exception_ptr error;
    {
      const std::lock_guard lock(mutex_);
      std::swap(error, error_);
    }
    if (error) std::rethrow_exception(error);
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    demand(added_);
  }
  // The thread's work, until it is stopped.
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopped_ || done_ < demanded_; });
      if (done_ >= added_) return;  // stopped
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      const bool skipped = error_ != nullptr;
      lock.unlock();
      std::exception_ptr error;
      try {
        if (!skipped) job();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error && !error_) error_ = error;
      ++done_;
      changed_.notify_all();
    }
  }

 private:
  void demand(int64_t job) {
    demanded_ = std::max(demanded_, job);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  int64_t added_ = 0, demanded_ = 0, done_ = 0;
  bool stopped_ = false;
  std::exception_ptr error_;
};

class HiddenEvent final : public Event {
 public:
  HiddenEvent(std::shared_ptr<Queue> queue, int64_t job) : queue_(std::move(queue)), job_(job) {}
  bool has_come() const override { return queue_->is_done(job_); }
  void wait() const override { queue_->wait(job_); }

 private:
  std::shared_ptr<Queue> queue_;
  int64_t job_;
};

class HiddenStream final : public Stream {
 public:
  HiddenStream(std::shared_ptr<HiddenMemory> memory, std::unique_ptr<Stream> inner)
      : memory_(std::move(memory)), inner_(std::move(inner)), queue_(std::make_shared<Queue>()) {}
  ~HiddenStream() override {
    queue_->stop();
    if (thread_.joinable()) thread_.join();
  }

  bool is_late() const override { return true; }
  void prepare(const Program& program) override {
    wait();
    inner_->prepare(program);
  }
  void launch(const Launch& l) override {
    size_t count = 0;
    for (int32_t s = l.chain.begin; s < l.chain.end; ++s)
      count += operand_count(l.program.steps[static_cast<size_t>(s)]);
    std::vector<void*> operands;
    std::vector<std::byte*> workspaces;
    for (size_t i = 0; i < count; ++i) operands.push_back(open(l.operands[i]));
    for (int32_t s = l.chain.begin; s < l.chain.end; ++s) {
      std::byte* const at = l.workspaces[s - l.chain.begin];
      workspaces.push_back(at ? open(at) : nullptr);
    }
    auto* faults = reinterpret_cast<uint32_t*>(open(l.faults));
    add([this, &program = l.program, &chain = l.chain, &cancellation = l.cancellation, faults,
         operands = std::move(operands), workspaces = std::move(workspaces)] {
      inner_->launch({program, chain, cancellation, operands.data(), workspaces.data(), faults});
    });
  }
  void pack(const StepKernel& kernel, const std::byte* from, std::byte* to) override {
    add([this, &kernel, from = open(from), to = open(to)] { inner_->pack(kernel, from, to); });
  }
  void copy(std::byte* to, const std::byte* from, int64_t bytes) override {
    if (bytes > 0)
      add([to = open(to), from = open(from), bytes] {
        std::memmove(to, from, static_cast<size_t>(bytes));
      });
  }
  void fill(std::byte* to, uint8_t byte, int64_t bytes) override {
    if (bytes > 0)
      add([to = open(to), byte, bytes] { std::memset(to, byte, static_cast<size_t>(bytes)); });
  }
  void upload(std::byte* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return;
    const auto* begin = static_cast<const std::byte*>(from);
    add([to = open(to), staged = std::vector<std::byte>(begin, begin + bytes)] {
      std::memcpy(to, staged.data(), staged.size());
    });
  }
  void download(void* to, const std::byte* from, int64_t bytes) override {
    wait();
    if (bytes > 0) std::memcpy(to, open(from), static_cast<size_t>(bytes));
  }
  void wait() override {
    if (!thread_.joinable()) return;
    queue_->wait(queue_->last());
    queue_->raise();
  }
  std::shared_ptr<const Event> record() override {
    return std::make_shared<const HiddenEvent>(queue_, queue_->last());
  }
  void wait_for(std::shared_ptr<const Event> event) override {
    add([event = std::move(event)] { event->wait(); });
  }
  int64_t resident_bytes() const override { return inner_->resident_bytes(); }

 private:
  std::byte* open(const void* address) const { return memory_->open(address); }
  void add(std::function<void()> job) {
    if (!thread_.joinable()) thread_ = std::thread([queue = queue_] { queue->run(); });
    queue_->add(std::move(job));
  }

  std::shared_ptr<HiddenMemory> memory_;
  std::unique_ptr<Stream> inner_;
  std::shared_ptr<Queue> queue_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Stream> make_hidden_stream(std::shared_ptr<HiddenMemory> memory,
                                           std::unique_ptr<Stream> inner) {
  return std::make_unique<HiddenStream>(std::move(memory), std::move(inner));
}

}  // namespace rlx::hidden
