// Mixed precision: which ops of a program are computed in f16 or bf16, as a transform of its graph.
//
//   Graph g = mixed_precision(f, PrecisionPolicy::mixed(Precision::BF16));
//   Graph h = mixed_precision(f, PrecisionPolicy::auto_mixed().deny({"exp"}).allow({"softmax"}));
//
// Leaves, outputs and updates keep their dtypes: parameters stay in f32 (the master copy) and are updated there. Only
// values of f32 are touched. A value is cast once to each dtype that somebody wants it in, a parameter too; a cast and
// its inverse never meet. Bodies of control flow are gone into and keep their signature. Running it twice changes nothing.
//
// A policy says of each kind of op, or of an op by name, in which precision it is computed, or that it *follows*: in
// that of its operands, where these agree (parameters, constants and masks go with the others), and else in f32. What is
// computed in 16 bits still sums in f32 and rounds once (docs/ir.md).
//
// These stay in f32 whatever a policy says of their kind, and are left to it only by name: losses, ops on quantised
// numbers, random draws, ops that a program brings along. So do an op that does not take the dtype (factorisations,
// Fourier transforms, indices), one with a constant that the dtype does not hold, and, of the way to an update, what lies
// behind the last product: the optimiser. Comparisons read f32.
//
// Raises Error(user): "policy-op" for a name that is neither an op nor a kind, "policy" (`allow` where all is f32),
// "precision" for a name that is none, "policy-idle" when a policy that names ops or kinds itself finds none of what it
// computes in 16 bits in the program (one of the policies below leaves such a program as it is).
#pragma once

#include <map>

#include "rlx/ir/builder.h"

namespace rlx {

enum class Precision : uint8_t { F32, F16, BF16 };
inline std::span<const std::string_view> enum_names(Precision) {
  static constexpr std::string_view names[] = {"f32", "f16", "bf16"};
  return names;
}
DType dtype(Precision p);
inline int size_bytes(Precision p) { return size_of(dtype(p)); }
std::string_view to_string(Precision p);
Precision parse_precision(std::string_view name);

// What a policy tells apart. It follows from an op's entry: its kind, its role, `OpDef::numerics`, and for composites
// what their definition consists of.
enum class PrecisionOpKind : uint8_t { compute, reduction, elementwise, data_movement, boundary };
inline std::span<const std::string_view> enum_names(PrecisionOpKind) {
  static constexpr std::string_view names[] = {"compute", "reduction", "elementwise",
                                               "data_movement", "boundary"};
  return names;
}
inline constexpr size_t kPrecisionOpKinds = 5;
namespace precision {
using OpKind = PrecisionOpKind;
}
// Of a node of g.
PrecisionOpKind precision_kind(const Graph& g, const Node& n);

// How a value is converted. Only out_dtype has a meaning so far: the others describe formats with a scale per block.
struct CastConfig {
  DType out_dtype = DType::F32;
  std::optional<std::pair<int64_t, int64_t>> sf_block = {};  // rows and columns that share a scale
  bool round_sf = false;
  static CastConfig plain(DType dtype) { return {dtype, {}, false}; }
  bool is_noop(DType in) const { return in == out_dtype && !sf_block; }
  bool operator==(const CastConfig&) const = default;
};

class PrecisionPolicy {
 public:
  struct Rule {
    Precision precision = Precision::F32;
    bool follows = false;  // its operands, into `precision` at most
    bool operator==(const Rule&) const = default;
  };

  PrecisionPolicy() = default;  // always_f32
  // What networks are trained with: products and attention in p, reductions, norms, softmax and functions that leave
  // the range of 16 bits (exp, log, square, ..) in f32, the rest follows.
  static PrecisionPolicy mixed(Precision p);
  // Every op of a kind in one precision.
  static PrecisionPolicy always_f32() { return {}; }
  static PrecisionPolicy always_f16();
  static PrecisionPolicy auto_mixed_conservative();  // f16, reductions in f32
  static PrecisionPolicy auto_mixed();               // f16
  static PrecisionPolicy auto_mixed_bf16();
  static PrecisionPolicy custom(const std::map<PrecisionOpKind, Precision>& kinds);  // else f32
  // By the names of the above: "auto_mixed_bf16"; "f32", "f16" and "bf16" are mixed().
  static PrecisionPolicy parse(std::string_view name);

  // Ops or kinds, by name, besides. The last word counts, and an op's own before that of its kind.
  PrecisionPolicy& allow(const std::vector<std::string>& names);  // in narrow()
  PrecisionPolicy& deny(const std::vector<std::string>& names);   // in f32
  PrecisionPolicy& keep(const std::vector<std::string>& names);   // as their operands come
  PrecisionPolicy& set(const std::string& name, Rule rule);

  Precision precision_for(PrecisionOpKind kind) const { return rule(kind).precision; }
  const Rule& rule(PrecisionOpKind kind) const { return kinds_[static_cast<size_t>(kind)]; }
  const Rule* rule(const OpDef& op) const;  // by its name; nullptr: none
  const std::map<std::string, Rule>& ops() const { return ops_; }
  // The precision of 16 bits that products run in, else another one that occurs; f32 where none does.
  Precision narrow() const;
  bool uses(Precision p) const;
  bool is_f32() const { return !uses(Precision::F16) && !uses(Precision::BF16); }
  // Whether it asks for 16 bits itself: by the name of an op, or by kinds that are none of the policies above.
  bool asks_by_name() const;
  bool operator==(const PrecisionPolicy&) const = default;

 private:
  Rule kinds_[kPrecisionOpKinds];
  std::map<std::string, Rule> ops_;
};

Graph mixed_precision(const Graph& g, const PrecisionPolicy& policy);
// The same inside a builder, for what its outputs, its updates and `values` need: new nodes are appended, outputs and
// updates are moved to them, and what `values` have become is returned, in the dtypes they had. Older values stay valid.
Values mixed_precision(Builder& b, Operands values, const PrecisionPolicy& policy);

}  // namespace rlx
