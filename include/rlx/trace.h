// Writing programs with operators and methods.
//
//   Graph g = trace("attention", [](Tracer& t) {
//     auto x = t.input("x", {Dim::symbol("batch"), 128, 64});
//     auto w = t.param("w", {64, 192});
//     auto qkv = x.matmul(w).chunk(3, -1);
//     return attention(qkv[0], qkv[1], qkv[2], {.num_heads = 4, .mask = MaskKind::causal});
//   });
//
// The function runs once and records what it does with its tensors. The names are PyTorch's:
// matmul, transpose, view, x[i], x.index({Ellipsis{}, Slice{0, 4}}), sum(axes, keepdims), softmax,
// cat, where. t.scan and t.cond trace bodies that may use the tensors around them; fori_loop, switch_case and
// associative_scan are made of these. Tensors of two
// traces do not mix and end with their trace; either mistake is an error that says so.
#pragma once

#include "rlx/front/loops.h"
#include "rlx/front/trace.h"
#include "rlx/front/traced.h"
