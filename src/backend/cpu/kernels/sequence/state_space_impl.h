// The recurrences for one instruction set. Included only by the state_space_<isa>.cc files.
#pragma once

#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/sequence/state_space.h"
#include "rlx/backend/cpu/kernels/simd_math.h"

namespace rlx::cpu {

template <class S, int W>
struct SelectiveScanImpl {
  using T = Compute<S>;
  static constexpr int L = kLanes<T, W>;
  static constexpr T kLog2e = 1.4426950408889634074;

  static void run(const SelectiveScanProblem& p, const SelectiveScanBuffers& buffers, int64_t begin,
                  int64_t end, void* scratch) {
    const int64_t parts = (p.channels + kScanChannels - 1) / kScanChannels;
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block % parts * kScanChannels;
      const int64_t left = p.channels - first;
      run_block(p, buffers, block / parts, first, left < kScanChannels ? left : kScanChannels,
                static_cast<T*>(scratch));
    }
  }

  // Channels [first, first + count) of batch `at`. a (in log2) and h lie in scratch as [states,
  // kScanChannels].
  static void run_block(const SelectiveScanProblem& p, const SelectiveScanBuffers& buffers,
                        int64_t at, int64_t first, int64_t count, T* scratch) {
    T *const a = scratch, *const h = scratch + p.states * kScanChannels;
    const S* const rates = static_cast<const S*>(buffers.a) + first * p.states;
    for (int64_t n = 0; n < p.states; ++n) {
      for (int64_t c = 0; c < kScanChannels; ++c) {
        a[n * kScanChannels + c] =
            c < count ? Element<S>::get(rates[c * p.states + n]) * kLog2e : T{0};
        h[n * kScanChannels + c] = 0;
      }
    }
    for (int64_t t = at * p.steps; t < (at + 1) * p.steps; ++t) {
      if (t % kScanSteps == 0 && buffers.stop()) return;
      const int64_t row = t * p.channels + first;
      const S* const b = static_cast<const S*>(buffers.b) + t * p.states;
      const S* const c = static_cast<const S*>(buffers.c) + t * p.states;
      for (int64_t j = 0; j < count; j += L) {
        step(p.states, static_cast<const S*>(buffers.x) + row + j,
             static_cast<const S*>(buffers.delta) + row + j, b, c, a + j, h + j,
             count - j < L ? count - j : L, static_cast<S*>(buffers.y) + row + j);
      }
    }
  }

  // One step of one vector of channels, of which `count` exist.
  static void step(int64_t states, const S* x, const S* delta, const S* b, const S* c, const T* a,
                   T* h, int64_t count, S* y) {
    const Vec<T, W> d = load_first<S, W>(delta, count), dx = d * load_first<S, W>(x, count);
    Vec<T, W> sum{};
    for (int64_t n = 0; n < states; ++n, a += kScanChannels, h += kScanChannels) {
      const Vec<T, W> next =
          exp2<T, W>(d * load<T, W>(a)) * load<T, W>(h) + dx * Element<S>::get(b[n]);
      store<T, W>(h, next);
      sum += next * Element<S>::get(c[n]);
    }
    store_first<S, W>(y, sum, count);
  }
};

// Arrays in scratch are [states, kScanChannels], or several of these one after the other.
template <class S, int W>
struct SelectiveScanBackwardImpl {
  using T = Compute<S>;
  static constexpr int L = kLanes<T, W>;
  static constexpr T kLog2e = 1.4426950408889634074, kLn2 = 0.69314718055994530942;

  struct Scratch {
    int64_t page;           // elements of one array
    T *a, *back, *da;       // a in log2; what later steps send back to h; of one stretch
    T *da_whole, *da_lost;  // of all stretches, and what that sum lost
    T *kept, *inner;        // h before every kScanSteps-th step; h around the steps of one
                            // stretch
    T *sum_b, *sum_c;       // [states, L]: of one step, over the channels
    T *db, *dc;             // [steps, states], over the parts
    int64_t bytes;
    // Without a base it only counts.
    Scratch(const SelectiveScanProblem& p, std::byte* base) : page(p.states * kScanChannels) {
      bytes = 0;
      const auto take = [&](int64_t count) {
        T* const at = base ? reinterpret_cast<T*>(base + bytes) : nullptr;
        bytes += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
        return at;
      };
      a = take(page), back = take(page), da = take(page);
      da_whole = take(page), da_lost = take(page);
      kept = take(page * stretches(p)), inner = take(page * (kScanSteps + 1));
      sum_b = take(p.states * L), sum_c = take(p.states * L);
      db = take(p.steps * p.states), dc = take(p.steps * p.states);
    }
  };
  static int64_t stretches(const SelectiveScanProblem& p) {
    return (p.steps + kScanSteps - 1) / kScanSteps;
  }
  static int64_t scratch_bytes(const SelectiveScanProblem& p) { return Scratch(p, nullptr).bytes; }

  static void run(const SelectiveScanProblem& p, const SelectiveScanGradients& g, int64_t begin,
                  int64_t end, void* scratch) {
    const Scratch s(p, static_cast<std::byte*>(scratch));
    for (int64_t at = begin; at < end; ++at) {
      const int64_t rows = p.steps * p.states;
      for (int64_t i = 0; i < rows; ++i) s.db[i] = s.dc[i] = 0;
      for (int64_t first = 0; first < p.channels; first += kScanChannels) {
        const int64_t left = p.channels - first;
        run_part(p, g, s, at, first, left < kScanChannels ? left : kScanChannels);
      }
      for (int64_t i = 0; i < rows; ++i) {
        static_cast<S*>(g.db)[at * rows + i] = Element<S>::put(s.db[i]);
        static_cast<S*>(g.dc)[at * rows + i] = Element<S>::put(s.dc[i]);
      }
    }
  }

  static void run_part(const SelectiveScanProblem& p, const SelectiveScanGradients& g,
                       const Scratch& s, int64_t at, int64_t first, int64_t count) {
    const S* const rates = static_cast<const S*>(g.a) + first * p.states;
    for (int64_t n = 0; n < p.states; ++n) {
      for (int64_t c = 0; c < kScanChannels; ++c) {
        const int64_t i = n * kScanChannels + c;
        s.a[i] = c < count ? Element<S>::get(rates[c * p.states + n]) * kLog2e : T{0};
        s.back[i] = s.da[i] = s.da_whole[i] = s.da_lost[i] = s.inner[i] = 0;
      }
    }
    // Forward; inner[0] and inner[1] take turns.
    for (int64_t t = 0; t < p.steps; ++t) {
      if (t % kScanSteps == 0 && g.stop()) return;
      T *const h = s.inner + t % 2 * s.page, *const next = s.inner + (t + 1) % 2 * s.page;
      if (t % kScanSteps == 0)
        __builtin_memcpy(s.kept + t / kScanSteps * s.page, h,
                         static_cast<size_t>(s.page) * sizeof(T));
      advance(p, g, s, at * p.steps + t, first, count, h, next);
    }
    for (int64_t stretch = stretches(p) - 1; stretch >= 0; --stretch) {
      if (g.stop()) return;
      const int64_t start = stretch * kScanSteps;
      const int64_t steps = p.steps - start < kScanSteps ? p.steps - start : kScanSteps;
      __builtin_memcpy(s.inner, s.kept + stretch * s.page, static_cast<size_t>(s.page) * sizeof(T));
      for (int64_t t = 0; t < steps; ++t)
        advance(p, g, s, at * p.steps + start + t, first, count, s.inner + t * s.page,
                s.inner + (t + 1) * s.page);
      for (int64_t t = steps - 1; t >= 0; --t)
        retreat(p, g, s, at * p.steps, start + t, first, count, s.inner + t * s.page);
      for (int64_t i = 0; i < s.page; i += L) {
        Vec<T, W> sum = load<T, W>(s.da_whole + i), lost = load<T, W>(s.da_lost + i);
        add_run(sum, lost, load<T, W>(s.da + i));
        store<T, W>(s.da_whole + i, sum);
        store<T, W>(s.da_lost + i, lost);
        store<T, W>(s.da + i, Vec<T, W>{});
      }
    }
    for (int64_t c = 0; c < count; ++c)
      for (int64_t n = 0; n < p.states; ++n)
        static_cast<T*>(g.da)[(at * p.channels + first + c) * p.states + n] =
            s.da_whole[n * kScanChannels + c] + s.da_lost[n * kScanChannels + c];
  }

  // next = exp(delta a) h + delta b x at row `t` of the tensors.
  static void advance(const SelectiveScanProblem& p, const SelectiveScanGradients& g,
                      const Scratch& s, int64_t t, int64_t first, int64_t count, const T* h,
                      T* next) {
    const int64_t row = t * p.channels + first;
    const S* const b = static_cast<const S*>(g.b) + t * p.states;
    for (int64_t j = 0; j < count; j += L) {
      const Vec<T, W> d = load_first<S, W>(static_cast<const S*>(g.delta) + row + j, count - j);
      const Vec<T, W> dx = d * load_first<S, W>(static_cast<const S*>(g.x) + row + j, count - j);
      for (int64_t n = 0; n < p.states; ++n) {
        const int64_t i = n * kScanChannels + j;
        store<T, W>(next + i, exp2<T, W>(d * load<T, W>(s.a + i)) * load<T, W>(h + i) +
                                  dx * Element<S>::get(b[n]));
      }
    }
  }

  // The gradients at step `step` of the batch whose rows begin at `rows`; h is the state before the
  // step and one page behind it the state after.
  static void retreat(const SelectiveScanProblem& p, const SelectiveScanGradients& g,
                      const Scratch& s, int64_t rows, int64_t step, int64_t first, int64_t count,
                      const T* h) {
    const int64_t row = (rows + step) * p.channels + first;
    const S* const b = static_cast<const S*>(g.b) + (rows + step) * p.states;
    const S* const c = static_cast<const S*>(g.c) + (rows + step) * p.states;
    for (int64_t i = 0; i < p.states * L; ++i) s.sum_b[i] = s.sum_c[i] = 0;
    for (int64_t j = 0; j < count; j += L) {
      const auto fetch = [&](const void* from) __attribute__((always_inline)) {
        return load_first<S, W>(static_cast<const S*>(from) + row + j, count - j);
      };
      const Vec<T, W> x = fetch(g.x), d = fetch(g.delta), dy = fetch(g.dy);
      Vec<T, W> through_b{}, through_a{};
      for (int64_t n = 0; n < p.states; ++n) {
        const int64_t i = n * kScanChannels + j;
        const Vec<T, W> a = load<T, W>(s.a + i);
        const Vec<T, W> gradient = load<T, W>(s.back + i) + dy * Element<S>::get(c[n]);
        const Vec<T, W> back = gradient * exp2<T, W>(d * a), moved = back * load<T, W>(h + i);
        store<T, W>(s.back + i, back);
        store<T, W>(s.da + i, load<T, W>(s.da + i) + moved * d);
        through_a += moved * a;
        through_b += gradient * Element<S>::get(b[n]);
        store<T, W>(s.sum_b + n * L, load<T, W>(s.sum_b + n * L) + gradient * (d * x));
        store<T, W>(s.sum_c + n * L, load<T, W>(s.sum_c + n * L) + dy * load<T, W>(h + s.page + i));
      }
      store_first<S, W>(static_cast<S*>(g.dx) + row + j, d * through_b, count - j);
      store_first<S, W>(static_cast<S*>(g.ddelta) + row + j, through_a * kLn2 + x * through_b,
                        count - j);
    }
    for (int64_t n = 0; n < p.states; ++n) {
      s.db[step * p.states + n] += reduce<Sum, T, W>(load<T, W>(s.sum_b + n * L));
      s.dc[step * p.states + n] += reduce<Sum, T, W>(load<T, W>(s.sum_c + n * L));
    }
  }
};

template <class S, int W>
struct DeltaNetImpl {
  using T = Compute<S>;
  static constexpr int L = kLanes<T, W>;
  static constexpr T kLog2e = 1.4426950408889634074;

  static void run(const DeltaNetProblem& p, const DeltaNetBuffers& buffers, int64_t begin,
                  int64_t end, void* scratch) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t matrix = block * p.size * p.size;
      T* const state = static_cast<T*>(scratch);
      if (p.wide_state)
        run_head(p, buffers, block, static_cast<const T*>(buffers.state),
                 static_cast<T*>(buffers.last) + matrix, matrix, state);
      else
        run_head(p, buffers, block, static_cast<const S*>(buffers.state),
                 static_cast<S*>(buffers.last) + matrix, matrix, state);
    }
  }

  // Rows of the state and the vectors are `width` apart in scratch; what lies behind `size` is 0.
  template <class State>
  static void run_head(const DeltaNetProblem& p, const DeltaNetBuffers& buffers, int64_t block,
                       const State* initial, State* last, int64_t matrix, T* state) {
    const int64_t n = p.size, width = (n + 15) / 16 * 16;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < width; ++j)
        state[i * width + j] =
            initial && j < n ? Element<State>::get(initial[matrix + i * n + j]) : T{0};
    const int64_t b = block / p.heads, h = block % p.heads;
    for (int64_t t = 0; t < p.steps; ++t) {
      if (t % kScanSteps == 0 && buffers.stop()) return;
      step(p, buffers, (b * p.steps + t) * p.heads + h, state);
    }
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) last[i * n + j] = Element<State>::put(state[i * width + j]);
  }

  // `row` counts the rows of q, k and v.
  static void step(const DeltaNetProblem& p, const DeltaNetBuffers& buffers, int64_t row,
                   T* state) {
    const int64_t n = p.size, width = (n + 15) / 16 * 16;
    T *const q = state + n * width, *const k = q + width, *const v = k + width,
             *const d = v + width, *const o = d + width;
    for (int64_t j = 0; j < width; j += L) {
      const auto fetch = [&](const void* from) __attribute__((always_inline)) {
        return j < n ? load_first<S, W>(static_cast<const S*>(from) + row * n + j, n - j)
                     : Vec<T, W>{};
      };
      store<T, W>(q + j, fetch(buffers.q));
      store<T, W>(k + j, fetch(buffers.k));
      store<T, W>(v + j, fetch(buffers.v));
      store<T, W>(d + j, Vec<T, W>{});
      store<T, W>(o + j, Vec<T, W>{});
    }
    const T decay = exp2<T>(kLog2e * Element<S>::get(static_cast<const S*>(buffers.g)[row]));
    const T beta = Element<S>::get(static_cast<const S*>(buffers.beta)[row]);
    for (int64_t i = 0; i < n; ++i) {  // d = S^T k
      T* const s = state + i * width;
      for (int64_t j = 0; j < width; j += L) {
        const Vec<T, W> kept = load<T, W>(s + j) * decay;
        store<T, W>(s + j, kept);
        store<T, W>(d + j, load<T, W>(d + j) + kept * k[i]);
      }
    }
    for (int64_t j = 0; j < width; j += L)
      store<T, W>(d + j, (load<T, W>(v + j) - load<T, W>(d + j)) * beta);
    for (int64_t i = 0; i < n; ++i) {
      T* const s = state + i * width;
      for (int64_t j = 0; j < width; j += L) {
        const Vec<T, W> next = load<T, W>(s + j) + load<T, W>(d + j) * k[i];
        store<T, W>(s + j, next);
        store<T, W>(o + j, load<T, W>(o + j) + next * q[i]);
      }
    }
    const T scale = 1 / root(static_cast<T>(n));
    for (int64_t j = 0; j < n; j += L)
      store_first<S, W>(static_cast<S*>(buffers.out) + row * n + j, load<T, W>(o + j) * scale,
                        n - j);
  }

  static T root(T x) {
    if constexpr (sizeof(T) == 4) {
      return __builtin_sqrtf(x);
    } else {
      return __builtin_sqrt(x);
    }
  }
};

template <class S, int W>
StateSpaceFns state_space_fns() {
  using Backward = SelectiveScanBackwardImpl<S, W>;
  return {&SelectiveScanImpl<S, W>::run, &Backward::run, &Backward::scratch_bytes,
          &DeltaNetImpl<S, W>::run};
}

template StateSpaceFns state_space_fns<float, kVectorBytes>();
template StateSpaceFns state_space_fns<double, kVectorBytes>();
template StateSpaceFns state_space_fns<f16_t, kVectorBytes>();
template StateSpaceFns state_space_fns<bf16_t, kVectorBytes>();

}  // namespace rlx::cpu
