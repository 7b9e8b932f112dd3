// Programs for all sizes made from the sample table: a row's operands with symbols for sizes go through transforms and
// passes once, and sizes are bound behind; against the same with sizes from the start.
//
//   SymbolicSurvey survey;
//   for (const Sample& s : samples()) survey.add(s);
//   survey.refusals();                 // which ops need numbers (tests/symbolic_needs.txt), and what they say
#pragma once

#include "op_checks.h"

namespace rlx::testing {

// Which sizes become symbols. Sizes 0 and 1 stay numbers: symbols for what is broadcast are a case of their own.
enum class Symbols : uint8_t {
  all,          // every size, equal ones the same symbol
  all_apart,    // every axis of every operand a symbol of its own
  attributes,   // as `all`, and sizes in attributes and bodies too
  first,        // the first axis of each operand, equal ones the same symbol
  first_apart,  // the first axis of each operand, each a symbol of its own
  ones,         // as `attributes`, sizes of 1 too
};
constexpr Symbols kAllSymbols[] = {Symbols::all,   Symbols::all_apart,   Symbols::attributes,
                                   Symbols::first, Symbols::first_apart, Symbols::ones};
std::string_view name(Symbols s);

// The program with symbols for these sizes, wherever they stand: in leaves, attributes and bodies. Raises what inference
// raises.
Graph with_named_sizes(const Graph& g, const std::map<int64_t, std::string>& names);

// The program of a row at a dtype with symbols, and the sizes that make it the row. Raises what the op's inference
// raises; nullopt where there is nothing to name.
struct SymbolicCase {
  Graph graph;
  DimBinding sizes;
};
std::optional<SymbolicCase> with_symbols(const Case& c, Symbols symbols);

// Values for the leaves of g, whose sizes are known: the operands' as their rows say, noise for others.
Tensors leaves_for(const Case& c, const Graph& g);

// " ?n = 3 ?m = 5"
std::string text_of(const DimBinding& sizes);

// Through the default pipeline with every composite replaced by its definition (or none).
Graph optimised_symbolically(Graph g, bool decomposed = true);

class SymbolicSurvey {
 public:
  struct Options {
    bool derivatives = true, vmap = true, other_sizes = true;
  };
  explicit SymbolicSurvey(Options options) : options_(options) {}
  SymbolicSurvey() : SymbolicSurvey(Options{}) {}

  // Tries the row in every form; what is wrong fails the running test.
  void add(const Sample& s);

  // Op and the code of its error, where it wants to know a size; and one message.
  using Refusals = std::map<std::pair<std::string, std::string>, std::string>;
  const Refusals& refusals() const { return refusals_; }
  struct Count {
    int works = 0, refused = 0;
    int guarded =
        0;  // made for all sizes, and refused at some: a symbol that is 1 against a larger size
  };
  const std::map<std::string, Count>& counts() const { return counts_; }

 private:
  void check(const Case& c, const SymbolicCase& s, Symbols symbols);
  Options options_;
  Refusals refusals_;
  std::map<std::string, Count> counts_;
};

}  // namespace rlx::testing
