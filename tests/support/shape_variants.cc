#include "shape_variants.h"

#include <numeric>

#include "rlx/transform/transform.h"

namespace rlx::testing {

namespace {

using Shapes = std::vector<Ints>;
using ResizeRule = std::function<Ints(const Ints&)>;

constexpr int64_t kMostElements = 2048;  // of one operand

// New operand shapes, and what happens to lists of sizes in the attributes if need be.
struct Candidate {
  Shapes shapes;
  ResizeRule resize;
};
using Candidates = std::vector<Candidate>;

// A dim of an operand.
struct Place {
  size_t operand, dim;
};

// ---- attributes that hold sizes

Ints read_ints(const std::string& list) {
  Ints out;
  Reader r{Lexer(list), nullptr, nullptr};
  Codec<Ints>::read(r, out);
  return out;
}

// Whether the text ends where the value of a field with sizes begins.
bool names_sizes(std::string_view text) {
  constexpr std::string_view kNames[] = {"shape=",  "size=",  "sizes=",   "limit=",  "domain=",
                                         "length=", "depth=", "experts=", "columns="};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](std::string_view name) { return text.ends_with(name); });
}

// The list of integers or the count at a place of the text; empty where neither is.
std::string sizes_at(const std::string& text, size_t at) {
  constexpr std::string_view kDigits = "0123456789";
  if (at < text.size() && text[at] == '[') {
    const size_t close = text.find_first_not_of("-0123456789, ", at + 1);
    return close != text.npos && text[close] == ']' ? text.substr(at, close + 1 - at) : "";
  }
  const size_t end = std::min(text.find_first_not_of(kDigits, at), text.size());
  const bool whole = end == text.size() ||
                     !(std::isalpha(static_cast<unsigned char>(text[end])) || text[end] == '_');
  return whole ? text.substr(at, end - at) : "";
}

// `resize` applied to the sizes that the attributes hold: fields of these names, and the types of bodies.
std::string resized(const std::string& attrs, const ResizeRule& resize) {
  std::string out;
  for (size_t at = 0; at < attrs.size();) {
    out += attrs[at++];
    const bool type = out.ends_with(": ");
    if (!type && !names_sizes(out)) continue;
    const std::string value = sizes_at(attrs, at);
    if (value.empty()) continue;
    const bool list = value[0] == '[';
    const Ints before = list ? read_ints(value) : Ints{std::stoll(value)}, after = resize(before);
    if (list)
      out += fmt::format("[{}]", fmt::join(after, ", "));
    else
      out += type || after.size() != 1 ? value : std::to_string(after[0]);
    at += value.size();
  }
  return out;
}

// ---- candidates

bool is_fixed(const OperandSpec& o) { return o.kind == "camera" || o.kind == "key"; }

std::map<int64_t, std::vector<Place>> places_by_size(const Sample& s) {
  std::map<int64_t, std::vector<Place>> out;
  for (size_t i = 0; i < s.operands.size(); ++i)
    for (size_t d = 0; !is_fixed(s.operands[i]) && d < s.operands[i].sizes.size(); ++d)
      out[s.operands[i].sizes[d]].push_back({i, d});
  return out;
}

Candidate replaced(const Sample& s, std::span<const Place> places, int64_t from, int64_t to) {
  Candidate c{shapes_of(s), [=](const Ints& sizes) {
                Ints out = sizes;
                std::replace(out.begin(), out.end(), from, to);
                return out;
              }};
  for (const Place& p : places) c.shapes[p.operand][p.dim] = to;
  return c;
}

Candidate mapped(const Sample& s, const std::function<int64_t(int64_t)>& size) {
  auto map = [=](const Ints& sizes) {
    Ints out;
    for (int64_t d : sizes) out.push_back(size(d));
    return out;
  };
  Candidate c{shapes_of(s), map};
  for (size_t i = 0; i < c.shapes.size(); ++i)
    if (!is_fixed(s.operands[i])) c.shapes[i] = map(c.shapes[i]);
  return c;
}

// All sizes of the first `count` operands divided by their greatest common divisor and multiplied.
std::optional<Candidate> multiplied(const Sample& s, size_t count, int64_t times) {
  int64_t common = 0;
  for (size_t i = 0; i < count; ++i)
    for (int64_t d : s.operands[i].sizes)
      if (!is_fixed(s.operands[i])) common = std::gcd(common, d);
  if (common == 0) return std::nullopt;
  Candidate out = mapped(s, [=](int64_t d) { return d % common ? d : d / common * times; });
  for (size_t i = count; i < s.operands.size(); ++i) out.shapes[i] = s.operands[i].sizes;
  return out;
}

// Sets of operands that may get or lose axes together: all, those of the highest rank, each alone.
std::vector<std::vector<size_t>> operand_sets(const Sample& s) {
  std::vector<size_t> all, highest;
  size_t rank = 0;
  for (const OperandSpec& o : s.operands) rank = std::max(rank, o.sizes.size());
  for (size_t i = 0; i < s.operands.size(); ++i) {
    if (!is_fixed(s.operands[i])) all.push_back(i);
    if (s.operands[i].sizes.size() == rank) highest.push_back(i);
  }
  std::vector<std::vector<size_t>> out = {all, highest};
  for (size_t i : all) out.push_back({i});
  return out;
}

Candidate with_batch(const Sample& s, const std::vector<size_t>& operands, const Ints& batch) {
  auto prepend = [=](const Ints& sizes) {
    Ints out = batch;
    out.insert(out.end(), sizes.begin(), sizes.end());
    return out;
  };
  Candidate c{shapes_of(s), prepend};
  for (size_t i : operands) c.shapes[i] = prepend(c.shapes[i]);
  return c;
}

Candidate without_leading(const Sample& s, const std::vector<size_t>& operands, size_t axes) {
  auto drop = [=](const Ints& sizes) {
    return Ints(sizes.begin() + static_cast<int64_t>(std::min(axes, sizes.size())), sizes.end());
  };
  Candidate c{shapes_of(s), drop};
  for (size_t i : operands) c.shapes[i] = drop(c.shapes[i]);
  return c;
}

// Parts of the places of one size: every one where there are few, else one dim of all operands.
std::vector<std::vector<Place>> parts(const std::vector<Place>& places) {
  std::vector<std::vector<Place>> out;
  if (places.size() <= 6) {
    for (unsigned mask = 1; mask + 1 < 1u << places.size(); ++mask) {
      out.emplace_back();
      for (size_t i = 0; i < places.size(); ++i)
        if (mask >> i & 1u) out.back().push_back(places[i]);
    }
    return out;
  }
  std::map<size_t, std::vector<Place>> by_dim;
  for (const Place& p : places) by_dim[p.dim].push_back(p);
  for (const auto& [dim, group] : by_dim) out.push_back(group);
  return out;
}

Candidates empty_ones(const Sample& s) {
  Candidates out;
  for (const auto& [size, places] : places_by_size(s)) out.push_back(replaced(s, places, size, 0));
  out.push_back(mapped(s, [](int64_t) { return 0; }));
  for (const auto& set : operand_sets(s)) out.push_back(with_batch(s, set, {0}));
  for (const auto& [size, places] : places_by_size(s))
    for (const auto& part : parts(places)) out.push_back(replaced(s, part, size, 0));
  return out;
}

Candidates other_ranks(const Sample& s) {
  Candidates out;
  const auto sets = operand_sets(s);
  out.push_back(without_leading(s, sets[0], 64));
  for (const Ints& batch :
       {Ints{2}, Ints{3, 1}, Ints{5}, Ints{1}, Ints{2, 2, 2}, Ints{7}, Ints{4, 3}, Ints{2, 5}})
    for (const auto& set : sets) out.push_back(with_batch(s, set, batch));
  for (const auto& set : sets) out.push_back(without_leading(s, set, 1));
  return out;
}

Candidates broadcast_ones(const Sample& s) {
  Candidates out;
  for (const auto& [size, places] : places_by_size(s)) {
    for (const Place& p : places)
      if (size > 1) out.push_back(replaced(s, std::array{p}, size, 1));
    for (const Place& p : places)
      if (size == 1) out.push_back(replaced(s, std::array{p}, size, 3));
  }
  for (size_t i = 0; i < s.operands.size(); ++i)
    if (!s.operands[i].sizes.empty()) out.push_back(without_leading(s, {i}, 64));
  return out;
}

Candidates other_sizes(const Sample& s) {
  Candidates out;
  const auto classes = places_by_size(s);
  for (size_t step = 0; step < 13; ++step)
    for (const auto& [size, places] : classes) {
      const int64_t to[] = {1, size + 1, 2 * size, 5, 7, 3 * size, size + 2, 6, 11, 4, 13, 8, 9};
      out.push_back(replaced(s, places, size, to[step]));
    }
  for (int64_t more : {1, 2, 3}) out.push_back(mapped(s, [=](int64_t d) { return d + more; }));
  out.push_back(mapped(s, [](int64_t) { return 1; }));
  for (int64_t times : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
    for (size_t last :
         {s.operands.size(), s.operands.size() - 1})  // all operands, or all but the last
      if (auto c = multiplied(s, last, times)) out.push_back(std::move(*c));
  return out;
}

Candidates sizes_in_part(const Sample& s) {
  Candidates out;
  for (int64_t more : {1, 3, 4, 5, 7, 8})
    for (const auto& [size, places] : places_by_size(s))
      for (const auto& part : parts(places)) out.push_back(replaced(s, part, size, size + more));
  return out;
}

// ---- samples

Sample variant(const Sample& row, const Candidate& c, bool attributes_follow) {
  Sample out = row;
  for (size_t i = 0; i < out.operands.size(); ++i) out.operands[i].sizes = c.shapes[i];
  if (attributes_follow) out.attrs = resized(row.attrs, c.resize);
  for (OperandSpec& o : out.operands)  // indices stay below a size that shrinks
    if (const Ints to = c.resize({o.limit}); to.size() == 1) o.limit = std::min(o.limit, to[0]);
  out.text = fmt::format("{} {} {}", out.op, out.attrs, operands_text(out));
  out.where = fmt::format("{} as {}", row.where, operands_text(out));
  return out;
}

// Values of the operands' kinds exist.
bool can_be_made(const Sample& s) {
  for (const OperandSpec& o : s.operands) {
    double elements = 1, span = 1;  // span: without the sizes that are 0
    for (int64_t d : o.sizes) elements *= static_cast<double>(d);
    for (int64_t d : o.sizes) span *= static_cast<double>(std::max<int64_t>(d, 1));
    if (span > 0x1p62) return false;
    const size_t rank = o.sizes.size();
    if (elements > kMostElements || (is_matrix_kind(o.kind) && rank < 2) ||
        (o.kind == "index" && o.limit < 1 && elements > 0) ||
        (o.kind == "ranges" && (rank != 2 || o.sizes[1] != 2 || o.limit < 1)))
      return false;
  }
  return true;
}

// Raises where an index has no place. A node without an element of a result reads nothing, so there its gradients are
// asked, too: they read at the same indices.
void find_places(const Case& c, const Tensors& in) {
  Tensors cotangents;
  bool empty = true;
  for (const Tensor& y : evaluate(c.graph, in)) {
    empty = empty && y.elements() == 0;
    if (differentiable(y)) cotangents.push_back(y);
  }
  if (empty && has_derivatives(c))
    evaluate(vjp(c.graph, names(c.swept), {.zero_missing = true}), with(in, cotangents));
}

bool is_accepted(const Sample& s, DType d) {
  const OpDef& op = *op_table().find(s.op);
  Builder b("variant");
  Values in;
  for (const OperandSpec& o : s.operands)
    in.push_back(b.input(std::to_string(in.size()), {dtype_at(o, d), Shape::of(o.sizes)}));
  try {
    b.emit(op, read_attrs(op, replace_all(s.attrs, "$T", to_string(d))), in);
    bool indices = false;
    for (const OperandSpec& o : s.operands) indices |= o.limit > 0;
    if (indices)
      if (const auto c = make_case(s, d))
        for (uint64_t salt = 0; salt <= kBatch; ++salt) {
          const Tensors in = make_operands(s, d, salt);
          find_places(*c, in);
        }
    return true;
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
    return false;
  }
}

}  // namespace

std::vector<Ints> shapes_of(const Sample& s) {
  std::vector<Ints> out;
  for (const OperandSpec& o : s.operands) out.push_back(o.sizes);
  return out;
}

std::string operands_text(const Sample& s) {
  std::string out;
  for (const OperandSpec& o : s.operands) {
    out += fmt::format("{}{}[{}]", out.empty() ? "" : " ", o.dtype, fmt::join(o.sizes, ", "));
    if (!o.kind.empty()) out += ":" + o.kind;
    if (o.limit > 0) out += fmt::format("<{}", o.limit);
  }
  return out;
}

std::optional<DType> derivative_dtype(const Sample& s) {
  for (DType d : {DType::F64, DType::F32, DType::C64})
    if (const auto c = make_case(s, d); c && has_derivatives(*c)) return d;
  return std::nullopt;
}

namespace {

struct Offer {
  const Sample* row;
  DType dtype;
  Candidate candidate;
};

// The candidates of all rows, a first one of each before the second ones.
std::vector<Offer> offers(const std::vector<const Sample*>& rows,
                          Candidates (*make)(const Sample&)) {
  std::vector<Candidates> each;
  size_t most = 0;
  for (const Sample* row : rows) {
    each.push_back(row->variants ? make(*row) : Candidates{});
    most = std::max(most, each.back().size());
  }
  std::vector<Offer> out;
  for (size_t k = 0; k < most; ++k)
    for (size_t r = 0; r < rows.size(); ++r)
      if (k < each[r].size())
        out.push_back({rows[r], derivative_dtype(*rows[r]).value(), std::move(each[r][k])});
  return out;
}

}  // namespace

std::vector<Sample> huge_empty_variants(const Sample& row, DType d, size_t most) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  Candidates all;
  const auto classes = places_by_size(row);
  for (const auto& [size, places] : classes)
    for (const auto& [other, huge] : classes) {
      if (size == other) continue;
      Candidate c = replaced(row, places, size, 0);
      for (const Place& p : huge) c.shapes[p.operand][p.dim] = kHuge;
      c.resize = [empty = c.resize, from = other](const Ints& sizes) {
        Ints out = empty(sizes);
        for (size_t i = 0; i < out.size(); ++i)
          if (sizes[i] == from) out[i] = kHuge;
        return out;
      };
      all.push_back(std::move(c));
    }
  for (const Ints& batch : {Ints{0, kHuge}, Ints{kHuge, 0}})
    for (const auto& set : operand_sets(row)) all.push_back(with_batch(row, set, batch));
  std::vector<Sample> out;
  std::set<Shapes> seen;
  for (const Candidate& c : all)
    for (bool follow : {false, true}) {
      if (out.size() >= most || seen.contains(c.shapes)) break;
      Sample s = variant(row, c, follow);
      if (!can_be_made(s) || !is_accepted(s, d)) continue;
      seen.insert(c.shapes);
      out.push_back(std::move(s));
    }
  return out;
}

Combination shape_variants(const std::vector<const Sample*>& rows, size_t wanted) {
  Combination out{rows[0]->op, rows[0]->attrs, rows, {}, 0};
  std::set<Shapes> seen;
  for (const Sample* row : rows) seen.insert(shapes_of(*row));
  auto take = [&](const Offer& offer) {
    if (seen.contains(offer.candidate.shapes)) return false;
    for (bool follow : {false, true}) {
      Sample s = variant(*offer.row, offer.candidate, follow);
      if (follow && s.attrs == offer.row->attrs) break;
      if (!can_be_made(s) || !is_accepted(s, offer.dtype)) continue;
      seen.insert(offer.candidate.shapes);
      out.variants.push_back(std::move(s));
      return true;
    }
    ++out.refused;
    return false;
  };
  struct Queue {
    std::vector<Offer> offers;
    size_t next = 0;
  };
  std::vector<Queue> queues;
  for (auto make : {empty_ones, other_ranks, broadcast_ones, other_sizes})
    queues.push_back({offers(rows, make)});
  auto take_next = [&](Queue& q) {
    while (seen.size() < wanted && q.next < q.offers.size())
      if (take(q.offers[q.next++])) return true;
    return false;
  };
  for (bool any = true; any;) {
    any = false;
    for (Queue& q : queues) any |= take_next(q);
  }
  Queue rest;
  if (seen.size() < wanted) rest.offers = offers(rows, sizes_in_part);
  while (take_next(rest)) {
  }
  return out;
}

std::vector<Combination> combinations(size_t wanted) {
  std::vector<std::vector<const Sample*>> groups;
  std::map<std::pair<std::string, std::string>, size_t> known;
  for (const Sample& s : samples()) {
    if (!derivative_dtype(s)) continue;
    const auto [at, fresh] = known.try_emplace({s.op, s.attrs}, groups.size());
    if (fresh) groups.emplace_back();
    groups[at->second].push_back(&s);
  }
  std::vector<Combination> out;
  for (const auto& rows : groups) out.push_back(shape_variants(rows, wanted));
  return out;
}

}  // namespace rlx::testing
