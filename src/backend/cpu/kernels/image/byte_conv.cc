#include "rlx/backend/cpu/kernels/image/byte_conv.h"

#include <algorithm>
#include <vector>

namespace rlx::cpu {
namespace {

constexpr int64_t kWindowBytes = 1 << 19;  // of an unfolded tile

// A kernel of one tap that reads every pixel reads them as one line.
ConvProblem joined_lines(ConvProblem p) {
  if (p.taps() == 1 && p.x == p.y && p.stride == Sizes3{1, 1, 1} && p.low == Sizes3{0, 0, 0})
    p.x = p.y = {1, 1, p.pixels()};
  return p;
}

int32_t number(const void* p, int64_t i, DType d) {
  return d == DType::I8 ? static_cast<const int8_t*>(p)[i] : static_cast<const uint8_t*>(p)[i];
}

// A line of x as `width` results read it: where the stride is more than 1 the numbers of each phase one after the other, so
// that those of a tap are.
struct PhasedLine {
  int64_t reach;          // numbers that the results read
  int64_t phase, length;  // of a phase, and of the line

  PhasedLine(const ConvProblem& p, int64_t width)
      : reach(width ? (width - 1) * p.stride[2] + (p.kernel[2] - 1) * p.dilation[2] + 1 : 0),
        phase(ceil_div(reach, p.stride[2])),
        length(p.stride[2] * phase) {}
};

// Where unfold keeps lines of x as groups of channels: those that some lines of results at one depth read, or, where lines
// are long, a part of one.
struct GroupSlots : PhasedLine {
  static constexpr int64_t kLine = 256;    // results; longer ones are taken in parts
  static constexpr int64_t kReach = 4096;  // more than that is not worth keeping

  bool parts;
  int64_t width;  // of results
  int64_t lines;  // of results, at most
  int64_t rows;   // of x that they span at a depth of the kernel
  bool kept;

  GroupSlots(const ConvProblem& p, int64_t columns)
      : PhasedLine(p, p.y[2] > kLine ? std::min(columns, p.y[2]) : p.y[2]),
        parts(p.y[2] > kLine),
        width(parts ? std::min(columns, p.y[2]) : p.y[2]),
        lines(parts ? 1 : std::min(p.y[1], (columns - 1) / std::max<int64_t>(p.y[2], 1) + 2)),
        rows(rows_for(p, lines)),
        kept((p.taps() > 1 || p.stride[2] > 1) && reach <= kReach && rows <= kReach &&
             rows <= 2 * lines * p.kernel[1]) {}  // taps read half of them at least

  static int64_t rows_for(const ConvProblem& p, int64_t lines) {
    return (lines - 1) * p.stride[1] + (p.kernel[1] - 1) * p.dilation[1] + 1;
  }
};

// Where run_direct keeps lines of x.
struct DirectSlots : PhasedLine {
  int64_t rows, lines;  // slots for a depth of the kernel; lines that keys tell apart
  int64_t count;

  explicit DirectSlots(const ConvProblem& p)
      : PhasedLine(p, p.y[2]),
        rows((p.kernel[1] - 1) * p.dilation[1] + 1),
        lines((p.y[1] - 1) * p.stride[1] + rows),
        count(p.kernel[0] * rows) {}
};

}  // namespace

ByteConv::ByteConv(const ByteConvProblem& problem, DotIsa isa)
    : p_(problem),
      conv_(joined_lines(problem.conv)),
      isa_(isa),
      fns_(byte_dot_fns(isa)),
      shift_(byte_shift(isa, problem.w_dtype == DType::I8, problem.x_dtype == DType::I8)) {
  const int64_t planes = conv_.images * conv_.groups;
  if (is_direct()) {
    columns_ = cut(conv_.positions(), std::max<int64_t>(1, conv_.positions()));
    rows_ = cut(conv_.out, 1);
  } else {
    const int64_t fit = kWindowBytes / std::max<int64_t>(4 * depth(), 1) / fns_.panel * fns_.panel;
    const int64_t wanted =
        ceil_div(conv_.positions(), ceil_div(kBlocksWanted, std::max<int64_t>(planes, 1)));
    columns_ = cut(conv_.positions(),
                   std::clamp<int64_t>(std::min(fit, align_up(wanted, fns_.panel)), 64, 1024));
    rows_ = share(conv_.out, kBlocksWanted / std::max<int64_t>(1, planes * columns_.count()),
                  4 * kStep);
  }
  area_ = areas();
}

int64_t ByteConv::blocks() const {
  return conv_.images * conv_.groups * rows_.count() * columns_.count();
}

ByteConv::Areas ByteConv::areas() const {
  Areas at;
  int64_t end = 0;
  auto place = [&](int64_t& area, int64_t words) {
    area = end;
    end += align_up(4 * words, int64_t{64});
  };
  if (is_direct()) {
    const DirectSlots slots(conv_);
    place(at.windows, slots.count * slots.length);
    place(at.column, conv_.x[2]);
    place(at.zero, 2 * slots.count);
    place(at.sums, conv_.y[2]);
    at.end = end;
    return at;
  }
  const int64_t columns = align_up(columns_.step, fns_.panel);
  place(at.w, rows_.step * depth());
  place(at.windows, columns * depth());
  place(at.sums, rows_.step);
  place(at.ones, depth());
  place(at.zero, rows_.step + columns);
  place(at.column, columns);
  if (const GroupSlots slots(conv_, columns_.step); slots.kept) {
    place(at.lines, conv_.kernel[0] * slots.rows * slots.length + kGroupSlack);
    place(at.dense, std::min(slots.rows, conv_.x[1]) * conv_.x[2]);
    place(at.flat, columns + kGroupSlack);
  }
  at.end = end;
  return at;
}

// Weights of every output channel as lines of groups, then the sum of each line.
size_t ByteConv::packed_bytes() const {
  if (is_direct()) return 0;
  return static_cast<size_t>(4 * conv_.groups * conv_.out * (depth() + 1));
}

std::string ByteConv::packed_form() const {
  return fmt::format("{} channels of {} by {} taps", dot_isa_name(isa_), conv_.in, conv_.taps());
}

void ByteConv::pack_channels(const uint8_t* w, int64_t count, uint32_t* out, uint32_t* sums) const {
  const bool is_signed = p_.w_dtype == DType::I8;
  for (int64_t o = 0; o < count; ++o, w += conv_.depth(), out += depth()) {
    for (int64_t c = 0; c < channel_groups(); ++c)
      for (int64_t tap = 0; tap < conv_.taps(); ++tap)
        fns_.pack_line(w + c * fns_.group * conv_.taps() + tap, conv_.taps(),
                       std::min(fns_.group, conv_.in - c * fns_.group), is_signed,
                       out + c * conv_.taps() + tap);
    sums[o] = fns_.sum(out, depth(), is_signed);
  }
}

void ByteConv::pack_w(const void* w, void* packed) const {
  auto* out = static_cast<uint32_t*>(packed);
  const int64_t channels = conv_.groups * conv_.out;
  pack_channels(static_cast<const uint8_t*>(w), channels, out, out + channels * depth());
}

// The lines of x that make a group of channels.
ByteRows ByteConv::rows_of(const uint8_t* x, int64_t c) const {
  const int64_t channels = std::min(fns_.group, conv_.in - c * fns_.group);
  ByteRows rows{.row = {}, .step = 1, .is_signed = p_.x_dtype == DType::I8, .keep = 0, .flip = 0};
  for (int64_t i = 0; i < fns_.group; ++i) {
    const bool there = i < channels;
    rows.row[i] = x + (c * fns_.group + (there ? i : 0)) * conv_.pixels();
    if (!there) continue;
    rows.keep |= fns_.group == 4 ? 0xffu << 8 * i : 0xffffu << 16 * i;
    rows.flip |= static_cast<uint32_t>(shift_.flip) << 8 * i;
  }
  return rows;
}

// Columns [begin, end) of a group's windows as panels. What lies outside of x is its zero point; channels that only fill a
// group are 0 as stored. Lines of x become groups once and are copied for each tap.
void ByteConv::unfold(const uint8_t* x, int32_t zero, int64_t begin, int64_t end,
                      std::byte* scratch) const {
  auto words = [&](int64_t area) { return reinterpret_cast<uint32_t*>(scratch + area); };
  uint32_t* const out = words(area_.windows);
  const GroupSlots slots(conv_, columns_.step);
  if (!slots.kept) return unfold_taps(x, zero, begin, end, out);
  uint32_t *const lines = words(area_.lines), *const dense = words(area_.dense);
  const int64_t panel_stride = depth() * fns_.panel, stride = conv_.stride[2];
  const auto byte = static_cast<uint8_t>(zero);

  // Results [at, at + count), which begin at a column of a line, at one depth.
  auto unfold_some = [&](int64_t c, const ByteRows& from, uint32_t outside, int64_t at,
                         int64_t count) {
    const int64_t y_line = at / conv_.y[2], column = at % conv_.y[2];
    const int64_t first = slots.parts ? column : 0;  // column of results that a line begins with
    const int64_t y_rows = slots.parts ? 1 : (column + count - 1) / conv_.y[2] + 1;
    const PhasedLine line(conv_, slots.parts ? count : conv_.y[2]);
    const int64_t rows = GroupSlots::rows_for(conv_, y_rows);
    // Of x: rows [top, top + rows) and columns [left, left + reach), as far as they are there.
    const int64_t top = y_line % conv_.y[1] * conv_.stride[1] - conv_.low[1];
    const int64_t left = first * stride - conv_.low[2];
    const int64_t row_begin = std::clamp<int64_t>(top, 0, conv_.x[1]),
                  row_end = std::clamp<int64_t>(top + rows, row_begin, conv_.x[1]);
    const int64_t x_begin = slots.parts ? std::clamp<int64_t>(left, 0, conv_.x[2]) : 0,
                  x_end = slots.parts ? std::clamp<int64_t>(left + line.reach, x_begin, conv_.x[2])
                                      : conv_.x[2];
    const int64_t width = x_end - x_begin;
    // Positions of a line that x has.
    const int64_t there = std::clamp<int64_t>(x_begin - left, 0, line.reach),
                  there_end = std::clamp<int64_t>(x_end - left, there, line.reach);

    for (int64_t depth = 0; depth < conv_.kernel[0]; ++depth) {
      const int64_t x_depth =
          y_line / conv_.y[1] * conv_.stride[0] + depth * conv_.dilation[0] - conv_.low[0];
      const bool has_depth = x_depth >= 0 && x_depth < conv_.x[0];
      if (has_depth && width) {
        auto pack = [&](int64_t row, int64_t n, uint32_t* to) {
          ByteRows some = from;
          const int64_t offset = (x_depth * conv_.x[1] + row) * conv_.x[2] + x_begin;
          for (int64_t i = 0; i < fns_.group; ++i) some.row[i] += offset;
          fns_.pack_rows(some, n, to, 0, fns_.panel);
        };
        if (width == conv_.x[2])
          pack(row_begin, (row_end - row_begin) * width, dense);
        else
          for (int64_t r = row_begin; r < row_end; ++r)
            pack(r, width, dense + (r - row_begin) * width);
      }
      for (int64_t r = 0; r < rows; ++r) {
        uint32_t* const to = lines + (depth * slots.rows + r) * slots.length;
        const int64_t row = top + r;
        if (!has_depth || row < row_begin || row >= row_end) {
          std::fill_n(to, line.length, outside);
          continue;
        }
        const uint32_t* const x_row = dense + (row - row_begin) * width - (x_begin - left);
        if (stride == 1) {
          std::fill_n(to, there, outside);
          std::copy(x_row + there, x_row + there_end, to + there);
          std::fill(to + there_end, to + line.length, outside);
          continue;
        }
        for (int64_t phase = 0; phase < stride; ++phase) {
          uint32_t* const numbers = to + phase * line.phase;
          auto first_from = [&](int64_t position) {
            return std::min(ceil_div(std::max<int64_t>(position - phase, 0), stride), line.phase);
          };
          const int64_t low = first_from(there), high = first_from(there_end);
          std::fill_n(numbers, low, outside);
          for (int64_t i = low; i < high; ++i) numbers[i] = x_row[phase + i * stride];
          std::fill(numbers + high, numbers + line.phase, outside);
        }
      }
    }
    for (int64_t k = 0; k < conv_.taps(); ++k) {
      const Tap tap = tap_of(conv_, k);
      const int64_t position = tap.column * conv_.dilation[2];
      const uint32_t* const start =
          lines + (tap.depth * slots.rows + tap.row * conv_.dilation[1]) * slots.length +
          position % stride * line.phase + position / stride;
      fns_.copy_lines({.from = start,
                       .line = conv_.stride[1] * slots.length,
                       .width = slots.parts ? count : conv_.y[2],
                       .column = column - first},
                      count, words(area_.flat), out + (c * conv_.taps() + k) * fns_.panel,
                      at - begin, panel_stride);
    }
  };

  const int64_t plane = slots.parts ? conv_.y[2] : conv_.y[1] * conv_.y[2];
  for (int64_t c = 0; c < channel_groups(); ++c) {
    const ByteRows from = rows_of(x, c);
    ByteRows border = from;
    std::fill(border.row, border.row + fns_.group, &byte);
    uint32_t outside = 0;
    fns_.pack_rows(border, 1, &outside, 0, fns_.panel);
    for (int64_t at = begin; at < end;) {
      const int64_t count = std::min(plane - at % plane, end - at);
      unfold_some(c, from, outside, at, count);
      at += count;
    }
  }
}

// The same, where lines are read once or are far apart: tap by tap from x.
void ByteConv::unfold_taps(const uint8_t* x, int32_t zero, int64_t begin, int64_t end,
                           uint32_t* out) const {
  const int64_t panel_stride = depth() * fns_.panel, stride = conv_.stride[2];
  const auto byte = static_cast<uint8_t>(zero);
  for (int64_t c = 0; c < channel_groups(); ++c) {
    ByteRows all = rows_of(x, c);
    all.step = stride;
    ByteRows outside = all;
    outside.step = 0;
    std::fill(outside.row, outside.row + fns_.group, &byte);
    for (int64_t k = 0; k < conv_.taps(); ++k) {
      uint32_t* const to = out + (c * conv_.taps() + k) * fns_.panel;
      const Tap tap = tap_of(conv_, k);
      for_each_piece(
          conv_, begin, end, [&](int64_t line, int64_t column, int64_t count, int64_t at) {
            const uint8_t* const from = line_of(conv_, x, tap, line);
            const int64_t start = start_of(conv_, tap, column);
            const Valid valid =
                from ? Valid(start, stride, conv_.x[2], count) : Valid(0, 1, 0, count);
            if (valid.begin) fns_.pack_rows(outside, valid.begin, to, at, panel_stride);
            if (valid.end > valid.begin) {
              ByteRows rows = all;
              for (int64_t i = 0; i < fns_.group; ++i)
                rows.row[i] += from - x + start + valid.begin * stride;
              fns_.pack_rows(rows, valid.end - valid.begin, to, at + valid.begin, panel_stride);
            }
            if (valid.end < count)
              fns_.pack_rows(outside, count - valid.end, to, at + valid.end, panel_stride);
          });
    }
  }
}

void ByteConv::run(int64_t block, const ByteOperands& in, bool packed, std::byte* scratch) const {
  if (is_direct()) return run_direct(block, in, scratch);
  auto words = [&](int64_t area) { return reinterpret_cast<uint32_t*>(scratch + area); };
  const int64_t column = block % columns_.count(), row = block / columns_.count() % rows_.count();
  const int64_t plane = block / columns_.count() / rows_.count();  // image * groups + group
  const int64_t begin = columns_.first(column), n = columns_.size(column), m = rows_.size(row);
  const int64_t first = plane % conv_.groups * conv_.out + rows_.first(row);
  const int64_t columns = align_up(n, fns_.panel);
  const bool w_signed = p_.w_dtype == DType::I8;

  const int32_t x_zero = p_.x_zeros ? number(in.a_zero, 0, p_.x_dtype) : 0;
  uint32_t* const windows = words(area_.windows);
  if (n % fns_.panel)
    std::fill_n(windows + n / fns_.panel * depth() * fns_.panel, depth() * fns_.panel, 0u);
  unfold(static_cast<const uint8_t*>(in.a) + plane * conv_.in * conv_.pixels(), x_zero, begin,
         begin + n, scratch);

  const uint32_t *w, *sums;
  if (packed) {
    const auto* all = static_cast<const uint32_t*>(in.b);
    w = all + first * depth();
    sums = all + conv_.groups * conv_.out * depth() + first;
  } else {
    pack_channels(static_cast<const uint8_t*>(in.b) + first * conv_.depth(), m, words(area_.w),
                  words(area_.sums));
    w = words(area_.w), sums = words(area_.sums);
  }
  ByteTile t{.m = m,
             .n = n,
             .groups = depth(),
             .a_signed = w_signed,
             .a = w,
             .a_row = 4 * depth(),
             .b = windows,
             .panel_stride = depth() * fns_.panel,
             .c = static_cast<int32_t*>(in.c) +
                  (plane * conv_.out + rows_.first(row)) * conv_.positions() + begin,
             .c_row = conv_.positions(),
             .terms = {}};

  // As in byte_dots.h: the zero of w times the sums of the windows, and the zero of x times the sums of the weights.
  const int32_t zero = x_zero - shift_.shift;
  uint32_t any = 0, *const w_zeros = words(area_.zero);
  for (int64_t i = 0; i < m; ++i) {
    const int64_t at = p_.w_zeros == 1 ? 0 : first + i;
    w_zeros[i] = p_.w_zeros ? static_cast<uint32_t>(number(in.b_zero, at, p_.w_dtype)) : 0;
    any |= w_zeros[i];
  }
  if (any) {
    uint32_t *const ones = words(area_.ones), *const column_sums = words(area_.column);
    std::fill_n(ones, depth(), fns_.group == 4 ? 0x01010101u : 0x00010001u);
    fns_.run({.m = 1,
              .n = columns,
              .groups = depth(),
              .a_signed = w_signed,
              .a = ones,
              .a_row = 0,
              .b = windows,
              .panel_stride = t.panel_stride,
              .c = reinterpret_cast<int32_t*>(column_sums),
              .c_row = 0,
              .terms = {}});
    const auto all = static_cast<uint32_t>(conv_.depth()) * static_cast<uint32_t>(zero);
    for (int64_t j = 0; j < columns; ++j) column_sums[j] -= all;
    t.terms[0] = {w_zeros, column_sums};
  }
  if (zero) {
    uint32_t* const column_zero = w_zeros + rows_.step;
    std::fill_n(column_zero, columns, static_cast<uint32_t>(zero));
    t.terms[1] = {sums, column_zero};
  }
  fns_.run(t);
}

// One channel in per group, line by line. Lines of x stand as floats around their zero point, padding with them, in slots
// that the next lines find again; where the stride is more than 1 a slot has the numbers of each phase one after the other.
// A float holds the sums of 256 products exactly.
void ByteConv::run_direct(int64_t block, const ByteOperands& in, std::byte* scratch) const {
  constexpr int64_t kExact = 256;
  static_assert(kExact * 255 * 255 <= 1 << 24);
  const int64_t o = block % conv_.out, plane = block / conv_.out;
  const int64_t channel = plane % conv_.groups * conv_.out + o, width = conv_.y[2];
  const auto* x = static_cast<const uint8_t*>(in.a) + plane * conv_.pixels();
  const auto* w = static_cast<const uint8_t*>(in.b) + channel * conv_.taps();
  const int32_t x_zero = p_.x_zeros ? number(in.a_zero, 0, p_.x_dtype) : 0;
  const int32_t w_zero =
      p_.w_zeros ? number(in.b_zero, p_.w_zeros == 1 ? 0 : channel, p_.w_dtype) : 0;
  const DirectSlots slots(conv_);
  auto* numbers = reinterpret_cast<float*>(scratch + area_.windows);
  auto* line_x = reinterpret_cast<float*>(scratch + area_.column);
  auto* held = reinterpret_cast<int64_t*>(scratch + area_.zero);  // which line is in a slot
  auto* part = reinterpret_cast<int32_t*>(scratch + area_.sums);
  auto* y = static_cast<int32_t*>(in.c) + (plane * conv_.out + o) * conv_.positions();
  std::fill_n(held, slots.count, int64_t{-1});

  // The slot of the line that a tap reads.
  auto slot_of = [&](const Tap& tap, int64_t y_depth, int64_t y_row) -> const float* {
    const int64_t d = y_depth * conv_.stride[0] + tap.depth * conv_.dilation[0],
                  h = y_row * conv_.stride[1] + tap.row * conv_.dilation[1];
    const int64_t slot = tap.depth * slots.rows + h % slots.rows, key = d * slots.lines + h;
    float* const to = numbers + slot * slots.length;
    if (held[slot] == key) return to;
    held[slot] = key;
    std::fill_n(to, slots.length, 0.0f);
    const int64_t x_depth = d - conv_.low[0], x_row = h - conv_.low[1];
    if (x_depth < 0 || x_depth >= conv_.x[0] || x_row < 0 || x_row >= conv_.x[1]) return to;
    const int64_t low = conv_.low[2], stride = conv_.stride[2];
    const int64_t begin = std::max<int64_t>(0, -low), end = std::min(conv_.x[2], slots.reach - low);
    if (end <= begin) return to;
    float* const plain = stride == 1 ? to + low + begin : line_x;
    fns_.numbers(x + (x_depth * conv_.x[1] + x_row) * conv_.x[2] + begin, end - begin,
                 p_.x_dtype == DType::I8, x_zero, plain);
    if (stride == 1) return to;
    for (int64_t phase = 0; phase < stride; ++phase) {
      const int64_t first = (phase - (low + begin) % stride + stride) % stride;
      float* out = to + phase * slots.phase + (low + begin + first) / stride;
      for (int64_t i = first; i < end - begin; i += stride) *out++ = plain[i];
    }
    return to;
  };

  struct Place {  // of a tap
    Tap tap;
    int64_t offset;  // in its slot
    bool next_line;  // than that of the tap before
  };
  Place places[kExact];
  float factor[kExact];
  auto place_taps = [&](int64_t begin, int64_t count) {
    for (int64_t k = 0; k < count; ++k) {
      const Tap tap = tap_of(conv_, begin + k);
      const int64_t at = tap.column * conv_.dilation[2];
      places[k] = {tap, at % conv_.stride[2] * slots.phase + at / conv_.stride[2],
                   k == 0 || tap.column == 0};
      factor[k] = static_cast<float>(number(w, begin + k, p_.w_dtype) - w_zero);
    }
  };
  const int64_t taps = conv_.taps();
  if (taps <= kExact) place_taps(0, taps);
  for (int64_t d = 0; d < conv_.y[0]; ++d)
    for (int64_t h = 0; h < conv_.y[1]; ++h, y += width)
      for (int64_t begin = 0; begin == 0 || begin < taps; begin += kExact) {
        const int64_t count = std::min(kExact, taps - begin);
        if (taps > kExact) place_taps(begin, count);
        const float *from[kExact], *slot = nullptr;
        for (int64_t k = 0; k < count; ++k) {
          if (places[k].next_line) slot = slot_of(places[k].tap, d, h);
          from[k] = slot + places[k].offset;
        }
        fns_.sum_taps(from, factor, count, width, begin ? part : y);
        for (int64_t i = 0; begin && i < width; ++i)
          y[i] = static_cast<int32_t>(static_cast<uint32_t>(y[i]) + static_cast<uint32_t>(part[i]));
      }
}

}  // namespace rlx::cpu
