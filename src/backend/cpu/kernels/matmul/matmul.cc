#include "rlx/backend/cpu/kernels/matmul/matmul.h"

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/matmul/matmul_tile.h"
#include "rlx/backend/cpu/kernels/matmul/onednn.h"
#include "rlx/base/checked.h"
#include "rlx/base/hash.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kAlign = 64;
// The most of k that is summed in registers before C is touched: a block of A rows must fit in the
// first cache.
constexpr int64_t kMaxDepth = kPlainTerms;
constexpr int64_t kColumnStep =
    32;  // tiles of n begin at multiples of this: whole panels for every Isa

struct Dispatch {
  DType dtype, out;
  std::array<MatmulTileFns (*)(), 3> fns;  // by Isa
};

template <class S, class O>
constexpr Dispatch row(DType dtype, DType out) {
#if defined(__x86_64__)
  return {dtype,
          out,
          {&matmul_tile_fns<S, O, 16>, &matmul_tile_fns<S, O, 32>, &matmul_tile_fns<S, O, 64>}};
#else
  return {dtype, out, {&matmul_tile_fns<S, O, 16>, nullptr, nullptr}};
#endif
}

constexpr Dispatch kDispatch[] = {
    row<float, float>(DType::F32, DType::F32),     row<double, double>(DType::F64, DType::F64),
    row<f16_t, f16_t>(DType::F16, DType::F16),     row<f16_t, float>(DType::F16, DType::F32),
    row<bf16_t, bf16_t>(DType::BF16, DType::BF16), row<bf16_t, float>(DType::BF16, DType::F32),
    row<int8_t, int8_t>(DType::I8, DType::I8),     row<int8_t, int32_t>(DType::I8, DType::I32),
    row<uint8_t, uint8_t>(DType::U8, DType::U8),   row<uint8_t, int32_t>(DType::U8, DType::I32),
    row<int16_t, int16_t>(DType::I16, DType::I16), row<int16_t, int32_t>(DType::I16, DType::I32),
    row<int32_t, int32_t>(DType::I32, DType::I32), row<uint32_t, uint32_t>(DType::U32, DType::U32),
    row<int64_t, int64_t>(DType::I64, DType::I64), row<bool_t, bool_t>(DType::Bool, DType::Bool),
    row<c64_t, c64_t>(DType::C64, DType::C64),
};

MatmulTileFns find_fns(const MatmulProblem& p, Isa isa) {
  for (const Dispatch& d : kDispatch) {
    if (d.dtype == p.dtype && d.out == p.out_dtype) return d.fns[static_cast<size_t>(isa)]();
  }
  fail(ErrorKind::user, "matmul-dtype", "matmul: {} times {} does not go to {}", p.dtype, p.dtype,
       p.out_dtype);
}

void check_strides(const char* operand, int64_t rows, int64_t cols, int64_t row, int64_t col) {
  user_check(row == 1 || col == 1 || rows <= 1 || cols <= 1, "matmul-strides",
             "matmul: operand {} of {}x{} has strides {} and {}; one of them must be 1", operand,
             rows, cols, row, col);
}

std::shared_ptr<const MatmulPlan> make_plan(const MatmulProblem& p, Isa isa);

// The plans in use, one per problem and instruction set.
class PlanCache {
 public:
  std::shared_ptr<const MatmulPlan> get(const MatmulProblem& p, Isa isa) {
    const std::lock_guard lock(mutex_);
    const Key key{p, isa};
    if (const auto it = plans_.find(key); it != plans_.end())
      if (auto plan = it->second.lock()) return plan;
    auto plan = make_plan(p, isa);
    if (plans_.size() >= sweep_at_) {
      std::erase_if(plans_, [](const auto& entry) { return entry.second.expired(); });
      sweep_at_ = std::max(kSweep, 2 * plans_.size());
    }
    plans_.insert_or_assign(key, plan);
    return plan;
  }

 private:
  static constexpr size_t kSweep = 256;
  struct Key {
    MatmulProblem problem;
    Isa isa;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      const MatmulProblem& p = key.problem;
      uint64_t h = mix(static_cast<uint64_t>(key.isa), 2 * p.accumulate + p.weights);
      h = mix(mix(h, static_cast<uint64_t>(p.dtype)), static_cast<uint64_t>(p.out_dtype));
      for (int64_t n : {p.m, p.n, p.k, p.a_row, p.a_col, p.b_row, p.b_col, p.c_row, p.c_col})
        h = mix(h, static_cast<uint64_t>(n));
      for (const MatmulBatch& b : p.batch)
        for (int64_t n : {b.size, b.a, b.b, b.c}) h = mix(h, static_cast<uint64_t>(n));
      return h;
    }
  };
  std::mutex mutex_;
  std::unordered_map<Key, std::weak_ptr<const MatmulPlan>, Hash> plans_;
  size_t sweep_at_ = kSweep;
};

// Our own tiles (matmul_impl.h).
class NativePlan final : public MatmulPlan {
 public:
  NativePlan(const MatmulProblem& problem, Isa isa)
      : MatmulPlan(problem), fns_(find_fns(problem, isa)), element_(size_of(problem.dtype)) {
    const MatmulProblem& p = problem_;
    call_ = {.m = tile_m_,
             .n = tile_n_,
             .k = p.k,
             .a = nullptr,
             .a_row = p.a_row,
             .a_col = p.a_col,
             .b = nullptr,
             .b_row = p.b_row,
             .b_col = p.b_col,
             .packed = nullptr,
             .c = nullptr,
             .c_row = p.c_row,
             .c_col = p.c_col,
             .accumulate = p.accumulate,
             .k_block = std::max<int64_t>(
                 1, ceil_div(p.k, std::max<int64_t>(1, ceil_div(p.k, kMaxDepth)))),
             .scratch = {}};
    sizes_ = fns_.sizes(call_);
    int64_t at = 0;
    for (size_t i = 0; i < scratch_at_.size(); ++i) {
      scratch_at_[i] = at;
      at += align_up(sizes_.scratch[i], kAlign);
    }
    scratch_bytes_ = static_cast<size_t>(at);
  }

  const char* name() const override { return "native"; }
  size_t scratch_bytes() const override { return scratch_bytes_; }

  void run_tile(int64_t tile, const void* a, const void* b, void* c, void* scratch) const override {
    const MatmulTile t = this->tile(tile);
    const BatchOffsets at = offsets(t.batch);
    MatmulTileCall call = prepare(t, at, a, c, scratch);
    call.b = static_cast<const char*>(b) + (at.b + t.n_begin * problem_.b_col) * element_;
    fns_.run(call);
  }

  size_t packed_b_bytes() const override {
    return static_cast<size_t>(distinct_b() * align_up(packed_matrix_bytes(), kAlign));
  }

  std::string packed_b_form() const override { return "native " + b_text(); }

  void pack_b(const void* b, void* packed) const override {
    for (int64_t batch = 0; batch < batches_; ++batch) {
      const BatchOffsets at = offsets(batch);
      fns_.pack(problem_.k, problem_.n, static_cast<const char*>(b) + at.b * element_,
                problem_.b_row, problem_.b_col,
                static_cast<char*>(packed) + at.b_index * align_up(packed_matrix_bytes(), kAlign));
    }
  }

  void run_tile_packed(int64_t tile, const void* a, const void* packed, void* c,
                       void* scratch) const override {
    const MatmulTile t = this->tile(tile);
    const BatchOffsets at = offsets(t.batch);
    MatmulTileCall call = prepare(t, at, a, c, scratch);
    call.packed = static_cast<const char*>(packed) +
                  at.b_index * align_up(packed_matrix_bytes(), kAlign) +
                  t.n_begin * sizes_.packed_column_bytes;
    fns_.run(call);
  }

 private:
  int64_t packed_matrix_bytes() const {
    return align_up(problem_.n, sizes_.panel) * sizes_.packed_column_bytes;
  }

  MatmulTileCall prepare(const MatmulTile& t, const BatchOffsets& at, const void* a, void* c,
                         void* scratch) const {
    MatmulTileCall call = call_;
    call.m = t.m_end - t.m_begin;
    call.n = t.n_end - t.n_begin;
    call.a = static_cast<const char*>(a) + (at.a + t.m_begin * problem_.a_row) * element_;
    call.c =
        static_cast<char*>(c) + (at.c + t.m_begin * problem_.c_row + t.n_begin * problem_.c_col) *
                                    size_of(problem_.out_dtype);
    for (size_t i = 0; i < scratch_at_.size(); ++i)
      call.scratch[i] = static_cast<char*>(scratch) + scratch_at_[i];
    return call;
  }

  MatmulTileFns fns_;
  MatmulTileCall call_;
  MatmulTileSizes sizes_;
  int64_t element_;
  std::array<int64_t, 4> scratch_at_{};
  size_t scratch_bytes_ = 0;
};

std::shared_ptr<const MatmulPlan> make_plan(const MatmulProblem& p, Isa isa) {
  if (onednn_accepts(p, isa))
    if (auto plan = make_onednn_plan(p)) return plan;
  return std::make_shared<NativePlan>(p, isa);
}

}  // namespace

void MatmulProblem::set_dense() {
  out_dtype = dtype;
  a_row = k;
  b_row = c_row = n;
  a_col = b_col = c_col = 1;
}

namespace {

// With B packed a tile of few rows wastes nothing as long as B stays in the second cache: whole rows then, so that what
// follows the product runs on them while they are there, and enough tiles for all threads.
std::optional<TileShape> tile_of_whole_rows(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kSecondCache = 5 << 18, kTilesWanted = 16, kLeastRows = 24, kBlockRows = 14;
  if (n > kWidestTile || n * k * 4 > kSecondCache || m < kTilesWanted / 2 * kLeastRows)
    return std::nullopt;
  const int64_t rows = std::clamp(m / kTilesWanted, kLeastRows, 8 * kBlockRows);
  if (rows < 2 * kBlockRows) return TileShape{ceil_div(m, m / rows), n};
  return TileShape{(rows + kBlockRows / 2) / kBlockRows * kBlockRows, n};
}

}  // namespace

// Weighs what a tile wastes: packing B is paid once per tile row, reading A once per tile column,
// and too few tiles leave threads idle. Work per tile is kept above a million multiply-adds unless
// there is nothing else to split.
TileShape matmul_tile_shape(int64_t m, int64_t n, int64_t k, int64_t batches, bool weights) {
  if (weights && batches == 1)
    if (const auto tile = tile_of_whole_rows(m, n, k)) return *tile;
  constexpr double kTilesWanted = 8, kSmallWork = 1 << 20;
  TileShape best{std::max<int64_t>(m, 1), std::max<int64_t>(n, 1)};
  double best_cost = std::numeric_limits<double>::max();
  for (int64_t tm : {kTallestTile, kTallestTile / 2, kTallestTile / 4}) {
    for (int64_t parts : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024}) {
      const TileShape t{ceil_div(m, ceil_div(std::max<int64_t>(m, 1), tm)),
                        std::min(n, align_up(ceil_div(n, parts), kColumnStep))};
      if (t.n > kWidestTile || t.m < 1 || t.n < 1) continue;
      const double tiles = static_cast<double>(ceil_div(m, t.m)) *
                           static_cast<double>(ceil_div(n, t.n)) * static_cast<double>(batches);
      const double work =
          static_cast<double>(t.m) * static_cast<double>(t.n) * static_cast<double>(k);
      double cost = 2.0 / static_cast<double>(t.m) + 1.5 / static_cast<double>(t.n);
      if (tiles < kTilesWanted && work > kSmallWork) cost += 0.05 * (kTilesWanted - tiles);
      if (work < kSmallWork / 8) cost += 0.05 * (kSmallWork / 8 / std::max(work, 1.0));
      if (t.n < n) cost += 0.01;
      if (cost < best_cost) {
        best_cost = cost;
        best = t;
      }
    }
  }
  return best;
}

namespace {

TileShape shape_of(const MatmulProblem& p) {
  int64_t batches = 1;
  for (const MatmulBatch& b : p.batch) batches *= b.size;
  return matmul_tile_shape(p.m, p.n, p.k, batches, p.weights);
}

}  // namespace

MatmulPlan::MatmulPlan(const MatmulProblem& problem) : MatmulTiles(problem, shape_of(problem)) {}

MatmulTiles::MatmulTiles(const MatmulProblem& problem, TileShape shape) : problem_(problem) {
  for (const MatmulBatch& b : problem_.batch) batches_ *= b.size;
  tile_m_ = shape.m;
  tile_n_ = shape.n;
  tiles_m_ = ceil_div(problem_.m, tile_m_);
  tiles_n_ = ceil_div(problem_.n, tile_n_);
}

MatmulTile MatmulTiles::tile(int64_t index) const {
  const int64_t column = index % tiles_n_;
  const int64_t row = index / tiles_n_ % tiles_m_;
  MatmulTile t;
  t.batch = index / (tiles_n_ * tiles_m_);
  t.m_begin = row * tile_m_;
  t.m_end = std::min(problem_.m, t.m_begin + tile_m_);
  t.n_begin = column * tile_n_;
  t.n_end = std::min(problem_.n, t.n_begin + tile_n_);
  return t;
}

MatmulTiles::BatchOffsets MatmulTiles::offsets(int64_t batch) const {
  BatchOffsets at;
  int64_t b_scale = 1;
  for (auto dim = problem_.batch.rbegin(); dim != problem_.batch.rend(); ++dim) {
    const int64_t i = batch % dim->size;
    batch /= dim->size;
    at.a += i * dim->a;
    at.b += i * dim->b;
    at.c += i * dim->c;
    if (dim->b != 0) {
      at.b_index += i * b_scale;
      b_scale *= dim->size;
    }
  }
  return at;
}

int64_t MatmulTiles::distinct_b() const {
  int64_t count = 1;
  for (const MatmulBatch& b : problem_.batch) count *= b.b != 0 ? b.size : 1;
  return count;
}

std::string MatmulTiles::b_text() const {
  const MatmulProblem& p = problem_;
  std::string text = fmt::format("{} {}x{} strides {}, {}", p.dtype, p.k, p.n, p.b_row, p.b_col);
  for (const MatmulBatch& b : p.batch)
    if (b.b != 0) text += fmt::format(" {} by {}", b.size, b.b);
  return text;
}

int64_t MatmulTiles::c_offset(int64_t index) const {
  const MatmulTile t = tile(index);
  return offsets(t.batch).c + t.m_begin * problem_.c_row + t.n_begin * problem_.c_col;
}

std::shared_ptr<const MatmulPlan> MatmulPlan::make(const MatmulProblem& p, Isa isa) {
  user_check(p.m >= 0 && p.n >= 0 && p.k >= 0, "matmul-dims", "matmul: negative size in {}x{}x{}",
             p.m, p.n, p.k);
  check_strides("A", p.m, p.k, p.a_row, p.a_col);
  check_strides("B", p.k, p.n, p.b_row, p.b_col);
  check_strides("C", p.m, p.n, p.c_row, p.c_col);
  check(isa_supported(isa), "matmul: this machine has no {}", isa_name(isa));

  static PlanCache plans;
  return plans.get(p, isa);
}

}  // namespace rlx::cpu
