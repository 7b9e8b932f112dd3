// AttentionMask: what hides keys from queries, as one word.
//
//   AttentionMask m = AttentionMask::sliding_window(128);
//   m.to_string();                                        // "sw=128", which parse() reads
//   AttentionAttrs a = attention_attributes(q, k, v, 8, 64, m);
#pragma once

#include "rlx/ops/attention/attention.h"

namespace rlx {

// Positions decide (none, causal, sliding_window), or one more operand (custom: 1 keeps a key; bias:
// added to the scores).
struct AttentionMask {
  enum class Kind : uint8_t { none, causal, sliding_window, custom, bias };
  Kind kind = Kind::none;
  int64_t window = 0;

  static AttentionMask none() { return {}; }
  static AttentionMask causal() { return {Kind::causal, 0}; }
  // A query sees itself and the `window` keys before it.
  static AttentionMask sliding_window(int64_t window) { return {Kind::sliding_window, window}; }
  static AttentionMask custom() { return {Kind::custom, 0}; }
  static AttentionMask bias() { return {Kind::bias, 0}; }

  bool has_operand() const { return kind == Kind::custom || kind == Kind::bias; }
  std::string to_string() const;  // "none", "causal", "sw=128", "custom", "bias"
  static AttentionMask parse(std::string_view text);  // raises Error(data, "parse")
  bool operator==(const AttentionMask&) const = default;
};

template <>
struct Codec<AttentionMask> {
  static std::string type() { return "attention_mask"; }
  static void print(Printer& p, const AttentionMask& v) { p.out += v.to_string(); }
  static void read(Reader& r, AttentionMask& v);
  static void write(ByteWriter& w, const AttentionMask& v) { w.text(v.to_string()); }
  static void load(ByteReader& r, AttentionMask& v) { v = AttentionMask::parse(r.text()); }
  static uint64_t hash(const AttentionMask& v) {
    return mix(static_cast<uint64_t>(v.kind), static_cast<uint64_t>(v.window));
  }
  static bool equal(const AttentionMask& a, const AttentionMask& b) { return a == b; }
};

// Raises "attention-heads" unless both numbers are positive.
AttentionAttrs attention_attributes(int64_t num_heads, int64_t head_dim, const AttentionMask& mask,
                                    std::optional<double> scale = {},
                                    std::optional<double> softcap = {});
// The same for operands of these types: k says how many heads it has. Raises "attention-heads", too, when the
// heads of q are not that wide.
AttentionAttrs attention_attributes(const Type& q, const Type& k, const Type& v, int64_t num_heads,
                                    int64_t head_dim, const AttentionMask& mask,
                                    std::optional<double> scale = {},
                                    std::optional<double> softcap = {});

}  // namespace rlx
