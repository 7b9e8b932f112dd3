// Programs in fewer bits: calibration, int8, weights in any format, training with the rounding. docs/quantisation.md.
//
//   Quantised q = quantise(g, params, batches, {.format = "int8"});
//   CompiledGraph f = Session().compile(q.graph);
//   f.set_params(q.params);
//   fmt::print("{}", q.report.to_string());
#pragma once

#include "rlx/passes/insert_q_dq.h"
#include "rlx/quantise/calibrate.h"
#include "rlx/quantise/qat.h"
#include "rlx/quantise/quantise.h"
