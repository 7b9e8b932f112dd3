// Recurrences over time, rotary variants, key-value caches.
//
//   Value y = op::selective_scan(b, {x, delta, a, bs, cs});
//   Values r = b.emit(op::gated_delta_net.def, {}, Values{q, k, v, g, beta, state});
//   b.update("state", r[1]);                            // the state is a value like any other
//   Values l = b.emit(op::lstm.def, LstmAttrs{}, Values{x, w, r, bias, h0, c0});
//
// All are composites; recurrences become a scan over time, f16 and bf16 are computed in f32. Wrong
// operands raise "sequence-shape", "dtype-mixed", "index-dtype" (positions, pages and lengths are
// of any index dtype), "rope-shape", "rope-heads", "cache-shape"; a position or page outside its
// table raises "index-range" when the program runs.
#pragma once

#include "rlx/ops/nn/nn.h"

namespace rlx {

// The grid of positions: `repeat_factor` adjacent tokens share one; x runs first.
struct AxialRopeAttrs {
  int64_t end_x = 1, end_y = 1, head_dim = 0, num_heads = 1;
  double theta = 10000;
  int64_t repeat_factor = 1;
  static constexpr auto fields() {
    return Fields<&AxialRopeAttrs::end_x, &AxialRopeAttrs::end_y, &AxialRopeAttrs::head_dim,
                  &AxialRopeAttrs::num_heads, &AxialRopeAttrs::theta,
                  &AxialRopeAttrs::repeat_factor>();
  }
};
// scale, softcap, mask (causal or sliding_window) and window as in AttentionAttrs.
struct PagedAttentionAttrs {
  MaskKind mask = MaskKind::causal;
  int64_t window = 0;
  std::optional<double> scale = std::nullopt, softcap = std::nullopt;
  static constexpr auto fields() {
    return Fields<&PagedAttentionAttrs::mask, &PagedAttentionAttrs::window,
                  &PagedAttentionAttrs::scale, &PagedAttentionAttrs::softcap>();
  }
};
struct CacheAttrs {
  int64_t axis = 1;
  static constexpr auto fields() { return Fields<&CacheAttrs::axis>(); }
};
enum class Direction : uint8_t { forward, reverse, bidirectional };
inline std::span<const std::string_view> enum_names(Direction) {
  static constexpr std::string_view names[] = {"forward", "reverse", "bidirectional"};
  return names;
}
enum class RnnActivation : uint8_t { tanh, relu, sigmoid };
inline std::span<const std::string_view> enum_names(RnnActivation) {
  static constexpr std::string_view names[] = {"tanh", "relu", "sigmoid"};
  return names;
}
struct RnnAttrs {
  Direction direction = Direction::forward;
  RnnActivation activation = RnnActivation::tanh;
  static constexpr auto fields() { return Fields<&RnnAttrs::direction, &RnnAttrs::activation>(); }
};
struct GruAttrs {
  Direction direction = Direction::forward;
  bool linear_before_reset = false;
  static constexpr auto fields() {
    return Fields<&GruAttrs::direction, &GruAttrs::linear_before_reset>();
  }
};
struct LstmAttrs {
  Direction direction = Direction::forward;
  static constexpr auto fields() { return Fields<&LstmAttrs::direction>(); }
};

namespace op {
// x, cos, sin, positions: rope with row positions[..] of the tables; positions (any index dtype)
// are [S], or [B, S] with x [B, .., S, heads * head_dim].
extern const Op<RopeAttrs> rope_at;
extern const Op<AxialRopeAttrs> axial_rope2d;  // x [B, S, num_heads * head_dim]

// q [B, S_q, H, D], k_pages and v_pages [pages, page, kv_heads, D], block_table [B, blocks],
// lengths [B] -> out as q. Key j of sequence b is row j % page of page block_table[b, j / page];
// the queries are the last S_q of its lengths[b] positions.
extern const Op<PagedAttentionAttrs> paged_attention;
// cache, rows, position (rank 0) -> the cache with the rows written from `position` on.
extern const Op<CacheAttrs> kv_cache_append;

// x, delta [B, S, C], a [C, N], b, c [B, S, N] -> y [B, S, C]:
// h = exp(delta a) h + delta b x (h = 0 at first), y = sum over N of c h.
extern const Op<> selective_scan;
// x, delta, a, b, c, dy -> dx, d delta, da of each batch [B, C, N] in f32 (f64 for f64), db, dc.
extern const Op<> selective_scan_backward;
// q, k, v [B, S, H, N], g, beta [B, S, H], [state [B, H, N, N]] -> o [B, S, H, N], the last state
// (dtype of the state given, else of q). See the op's doc.
extern const Op<> gated_delta_net;
// x [B, S, C], w [C, 1, 1, K], left [B, K - 1, C] (what came before x) -> [B, S, C]
extern const Op<> depthwise_conv1d_causal;

// ONNX's recurrences: x [S, B, I], w [D, G H, I], r [D, G H, H], bias [D, 2 G H] (of w, then of r),
// h0 [D, B, H] (lstm: then c0), [lengths [B]] -> y [S, D, B, H], the last h [D, B, H] (lstm: then
// c). D is 2 for bidirectional, else 1; G gates: rnn 1, gru 3 (z, r, h), lstm 4 (i, o, f, c). From
// step lengths[b] on the state stays and y is 0.
extern const Op<RnnAttrs> rnn;
extern const Op<GruAttrs> gru;
extern const Op<LstmAttrs> lstm;
}  // namespace op

extern const Family kSequence;

}  // namespace rlx
