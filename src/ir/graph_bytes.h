// Graphs as bytes: versioned, checksummed, read strictly.
//
//   std::string bytes = to_bytes(g);
//   Graph same = from_bytes(bytes, op_table());      // ops/ops.h has it with that table
//
// Layout, little-endian: "RLXGRAPH", u32 version, u64 length of the payload, the payload, u64 checksum
// of all before it. The payload is the graph: its name, the ops it uses (name and attribute names, so
// that attributes may be added later), its labels, nodes (op, operands, attributes that are not at
// their default, result types, labels), outputs, updates. Numbers are varints, texts UTF-8 with their
// length, constants raw. Bodies of control flow are graphs of the same form inside attributes. The version is
// that of the language (ir/text.h); all up to the present one are read.
//
// Loading raises Error(data) with the byte: "graph-magic", "graph-version", "graph-length",
// "graph-checksum", "truncated", "graph-op" and "graph-attribute" (unknown or repeated),
// "graph-operand", "graph-type" (declared is not inferred), "graph-depth", "utf8", "varint",
// "tensor-size" ..; every node passes inference, the whole the verifier.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

std::string to_bytes(const Graph& g);
Graph from_bytes(std::string_view bytes, const OpTable& table, const std::string& what = "graph");
// Whether bytes begin as such a graph does.
bool is_graph_bytes(std::string_view bytes);
// The header and the checksum around a payload, for programs that edit payloads (fuzzers, repair).
std::string frame_graph_bytes(std::string_view payload);

}  // namespace rlx
