#include "rlx/backend/cpu/kernels/matmul/onednn.h"

#include <algorithm>
#include <array>
#include <oneapi/dnnl/dnnl.hpp>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "rlx/base/error.h"
#include "rlx/base/parallel.h"

namespace rlx::cpu {
namespace {

using dnnl::memory;

bool multiplies_bf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

template <class F>
void raising(F f) {
  try {
    f();
  } catch (const dnnl::error& e) {
    fail(ErrorKind::device, "onednn", "oneDNN: {} (status {})", e.what(),
         static_cast<int>(e.status));
  }
}

// Some virtual machines show AMX but not its palettes (CPUID leaf 0x1d). oneDNN takes that for a
// palette without tiles, and its first tile instruction is an illegal one.
bool shows_amx_without_palettes() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool amx = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1);
  return amx && !(__get_cpuid_count(0x1d, 0, &a, &b, &c, &d) && a > 0);
#else
  return false;
#endif
}

const dnnl::engine& engine() {
  static const dnnl::engine one = [] {
    if (shows_amx_without_palettes()) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return one;
}

dnnl::stream& stream() {
  thread_local dnnl::stream mine(engine());
  return mine;
}

memory::data_type type_of(DType dtype) {
  return dtype == DType::BF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// A dim of size 1 may have come with any stride; oneDNN wants one that fits the other.
memory::desc matrix(DType dtype, int64_t rows, int64_t cols, int64_t row, int64_t col) {
  if (cols == 1 && rows == 1) row = 1;
  if (cols == 1) col = row == 1 ? rows : 1;
  if (rows == 1) row = cols * col;
  return memory::desc({rows, cols}, type_of(dtype), memory::dims{row, col});
}

class OneDnnPlan final : public MatmulPlan {
 public:
  // Raises dnnl::error when oneDNN does not do the problem.
  explicit OneDnnPlan(const MatmulProblem& problem) : MatmulPlan(problem) {
    const OneThreadScope one_thread;
    const int64_t last_m = problem_.m - (tiles_m_ - 1) * tile_m_,
                  last_n = problem_.n - (tiles_n_ - 1) * tile_n_;
    for (size_t i = 0; i < 4; ++i) {
      // The last row and column of tiles may be smaller: i tells which.
      const int64_t m = i & 1 ? last_m : tile_m_, n = i & 2 ? last_n : tile_n_;
      kernels_[0][i] =
          make(m, n, matrix(problem_.dtype, problem_.k, n, problem_.b_row, problem_.b_col));
      // oneDNN picks the layout of a packed B once per column of tiles; the last row of tiles takes
      // the same.
      const memory::desc any({problem_.k, n}, type_of(problem_.dtype), memory::format_tag::any);
      kernels_[1][i] = make(m, n, i & 1 ? kernels_[1][i - 1].b : any);
      for (const auto& kernels : kernels_)
        scratch_bytes_ = std::max(scratch_bytes_, kernels[i].scratch.get_size());
    }
  }

  const char* name() const override { return "onednn"; }
  size_t scratch_bytes() const override { return scratch_bytes_; }

  void run_tile(int64_t tile, const void* a, const void* b, void* c, void* scratch) const override {
    const MatmulTile t = this->tile(tile);
    const BatchOffsets at = offsets(t.batch);
    run(t, at, kernels_[0][edge(t)], a,
        static_cast<const char*>(b) + (at.b + t.n_begin * problem_.b_col) * element(), c, scratch);
  }

  // Each column of tiles is packed by itself, so that every tile finds its part of B in one piece.
  size_t packed_b_bytes() const override {
    return static_cast<size_t>(distinct_b() * tiles_n_) * packed_tile_bytes();
  }

  // oneDNN chooses the form for the rows of a tile.
  std::string packed_b_form() const override {
    return fmt::format("onednn {} tiles {}x{}", b_text(), tile_m_, tile_n_);
  }

  void pack_b(const void* b, void* packed) const override {
    const OneThreadScope one_thread;
    raising([&] {
      for (int64_t batch = 0; batch < batches_; ++batch) {
        const BatchOffsets at = offsets(batch);
        for (int64_t column = 0; column < tiles_n_; ++column) {
          const Kernel& kernel = kernels_[1][column == tiles_n_ - 1 ? 2 : 0];
          const char* const from =
              static_cast<const char*>(b) + (at.b + column * tile_n_ * problem_.b_col) * element();
          char* const to =
              static_cast<char*>(packed) +
              static_cast<size_t>(at.b_index * tiles_n_ + column) * packed_tile_bytes();
          memory source(kernels_[0][column == tiles_n_ - 1 ? 2 : 0].b, engine(),
                        const_cast<char*>(from));
          memory target(kernel.b, engine(), to);
          dnnl::reorder(source, target).execute(stream(), source, target);
        }
      }
    });
  }

  void run_tile_packed(int64_t tile, const void* a, const void* packed, void* c,
                       void* scratch) const override {
    const MatmulTile t = this->tile(tile);
    const BatchOffsets at = offsets(t.batch);
    const size_t index = static_cast<size_t>(at.b_index * tiles_n_ + t.n_begin / tile_n_);
    run(t, at, kernels_[1][edge(t)], a,
        static_cast<const char*>(packed) + index * packed_tile_bytes(), c, scratch);
  }

 private:
  struct Kernel {
    dnnl::matmul matmul;
    memory::desc a, b, c, scratch;
  };

  Kernel make(int64_t m, int64_t n, const memory::desc& b) const {
    const MatmulProblem& p = problem_;
    Kernel k;
    k.a = matrix(p.dtype, m, p.k, p.a_row, p.a_col);
    k.c = matrix(p.out_dtype, m, n, p.c_row, p.c_col);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.f);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::primitive_desc desc({k.a, b, k.c}, attributes, engine());
    k.matmul = dnnl::matmul(desc);
    k.b = desc.weights_desc();
    k.scratch = desc.scratchpad_desc();
    return k;
  }

  void run(const MatmulTile& t, const BatchOffsets& at, const Kernel& k, const void* a,
           const void* b, void* c, void* scratch) const {
    const OneThreadScope one_thread;
    raising([&] {
      const char* const from =
          static_cast<const char*>(a) + (at.a + t.m_begin * problem_.a_row) * element();
      char* const to =
          static_cast<char*>(c) + (at.c + t.m_begin * problem_.c_row + t.n_begin * problem_.c_col) *
                                      size_of(problem_.out_dtype);
      k.matmul.execute(stream(), {{DNNL_ARG_SRC, memory(k.a, engine(), const_cast<char*>(from))},
                                  {DNNL_ARG_WEIGHTS, memory(k.b, engine(), const_cast<void*>(b))},
                                  {DNNL_ARG_DST, memory(k.c, engine(), to)},
                                  {DNNL_ARG_SCRATCHPAD, memory(k.scratch, engine(), scratch)}});
    });
  }

  size_t edge(const MatmulTile& t) const {
    return (t.m_end == problem_.m ? 1u : 0u) | (t.n_end == problem_.n ? 2u : 0u);
  }
  int64_t element() const { return size_of(problem_.dtype); }
  size_t packed_tile_bytes() const {
    return (std::max(kernels_[1][0].b.get_size(), kernels_[1][2].b.get_size()) + 63) / 64 * 64;
  }

  std::array<std::array<Kernel, 4>, 2> kernels_;  // [packed][edge]
  size_t scratch_bytes_ = 0;
};

}  // namespace

namespace {
// One stride is 1 and the other steps over what lies between: oneDNN reads nothing backwards,
// twice, or with gaps in both directions.
bool plain_matrix(int64_t rows, int64_t cols, int64_t row, int64_t col) {
  if (rows == 1) return cols == 1 || col == 1;
  if (cols == 1) return row >= 1;
  return (col == 1 && row >= cols) || (row == 1 && col >= rows);
}
}  // namespace

Decision onednn_accepts(const MatmulProblem& p, Isa isa) {
  if (p.dtype != DType::BF16)
    return Decision::no("oneDNN: only bf16 is faster than our own tiles, not {}", p.dtype);
  if (isa != Isa::Avx512 || !multiplies_bf16())
    return Decision::no("oneDNN: this machine does not multiply bf16");
  if (p.k % 2 == 1)  // it multiplies the last element of a row by the 0 that fills the pair, too
    return Decision::no("oneDNN: with an odd k an infinity may become NaN");
  if (p.c_col != 1) return Decision::no("oneDNN: the rows of the result are not contiguous");
  if (p.m == 0 || p.n == 0 || p.k == 0) return Decision::no("oneDNN: the product is empty");
  if (!plain_matrix(p.m, p.k, p.a_row, p.a_col) || !plain_matrix(p.k, p.n, p.b_row, p.b_col) ||
      !plain_matrix(p.m, p.n, p.c_row, p.c_col))
    return Decision::no("oneDNN: the strides of an operand are not those of a stored matrix");
  return Decision::yes();
}

std::unique_ptr<const MatmulPlan> make_onednn_plan(const MatmulProblem& p) {
  try {
    return std::make_unique<OneDnnPlan>(p);
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

}  // namespace rlx::cpu
