#include "rlx/ops/sequence/sequence.h"

#include <cmath>

#include "rlx/ops/control/control.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/indexing/index_rules.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/reduce/reduce.h"
#include "rlx/ops/sequence/sequence_rules.h"

namespace rlx {

Values recurrence(Builder& b, std::string_view name, const Values& carries, const Values& stacked,
                  const Values& constants, const Dim& length, bool reverse, RecurrenceStep step) {
  Builder body{std::string(name)};
  Values operands;
  const auto inputs = [&](const Values& values, bool sliced) {
    std::vector<Expr> out;
    for (Value v : values) {
      Type type = b.type(v);
      if (sliced) type.shape.erase(type.shape.begin());
      out.emplace_back(body, body.input(fmt::format("x{}", operands.size()), type));
      operands.push_back(v);
    }
    return out;
  };
  const std::vector<Expr> state = inputs(carries, false), slices = inputs(stacked, true),
                          fixed = inputs(constants, false);
  for (Expr e : step(state, slices, fixed)) body.output(e);
  return b.emit(op::scan.def,
                ScanAttrs{.body = body.finish(),
                          .length = length,
                          .num_carries = static_cast<int64_t>(carries.size()),
                          .num_xs = static_cast<int64_t>(stacked.size()),
                          .reverse = reverse},
                operands);
}

Value swap_leading_axes(Builder& b, Value x) { return swap_blocks(b, x, 0, 1, 1); }

Expr with_axis(Expr x, int64_t at) {
  Shape s = x.shape();
  s.insert(at < 0 ? s.end() + (at + 1) : s.begin() + at, Dim(1));
  return x.make(reshape_to(x.builder(), x, s));
}

void require_rank(const InferArgs& a, size_t operand, int64_t rank, std::string_view what) {
  if (a.in[operand].rank() != rank)
    bad_operands(a, "sequence-shape", fmt::format("{} must be {}", a.name(operand), what));
}

void require_shape(const InferArgs& a, size_t operand, const Shape& shape, std::string_view what) {
  require_rank(a, operand, static_cast<int64_t>(shape.size()), what);
  for (size_t i = 0; i < shape.size(); ++i)
    if (differ(a.in[operand].shape[i], shape[i]))
      bad_operands(a, "sequence-shape", fmt::format("{} must be {}", a.name(operand), what));
}

namespace {

void require_dtype(const InferArgs& a, size_t operand) {
  if (a.in[operand].dtype != a.in[0].dtype && a.in[operand].dtype != DType::F32)
    bad_operands(a, "dtype-mixed",
                 fmt::format("{} must have the dtype of {} or be f32", a.name(operand), a.name(0)));
}

// ---- rotary

void normalise_rope_at(void* attrs, std::string_view, std::span<const Type>) {
  auto& r = *static_cast<RopeAttrs*>(attrs);
  if (r.n_rot == 0) r.n_rot = r.head_dim;
}

Types infer_rope_at(const InferArgs& a) {
  check_rope(a, a.get<RopeAttrs>(), 0);
  const Shape &x = a.in[0].shape, &at = a.in[3].shape;
  const bool fits = (at.size() == 1 || (at.size() == 2 && x.size() > 2 && !differ(at[0], x[0]))) &&
                    !differ(at.back(), x[x.size() - 2]);
  if (!fits)
    bad_operands(a, "rope-shape", "positions must be [S], or [B, S] with x [B, .., S, heads * D]");
  require_indices(a, 3);
  return {a.in[0]};
}

Values decompose_rope_at(Builder& b, const Node& n, Operands in) {
  const auto& r = n.get<RopeAttrs>();
  Expr x = widen(b, in[0]);
  const Dim positions = x.shape()[x.shape().size() - 2];
  const auto table = [&](Value t) -> Expr {
    t = op::gather(b, t, in[3], {0});  // [S, C] or [B, S, C]
    Expr rows = table_for(b, t, positions, r.n_rot / 2, x.dtype());
    if (b.type(in[3]).rank() == 1) return rows;
    while (rows.rank() < x.rank() + 1) rows = with_axis(rows, 1);
    return rows;
  };
  return {cast_to(b, rotate(x, table(in[1]), table(in[2]), r), n.type().dtype)};
}

Types infer_axial_rope(const InferArgs& a) {
  const auto& r = a.get<AxialRopeAttrs>();
  if (r.end_x < 1 || r.end_y < 1 || r.repeat_factor < 0 || r.num_heads < 1 || r.head_dim < 4 ||
      r.head_dim % 4 || !(r.theta > 0))
    bad_operands(a, "rope-heads",
                 "end_x, end_y and num_heads must be positive, head_dim a positive multiple of 4, "
                 "theta positive and repeat_factor not negative");
  const Dim tokens = Dim(r.end_x) * r.end_y * std::max<int64_t>(r.repeat_factor, 1);
  require_rank(a, 0, 3, "[B, S, num_heads * head_dim]");
  require_shape(a, 0, {a.in[0].shape[0], tokens, Dim(r.num_heads) * r.head_dim},
                fmt::format("[B, {}, {} * {}]", tokens, r.num_heads, r.head_dim));
  return {a.in[0]};
}

// Interleaved pairs; the first half of them turns with x, the second with y.
Values decompose_axial_rope(Builder& b, const Node& n, Operands in) {
  const auto& r = n.get<AxialRopeAttrs>();
  const int64_t repeat = std::max<int64_t>(r.repeat_factor, 1), quarter = r.head_dim / 4;
  const DType dtype = n.type().dtype == DType::F64 ? DType::F64 : DType::F32;
  Tensor cos(dtype, {r.end_x * r.end_y * repeat, 2 * quarter}), sin(dtype, cos.sizes());
  for (int64_t i = 0; i < cos.elements(); ++i) {
    const int64_t place = i / (2 * quarter) / repeat, column = i % (2 * quarter);
    const int64_t at = column < quarter ? place % r.end_x : place / r.end_x;
    const double angle =
        static_cast<double>(at) * std::pow(r.theta, -4.0 * static_cast<double>(column % quarter) /
                                                        static_cast<double>(r.head_dim));
    cos.set_float(i, std::cos(angle));
    sin.set_float(i, std::sin(angle));
  }
  return {op::rope(b, in[0], b.constant(cos), b.constant(sin),
                   {.head_dim = r.head_dim, .interleaved = true})};
}

// ---- caches

Types infer_paged_attention(const InferArgs& a) {
  require_same_dtype({a.op, a.attrs, a.in.first(3)});
  require_rank(a, 0, 4, "q [B, S_q, H, D]");
  require_rank(a, 1, 4, "k_pages [pages, page, kv_heads, D]");
  const Shape &q = a.in[0].shape, &pages = a.in[1].shape;
  require_shape(a, 1, {pages[0], pages[1], pages[2], q[3]}, "k_pages [pages, page, kv_heads, D]");
  require_shape(a, 2, pages, "v_pages, as k_pages");
  require_rank(a, 3, 2, "block_table [B, blocks]");
  require_shape(a, 3, {q[0], a.in[3].shape[1]}, "block_table [B, blocks]");
  require_shape(a, 4, {q[0]}, "lengths [B]");
  for (size_t i : {3, 4}) require_indices(a, i);
  if (!q[2].is_static() || !pages[2].is_static())
    bad_operands(a, "sequence-shape", "the numbers of heads must be known");
  const int64_t heads = q[2].value(), kv_heads = pages[2].value();
  if (heads < 1 || kv_heads < 1 || heads % kv_heads || q[3] == Dim(0))
    bad_operands(a, "sequence-shape",
                 fmt::format("H ({}) must be a positive multiple of kv_heads ({}), D ({}) positive",
                             heads, kv_heads, q[3]));
  return {a.in[0]};
}

Values decompose_paged_attention(Builder& b, const Node& n, Operands in) {
  const auto& t = n.get<PagedAttentionAttrs>();
  const Shape q = b.shape(in[0]), pages = b.shape(in[1]), table = b.shape(in[3]);
  const Dim keys = table[1] * pages[1];
  Expr lengths(b, reshape_to(b, cast_to(b, in[4], DType::I64), {q[0], 1}));
  // Entries behind a sequence's last page may hold anything.
  Expr page_start = Expr(b, op::iota(b, {}, {DType::I64, table, 1})) *
                    Expr(b, dim_value(b, pages[1], DType::I64));
  Expr entries(b, cast_to(b, in[3], DType::I64));
  const Value used = op::select(b, op::lt(page_start, lengths), entries, entries.like(0));
  const auto rows = [&](Value v) {
    return reshape_to(b, op::gather(b, v, used, {0}), {q[0], keys, pages[2], pages[3]});
  };
  const Shape square{q[0], q[1], keys};
  Expr key(b, op::iota(b, {}, {DType::I64, square, 2}));
  Expr end = with_axis(lengths, -1);
  Expr at = Expr(b, op::iota(b, {}, {DType::I64, square, 1})) + end -
            Expr(b, dim_value(b, q[1], DType::I64));
  Expr seen = op::lt(key, end);
  if (t.mask != MaskKind::none) seen = op::logical_and(seen, op::le(key, at));
  if (t.mask == MaskKind::sliding_window)
    seen = op::logical_and(seen, op::ge(key, at - static_cast<double>(t.window)));
  const AttentionAttrs attrs{.num_heads = q[2].value(),
                             .num_kv_heads = pages[2].value(),
                             .scale = t.scale,
                             .softcap = t.softcap,
                             .has_mask = true,
                             .layout = AttentionLayout::seq_major};
  return {b.emit(op::attention.def, attrs, Values{in[0], rows(in[1]), rows(in[2]), seen})[0]};
}

Types infer_cache_append(const InferArgs& a) {
  const auto axis = static_cast<size_t>(a.get<CacheAttrs>().axis);
  require_same_dtype({a.op, a.attrs, a.in.first(2)});
  const Shape &cache = a.in[0].shape, &rows = a.in[1].shape;
  bool fits = rows.size() == cache.size() && a.in[2].rank() == 0;
  for (size_t i = 0; fits && i < cache.size(); ++i)
    fits = i == axis ? !is_negative(cache[i] - rows[i]) : !differ(cache[i], rows[i]);
  if (!fits)
    bad_operands(a, "cache-shape",
                 fmt::format("rows must be as the cache but for axis {}, where they are not more, "
                             "and the position a number of rank 0",
                             axis));
  require_indices(a, 2);
  return {a.in[0]};
}

// The source of every place: its own in the cache, or where scatter_add says (which also says when
// one falls outside) its row behind it.
Values decompose_cache_append(Builder& b, const Node& n, Operands in) {
  const int64_t axis = n.get<CacheAttrs>().axis;
  const auto at = static_cast<size_t>(axis);
  const Dim places = b.shape(in[0])[at], rows = b.shape(in[1])[at];
  Expr own(b, op::iota(b, {}, {DType::I64, {places}, 0}));
  Expr row(b, op::iota(b, {}, {DType::I64, {rows}, 0}));
  Expr targets = row + Expr(b, cast_to(b, in[2], DType::I64));
  Expr written(b, op::scatter_add(b, row + 1.0, targets, {0, places}));  // row + 1, or 0
  Expr behind = written + Expr(b, dim_value(b, places - Dim(1), DType::I64));
  const Value source = op::select(b, op::gt(written, written.like(0)), behind, own);
  const Value both = b.emit(op::concat.def, AxisAttrs{axis}, Values{in[0], in[1]})[0];
  return {op::gather(b, both, source, {axis})};
}

// ---- state spaces

Types infer_selective_scan(const InferArgs& a) {
  require_same_dtype(a);
  require_rank(a, 0, 3, "x [B, S, C]");
  require_rank(a, 2, 2, "a [C, N]");
  const Shape& x = a.in[0].shape;
  const Dim n = a.in[2].shape[1];
  require_shape(a, 1, x, "delta, as x");
  require_shape(a, 2, {x[2], n}, "a [C, N]");
  require_shape(a, 3, {x[0], x[1], n}, "b [B, S, N]");
  require_shape(a, 4, {x[0], x[1], n}, "c [B, S, N]");
  return {a.in[0]};
}

// One step: h = exp(delta a) h + delta b x. Slices are x, delta, b, then what the caller adds.
struct ScanStep {
  Expr x, delta, a, b;  // of h's rank
  Expr decay, next;
  ScanStep(Expr h, const std::vector<Expr>& s, Expr rates)
      : x(with_axis(s[0], -1)),
        delta(with_axis(s[1], -1)),
        a(rates),
        b(with_axis(s[2], 1)),
        decay(op::exp(delta * a)),
        next(decay * h + delta * x * b) {}
};

// The operands `which`, wide and with time in front.
Values time_major(Builder& b, Operands in, std::initializer_list<size_t> which) {
  Values out;
  for (size_t i : which) out.push_back(swap_leading_axes(b, widen(b, in[i])));
  return out;
}

Values decompose_selective_scan(Builder& b, const Node& n, Operands in) {
  Expr a = widen(b, in[2]);
  const Shape x = b.shape(in[0]);
  const Value state = full(b, {a.dtype(), {x[0], x[2], a.shape()[1]}}, 0);
  const Values out = recurrence(
      b, "selective_scan", {state}, time_major(b, in, {0, 1, 3, 4}), {a}, x[1], false,
      [](const auto& carries, const auto& s, const auto& constants) -> std::vector<Expr> {
        Expr h = ScanStep(carries[0], s, constants[0]).next;
        return {h, op::reduce_sum(h * with_axis(s[3], 1), {{2}, false})};
      });
  return {cast_to(b, swap_leading_axes(b, out[1]), n.type().dtype)};
}

Types infer_selective_scan_backward(const InferArgs& a) {
  infer_selective_scan({a.op, a.attrs, a.in.first(5)});
  require_shape(a, 5, a.in[0].shape, "dy, as x");
  const Type both[] = {a.in[0], a.in[5]};
  require_same_dtype({a.op, a.attrs, both});
  const Type &x = a.in[0], &rates = a.in[2];
  const DType wide = x.dtype == DType::F64 ? DType::F64 : DType::F32;
  return {x, x, {wide, {x.shape[0], x.shape[2], rates.shape[1]}}, a.in[3], a.in[4]};
}

// With G the gradient by h after a step (dy c, and what later steps send back): dc = dy h, db = G
// delta x, dx = delta b G, d delta = G (a decay h_before + b x), da = G delta decay h_before.
Values decompose_selective_scan_backward(Builder& b, const Node& n, Operands in) {
  Expr a = widen(b, in[2]);
  const Shape x = b.shape(in[0]);
  const Value zero = full(b, {a.dtype(), {x[0], x[2], a.shape()[1]}}, 0);
  const Values before = recurrence(
      b, "selective_scan_states", {zero}, time_major(b, in, {0, 1, 3}), {a}, x[1], false,
      [](const auto& carries, const auto& s, const auto& constants) -> std::vector<Expr> {
        return {ScanStep(carries[0], s, constants[0]).next, carries[0]};
      });
  Values stacked = time_major(b, in, {0, 1, 3, 4, 5});
  stacked.push_back(before[1]);
  const Values out = recurrence(
      b, "selective_scan_backward", {zero, zero}, stacked, {a}, x[1], true,
      [](const auto& carries, const auto& s, const auto& constants) -> std::vector<Expr> {
        const ScanStep step(s[5], s, constants[0]);
        Expr c = with_axis(s[3], 1), dy = with_axis(s[4], -1);
        Expr g = carries[0] + dy * c, back = g * step.decay, moved = back * s[5];
        const auto over_states = [](Expr e) { return op::reduce_sum(e, {{2}, false}); };
        const auto over_channels = [](Expr e) { return op::reduce_sum(e, {{1}, false}); };
        return {back,
                carries[1] + moved * step.delta,
                over_states(g * step.b) * s[1],
                over_states(moved * step.a + g * step.b * step.x),
                over_channels(g * (step.delta * step.x)),
                over_channels(dy * step.next)};
      });
  const auto result = [&](size_t from, size_t to) {
    return cast_to(b, swap_leading_axes(b, out[from]), n.out[to].dtype);
  };
  return {result(2, 0), result(3, 1), out[1], result(4, 3), result(5, 4)};
}

Values vjp_selective_scan(Builder& b, const VjpArgs& a) {
  Values in(a.in.begin(), a.in.end());
  in.push_back(a.cotangents[0]);
  Values d = b.emit(op::selective_scan_backward.def, NoAttrs{}, in);
  d[2] = cast_to(b, sum_axes(b, d[2], {0}), b.type(a.in[2]).dtype);
  return d;
}

Types infer_delta_net(const InferArgs& a) {
  require_same_dtype({a.op, a.attrs, a.in.first(5)});
  require_rank(a, 0, 4, "q [B, S, H, N]");
  const Shape& q = a.in[0].shape;
  require_shape(a, 1, q, "k, as q");
  require_shape(a, 2, q, "v, as q");
  require_shape(a, 3, {q[0], q[1], q[2]}, "g [B, S, H]");
  require_shape(a, 4, {q[0], q[1], q[2]}, "beta [B, S, H]");
  Type state{a.in[0].dtype, {q[0], q[2], q[3], q[3]}};
  if (a.in.size() == 6) {
    require_shape(a, 5, state.shape, "state [B, H, N, N]");
    require_dtype(a, 5);
    state.dtype = a.in[5].dtype;
  }
  return {a.in[0], state};
}

Values decompose_delta_net(Builder& b, const Node& n, Operands in) {
  const Values stacked = time_major(b, in, {0, 1, 2, 3, 4});
  const DType dtype = b.type(stacked[0]).dtype;
  const Value state =
      in.size() == 6 ? cast_to(b, in[5], dtype) : full(b, {dtype, n.out[1].shape}, 0);
  // In double, as it is where the width is known and it is folded.
  const Expr width(b, dim_value(b, b.shape(in[0])[3], DType::F64));
  const Value scale = cast_to(b, op::rsqrt(width), dtype);
  const Values out = recurrence(
      b, "gated_delta_net", {state}, stacked, {scale}, b.shape(in[0])[1], false,
      [](const auto& carries, const auto& s, const auto& constants) -> std::vector<Expr> {
        Expr q = with_axis(s[0], 2), k = with_axis(s[1], 2), v = with_axis(s[2], 2);
        Expr g = with_axis(with_axis(s[3], -1), -1), beta = with_axis(with_axis(s[4], -1), -1);
        Expr kept = op::exp(g) * carries[0];
        Expr change = (v - op::matmul(k, kept)) * beta;
        Expr next = kept + op::matmul(k, change, {.transpose_a = true});
        Expr o = op::matmul(q, next) * constants[0];
        return {next, o.make(reshape_to(o.builder(), o, s[0].shape()))};
      });
  return {cast_to(b, swap_leading_axes(b, out[1]), n.out[0].dtype),
          cast_to(b, out[0], n.out[1].dtype)};
}

Types infer_causal_conv(const InferArgs& a) {
  require_same_dtype(a);
  require_rank(a, 0, 3, "x [B, S, C]");
  require_rank(a, 1, 4, "w [C, 1, 1, K]");
  const Shape &x = a.in[0].shape, &w = a.in[1].shape;
  require_shape(a, 1, {x[2], 1, 1, w[3]}, "w [C, 1, 1, K]");
  if (!w[3].is_static() || w[3].value() < 1)
    bad_operands(a, "sequence-shape", "K must be a positive number");
  require_shape(a, 2, {x[0], w[3] - Dim(1), x[2]}, "left [B, K - 1, C]");
  return {a.in[0]};
}

Values decompose_causal_conv(Builder& b, const Node& n, Operands in) {
  Expr w = widen(b, in[1]);
  const Shape x = b.shape(in[0]);
  const int64_t taps = w.shape()[3].value();
  Expr weights(b, reshape_to(b, w, {x[2], taps}));
  Expr padded(b, b.emit(op::concat.def, AxisAttrs{1}, Values{widen(b, in[2]), widen(b, in[0])})[0]);
  Value sum = kNone;
  for (int64_t k = 0; k < taps; ++k) {
    Expr window = op::slice(padded, {{0, k, 0}, {x[0], x[1] + Dim(k), x[2]}, {}});
    Expr tap(b, reshape_to(b, op::slice(weights, {{0, k}, {x[2], k + 1}, {}}), {x[2]}));
    sum = add_maybe(b, sum, window * tap);
  }
  return {cast_to(b, sum, n.type().dtype)};
}

}  // namespace

namespace op {

constinit const Op<RopeAttrs> rope_at = OpDef{
    .name = "rope_at",
    .doc =
        "rope with the rows positions[..] of the cos and sin tables: positions [S], or [B, S] with "
        "x [B, .., S, heads * head_dim].",
    .arity = 4,
    .operands = "x, cos, sin, positions",
    .dtypes = kFloats,
    .infer = infer_rope_at,
    .normalise = normalise_rope_at,
    .decompose = decompose_rope_at,
};

constinit const Op<AxialRopeAttrs> axial_rope2d = OpDef{
    .name = "axial_rope2d",
    .doc =
        "Rotary positions on a grid: token t stands at p = t / repeat_factor, x = p mod end_x, y = "
        "p / end_x; with f_c = theta^(-4 c / head_dim), c < head_dim / 4, pair (2 c, 2 c + 1) of a "
        "head turns by x f_c and pair (head_dim / 2 + 2 c, + 1) by y f_c.",
    .reference = "AxialRope2d",
    .arity = 1,
    .dtypes = kFloats,
    .infer = infer_axial_rope,
    .decompose = decompose_axial_rope,
};

constinit const Op<PagedAttentionAttrs> paged_attention = OpDef{
    .name = "paged_attention",
    .doc =
        "Attention over keys and values kept in pages: key j of sequence b is row j % page of page "
        "block_table[b, j / page], j < lengths[b]; the S_q queries stand at its last positions. "
        "Entries behind the last page are not read; a sequence of length 0 averages page 0.",
    .arity = 5,
    .operands = "q, k_pages, v_pages, block_table, lengths",
    .dtypes = kFloats,
    .infer = infer_paged_attention,
    .decompose = decompose_paged_attention,
};

constinit const Op<CacheAttrs> kv_cache_append = OpDef{
    .name = "kv_cache_append",
    .doc =
        "The cache with `rows` in place of its own from `position` on along the axis; all of them "
        "must fall inside.",
    .arity = 3,
    .operands = "cache, rows, position",
    .infer = infer_cache_append,
    .normalise = normalise_axis_of<CacheAttrs>,
    .decompose = decompose_cache_append,
};

constinit const Op<> selective_scan = OpDef{
    .name = "selective_scan",
    .doc =
        "The state-space recurrence h = exp(delta a) h + delta b x, y = sum over the state of c h, "
        "per batch and channel, from h = 0; x, delta [B, S, C], a [C, N], b, c [B, S, N].",
    .reference = "SelectiveScan",
    .numerics = Numerics::reduction,
    .arity = 5,
    .operands = "x, delta, a, b, c",
    .dtypes = kFloats,
    .infer = infer_selective_scan,
    .decompose = decompose_selective_scan,
    .vjp = vjp_selective_scan,
};

constinit const Op<> selective_scan_backward = OpDef{
    .name = "selective_scan_backward",
    .doc =
        "dx, d delta, da per batch [B, C, N] (f32, or f64 for f64), db, dc of selective_scan from "
        "its operands and the cotangent of its result.",
    .numerics = Numerics::reduction,
    .arity = 6,
    .operands = "x, delta, a, b, c, dy",
    .dtypes = kFloats,
    .infer = infer_selective_scan_backward,
    .decompose = decompose_selective_scan_backward,
};

constinit const Op<> gated_delta_net = OpDef{
    .name = "gated_delta_net",
    .doc =
        "Per batch and head, with a state matrix S (0, or the sixth operand): S = e^g S; d = beta "
        "(v - S^T k); S = S + k d^T; o = S^T q / sqrt(N). Results: o and the last S.",
    .reference = "GatedDeltaNet",
    .role = Role::product,
    .numerics = Numerics::reduction,
    .arity = 6,
    .min_arity = 5,
    .operands = "q, k, v, g, beta, state?",
    .dtypes = kFloats,
    .infer = infer_delta_net,
    .decompose = decompose_delta_net,
};

constinit const Op<> depthwise_conv1d_causal = OpDef{
    .name = "depthwise_conv1d_causal",
    .doc =
        "y[b, t, c] = sum over k of z[b, t + k, c] w[c, 0, 0, k], z the K - 1 rows of `left` "
        "followed by x.",
    .arity = 3,
    .operands = "x, w, left",
    .dtypes = kFloats,
    .infer = infer_causal_conv,
    .decompose = decompose_causal_conv,
};

}  // namespace op

namespace {
constexpr const OpDef* kSequenceOps[] = {
    &op::rope_at,
    &op::axial_rope2d,
    &op::paged_attention,
    &op::kv_cache_append,
    &op::selective_scan,
    &op::selective_scan_backward,
    &op::gated_delta_net,
    &op::depthwise_conv1d_causal,
    &op::rnn,
    &op::gru,
    &op::lstm,
};
}  // namespace
constinit const Family kSequence{"sequences", kSequenceOps};

}  // namespace rlx
