#include "rlx/ops/control/scan_checkpoints.h"

#include <algorithm>

#include "rlx/ops/control/body_rules.h"
#include "rlx/ops/movement/movement.h"

namespace rlx {
namespace {

// How many steps can be taken back with c carries, the one at hand included, when none is computed more than r times:
// c + r choose c. What is more than enough stays there.
int64_t reach(int64_t c, int64_t r) {
  if (r < 0) return 0;
  constexpr int64_t kEnough = int64_t{1} << 62;
  int64_t out = 1;
  for (int64_t i = 1; i <= std::min(c, r); ++i) {
    if (out > kEnough / (c + r)) return kEnough;
    out = out * (std::max(c, r) + i) / i;
  }
  return out;
}

int64_t repetitions(int64_t length, int64_t carries) {
  int64_t r = 0;
  while (reach(carries, r) < length) ++r;
  return r;
}

Value part_of(Builder& b, Value x, const Dim& begin, const Dim& end) {
  const Shape shape = b.shape(x);
  SliceAttrs s{Shape(shape.size(), Dim(0)), shape};
  s.start[0] = begin;
  s.limit[0] = end;
  return op::slice(b, x, s);
}

// Where the full segments and the rest lie among the rows of a stacked value.
struct Rows {
  const ScanSegments& s;
  bool reverse;
  Dim covered() const { return s.each * s.count; }
  Value full(Builder& b, Value x) const {  // [count, each, *]
    const Dim begin = reverse ? s.rest : Dim(0);
    const Value all = s.has_rest ? part_of(b, x, begin, begin + covered()) : x;
    const Shape each = without_front(b.shape(x));
    return reshape_to(b, all, with_front(s.count, with_front(s.each, each)));
  }
  Value rest(Builder& b, Value x) const {
    const Dim begin = reverse ? Dim(0) : covered();
    return part_of(b, x, begin, begin + s.rest);
  }
  // The whole of what the two are parts of.
  Value joined(Builder& b, Value full, Value rest) const {
    const Shape each = without_front(without_front(b.shape(full)));
    const Value flat = reshape_to(b, full, with_front(covered(), each));
    if (!s.has_rest) return flat;
    return reverse ? op::concat(b, {rest, flat}, {.axis = 0})
                   : op::concat(b, {flat, rest}, {.axis = 0});
  }
};

// As many segments as fit, or so many.
ScanSegments segments(int64_t length, int64_t each) {
  return {
      .each = each, .count = length / each, .rest = length % each, .has_rest = length % each != 0};
}
ScanSegments segments(const ScanKeptAttrs& s) {
  if (s.count == 0) return segments(s.length.value(), s.each.value());
  return {.each = s.each, .count = s.count, .rest = s.length - s.each * s.count, .has_rest = true};
}

// A scan's operands: carries, stacked inputs, constants.
struct Parts {
  Operands carries, xs, constants;
  Parts(Operands in, int64_t num_carries, int64_t num_xs)
      : carries(in.subspan(0, at(num_carries))),
        xs(in.subspan(at(num_carries), at(num_xs))),
        constants(in.subspan(at(num_carries + num_xs))) {}
};

void append(Values& to, Operands from) { to.insert(to.end(), from.begin(), from.end()); }

// The body with fewer outputs: the first `count`.
Graph first_outputs(const Graph& body, int64_t count) {
  Graph out = body;
  out.outputs.resize(at(count));
  return drop_dead(std::move(out));
}

// Results of the body, and then its first `count` inputs.
Graph with_entering(Graph body, int64_t count) {
  const Values inputs = body.inputs();
  body.outputs.insert(body.outputs.end(), inputs.begin(), inputs.begin() + count);
  return body;
}

// ---- scan_kept

ScanAttrs plain(const ScanKeptAttrs& s) {
  return {.body = s.body,
          .length = s.length,
          .num_carries = s.num_carries,
          .num_xs = s.num_xs,
          .reverse = s.reverse};
}

Types infer_scan_kept(const InferArgs& a) {
  const auto& s = a.get<ScanKeptAttrs>();
  const auto length = s.length.static_value(), each = s.each.static_value();
  if (s.count == 0 && (!length || !each || *each < 1 || *each > *length))
    bad_operands(
        a, "scan-checkpoints",
        fmt::format("segments of {} steps; 1 to the length {} are allowed, both numbers where it "
                    "is not said how many segments there are",
                    s.each, s.length));
  if (s.count < 0 || is_negative(s.each) || is_negative(s.length - s.each * s.count))
    bad_operands(a, "scan-checkpoints",
                 fmt::format("{} segments of {} steps are more than the length {}", s.count, s.each,
                             s.length));
  const ScanAttrs whole = plain(s);
  const Attrs attrs(whole);
  Types out = op::scan.def.infer({op::scan.def, attrs, a.in});
  const ScanSegments cut = segments(s);
  for (size_t c = 0; c < at(s.num_carries); ++c)
    out.push_back({out[c].dtype, with_front(cut.count, out[c].shape)});
  if (cut.has_rest)
    for (size_t c = 0; c < at(s.num_carries); ++c) out.push_back(Type(out[c]));
  return out;
}

// A scan over the segments, whose body is the scan of a segment; then the rest.
Values decompose_scan_kept(Builder& b, const Node& n, Operands in) {
  const auto& s = n.get<ScanKeptAttrs>();
  const ScanSegments cut = segments(s);
  const Rows rows{cut, s.reverse};
  const Parts parts(in, s.num_carries, s.num_xs);
  const size_t carries = parts.carries.size();

  BodyMaker segment("segment");
  Values leaves;
  for (Value v : parts.carries) leaves.push_back(segment.input(v, b.type(v)));
  for (Value v : parts.xs) {
    Type t = b.type(v);
    t.shape[0] = s.each;
    leaves.push_back(segment.input(rows.full(b, v), t));
  }
  for (Value v : parts.constants) leaves.push_back(segment.input(v, b.type(v)));
  ScanAttrs inner = plain(s), outer = plain(s), last = plain(s);
  inner.length = s.each, outer.length = cut.count, last.length = cut.rest;
  Values outputs = segment.inner.emit(op::scan.def, inner, leaves);
  append(outputs, Operands(leaves).first(carries));
  outer.body = segment.finish(outputs);
  const Values full = b.emit(op::scan.def, outer, segment.operands);

  const size_t results = s.body->outputs.size();
  Values out(full.begin(), full.begin() + s.num_carries), rest;
  if (cut.has_rest) {
    Values operands = out;
    for (Value v : parts.xs) operands.push_back(rows.rest(b, v));
    append(operands, parts.constants);
    rest = b.emit(op::scan.def, last, operands);
  }
  Values entering_rest;
  if (cut.has_rest) {
    entering_rest = out;
    out.assign(rest.begin(), rest.begin() + s.num_carries);
  }
  for (size_t y = carries; y < results; ++y)
    out.push_back(rows.joined(b, full[y], cut.has_rest ? rest[y] : kNone));
  append(out, Operands(full).subspan(results));
  append(out, entering_rest);
  return out;
}

// ---- scan_snapshots

// Steps that snapshots enter: from 0 on, in order.
void check_times(const InferArgs& a, const Ints& times, int64_t length) {
  if (times.empty() || times[0] != 0 || times.back() >= length ||
      std::adjacent_find(times.begin(), times.end(), std::greater_equal<>()) != times.end())
    bad_operands(a, "scan-checkpoints",
                 fmt::format("snapshots enter the steps [{}]; they begin with 0, ascend and are "
                             "less than the length {}",
                             fmt::join(times, ", "), length));
}

ScanAttrs plain(const ScanSnapshotsAttrs& s) {
  return {.body = s.body,
          .length = s.length,
          .num_carries = s.num_carries,
          .num_xs = s.num_xs,
          .reverse = s.reverse};
}

Types infer_scan_snapshots(const InferArgs& a) {
  const auto& s = a.get<ScanSnapshotsAttrs>();
  check_times(a, s.times, s.length);
  const ScanAttrs whole = plain(s);
  const Attrs attrs(whole);
  Types out = op::scan.def.infer({op::scan.def, attrs, a.in});
  for (size_t c = 0; c < at(s.num_carries); ++c)
    out.push_back({out[c].dtype, with_front(static_cast<int64_t>(s.times.size()), out[c].shape)});
  return out;
}

// All carries that enter a step, and of them those that are asked for.
Values decompose_scan_snapshots(Builder& b, const Node& n, Operands in) {
  const auto& s = n.get<ScanSnapshotsAttrs>();
  ScanAttrs all = plain(s);
  all.body = Body(with_entering(*s.body, s.num_carries));
  Values out = b.emit(op::scan.def, all, in);
  Tensor rows(DType::I64, {static_cast<int64_t>(s.times.size())});
  for (size_t i = 0; i < s.times.size(); ++i)
    rows.set_int(static_cast<int64_t>(i), s.reverse ? s.length - 1 - s.times[i] : s.times[i]);
  const Value index = b.constant(rows);
  for (size_t i = s.body->outputs.size(); i < out.size(); ++i)
    out[i] = op::gather(b, out[i], index, {.axis = 0});
  return out;
}

Value swap_leading_axes(Builder& b, Value x) { return swap_blocks(b, x, 0, 1, 1); }

// Carries get the batch axis; stacked values and constants that are shared stay so.
Values vmap_scan_snapshots(Builder& b, const VmapArgs& a) {
  ScanSnapshotsAttrs s = a.node.get<ScanSnapshotsAttrs>();
  const size_t carries = at(s.num_carries), stacked = carries + at(s.num_xs);
  Flags batched = a.batched;
  Values in(a.in.begin(), a.in.end());
  for (size_t i = 0; i < stacked; ++i) {
    if (i < carries && !batched[i]) in[i] = batch_operand(b, in[i], a.size), batched[i] = true;
    if (i >= carries && batched[i]) in[i] = swap_leading_axes(b, in[i]);
  }
  s.body = Body(transforms(a.bodies, a.node)
                    .vmap(*s.body, batched, a.size, Flags(s.body->outputs.size(), true))
                    .graph);
  Values out = b.emit(*a.node.op, s, in);
  for (size_t i = carries; i < out.size(); ++i) out[i] = swap_leading_axes(b, out[i]);
  return out;
}

// ---- scan_sweep

// Its operands.
struct SweepParts {
  Operands carries, entering, xs, cotangents, constants;
  SweepParts(const ScanSweepAttrs& s, Operands in) {
    const auto take = [&](int64_t count) {
      const Operands out = in.first(at(count));
      in = in.subspan(at(count));
      return out;
    };
    carries = take(s.num_carries);
    entering = take(s.num_entering);
    xs = take(s.num_xs);
    cotangents = take(s.num_cotangents);
    constants = in;
  }
};

Types infer_scan_sweep(const InferArgs& a) {
  const auto& s = a.get<ScanSweepAttrs>();
  const int64_t counts[] = {s.num_carries, s.num_entering, s.num_xs, s.num_cotangents};
  int64_t sum = 0;
  for (int64_t c : counts) {
    if (c < 0 || c > static_cast<int64_t>(a.in.size()) - sum)
      bad_operands(a, "scan-operands",
                   fmt::format("{} do not fit {} operands", fmt::join(counts, ", "), a.in.size()));
    sum += c;
  }
  if (s.length < 1)
    bad_operands(a, "scan-length", fmt::format("the length cannot be {}", s.length));
  check_times(a, s.times, s.length);
  const auto given_snapshots = static_cast<int64_t>(s.times.size());
  if (s.slots < 1 || given_snapshots > s.slots + 1)
    bad_operands(a, "scan-checkpoints",
                 fmt::format("{} slots; at least one is wanted, and one for each of the {} given "
                             "snapshots but the first",
                             s.slots, given_snapshots));
  Types slices(a.in.begin(), a.in.end());
  const int64_t stacked = s.num_carries + s.num_entering;
  for (int64_t i = s.num_carries; i < stacked + s.num_xs + s.num_cotangents; ++i) {
    const int64_t rows = i < stacked ? given_snapshots : s.length;
    Type& t = slices[at(i)];
    if (t.rank() == 0 || !(t.shape[0] == Dim(rows)))
      bad_operands(
          a, "scan-length",
          fmt::format("{} is stacked and must be [{}, ..] but is {}", a.name(at(i)), rows, t));
    t.shape = without_front(t.shape);
  }
  check_body_inputs(a, "reverse body", *s.back, slices);
  const Types entering(slices.begin() + s.num_carries, slices.begin() + stacked);
  Types given(slices.begin() + s.num_carries, slices.begin() + stacked + s.num_xs);
  given.insert(given.end(), slices.begin() + sum, slices.end());
  check_body_inputs(a, "forward body", *s.forward, given);
  if (s.forward->output_types() != entering)
    bad_operands(
        a, "body-outputs",
        fmt::format("the carries are [{}] but the forward body returns [{}]",
                    fmt::join(entering, ", "), fmt::join(s.forward->output_types(), ", ")));
  Types out = s.back->output_types();
  const Types swept(slices.begin(), slices.begin() + s.num_carries);
  if (out.size() < swept.size() || !std::equal(swept.begin(), swept.end(), out.begin()))
    bad_operands(a, "body-outputs",
                 fmt::format("[{}] are swept but the reverse body returns [{}]",
                             fmt::join(swept, ", "), fmt::join(out, ", ")));
  for (size_t i = swept.size(); i < out.size(); ++i)
    out[i].shape = with_front(s.length, out[i].shape);
  return out;
}

// All carries that enter a step, and the plain sweep over them. Of the entering carries, `in` holds those of the first
// step alone.
Values sweep_over_all(Builder& b, const ScanSweepAttrs& s, const Dim& length, Operands in) {
  const SweepParts parts(s, in);
  Values entering(parts.entering.begin(), parts.entering.end());
  append(entering, parts.xs);
  append(entering, parts.constants);
  const Values stacked = b.emit(op::scan.def,
                                ScanAttrs{.body = Body(with_entering(*s.forward, s.num_entering)),
                                          .length = length,
                                          .num_carries = s.num_entering,
                                          .num_xs = s.num_xs,
                                          .reverse = s.reverse},
                                entering);
  Values swept(parts.carries.begin(), parts.carries.end());
  append(swept, Operands(stacked).subspan(at(s.num_entering)));
  append(swept, parts.xs);
  append(swept, parts.cotangents);
  append(swept, parts.constants);
  return b.emit(op::scan.def,
                ScanAttrs{.body = s.back,
                          .length = length,
                          .num_carries = s.num_carries,
                          .num_xs = s.num_entering + s.num_xs + s.num_cotangents,
                          .reverse = !s.reverse},
                swept);
}

// What follows the first snapshot follows from it.
Values decompose_scan_sweep(Builder& b, const Node& n, Operands in) {
  const auto& s = n.get<ScanSweepAttrs>();
  Values operands(in.begin(), in.end());
  for (int64_t c = s.num_carries; c < s.num_carries + s.num_entering; ++c) {
    const Value rows = operands[at(c)];
    operands[at(c)] = reshape_to(b, part_of(b, rows, 0, 1), without_front(b.shape(rows)));
  }
  return sweep_over_all(b, s, s.length, operands);
}

// Everything that is carried gets the batch axis; stacked values and constants that are shared stay so.
Values vmap_scan_sweep(Builder& b, const VmapArgs& a) {
  ScanSweepAttrs s = a.node.get<ScanSweepAttrs>();
  const BodyTransforms& t = transforms(a.bodies, a.node);
  const size_t swept = at(s.num_carries), carried = at(s.num_carries + s.num_entering),
               stacked = carried + at(s.num_xs + s.num_cotangents);
  Flags batched = a.batched;
  Values in(a.in.begin(), a.in.end());
  for (size_t i = 0; i < in.size(); ++i) {
    if (i < carried && !batched[i]) in[i] = batch_operand(b, in[i], a.size), batched[i] = true;
    if (i >= swept && i < stacked && batched[i]) in[i] = swap_leading_axes(b, in[i]);
  }
  Flags forward(batched.begin() + s.num_carries,
                batched.begin() + static_cast<int64_t>(carried) + s.num_xs);
  forward.insert(forward.end(), batched.begin() + static_cast<int64_t>(stacked), batched.end());
  s.forward = Body(t.vmap(*s.forward, forward, a.size, Flags(at(s.num_entering), true)).graph);
  s.back = Body(t.vmap(*s.back, batched, a.size, Flags(s.back->outputs.size(), true)).graph);
  Values out = b.emit(*a.node.op, s, in);
  for (size_t i = swept; i < out.size(); ++i) out[i] = swap_leading_axes(b, out[i]);
  return out;
}

// The segments from the last to the first; in each of them all carries that enter a step are stacked. The attributes
// are those of the whole scan, but for the length.
Values sweep_in_segments(Builder& b, const ScanSegments& cut, const ScanSweepAttrs& sweep,
                         const BackScan& back, Operands kept) {
  const Rows rows{cut, sweep.reverse};
  const size_t carries = at(sweep.num_entering), swept = back.carries.size();

  Values now = back.carries, rest;
  if (cut.has_rest) {  // the last steps in time come first
    Values operands = now;
    append(operands, kept.subspan(carries));
    for (Value v : back.xs) operands.push_back(rows.rest(b, v));
    for (Value v : back.cotangents) operands.push_back(rows.rest(b, v));
    append(operands, back.constants);
    rest = sweep_over_all(b, sweep, cut.rest, operands);
    now.assign(rest.begin(), rest.begin() + static_cast<int64_t>(swept));
  }
  BodyMaker segment(back.attrs.body->name);
  Values leaves;
  const auto add = [&](Value v, const Type& t) { leaves.push_back(segment.input(v, t)); };
  for (Value v : now) add(v, b.type(v));
  for (size_t c = 0; c < carries; ++c)
    add(kept[c], {b.type(kept[c]).dtype, without_front(b.shape(kept[c]))});
  for (const Values* list : {&back.xs, &back.cotangents})
    for (Value v : *list) {
      Type t = b.type(v);
      t.shape[0] = cut.each;
      add(rows.full(b, v), t);
    }
  for (Value v : back.constants) add(v, b.type(v));
  const Values inner = sweep_over_all(segment.inner, sweep, cut.each, leaves);
  ScanAttrs outer{.length = cut.count,
                  .num_carries = static_cast<int64_t>(swept),
                  .num_xs = static_cast<int64_t>(carries + back.xs.size() + back.cotangents.size()),
                  .reverse = !sweep.reverse};
  outer.body = segment.finish(inner);
  const Values full = b.emit(op::scan.def, outer, segment.operands);
  Values out(full.begin(), full.begin() + static_cast<int64_t>(swept));
  for (size_t y = swept; y < full.size(); ++y)
    out.push_back(rows.joined(b, full[y], cut.has_rest ? rest[y] : kNone));
  return out;
}

int64_t known_length(const ScanAttrs& s) {
  const auto length = s.length.static_value();
  if (!length)
    fail(ErrorKind::unsupported, "scan-symbolic",
         "scan: reverse mode with binomial checkpoints needs a length that is a number, not {}",
         s.length);
  return *length;
}

}  // namespace

int64_t sweep_evaluations(int64_t length, int64_t slots) {
  const int64_t carries = slots + 1, r = repetitions(length, carries);
  return r * length - reach(carries + 1, r - 1);
}

int64_t next_snapshot(int64_t length, int64_t slots) {
  const int64_t carries = slots + 1, r = repetitions(length, carries);
  // What lies behind the snapshot is taken back with one carry less, what lies before it with one repetition less.
  const int64_t most = std::min(reach(carries, r - 1), length - reach(carries - 1, r - 1));
  return std::clamp<int64_t>(most, 1, length - 1);
}

Ints snapshot_times(int64_t length, int64_t slots) {
  Ints out{0};
  for (int64_t left = slots; left > 0 && length - out.back() > 1; --left)
    out.push_back(out.back() + next_snapshot(length - out.back(), left));
  return out;
}

int64_t binomial_evaluations(int64_t length, int64_t checkpoints) {
  // The forward run leaves the first snapshots, so the sweep need not go there again.
  const int64_t slots = checkpoints - 1;
  return length + sweep_evaluations(length, slots) - snapshot_times(length, slots).back();
}

ScanSegments even_segments(const Dim& length, int64_t checkpoints) {
  if (const auto steps = length.static_value())
    return segments(*steps, ceil_div(*steps, checkpoints));
  const Dim each = floor_div(length, checkpoints);
  return {
      .each = each, .count = checkpoints, .rest = length - each * checkpoints, .has_rest = true};
}

bool is_thinned(const ScanAttrs& s) {
  if (s.checkpoints == 0) return false;
  const auto length = s.length.static_value();
  return !length || *length > s.checkpoints;
}

Values scan_that_keeps(Builder& b, const ScanAttrs& s, Operands in) {
  if (s.binomial) {
    const int64_t length = known_length(s);
    return b.emit(op::scan_snapshots.def,
                  ScanSnapshotsAttrs{.body = s.body,
                                     .length = length,
                                     .num_carries = s.num_carries,
                                     .num_xs = s.num_xs,
                                     .reverse = s.reverse,
                                     .times = snapshot_times(length, s.checkpoints - 1)},
                  in);
  }
  const ScanSegments cut = even_segments(s.length, s.checkpoints);
  return b.emit(op::scan_kept.def,
                ScanKeptAttrs{.body = s.body,
                              .length = s.length,
                              .num_carries = s.num_carries,
                              .num_xs = s.num_xs,
                              .reverse = s.reverse,
                              .each = cut.each,
                              .count = s.length.is_static() ? 0 : cut.count},
                in);
}

Values sweep_over_kept(Builder& b, const ScanAttrs& s, const BackScan& back, Operands kept) {
  ScanSweepAttrs sweep{.forward = Body(first_outputs(*s.body, s.num_carries)),
                       .back = back.attrs.body,
                       .num_carries = back.attrs.num_carries,
                       .num_entering = s.num_carries,
                       .num_xs = s.num_xs,
                       .num_cotangents = static_cast<int64_t>(back.cotangents.size()),
                       .reverse = s.reverse};
  if (!s.binomial)
    return sweep_in_segments(b, even_segments(s.length, s.checkpoints), sweep, back, kept);
  sweep.length = known_length(s);
  sweep.slots = s.checkpoints - 1;
  sweep.times = snapshot_times(sweep.length, sweep.slots);
  Values operands = back.carries;
  append(operands, kept);
  append(operands, back.xs);
  append(operands, back.cotangents);
  append(operands, back.constants);
  return b.emit(op::scan_sweep.def, sweep, operands);
}

namespace op {

constinit const Op<ScanKeptAttrs> scan_kept = OpDef{
    .name = "scan_kept",
    .doc =
        "A scan in segments of `each` steps that also gives, behind its results, for each carry "
        "those that enter the "
        "segments, stacked, and where a shorter segment is left the one that enters it.",
    .arity = kVariadic,
    .operands = "xs..",
    .variadic_results = true,
    .infer = infer_scan_kept,
    .decompose = decompose_scan_kept,
};

constinit const Op<ScanSnapshotsAttrs> scan_snapshots = OpDef{
    .name = "scan_snapshots",
    .doc =
        "A scan that also gives, behind its results, for each carry those that enter the steps "
        "`times`, stacked; `times` counts steps in the order in which they run.",
    .kind = Kind::control,
    .arity = kVariadic,
    .operands = "xs..",
    .variadic_results = true,
    .infer = infer_scan_snapshots,
    .decompose = decompose_scan_snapshots,
    .vmap = vmap_scan_snapshots,
};

constinit const Op<ScanSweepAttrs> scan_sweep = OpDef{
    .name = "scan_sweep",
    .doc =
        "The reverse sweep of a scan that holds at most `slots` of its carries at once besides the "
        "first and computes the others again with the body `forward`. Operands: num_carries values "
        "that are swept, the num_entering carries of the scan as they enter the steps `times`, "
        "stacked, num_xs stacked inputs, num_cotangents stacked values, constants. The body `back` "
        "takes the swept values, the carries that enter a step, a slice of each stacked value and "
        "the constants, and returns the next swept values and slices of the stacked results.",
    .kind = Kind::control,
    .arity = kVariadic,
    .operands = "xs..",
    .variadic_results = true,
    .infer = infer_scan_sweep,
    .decompose = decompose_scan_sweep,
    .vmap = vmap_scan_sweep,
};

}  // namespace op

namespace {
constexpr const OpDef* kScanCheckpointOps[] = {&op::scan_kept, &op::scan_snapshots,
                                               &op::scan_sweep};
}  // namespace
constinit const Family kScanCheckpoints{"scan checkpoints", kScanCheckpointOps};

}  // namespace rlx
