// Rows of the sample table compiled once for all sizes, on the CPU: at each size the bits of the program compiled for it.
//
//   SymbolicBits bits;
//   for (const Sample& s : samples()) bits.add(s);
//   bits.unneeded();                   // lines of tests/symbolic_bits.txt that nothing asked for
//
// Sizes lie on both sides of vectors, tiles and blocks. An op in the list may round otherwise there, and is held to the
// bounds of cpu_checks.h instead, those of its definition for symbols.
#pragma once

#include <deque>
#include <set>

#include "symbolic.h"

namespace rlx::testing {

class SymbolicBits {
 public:
  struct Options {
    std::vector<Symbols> forms{Symbols::attributes, Symbols::all_apart, Symbols::first};
    DType dtype = DType::F32;  // where the row takes it, else the first that it takes
    // Values by themselves too, not only beside gradients: other regions are made of them.
    bool values_alone = true;
    // Which of the rounds of sizes (kRounds of them), and how many elements leaves have at most.
    std::vector<int> rounds{0, 2, 3, 4, 5, 6, 9};
    int64_t elements = 10000;
  };
  static constexpr int kRounds = 10;

  explicit SymbolicBits(Options options);
  SymbolicBits() : SymbolicBits(Options{}) {}

  // Tries the row; what differs and is not listed fails the running test.
  void add(const Sample& s);

  bool is_listed(const std::string& op) { return line_for(op) != nullptr; }
  // Lines of the list for ops that were tried whose results had the same bits.
  std::vector<std::string> unneeded() const;
  struct Count {
    int64_t compared = 0;  // programs at some sizes
    int64_t listed = 0;    // of them, those that rounded otherwise and may
    int64_t refused = 0;   // by inference, or by a guard at some sizes
    int64_t per_size = 0;  // programs that are compiled for each size
    std::string to_string() const;
  };
  const Count& count() const { return count_; }

 private:
  struct Line {
    std::string op, part, why;
    bool needed_value = false, needed_gradient = false;
  };
  // A program at certain sizes, compiled for them. Several forms of a row ask for the same.
  struct Fixed {
    Graph graph;
    Tensors leaves, results;
    std::string error;  // its code
  };
  using Fixeds = std::deque<Fixed>;
  void check(const Case& c, const SymbolicCase& s, bool gradient, const std::string& what,
             Fixeds& fixed);
  void compare(const Case& c, const Fixed& want, const Tensors& got, bool gradient,
               const std::string& what, FunctionRef<Graph()> definition);
  Line* line_for(const std::string& op);

  Options options_;
  std::vector<Line> lines_;
  std::set<std::string> tried_;
  std::set<std::pair<std::string, bool>> reported_;
  Count count_;
};

}  // namespace rlx::testing
