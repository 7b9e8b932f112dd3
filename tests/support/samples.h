// The sample table (tests/samples/*.txt, its README says how): rows of text that say how to try an op. Every test that
// walks all ops walks these.
//
//   for (const Sample& s : samples()) if (auto c = make_case(s, DType::F64)) use(c->graph,
//   c->operands);
#pragma once

#include <filesystem>
#include <random>

#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"

namespace rlx::testing {

struct OperandSpec {
  std::string dtype;  // a name, "T" or "W"
  Ints sizes;
  std::string kind;
  int64_t limit = 0;  // index<limit
  bool swept() const { return dtype == "T" || dtype == "W"; }
};

struct Sample {
  std::string where;  // file:line
  std::string text;
  std::string op;
  std::string attrs;  // "{...}" or empty, with $T
  std::vector<OperandSpec> operands;
  bool differences = true, second = true, variants = true;
  DTypeSet dtypes = kAllDTypes;  // that the attributes leave of those the op takes

  bool swept() const {
    for (const OperandSpec& o : operands)
      if (o.swept()) return true;
    return attrs.find("$T") != std::string::npos;
  }
};

// A sample at one dtype: the node as a graph with inputs "0", "1".., and values for them.
struct Case {
  const Sample* sample;
  DType dtype;
  Graph graph;
  Tensors operands;
  std::vector<size_t> swept;  // the operands of dtype T or W
  const Node& node() const { return graph.nodes.back(); }
};

// The ops that RLX_OPS="sort,argsort" in the environment names; all when it is not set.
bool is_filtered();
bool is_wanted(const std::string& op);

const std::vector<Sample>& samples();
Sample read_sample(const std::string& text, const std::string& where);
// nullopt when the op does not take this dtype there.
std::optional<Case> make_case(const Sample& s, DType d);
// The custom ops that the samples name: one with every rule, one by decomposition.
void register_sample_ops();

// ---- the parts of a sample

Attrs read_attrs(const OpDef& op, const std::string& text);
DType dtype_at(const OperandSpec& o, DType swept);
Tensor make_operand(const OperandSpec& o, DType d, uint64_t seed);
Tensors make_operands(const Sample& s, DType d, uint64_t salt = 0);
// One number of the wanted kind.
double draw(const OperandSpec& o, std::mt19937_64& rng);
int64_t draw_int(const OperandSpec& o, DType d, std::mt19937_64& rng);
// Kinds that shape whole matrices (the last two dims) out of numbers of modulus below 1.
bool is_matrix_kind(const std::string& kind);

// ---- text

// Rows of text in the files folder/*.txt: one a line, lines that begin with a space continue the row above; # comments.
struct TextRow {
  std::string text, where;  // file:line
};
std::vector<TextRow> read_rows(const std::filesystem::path& folder);
std::string replace_all(std::string text, const std::string& from, std::string_view to);
// The length of the bracketed text at the start, strings respected.
size_t bracketed(const std::string& text);

}  // namespace rlx::testing
