// How far a backend may be from the reference on a whole graph.
//
//   BoundedRun expected = evaluate_bounded(g, leaves, seed);
//   std::string why = expected.outputs[0].mismatch(result);      // empty: within the bound
//
// A fused graph shows no intermediate values, so the rule per op (elementwise ops that round once:
// bitwise; others 4 ULP; sums and products c * K * eps * sum |a_i b_i|) is carried through the
// graph by stochastic arithmetic: the graph is evaluated several times by the reference with noise
// where an implementation may round differently, and the range of the results is what rounding can
// do, conditioning included. The noise is
//   - none where a result only repeats elements of its operands (movement, maxima; a sum that happens to is
//   no such result), where an
//   elementwise op rounds at most once
//     (counted through its scalar rule), and for integers and bools;
//   - 4 ULP (f16, bf16: 1.5) of the result elsewhere, and for sums and products of K terms (logaddexp among them) max(4, K) ULP
//     of each operand element besides: independent noise that adds up to sqrt(K) * eps * sum |a_i b_i|;
//   - twice that of the largest element for transforms, factorisations and solved systems, whose errors
//   are bounded by the norm of their operands; and 4 ULP of the largest result for digamma, polygamma and
//   lgamma, which have zeros;
//   - none on operands of which the op reads the whole part alone (indices, lengths, labels of a float dtype):
//   it is asked, by moving their fractions;
//   - composites are taken apart, bodies run with noise too; where the CPU computes a composite by a kernel
//   of its own, 1 ULP besides after every operation in it that rounds once (a kernel may contract and
//   reorder them).
// A result without noise upstream is exact: it must match to the bit (a NaN is a NaN, 0 is -0).
// Else the allowance is 4 times the range plus 5 ULP (f16, bf16: 2), and at most a ceiling where one is
// given, a fraction of the result's largest element. No part of it is absolute: it is relative to the element, to what
// it is computed from, or to the largest element beside it. An element on which the noisy runs do not agree about NaN,
// infinity or an integer is unstable: not compared, but counted. Infinity is not NaN, but where a solved system
// overflows either may come out: unstable, too.
#pragma once

#include <cmath>
#include <random>

#include "rlx/ops/evaluate.h"

namespace rlx::testing {

// Counts of elements over all comparisons.
struct CompareStats {
  int64_t elements = 0, exact = 0, unstable = 0,
          loose = 0;  // allowed are more than a hundredth of the element itself (and more than 16
                      // units in its last place, and one in that of the largest element)
  double widest = 0;  // allowance of an element, as a fraction of the largest one of its result
  void add(const CompareStats& other);
};

// How far the bound may be used.
struct Compare {
  CompareStats* stats = nullptr;
  // The range reaches to the value as well as from draw to draw. Without it, numbers of f32 and f64 that are smaller than
  // the normal ones all count as zero.
  bool from_value = true;
  double ceiling = INFINITY;  // of an allowance, as a fraction of the largest element of the result
  double scale = 0;  // what counts as the largest element where all of the result are smaller
};

struct Bounded {
  Tensor value;   // the reference
  Tensors draws;  // with noise; empty when the value is exact
  bool exact() const { return draws.empty(); }
  // Empty when `got` is within the bound, else the first element that is not.
  std::string mismatch(const Tensor& got, const Compare& how = {}) const;
};

// The magnitude of the largest finite element.
double largest_of(const Tensor& t);

struct BoundedRun {
  std::vector<Bounded> outputs;
  std::map<std::string, Bounded> updates;
};

// keeps_wide: what ops read in f16 and bf16 may be what was computed before it was rounded, as in a fused chain
// (docs/ir.md); results of one op alone are what they are without.
BoundedRun evaluate_bounded(const Graph& g, const NamedTensors& leaves, uint64_t seed,
                            int draws = 8, bool keeps_wide = false);

// The results of a graph in a narrow dtype against `wide`, those of the same graph in f64: what all
// its roundings can do. Noise as above, and of 1 ULP after every operation that rounds once (zeros
// and whole numbers are taken for exact). The allowance does not reach from the draws to
// the value.
std::vector<Bounded> bounded_by_rounding(const Graph& g, const Tensors& in, const Tensors& wide,
                                         uint64_t seed, int draws = 8);

// The reference with noise, also node by node.
class NoisyEvaluator {
 public:
  // every_rounding: noise where all implementations round alike, none where nothing is rounded.
  explicit NoisyEvaluator(uint64_t seed, bool every_rounding = false, bool keeps_wide = false)
      : random_(seed),
        every_rounding_(every_rounding),
        keeps_wide_(keeps_wide),
        inside_kernel_(every_rounding) {}

  struct Noisy {
    Tensor value;
    bool noisy = false;  // some value upstream was given noise
  };
  std::vector<Noisy> node(const Node& n, std::span<const Noisy> in);
  struct Run {
    std::vector<Noisy> outputs;
    std::map<std::string, Noisy> updates;
  };
  Run graph(const Graph& g, std::span<const Noisy> leaves);

 private:
  // By so many units of each element, or of the largest one.
  bool disturb(Tensor& t, double ulps, bool of_largest = false);
  // Which of the results every implementation computes alike.
  std::vector<bool> adds_no_rounding(const EvalArgs& args, const Tensors& operands,
                                     const Tensors& results);
  std::vector<Noisy> body_node(const Node& n, std::span<const Noisy> in);
  std::vector<Noisy> primitive(const Node& n, std::span<const Noisy> in);
  Tensors with_noisy_operands(const EvalArgs& args, Tensors& operands, const Tensors& plain);
  // The node's results as a fused chain may read them.
  void leave_unrounded(const Node& n, std::span<const Noisy> in, std::vector<Noisy>& results);
  std::mt19937_64 random_;
  bool every_rounding_, keeps_wide_, inside_kernel_;
};

// How often an elementwise node rounds, counted through its scalar rule: 0, 1, or more (2, also where that is not known).
int roundings(const Node& n, std::span<const Type> in);

// Every element of the result is one of the operands' of its dtype, or zero where that is allowed.
bool only_repeats(const Tensor& out, std::span<const Tensor> in, bool zero_too);

// One unit in the last place of a number of this size, at least the smallest number there is.
double ulp(DType d, double magnitude);

}  // namespace rlx::testing
