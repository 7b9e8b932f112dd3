// Ctrl-C and SIGTERM: the first one asks the command to stop, the second one, of either kind, ends the
// process.
//
//   graph.run({.cancel = &cancel_flag()});      // polled between blocks of work
//   check_interrupt();                          // in loops of our own
#pragma once

#include <atomic>

namespace rlx::cli {

// Handles SIGINT and SIGTERM while it lives.
class InterruptScope {
 public:
  InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  ~InterruptScope();
};

const std::atomic<bool>& cancel_flag();
bool interrupted();
void check_interrupt();  // raises Error(user, "cancelled")
// Of the signal that came first: its word, "interrupted" or "terminated", and the status of the process, 130 or 143.
const char* interrupt_name();
int interrupt_status();

// From now on the first Ctrl-C ends the process: for commands that write no file and wait for
// input.
void end_on_interrupt();

}  // namespace rlx::cli
