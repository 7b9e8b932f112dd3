#include "rlx/cli/interrupt.h"

#include <csignal>

#include "rlx/base/error.h"

namespace rlx::cli {

namespace {

std::atomic<bool> cancel{false};
std::atomic<int> first{SIGINT};  // the signal that set it
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

constexpr int kSignals[] = {SIGINT, SIGTERM};

void set_all(void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  for (int s : kSignals) sigaction(s, &action, nullptr);
}

// The second signal has its usual effect, whichever of them came first: it is raised again, and
// arrives when this returns.
extern "C" void on_signal(int signal) {
  if (!cancel.exchange(true, std::memory_order_relaxed)) {
    first.store(signal, std::memory_order_relaxed);
    return;
  }
  set_all(SIG_DFL);
  ::raise(signal);
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
  if (interrupted()) fail(ErrorKind::user, "cancelled", "{}", interrupt_name());
}
const char* interrupt_name() { return first == SIGTERM ? "terminated" : "interrupted"; }
int interrupt_status() { return 128 + first; }
void end_on_interrupt() { set_all(SIG_DFL); }

}  // namespace rlx::cli
