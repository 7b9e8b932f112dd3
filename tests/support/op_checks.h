// The checks of one op at one call (a Case of the sample table) against its own rules: derivatives
// of both modes and of second order, vmap. A failure names the row.
//
//   if (has_derivatives(c)) check_forward(c), check_transpose(c), check_second_order(c);
//   check_vmap_choices(c);
#pragma once

#include <gtest/gtest.h>

#include "samples.h"

namespace rlx::testing {

// ---- numbers on tensors

Tensor combine(const Tensor& a, const Tensor& b, double scale);  // a + scale * b
// Re <a, b>: for complex cotangents a and tangents b this is the change of a real function.
double inner(const Tensor& a, const Tensor& b);
double magnitude(const Tensor& a);
// The largest |a - b|, relative to the largest number of both or, where that is more, to the scale.
double distance(const Tensor& a, const Tensor& b, double scale = 0);
Tensor noise(const Tensor& like, uint64_t seed);
bool differentiable(const Tensor& t);
Tensors with(Tensors a, const Tensors& b);

// ---- cases

std::string row(const Case& c);
std::vector<std::string> names(const std::vector<size_t>& operands);
// Something to differentiate, by something. At f32 only where the op takes no f64.
bool has_derivatives(const Case& c);
// A direction for the swept operands.
Tensors tangents_of(const Case& c);

// Runs `test` on every sample at every dtype in `dtypes` that it takes (once, at f64's place, when
// nothing is swept).
template <class Test>
void for_each_case(const std::vector<Sample>& all, DTypeSet dtypes, Test&& test) {
  for (const Sample& s : all)
    for (const DTypeInfo& d : kDTypes) {
      if (s.swept() ? !dtypes.has(d.dtype) : d.dtype != DType::F64) continue;
      try {
        if (auto c = make_case(s, d.dtype)) test(*c);
      } catch (const std::exception& e) {
        ADD_FAILURE() << s.where << " " << s.op << " at " << to_string(d.dtype) << ": " << e.what();
      }
    }
}

// ---- derivatives

// Elements of the value that are not finite (a mean of nothing, say) have no derivative: nothing is
// asked of it.

// jvp against differences of values, in one direction: 1e-6 in f64, of the largest derivative (and of a thousandth of the
// largest value, whose roundings the differences hold; and of a ten-thousandth of the direction, for derivatives that
// cancel to 0).
void check_forward(const Case& c);
// <vjp, t> = <ct, jvp>: 1e-10 in f64, of the magnitudes of their terms.
void check_transpose(const Case& c);
// Derivatives by some of the operands are those by all of them: a rule is not to rely on what nobody asked for. Forward
// and reverse, by each operand alone and by all but each, 1e-12.
void check_chosen_operands(const Case& c);
// Of the loss sum(w * f(x)^2) / 2, so that linear ops have a second derivative too: forward over
// reverse and reverse over reverse against differences of gradients, 1e-6.
void check_second_order(const Case& c);

// ---- vmap

constexpr int64_t kBatch = 3;

// Operands for each sample of a batch.
std::vector<Tensors> batch_of(const Case& c);
Tensor stack(const std::vector<Tensor>& parts);
// vmap of g over the operands in `mask` against a loop over the samples, 1e-12.
void check_vmap(const Case& c, const Graph& g, const Tensors& shared,
                const std::vector<Tensors>& each, unsigned mask, const std::string& what,
                const Dim& size = kBatch);
// Which operands are batched: every choice for up to five of them, else each alone, all but each,
// and all (the long suite has every choice of those rows, too).
constexpr size_t kEveryChoice = 5;
std::vector<unsigned> choices(size_t operands);
// vmap of the value for each of these choices.
void check_vmap_choices(const Case& c, const Dim& size = kBatch);
// vmap of the gradient: everything batched, the cotangent alone.
void check_vmap_of_gradient(const Case& c);

}  // namespace rlx::testing
