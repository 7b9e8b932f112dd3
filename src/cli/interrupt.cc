#include "rlx/cli/interrupt.h"

#include <csignal>

#include "rlx/base/error.h"

namespace rlx::cli {

namespace {

std::atomic<bool> cancel{false};
static_assert(std::atomic<bool>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

constexpr int kSignals[] = {SIGINT, SIGTERM};

extern "C" void on_signal(int) { cancel.store(true, std::memory_order_relaxed); }

void set_all(void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = handler == SIG_DFL
                        ? 0
                        : static_cast<int>(SA_RESETHAND);  // the second one has its usual effect
  for (int s : kSignals) sigaction(s, &action, nullptr);
}

}  // namespace

InterruptScope::InterruptScope() {
  cancel = false;
  set_all(on_signal);
}
InterruptScope::~InterruptScope() { set_all(SIG_DFL); }

const std::atomic<bool>& cancel_flag() { return cancel; }
bool interrupted() { return cancel.load(std::memory_order_relaxed); }
void check_interrupt() {
  if (interrupted()) fail(ErrorKind::user, "cancelled", "interrupted");
}
void end_on_interrupt() { set_all(SIG_DFL); }

}  // namespace rlx::cli
