#include "rlx/front/loops.h"

#include <algorithm>

#include "rlx/ops/rules.h"

namespace rlx {

TracedTensors fori_loop(
    Tracer& t, int64_t lower, int64_t upper, const TracedTensors& carries,
    FunctionRef<TracedTensors(Tracer&, const TracedTensor&, const TracedTensors&)> body) {
  int64_t count = 0;
  user_check(upper <= lower || !__builtin_sub_overflow(upper, lower, &count), "loop-steps",
             "fori_loop: from {} to {} are more steps than can be counted", lower, upper);
  const TracedTensor steps =
      t.arange(count) + t.constant(Tensor::from<int64_t>({}, {upper > lower ? lower : 0}));
  const auto step = [&](Tracer& inner, const TracedTensors& c,
                        const TracedTensors& i) -> ScanResult {
    return {body(inner, i[0], c), {}};
  };
  return t.scan(carries, {steps}, step).carries;
}

namespace {

// One of the branches [begin, end).
TracedTensors choose(Tracer& t, const TracedTensor& index,
                     std::span<const std::function<TracedTensors(Tracer&)>> branches,
                     size_t begin) {
  if (branches.size() == 1) return branches[0](t);
  const size_t half = branches.size() / 2;
  return t.cond(
      index < static_cast<double>(begin + half),
      [&](Tracer& inner) { return choose(inner, index, branches.first(half), begin); },
      [&](Tracer& inner) { return choose(inner, index, branches.subspan(half), begin + half); });
}

// Running results of elements along an axis, by pairs.
class PairwiseScan {
 public:
  PairwiseScan(Ints axes,
               FunctionRef<TracedTensors(const TracedTensors&, const TracedTensors&)> combine)
      : axes_(std::move(axes)), combine_(combine) {}

  TracedTensors run(const TracedTensors& xs, int64_t n) const {
    if (n < 2) return xs;
    // Results 1, 3, 5, ..; then those between: 2, 4, ..
    const TracedTensors odd = run(combined(part(xs, 0, n - 1, 2), part(xs, 1, n, 2)), n / 2);
    TracedTensors even = part(xs, 0, 1, 1);
    if (n > 2) {
      const TracedTensors rest = combined(part(odd, 0, (n - 1) / 2, 1), part(xs, 2, n, 2));
      for (size_t k = 0; k < even.size(); ++k) even[k] = cat({even[k], rest[k]}, axes_[k]);
    }
    TracedTensors out;
    for (size_t k = 0; k < even.size(); ++k)
      out.push_back(interleaved(even[k], odd[k], axes_[k], n));
    return out;
  }

 private:
  TracedTensors part(const TracedTensors& xs, int64_t from, int64_t to, int64_t step) const {
    TracedTensors out;
    for (size_t k = 0; k < xs.size(); ++k) out.push_back(xs[k].slice(axes_[k], from, to, step));
    return out;
  }

  TracedTensors combined(const TracedTensors& a, const TracedTensors& b) const {
    TracedTensors out = combine_(a, b);
    user_check(out.size() == a.size(), "scan-result",
               "associative_scan: the function makes {} tensors of {}", out.size(), a.size());
    for (size_t k = 0; k < out.size(); ++k)
      user_check(out[k].type() == a[k].type(), "scan-result",
                 "associative_scan: the function makes {} of {}", out[k].type(), a[k].type());
    return out;
  }

  static TracedTensor interleaved(const TracedTensor& even, const TracedTensor& odd, int64_t axis,
                                  int64_t n) {
    const int64_t half = n / 2;
    Shape shape = even.shape();
    shape[at(axis)] = 2 * half;
    const TracedTensor both =
        cat({even.slice(axis, 0, half).unsqueeze(axis + 1), odd.unsqueeze(axis + 1)}, axis + 1)
            .reshape(shape);
    return n == 2 * half ? both : cat({both, even.slice(axis, half)}, axis);
  }

  Ints axes_;
  FunctionRef<TracedTensors(const TracedTensors&, const TracedTensors&)> combine_;
};

}  // namespace

TracedTensors switch_case(Tracer& t, const TracedTensor& index,
                          const std::vector<std::function<TracedTensors(Tracer&)>>& branches) {
  user_check(!branches.empty(), "switch-branches", "switch_case: there must be a branch");
  user_check(is_int(index.dtype()) && index.rank() == 0, "switch-index",
             "switch_case: the index is {}; it must be a scalar of integers", index.type());
  return choose(t, index, branches, 0);
}

TracedTensors associative_scan(
    const TracedTensors& elements, int64_t axis,
    FunctionRef<TracedTensors(const TracedTensors&, const TracedTensors&)> combine, bool reverse) {
  if (elements.empty()) return {};
  TracedTensors xs = elements;
  Ints axes;
  for (TracedTensor& x : xs) {
    const Dim& size = x.size(axis);  // checks the axis
    user_check(size.is_static() && size == xs[0].size(axis), "scan-length",
               "associative_scan: axis {} of {} and of {} must have one size, a number", axis,
               xs[0].type(), x.type());
    axes.push_back(axis < 0 ? axis + x.rank() : axis);
    if (reverse) x = x.flip(axes.back());
  }
  TracedTensors found = PairwiseScan(axes, combine).run(xs, xs[0].size(axis).value());
  if (reverse)
    for (size_t k = 0; k < found.size(); ++k) found[k] = found[k].flip(axes[k]);
  return found;
}

}  // namespace rlx
