// Building programs node by node and block by block.
//
//   GraphBuilder g("mlp");                                         // tensor ops, by their usual names
//   NodeId x = g.input("x", {DType::F32, {4, 8}}), w = g.param("w", {DType::F32, {8, 16}});
//   g.set_outputs({g.gelu(g.mm(x, w))});
//   Graph graph = g.finish();
//
//   GraphModule m = GraphBuilder::define("ffn", [](HirModule& h) { // blocks
//     auto x = h.input_batch_seq("x", "batch", "seq", 64, DType::F32);
//     auto up = h.param("up", {DType::F32, {64, 256}}), gate = h.param("gate", {DType::F32, {64, 256}});
//     return h.swiglu_ffn(x, up, gate, h.param("down", {DType::F32, {256, 64}}));
//   });
//   Graph same = std::move(m).into_graph();                        // lowered
//
// Types are inferred; a declared shape is checked. inspect() on any of them is a dump for people,
// hir_to_json and lir_to_json are for files, to_svg draws.
#pragma once

#include "rlx/stages/builders/graph_builder.h"
#include "rlx/stages/hir.h"
#include "rlx/stages/inspect.h"
#include "rlx/stages/json.h"
#include "rlx/stages/module.h"
#include "rlx/stages/svg.h"
