// Native kernels: random bits, distributions that are drawn by rejection, permutations, the choice of
// likely tokens.
#include <algorithm>
#include <cmath>
#include <functional>

#include "rlx/backend/cpu/kernel_list.h"
#include "rlx/backend/cpu/kernels/visit_dtype.h"
#include "rlx/base/philox.h"
#include "rlx/ops/random/distributions.h"
#include "rlx/ops/random/draws.h"

namespace rlx::cpu {
namespace {

std::shared_ptr<const StepKernel> make_random_bits(Isa, const Node&, std::span<const View> in,
                                                   std::span<const View> out) {
  constexpr int64_t kWords = 4096;  // of a block
  const int64_t keys = in[0].elements() / 2, words = keys ? out[0].elements() / keys : 0,
                per_key = ceil_div(words, kWords);
  auto run = [=](const StepMemory& m, int64_t begin, int64_t end) {
    const auto* key_words = static_cast<const uint32_t*>(m.operands[0]);
    auto* to = static_cast<uint32_t*>(m.operands[1]);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t key = block / per_key, first = block % per_key * kWords;
      for (int64_t i = first; i < std::min(first + kWords, words); i += 4) {
        const PhiloxBlock r = philox4x32({key_words[2 * key], key_words[2 * key + 1]},
                                         philox_counter(static_cast<uint64_t>(i / 4)));
        for (int64_t k = 0; k < 4 && i + k < words; ++k)
          to[key * words + i + k] = r[static_cast<size_t>(k)];
      }
    }
  };
  return function_kernel("random_bits (philox)",
                         {.blocks = keys * per_key, .work = 8 * keys * words, .run = run});
}

double read_float(DType d, const void* data, int64_t i) {
  return element_value(d, static_cast<const std::byte*>(data) + i * size_of(d));
}

void write_float(DType d, void* data, int64_t i, double x) {
  convert_element(d, x, static_cast<std::byte*>(data) + i * size_of(d));
}

// ---- draws by rejection -------------------------------------------------------------------------

// Offsets of a dense operand that broadcasts to the result.
struct Broadcast {
  Ints dims, strides;
  Broadcast(const View& x, const View& out) : dims(out.dims), strides(out.dims.size(), 0) {
    int64_t step = 1;
    for (size_t d = x.dims.size(); d-- > 0; step *= x.dims[d])
      if (x.dims[d] != 1) strides[dims.size() - x.dims.size() + d] = step;
  }
  int64_t offset(int64_t flat) const {
    int64_t at = 0;
    for (size_t d = dims.size(); d-- > 0; flat /= dims[d]) at += flat % dims[d] * strides[d];
    return at;
  }
};

constexpr int64_t kDrawBlock = 512;

// draw(stream, parameter) for every element of the result.
template <class Draw>
Plan plan_draw(std::span<const View> in, std::span<const View> out, Draw draw) {
  const int64_t elements = out[0].elements(), keys = in[0].elements() / 2;
  const int64_t each = keys ? elements / keys : 1;
  const bool has_parameter = in.size() > 1;
  const View& parameter_view = in[has_parameter ? 1 : 0];
  const DType from = parameter_view.dtype, to = out[0].dtype;
  const Broadcast parameter = has_parameter ? Broadcast(in[1], out[0]) : Broadcast({}, {});
  return {.blocks = ceil_div(elements, kDrawBlock),
          .work = 64 * elements,
          .run = [=](const StepMemory& m, int64_t begin, int64_t end) {
            const auto* key = static_cast<const uint32_t*>(m.operands[0]);
            void* result = m.operands[has_parameter ? 2 : 1];
            for (int64_t i = begin * kDrawBlock; i < std::min(end * kDrawBlock, elements); ++i) {
              const int64_t k = i / each;
              DrawStream stream({key[2 * k], key[2 * k + 1]}, static_cast<uint64_t>(i % each));
              const double p =
                  has_parameter ? read_float(from, m.operands[1], parameter.offset(i)) : 0.0;
              write_float(to, result, i, draw(stream, p));
            }
          }};
}

Plan plan_gamma(const Node& n, std::span<const View> in, std::span<const View> out) {
  const bool log = n.get<GammaAttrs>().log;
  return plan_draw(in, out,
                   [log](DrawStream& s, double alpha) { return draw_gamma(s, alpha, log); });
}

Plan plan_gamma_grad(const Node& n, std::span<const View>, std::span<const View> out) {
  const bool log = n.get<GammaGradAttrs>().log;
  const int64_t elements = out[0].elements();
  return {.blocks = ceil_div(elements, kDrawBlock),
          .work = 256 * elements,
          .run = [=, d = out[0].dtype](const StepMemory& m, int64_t begin, int64_t end) {
            for (int64_t i = begin * kDrawBlock; i < std::min(end * kDrawBlock, elements); ++i)
              write_float(d, m.operands[2], i,
                          gamma_derivative(read_float(d, m.operands[0], i),
                                           read_float(d, m.operands[1], i), log));
          }};
}

Plan plan_poisson(const Node&, std::span<const View> in, std::span<const View> out) {
  return plan_draw(in, out, draw_poisson);
}

Plan plan_truncated_normal(const Node& n, std::span<const View> in, std::span<const View> out) {
  const double lower = n.get<TruncatedNormalAttrs>().lower,
               upper = n.get<TruncatedNormalAttrs>().upper;
  return plan_draw(in, out,
                   [=](DrawStream& s, double) { return draw_truncated_normal(s, lower, upper); });
}

Plan plan_permutation(const Node&, std::span<const View> in, std::span<const View> out) {
  const int64_t keys = in[0].elements() / 2, n = out[0].dims.back();
  return {.blocks = keys,
          .work = 16 * keys * n,
          .run = [=](const StepMemory& m, int64_t begin, int64_t end) {
            const auto* key = static_cast<const uint32_t*>(m.operands[0]);
            for (int64_t k = begin; k < end; ++k)
              draw_permutation({key[2 * k], key[2 * k + 1]}, n,
                               static_cast<int64_t*>(m.operands[1]) + k * n);
          }};
}

// ---- likely tokens ------------------------------------------------------------------------------

struct Candidate {
  double value;
  int64_t index;
};

// Larger values first, equal ones in order; NaN is the largest.
bool before(const Candidate& a, const Candidate& b) {
  const bool a_nan = std::isnan(a.value), b_nan = std::isnan(b.value);
  if (a_nan || b_nan) return a_nan && (!b_nan || a.index < b.index);
  return a.value != b.value ? a.value > b.value : a.index < b.index;
}
bool after(const Candidate& a, const Candidate& b) { return before(b, a); }

using Choose = std::function<void(Candidate* row, int64_t n, uint8_t* keep)>;

// A row at a time: its elements as candidates, in scratch.
Plan plan_mask(const View& x, const Choose& choose) {
  const int64_t n = x.dims.back(), rows = n ? x.elements() / n : 0;
  return {.blocks = rows,
          .work = 16 * x.elements(),
          .scratch = static_cast<size_t>(n) * sizeof(Candidate),
          .run = [=, dtype = x.dtype](const StepMemory& m, int64_t begin, int64_t end) {
            auto* row = reinterpret_cast<Candidate*>(m.scratch);
            for (int64_t r = begin; r < end; ++r) {
              for (int64_t i = 0; i < n; ++i)
                row[i] = {read_float(dtype, m.operands[0], r * n + i), i};
              choose(row, n, static_cast<uint8_t*>(m.operands[1]) + r * n);
            }
          }};
}

Plan plan_top_k(const Node& node, std::span<const View> in, std::span<const View>) {
  const int64_t k = node.get<TopKMaskAttrs>().k;
  return plan_mask(in[0], [k](Candidate* row, int64_t n, uint8_t* keep) {
    const bool all = k <= 0 || k >= n;
    if (!all) std::nth_element(row, row + k - 1, row + n, before);
    const double cutoff = all ? 0 : row[k - 1].value;
    for (int64_t i = 0; i < n; ++i) keep[row[i].index] = all || !(row[i].value < cutoff);
  });
}

// A heap gives the likeliest one after the other: few of them are asked for.
Plan plan_top_p(const Node& node, std::span<const View> in, std::span<const View>) {
  const double p = node.get<TopPMaskAttrs>().p;
  return plan_mask(in[0], [p](Candidate* row, int64_t n, uint8_t* keep) {
    std::fill(keep, keep + n, static_cast<uint8_t>(p >= 1));
    if (p >= 1) return;
    double largest = std::min_element(row, row + n, before)->value, total = 0, reached = 0;
    for (int64_t i = 0; i < n; ++i) total += std::exp(row[i].value - largest);
    std::make_heap(row, row + n, after);
    do {
      std::pop_heap(row, row + n, after);
      const Candidate& likeliest = row[--n];
      keep[likeliest.index] = 1;
      reached += std::exp(likeliest.value - largest);
    } while (n > 0 && !(reached >= p * total));
  });
}

}  // namespace

std::span<const KernelRow> random_kernels() {
  static const KernelRow rows[] = {
      {&op::random_bits, "philox", always, dense_only, make_random_bits},
      dense_kernel<plan_gamma>(&op::random_gamma),
      dense_kernel<plan_gamma_grad>(&op::random_gamma_grad),
      dense_kernel<plan_poisson>(&op::random_poisson),
      dense_kernel<plan_truncated_normal>(&op::random_truncated_normal),
      dense_kernel<plan_permutation>(&op::random_permutation),
      dense_kernel<plan_top_k>(&op::top_k_mask),
      dense_kernel<plan_top_p>(&op::top_p_mask),
  };
  return rows;
}

}  // namespace rlx::cpu
