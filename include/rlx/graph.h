// Programs as values.
//
//   Tensor     a dense row-major array in one of 12 dtypes; copies share the bytes
//   Dim        a size: a number or a polynomial over symbols, Dim::symbol("batch") * 2
//   Type       a dtype and a shape
//   Graph      nodes in topological order, outputs, updates (parameter <- value)
//   Builder    appends checked nodes to a graph
//
//   Builder b("double");
//   Value x = b.input("x", {DType::F32, {Dim::symbol("n")}});
//   b.output(op::add(b, x, x));
//   Graph g = b.finish();
//   std::string text = print(g);
//   Graph same = parse(text);                   // parse(print(g)) == g, always
//   Graph fixed = bind(g, {{"n", 16}});         // symbols replaced by sizes
//
// Graphs are plain data: copying, comparing and hashing them is fine, and nothing changes one
// behind its owner's back. Types are inferred when a node is appended; a bad operand raises an
// error that names the op, the types and what is allowed, and leaves the graph as it was.
#pragma once

#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/dtype.h"
#include "rlx/ir/graph.h"
#include "rlx/ir/shape.h"
#include "rlx/ir/tensor.h"
#include "rlx/ir/text.h"
#include "rlx/ir/verify.h"
