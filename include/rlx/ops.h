// The ops: objects in namespace rlx::op, callable on a Builder and on traced tensors.
//
//   Value y = op::softmax(b, x, {.axis = -1});            // on a builder
//   TracedTensor y = op::softmax(x, {.axis = -1});        // on traced tensors
//   Values r = b.emit(op::attention.def, AttentionAttrs{.num_heads = 8},
//                     Values{q, k, v});                   // all results
//
// An op is one entry with everything known about it: inference, reference value, derivatives,
// batching, scalar form or decomposition. op_table() lists them; op::scan and op::cond take bodies,
// which the tracer writes.
//
// Elementwise ops broadcast like NumPy and want one dtype. NaN propagates; an index out of range
// raises when the program runs; sums and products of f16 and bf16 accumulate in f32. evaluate()
// computes a graph by the reference rules, slowly.
#pragma once

#include "rlx/ops/evaluate.h"
#include "rlx/ops/ops.h"
