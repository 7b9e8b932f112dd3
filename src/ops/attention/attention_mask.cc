#include "rlx/ops/attention/attention_mask.h"

namespace rlx {
namespace {

constexpr std::string_view kMaskNames[] = {"none", "causal", "sw", "custom", "bias"};

// Heads of k, from its layout: columns of ranks 2 and 3, an axis of rank 4.
int64_t kv_heads(const Type& q, const Type& k, int64_t num_heads, int64_t head_dim) {
  if (k.rank() < 2 || k.rank() > 4) return num_heads;  // the op says what is wrong
  const size_t axis = k.rank() < 4                                    ? k.shape.size() - 1
                      : q.rank() == 4 && q.shape[1] == Dim(num_heads) ? 1
                                                                      : 2;
  const std::optional<int64_t> size = k.shape[axis].static_value();
  if (!size) return num_heads;
  return k.rank() < 4 ? *size / head_dim : *size;
}

}  // namespace

std::string AttentionMask::to_string() const {
  std::string out(kMaskNames[static_cast<size_t>(kind)]);
  if (kind == Kind::sliding_window) out += fmt::format("={}", window);
  return out;
}

AttentionMask AttentionMask::parse(std::string_view text) {
  Reader r{Lexer(text)};
  AttentionMask out;
  Codec<AttentionMask>::read(r, out);
  if (!r.lex.done()) r.lex.error(fmt::format("text follows the mask {}", out.to_string()));
  return out;
}

void Codec<AttentionMask>::read(Reader& r, AttentionMask& v) {
  const std::string_view word = r.lex.word();
  for (size_t i = 0; i < std::size(kMaskNames); ++i) {
    if (word != kMaskNames[i]) continue;
    v = {static_cast<AttentionMask::Kind>(i), 0};
    if (v.kind != AttentionMask::Kind::sliding_window) return;
    r.lex.expect("=");
    v.window = r.lex.integer();
    if (v.window < 0) r.lex.error(fmt::format("a window cannot be {}", v.window));
    return;
  }
  r.lex.error(
      fmt::format("{} is not a mask: none, causal, sw=<window>, custom or bias", quote(word)));
}

AttentionAttrs attention_attributes(int64_t num_heads, int64_t head_dim, const AttentionMask& mask,
                                    std::optional<double> scale, std::optional<double> softcap) {
  user_check(num_heads > 0 && head_dim > 0, "attention-heads",
             "attention: {} heads of width {}; both must be positive", num_heads, head_dim);
  using Mask = AttentionMask::Kind;
  return {.num_heads = num_heads,
          .mask = mask.kind == Mask::causal           ? MaskKind::causal
                  : mask.kind == Mask::sliding_window ? MaskKind::sliding_window
                                                      : MaskKind::none,
          .window = mask.window,
          .scale = scale,
          .softcap = softcap,
          .has_mask = mask.kind == Mask::custom,
          .has_bias = mask.kind == Mask::bias};
}

AttentionAttrs attention_attributes(const Type& q, const Type& k, const Type& v, int64_t num_heads,
                                    int64_t head_dim, const AttentionMask& mask,
                                    std::optional<double> scale, std::optional<double> softcap) {
  AttentionAttrs a = attention_attributes(num_heads, head_dim, mask, scale, softcap);
  a.num_kv_heads = kv_heads(q, k, num_heads, head_dim);
  const AttentionDims dims = attention_dims(a, q, k, v);
  user_check(dims.head_dim == head_dim, "attention-heads",
             "attention: {} heads of width {} do not fit q {}, whose heads have width {}",
             num_heads, head_dim, q, dims.head_dim);
  return a;
}

}  // namespace rlx
