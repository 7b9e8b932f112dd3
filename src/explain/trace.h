// Runs as Chrome's trace format, which chrome://tracing and ui.perfetto.dev show.
//
//   RunTrace trace;
//   f.run(inputs, {.trace = &trace});
//   write_file("t.json", chrome_trace(trace, phases, origin));
//
// {"traceEvents": [{"name", "cat", "ph": "X", "ts": us, "dur": us, "pid": 1, "tid": 1, "args"}, ...]}: all of them are complete
// events of one thread, each inside the one before it that has not ended. Steps that a device runs on several threads are one event.
#pragma once

#include "rlx/device/executable.h"

namespace rlx {

// `phases`: what happened around the run, in seconds since `origin`.
std::string chrome_trace(const RunTrace& run, std::span<const RunSpan> phases,
                         Clock::time_point origin);

}  // namespace rlx
