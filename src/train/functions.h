// Losses, dropout and gradients as functions of traced tensors.
//
//   TracedTensor loss = cross_entropy(logits, labels);          // mean over all rows
//   TracedTensors g = gradients(loss, {w, b});                   // as tensors of the same program
#pragma once

#include "rlx/front/trace.h"

namespace rlx {

// ---- losses: rank-0 means over all elements (rows). Prediction and target have the same shape;
// else "loss-shape" is raised.

TracedTensor mse(const TracedTensor& prediction, const TracedTensor& target);
TracedTensor mean_absolute_error(const TracedTensor& prediction, const TracedTensor& target);
// Quadratic up to delta, linear beyond.
TracedTensor huber(const TracedTensor& prediction, const TracedTensor& target, double delta = 1);
// logits [.., C], labels [..] of an integer dtype. With smoothing s a row's target is (1-s) one-hot
// + s/C.
TracedTensor cross_entropy(const TracedTensor& logits, const TracedTensor& labels,
                           double smoothing = 0);
// Targets in [0, 1], of the logits' type.
TracedTensor binary_cross_entropy(const TracedTensor& logits, const TracedTensor& target);

// ---- dropout

// Zeroes each element with probability `rate` and scales the others by 1 / (1 - rate); x itself
// when not training. The key (u32 [2]) decides which: pass another one at each place and step.
// Raises "dropout-rate" unless 0 <= rate < 1.
TracedTensor dropout(const TracedTensor& x, const TracedTensor& key, double rate,
                     bool train = true);
// `count` keys from one.
TracedTensors split_key(const TracedTensor& key, int64_t count);
// A key from a key and a number (rank 0, integer), say the step: none of those that split_key makes
// of the key.
TracedTensor fold_in(const TracedTensor& key, const TracedTensor& number);

// ---- gradients of a real scalar (transform/reverse.h)

TracedTensors gradients(const TracedTensor& loss, const TracedTensors& wrt);

}  // namespace rlx
