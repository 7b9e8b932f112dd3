#include "rlx/backend/cpu/kernels/matmul/byte_product.h"

#include <algorithm>
#include <vector>

#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kFewByteRows = 512;  // fewer are cut over columns too

// Tiles of packed weights. Few rows are cut over columns, so that there are 8 tiles and more; many only over rows: then what
// follows may run on the rows of a tile.
TileShape packed_shape(const MatmulProblem& p) {
  const int64_t batches = MatmulTiles(p, {1, 1}).batches();
  const int64_t rows = p.m * batches >= kFewByteRows ? 64 : kTallestTile;
  TileShape t{std::clamp<int64_t>(p.m, 1, rows), std::max<int64_t>(p.n, 1)};
  const int64_t tiles = ceil_div(p.m, t.m) * batches;
  // A tile reads at least 16 KiB of B.
  const int64_t most = std::max<int64_t>(1, p.n * p.k >> 14);
  if (tiles < 8) {
    const int64_t parts = std::clamp<int64_t>(16 / std::max<int64_t>(tiles, 1), 1, most);
    t.n = std::min(t.n, align_up(std::max<int64_t>(ceil_div(p.n, parts), 1), 64));
  }
  return t;
}

TileShape shape_of(const ByteProblem& p, bool packed) {
  const MatmulProblem& q = p.product;
  return packed ? packed_shape(q)
                : matmul_tile_shape(q.m, q.n, q.k, MatmulTiles(q, {1, 1}).batches());
}

int32_t number(const void* p, int64_t i, DType d) {
  return d == DType::I8 ? static_cast<const int8_t*>(p)[i] : static_cast<const uint8_t*>(p)[i];
}

// Zero points [first, first + count) as numbers plus `shift`; whether any is not 0.
bool zero_points(const void* from, int64_t zeros, DType d, int64_t first, int64_t count,
                 int32_t shift, uint32_t* out) {
  uint32_t any = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t z = zeros ? number(from, zeros == 1 ? 0 : (first + i) % zeros, d) : 0;
    out[i] = static_cast<uint32_t>(z + shift);
    any |= out[i];
  }
  return any != 0;
}

}  // namespace

struct ByteProduct::Areas {
  int64_t a = 0, b = 0, ones = 0, row_zero = 0, row_sum = 0, column_sum = 0, column_zero = 0,
          end = 0;
};

ByteProduct::ByteProduct(const ByteProblem& problem, DotIsa isa, bool packed)
    : MatmulTiles(problem.product, shape_of(problem, packed)),
      bytes_(problem),
      isa_(isa),
      packed_(packed),
      fns_(byte_dot_fns(isa)),
      shift_(byte_shift(isa, problem.product.dtype == DType::I8, problem.b_dtype == DType::I8)),
      groups_(ceil_div(problem.product.k, fns_.group)) {
  scratch_bytes_ = static_cast<size_t>(areas().end);
}

bool ByteProduct::reads_a() const {
  return has_vnni(isa_) && (problem_.a_col == 1 || problem_.k <= 1) && problem_.k % fns_.group == 0;
}

int64_t ByteProduct::panels(int64_t columns) const { return ceil_div(columns, fns_.panel); }

ByteProduct::Areas ByteProduct::areas() const {
  const int64_t columns = panels(tile_n_) * fns_.panel;
  Areas at;
  int64_t end = 0;
  auto place = [&](int64_t& area, int64_t words) {
    area = end;
    end += align_up(4 * words, kAlignment);
  };
  place(at.a, reads_a() ? 0 : tile_m_ * groups_);
  place(at.b, packed_ ? 0 : columns * groups_);
  place(at.ones, packed_ ? 0 : groups_);
  place(at.row_zero, tile_m_);
  place(at.row_sum, tile_m_);
  place(at.column_sum, columns);
  place(at.column_zero, columns);
  at.end = end;
  return at;
}

int64_t ByteProduct::matrix_bytes() const {
  return align_up(4 * panels(problem_.n) * fns_.panel * (groups_ + 1), kAlignment);
}

size_t ByteProduct::packed_bytes() const {
  return static_cast<size_t>(distinct_b() * matrix_bytes());
}

std::string ByteProduct::packed_form() const {
  return fmt::format("{} {} of {} for {}", dot_isa_name(isa_), b_text(), bytes_.b_dtype,
                     problem_.dtype);
}

// Columns [first, first + columns) of B as panels, zeros behind the last.
void ByteProduct::pack_columns(const uint8_t* b, int64_t first, int64_t columns,
                               uint32_t* out) const {
  const int64_t stride = groups_ * fns_.panel;
  const bool is_signed = bytes_.b_dtype == DType::I8;
  if (columns % fns_.panel) std::fill_n(out + columns / fns_.panel * stride, stride, 0u);
  if (problem_.b_row == 1 && problem_.b_col != 1)
    return pack_lines(b + first * problem_.b_col, columns, out);
  for (int64_t g = 0; g < groups_; ++g) {
    ByteRows rows{.row = {}, .step = problem_.b_col, .is_signed = is_signed, .keep = 0, .flip = 0};
    for (int64_t i = 0; i < fns_.group; ++i) {
      const int64_t k = g * fns_.group + i;
      const bool there = k < problem_.k;
      rows.row[i] = b + first * problem_.b_col + (there ? k : 0) * problem_.b_row;
      const uint32_t all = fns_.group == 4 ? 0xffu << 8 * i : 0xffffu << 16 * i;
      if (there) rows.keep |= all;
      if (there) rows.flip |= static_cast<uint32_t>(shift_.flip) << 8 * i;
    }
    fns_.pack_rows(rows, columns, out + g * fns_.panel, 0, stride);
  }
}

// B's columns are lines of numbers: each is packed as one of A, and spread over its panel.
void ByteProduct::pack_lines(const uint8_t* b, int64_t columns, uint32_t* out) const {
  constexpr int64_t kLine = 256;  // groups at a time
  uint32_t line[kLine];
  const uint32_t whole = shift_.flip * 0x01010101u;
  const auto rest = static_cast<uint32_t>((uint64_t{1} << problem_.k % fns_.group * 8) - 1) & whole;
  for (int64_t j = 0; j < columns; ++j) {
    uint32_t* const to = out + j / fns_.panel * groups_ * fns_.panel + j % fns_.panel;
    for (int64_t begin = 0; begin < groups_; begin += kLine) {
      const int64_t k = begin * fns_.group, count = std::min(kLine, groups_ - begin);
      fns_.pack_line(b + j * problem_.b_col + k, 1, std::min(count * fns_.group, problem_.k - k),
                     bytes_.b_dtype == DType::I8, line);
      for (int64_t g = 0; g < count; ++g)
        to[(begin + g) * fns_.panel] =
            line[g] ^ ((begin + g + 1) * fns_.group <= problem_.k ? whole : rest);
    }
  }
}

// Of B as it is stored: the product with a row of ones.
void ByteProduct::column_sums(const uint32_t* b, int64_t columns, uint32_t* ones,
                              uint32_t* sums) const {
  std::fill_n(ones, groups_, fns_.group == 4 ? 0x01010101u : 0x00010001u);
  fns_.run({.m = 1,
            .n = columns,
            .groups = groups_,
            .a_signed = problem_.dtype == DType::I8,
            .a = ones,
            .a_row = 0,
            .b = b,
            .panel_stride = groups_ * fns_.panel,
            .c = reinterpret_cast<int32_t*>(sums),
            .c_row = 0,
            .terms = {}});
}

void ByteProduct::pack_b(const void* b, void* packed) const {
  std::vector<uint32_t> ones(static_cast<size_t>(groups_));
  const int64_t columns = panels(problem_.n) * fns_.panel;
  for (int64_t batch = 0; batch < batches_; ++batch) {
    const BatchOffsets at = offsets(batch);
    auto* out =
        reinterpret_cast<uint32_t*>(static_cast<std::byte*>(packed) + at.b_index * matrix_bytes());
    pack_columns(static_cast<const uint8_t*>(b) + at.b, 0, problem_.n, out);
    column_sums(out, columns, ones.data(), out + columns * groups_);
  }
}

void ByteProduct::run_tile(int64_t tile, const ByteOperands& in, std::byte* scratch) const {
  const MatmulTile t = this->tile(tile);
  const BatchOffsets at = offsets(t.batch);
  const Areas area = areas();
  auto words = [&](int64_t offset) { return reinterpret_cast<uint32_t*>(scratch + offset); };
  const int64_t m = t.m_end - t.m_begin, n = t.n_end - t.n_begin;
  const int64_t stride = groups_ * fns_.panel, columns = panels(n) * fns_.panel;
  const bool a_signed = problem_.dtype == DType::I8;

  ByteTile call{.m = m,
                .n = n,
                .groups = groups_,
                .a_signed = a_signed,
                .a = nullptr,
                .a_row = 4 * groups_,
                .b = nullptr,
                .panel_stride = stride,
                .c = static_cast<int32_t*>(in.c) + at.c + t.m_begin * problem_.c_row + t.n_begin,
                .c_row = problem_.c_row,
                .terms = {}};
  const auto* a = static_cast<const uint8_t*>(in.a) + at.a + t.m_begin * problem_.a_row;
  if (reads_a()) {
    call.a = reinterpret_cast<const uint32_t*>(a);
    call.a_row = problem_.a_row;
  } else {
    for (int64_t i = 0; i < m; ++i)
      fns_.pack_line(a + i * problem_.a_row, problem_.a_col, problem_.k, a_signed,
                     words(area.a) + i * groups_);
    call.a = words(area.a);
  }

  const uint32_t* sums = words(area.column_sum);
  uint32_t* const row_zero = words(area.row_zero);
  const bool has_a_zero =
      zero_points(in.a_zero, bytes_.a_zeros, problem_.dtype, t.m_begin, m, 0, row_zero);
  if (packed_) {
    const auto* b = reinterpret_cast<const uint32_t*>(static_cast<const std::byte*>(in.b) +
                                                      at.b_index * matrix_bytes());
    call.b = b + t.n_begin / fns_.panel * stride;
    sums = b + panels(problem_.n) * stride + t.n_begin;
  } else {
    pack_columns(static_cast<const uint8_t*>(in.b) + at.b, t.n_begin, n, words(area.b));
    call.b = words(area.b);
    if (has_a_zero) column_sums(call.b, columns, words(area.ones), words(area.column_sum));
  }
  uint32_t* const column_zero = words(area.column_zero);
  std::fill(column_zero + n, column_zero + columns, 0u);
  if (zero_points(in.b_zero, bytes_.b_zeros, bytes_.b_dtype, t.n_begin, n, -shift_.shift,
                  column_zero)) {
    for (int64_t i = 0; i < m; ++i)
      words(area.row_sum)[i] =
          fns_.sum(reinterpret_cast<const uint32_t*>(reinterpret_cast<const uint8_t*>(call.a) +
                                                     i * call.a_row),
                   groups_, a_signed);
    call.terms[1] = {words(area.row_sum), column_zero};
  }
  if (has_a_zero) {
    uint32_t* const out = words(area.column_sum);
    const auto k = static_cast<uint32_t>(problem_.k);
    for (int64_t j = 0; j < columns; ++j) out[j] = sums[j] - k * column_zero[j];
    call.terms[0] = {row_zero, out};
  }
  fns_.run(call);
}

ByteDotFns byte_dot_fns(DotIsa isa) {
  return for_dot_isa(isa, [](auto d) { return byte_dot_fns_of<d>(); });
}

}  // namespace rlx::cpu
