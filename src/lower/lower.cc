#include "rlx/lower/lower.h"

#include <algorithm>
#include <unordered_map>

#include "rlx/base/clock.h"
#include "rlx/lower/outline.h"
#include "rlx/ops/control/checkpoint.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/control/scan_checkpoints.h"
#include "rlx/ops/core.h"
#include "rlx/ops/region.h"
#include "rlx/passes/weights.h"

namespace rlx {

namespace {

class Lowering {
 public:
  // With an outline: `g` is its graph at these sizes.
  Lowering(Graph g, Target& target, bool is_body, const Outline* outline = nullptr,
           const DimBinding& sizes = {}, const Donated& donated = {})
      : target_(target), is_body_(is_body), sizes_(sizes), outline_(outline) {
    p_.graph = std::move(g);
    p_.origin = outline ? outline->origin() : make_origin();
    if (!donated.empty()) p_.donated.resize(p_.graph.inputs().size());
    for (const size_t input : donated) p_.donated.at(input) = true;
    graph_ = &p_.graph;
    views_.resize(graph().nodes.size());
    for (Value v : graph().params())
      param_index_.emplace(graph().node(v).get<LeafAttrs>().name, param_index_.size());
    written_.assign(param_index_.size(), false);
    for (const Update& u : graph().updates) written_[param_index(u.param)] = true;
  }

  Program run() {
    if (!is_body_) of_weights_ = weights_alone(graph());
    for (int32_t i = 0; i < graph().size(); ++i) node(i);
    place_outputs();
    place_updates();
    check_outputs();
    target_.arrange(p_);
    plan_memory(p_);
    verify(p_);
    p_.steps.shrink_to_fit(), p_.buffers.shrink_to_fit();  // a program is kept for long
    return std::move(p_);
  }

  static bool moves(const OpDef* op) {
    return std::any_of(std::begin(kMoves), std::end(kMoves),
                       [&](const Move& m) { return m.op == op; });
  }

 private:
  struct Move {
    const OpDef* op;
    View (Lowering::*rule)(const Node& n, const std::string& label);
  };
  static const Move kMoves[8];

  const Graph& graph() const { return *graph_; }
  const Outline::Entry* entry(int32_t i) const {
    return outline_ ? &outline_->entry(static_cast<size_t>(i)) : nullptr;
  }

  View view(Value v) const {
    return views_[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)];
  }

  int32_t new_buffer(Place place, int32_t index, int64_t bytes) {
    p_.buffers.push_back({place, index, bytes, 0, -1, -1, -1});
    return static_cast<int32_t>(p_.buffers.size()) - 1;
  }
  View new_view(const Type& t) { return View::dense(new_buffer(Place::arena, 0, t.bytes()), t); }

  void copy(const View& from, const View& to, std::string label) {
    if (to.elements() == 0) return;
    Step s;
    s.label = std::move(label);
    s.in = {from};
    s.out = {to};
    s.kernel = target_.make_copy(from, to);
    s.node = step_of_;
    p_.steps.push_back(std::move(s));
  }
  // A copy of what no run changes, the same for all sizes (`fixed`), is made once.
  View make_dense(const View& v, const std::string& why, bool fixed = false) {
    const size_t first_step = p_.steps.size(), first_buffer = p_.buffers.size();
    View to = new_view(v.type());
    copy(v, to, "copy: " + why);
    if (!fixed || p_.steps.size() == first_step) return to;
    return once(first_step, first_buffer, {to}, "copy: " + why)[0];
  }
  bool is_fixed(const Node& n, size_t operand) const {
    const Node& from = graph().node(n.in[operand]);
    return !is_body_ && !given_ &&
           is_fixed(p_.buffers[static_cast<size_t>(view(n.in[operand]).buffer)]) &&
           !(from.op->kind == Kind::movement && is_sized(n.in[operand].node));
  }

  void node(int32_t i) {
    if (!given_) step_of_ = i;
    if (!given_ && outline_) sized_.push_back(reads_sized(i));
    const Node& n = graph().nodes[static_cast<size_t>(i)];
    auto& out = views_[static_cast<size_t>(i)];
    if (given_ && n.op == &op::input)
      out = {(*given_)[next_given_++]};
    else if (n.op->kind == Kind::leaf)
      out = {leaf(n)};
    else if (n.op->kind == Kind::movement && move(n, i))
      return;
    else if (computes_nothing(n))
      for (const Type& t : n.out) out.push_back(new_view(t));
    else if (n.op->kind == Kind::control)
      control(n, i);
    else
      compute(n, i);
  }

  // Nodes without a single element of a result are no steps: kernels are never made or called for
  // them, so none has to ask whether there is nothing to do (a walk over 2^40 empty lines is work).
  static bool computes_nothing(const Node& n) {
    return std::all_of(n.out.begin(), n.out.end(),
                       [](const Type& t) { return t.shape.elements().value() == 0; });
  }

  View leaf(const Node& n) {
    const Type& t = n.type();
    if (n.op == &op::constant) {
      p_.constants.push_back(n.get<ConstantAttrs>().value);
      return View::dense(
          new_buffer(Place::constant, static_cast<int32_t>(p_.constants.size()) - 1, t.bytes()), t);
    }
    auto& list = n.op == &op::input ? p_.input_buffers : p_.param_buffers;
    const Place place = n.op == &op::input ? Place::input : Place::param;
    const int32_t buffer = new_buffer(place, static_cast<int32_t>(list.size()), t.bytes());
    list.push_back(buffer);
    if (place == Place::param) p_.param_updated.push_back(false);
    return View::dense(buffer, t);
  }

  // Ops that only change the view, and those that are strided copies. False: the op has a kernel of
  // its own.
  bool move(const Node& n, int32_t i) {
    for (const auto& [op, rule] : kMoves)
      if (op == n.op) {
        node_ = i;
        views_[static_cast<size_t>(i)] = {(this->*rule)(n, fmt::format("%{} {}", i, n.op->name))};
        return true;
      }
    return false;
  }

  View reshape(const Node& n, const std::string& label) {
    const View from = view(n.in[0]);
    const Outline::Entry* e = entry(node_);
    if (!e || !e->copies)
      if (auto v = view_reshape(from, n.type().shape.sizes())) return *v;
    check(!e || e->copies, "a reshape that is a view for all sizes is none for these");
    return *view_reshape(make_dense(from, label, !(e && e->is_symbolic) && is_fixed(n, 0)),
                         n.type().shape.sizes());
  }
  View transpose(const Node& n, const std::string&) {
    return view_transpose(view(n.in[0]), n.get<TransposeAttrs>().perm);
  }
  View slice(const Node& n, const std::string&) {
    const auto& a = n.get<SliceAttrs>();
    const View from = view(n.in[0]);
    const Ints start = a.start.empty() ? Ints(from.dims.size(), 0) : a.start.sizes();
    return view_slice(from, start, a.limit.sizes(), a.stride);
  }
  View broadcast(const Node& n, const std::string&) {
    return view_broadcast(view(n.in[0]), n.type().shape.sizes());
  }
  View reverse(const Node& n, const std::string&) {
    return view_reverse(view(n.in[0]), n.get<ReverseAttrs>().axes);
  }

  View barrier(const Node& n, const std::string&) { return view(n.in[0]); }

  View concat(const Node& n, const std::string& label) {
    const size_t first_step = p_.steps.size(), first_buffer = p_.buffers.size();
    View whole = new_view(n.type());
    concat_into(whole, n, label);
    if (!is_joined(n)) return whole;
    return once(first_step, first_buffer, {whole}, label)[0];
  }

  void concat_into(const View& whole, const Node& n, const std::string& label) {
    const int64_t axis = n.get<AxisAttrs>().axis;
    int64_t at = 0;
    for (Value v : n.in) {
      const View from = view(v);
      Ints start(from.dims.size(), 0), limit = whole.dims;
      start[static_cast<size_t>(axis)] = at;
      at += from.dims[static_cast<size_t>(axis)];
      limit[static_cast<size_t>(axis)] = at;
      copy(from, view_slice(whole, start, limit, {}), label);
    }
  }

  // Whether all operands stay the same from run to run, whatever the sizes are. Bodies own no memory that outlives a run.
  bool is_joined(const Node& n) const {
    if (is_body_ || given_ || computes_nothing(n) || is_sized(node_of(n))) return false;
    return std::all_of(n.in.begin(), n.in.end(), [&](Value v) {
      return is_fixed(p_.buffers[static_cast<size_t>(view(v).buffer)]);
    });
  }

  // Whether sizes decide about a node of the program, or the views that it reads; it was lowered, or is being so.
  bool is_sized(int32_t i) const { return outline_ && sized_.at(static_cast<size_t>(i)); }
  bool reads_sized(int32_t i) const {
    const Operands in = graph().node(i).in;
    return entry(i)->is_symbolic || std::any_of(in.begin(), in.end(), [&](Value v) {
             return graph().node(v).op->kind == Kind::movement && is_sized(v.node);
           });
  }
  int32_t node_of(const Node& n) const { return static_cast<int32_t>(&n - graph().nodes.data()); }

  // The steps and buffers from these on, which read only what no run changes, become programs that are run once: one for
  // each of the results.
  std::vector<View> once(size_t first_step, size_t first_buffer, const std::vector<View>& results,
                         const std::string& label) {
    std::vector<JoinedWeight> made;
    for (size_t k = 0; k < results.size(); ++k) {
      auto program = std::make_shared<Program>();
      JoinedWeight weight;
      weight.label = results.size() == 1 ? label : fmt::format("{} result {}", label, k);
      for (size_t b = first_buffer; b < p_.buffers.size(); ++b)
        program->buffers.push_back(p_.buffers[b]);
      Buffer& result = program->buffers[static_cast<size_t>(results[k].buffer) - first_buffer];
      result.place = Place::output, result.index = 0;
      std::unordered_map<int32_t, int32_t> inputs;
      const auto moved = [&](int32_t buffer) {
        if (buffer < 0) return buffer;
        const auto b = static_cast<size_t>(buffer);
        if (b >= first_buffer) return static_cast<int32_t>(b - first_buffer);
        const auto [it, fresh] =
            inputs.try_emplace(buffer, static_cast<int32_t>(program->buffers.size()));
        if (fresh) {
          const auto index = static_cast<int32_t>(weight.sources.size());
          weight.sources.push_back(buffer);
          program->input_buffers.push_back(it->second);
          program->buffers.push_back({Place::input, index, p_.buffers[b].bytes, 0, -1, -1, -1});
        }
        return it->second;
      };
      for (size_t s = first_step; s < p_.steps.size(); ++s) {
        Step step = p_.steps[s];
        for (View& v : step.in) v.buffer = moved(v.buffer);
        for (View& v : step.out) v.buffer = moved(v.buffer);
        step.workspace = moved(step.workspace);
        program->steps.push_back(std::move(step));
      }
      program->outputs.push_back(results[k]);
      program->outputs[0].buffer = moved(results[k].buffer);
      target_.arrange(*program);
      plan_memory(*program);
      verify(*program);
      weight.program = std::move(program);
      made.push_back(std::move(weight));
    }
    p_.steps.resize(first_step);
    p_.buffers.resize(first_buffer);
    std::vector<View> out;
    for (size_t k = 0; k < results.size(); ++k) {
      p_.joined.push_back(std::move(made[k]));
      const Type type = results[k].type();
      out.push_back(View::dense(
          new_buffer(Place::joined, static_cast<int32_t>(p_.joined.size()) - 1, type.bytes()),
          type));
    }
    return out;
  }

  // Fills with the value, then writes what remains of x after negative padding has cropped it.
  View pad(const Node& n, const std::string& label) {
    const View whole = new_view(n.type());
    const auto& a = n.get<PadAttrs>();
    View x = view(n.in[0]);
    copy(view_broadcast(view(n.in[1]), whole.dims), whole, label + ": fill");
    Ints x_start, x_limit, start, limit;
    for (size_t d = 0; d < x.dims.size(); ++d) {
      const int64_t low = a.low.empty() ? 0 : a.low[d].value(),
                    high = a.high.empty() ? 0 : a.high[d].value();
      x_start.push_back(std::max<int64_t>(0, -low));
      x_limit.push_back(std::max(x_start[d], x.dims[d] - std::max<int64_t>(0, -high)));
      start.push_back(std::max<int64_t>(0, low));
      limit.push_back(start[d] + x_limit[d] - x_start[d]);
    }
    x = view_slice(x, x_start, x_limit, {});
    copy(x, view_slice(whole, start, limit, {}), label);
    return whole;
  }

  View operand(const Node& n, size_t k, const std::string& label) {
    View v = view(n.in[k]);
    if (v.is_dense()) return v;
    if (target_.takes_view(n, graph(), k, v)) return v;
    const bool fixed = is_fixed(n, k);
    return make_dense(v, fixed ? fmt::format("{}, operand {}", label, k) : label, fixed);
  }

  void compute(const Node& n, int32_t i) {
    const Outline::Entry* e = entry(i);
    const Outline::RegionWay* way = e && !e->ways.empty() ? &at(e->ways, sizes_) : nullptr;
    if (way && way->instead) return replace(n, i, *way->instead);
    const size_t first_step = p_.steps.size(), first_buffer = p_.buffers.size();
    const bool is_once = !of_weights_.empty() && !given_ && of_weights_[static_cast<size_t>(i)] &&
                         n.op == &op::region && is_joined(n);
    Step s;
    s.label = fmt::format("%{} {}", i, n.op->name);
    if (!n.origin.label.empty()) s.label += " @ " + n.origin.label.str();
    for (size_t k = 0; k < n.in.size(); ++k) s.in.push_back(operand(n, k, s.label));
    for (const Type& t : n.out) s.out.push_back(new_view(t));
    s.kernel = way ? way->form->at(sizes_) : target_.make(n, graph(), s.in, s.out);
    views_[static_cast<size_t>(i)] = s.out;
    if (!is_once) pack_weights(s);
    pack_before(s);
    s.workspace = workspace(*s.kernel);
    s.node = step_of_;
    const std::string label = s.label;
    std::vector<Step> steps{std::move(s)};
    for (const StepKernel::Rest* rest = steps[0].kernel->rest(); rest;
         rest = rest->kernel->rest()) {
      Step next;
      next.label = label + ": combine";
      next.kernel = rest->kernel;
      next.workspace = workspace(*rest->kernel);
      next.node = step_of_;
      for (size_t k = 0; k < rest->results.size(); ++k) {
        View& out = steps.back().out[rest->results[k]];
        next.out.push_back(out);
        out = new_view(rest->partials[k]);
        next.in.push_back(out);
      }
      steps.push_back(std::move(next));
    }
    for (Step& step : steps) p_.steps.push_back(std::move(step));
    if (!is_once) return;
    auto& results = views_[static_cast<size_t>(i)];
    results = once(first_step, first_buffer, results, label);
  }

  // Lowers another graph in the place of node i.
  void replace(const Node& n, int32_t i, const Outline& by) {
    const Graph other = by.bound(sizes_);
    std::vector<View> given, results;
    for (Value v : n.in) given.push_back(view(v));
    std::vector<std::vector<View>> views(other.nodes.size());
    const auto swap = [&](const Graph*& g, const Outline*& outline) {
      std::swap(graph_, g);
      std::swap(outline_, outline);
      views_.swap(views);
    };
    const Graph* inner = &other;
    const Outline* outline = &by;
    swap(inner, outline);
    const auto outer = std::pair(given_, next_given_);
    given_ = &given, next_given_ = 0;
    for (int32_t k = 0; k < other.size(); ++k) node(k);
    for (Value v : other.outputs) results.push_back(view(v));
    std::tie(given_, next_given_) = outer;
    swap(inner, outline);
    views_[static_cast<size_t>(i)] = std::move(results);
  }

  // Operands that no run changes go into the form their kernel likes best, once.
  void pack_weights(Step& s) {
    if (is_body_) return;  // bodies run many times per run, but own no memory that outlives one
    for (size_t k = 0; k < s.in.size(); ++k) {
      const bool fixed = is_fixed(p_.buffers[static_cast<size_t>(s.in[k].buffer)]);
      auto packed = fixed ? s.kernel->packed(static_cast<int>(k)) : nullptr;
      if (!packed) continue;
      const int32_t buffer =
          new_buffer(Place::packed, static_cast<int32_t>(p_.packed.size()), packed->packed_bytes());
      p_.packed.push_back({static_cast<int32_t>(p_.steps.size()), s.in[k], packed->packed_form()});
      s.in[k].buffer = buffer;
      s.in[k].offset = 0;
      s.kernel = std::move(packed);
      return;  // one per kernel
    }
  }

  // Others by a step of their own, where the kernel asks for it.
  void pack_before(Step& s) {
    for (size_t k = 0; k < s.in.size(); ++k) {
      auto packing = s.kernel->packing(static_cast<int>(k));
      if (!packing) continue;
      auto packed = s.kernel->packed(static_cast<int>(k));
      Step before;
      before.label = fmt::format("{}: operand {} packed", s.label, k);
      before.node = step_of_;
      before.in.push_back(s.in[k]);
      before.out.push_back(new_view({DType::U8, Shape::of({packed->packed_bytes()})}));
      before.kernel = std::move(packing);
      s.in[k] = before.out[0];
      s.kernel = std::move(packed);
      p_.steps.push_back(std::move(before));
    }
  }

  // Whether no run changes it.
  bool is_fixed(const Buffer& b) const {
    return b.place == Place::constant || b.place == Place::joined ||
           (b.place == Place::param && !written_[static_cast<size_t>(b.index)]);
  }

  // Where the graph's parameter of this name stands in the order of leaves.
  size_t param_index(const std::string& name) const {
    const auto found = param_index_.find(name);
    check(found != param_index_.end(), "update of an unknown parameter");
    return found->second;
  }

  void control(const Node& n, int32_t i) {
    Step s;
    s.label = fmt::format("%{} {}", i, n.op->name);
    const auto* sweep = n.op == &op::scan_sweep ? &n.get<ScanSweepAttrs>() : nullptr;
    for (size_t k = 0; k < n.in.size(); ++k) {
      const View v = view(n.in[k]);
      // A sweep writes over its snapshots. Where nobody reads them later, the copy is in their place.
      const auto from = static_cast<int64_t>(k) - (sweep ? sweep->num_carries : 0);
      const bool own = sweep && from >= 0 && from < sweep->num_entering;
      s.in.push_back(v.is_dense() && !own ? v : make_dense(v, s.label));
    }
    for (const Type& t : n.out) s.out.push_back(new_view(t));
    const Outline::Entry* e = entry(i);
    auto body = [&](const Body& b) {
      const size_t k = s.bodies.size();
      if (e && e->programs[k])
        s.bodies.push_back(e->programs[k]);
      else
        s.bodies.push_back(std::make_shared<const Program>(e ? e->bodies[k]->at(sizes_, target_)
                                                             : Lowering(*b, target_, true).run()));
    };
    if (n.op == &op::scan) {
      const auto& a = n.get<ScanAttrs>();
      s.control = Step::Control::scan;
      s.length = a.length.value();
      s.carries = a.num_carries;
      s.xs = a.num_xs;
      s.reverse = a.reverse;
      body(a.body);
    } else if (n.op == &op::scan_snapshots) {
      const auto& a = n.get<ScanSnapshotsAttrs>();
      s.control = Step::Control::scan;
      s.length = a.length;
      s.carries = a.num_carries;
      s.xs = a.num_xs;
      s.reverse = a.reverse;
      s.times = a.times;
      body(a.body);
    } else if (n.op == &op::while_loop) {
      const auto& a = n.get<WhileAttrs>();
      s.control = Step::Control::loop;
      s.length = a.max_iterations.value_or(-1);
      s.carries = a.num_carries;
      body(a.cond);
      body(a.body);
    } else if (sweep) {
      const auto& a = *sweep;
      s.control = Step::Control::sweep;
      s.length = a.length;
      s.carries = a.num_carries;
      s.xs = a.num_xs;
      s.reverse = a.reverse;
      s.entering = a.num_entering;
      s.cotangents = a.num_cotangents;
      s.slots = a.slots;
      s.times = a.times;
      body(a.forward);
      body(a.back);
    } else {
      s.control = Step::Control::cond;
      body(n.get<CondAttrs>().then_body);
      body(n.get<CondAttrs>().else_body);
    }
    for (const View& v : s.in) s.in_bytes.push_back(v.type().bytes());
    for (const View& v : s.out) s.out_bytes.push_back(v.type().bytes());
    s.workspace = workspace(s);
    s.node = step_of_;
    views_[static_cast<size_t>(i)] = s.out;
    p_.steps.push_back(std::move(s));
  }

  int32_t workspace(const StepKernel& kernel) {
    return kernel.workspace_bytes() > 0 ? new_buffer(Place::arena, 0, kernel.workspace_bytes())
                                        : -1;
  }

  // Memory of the bodies: their arenas (one at a time runs), and what lir.h says of carries.
  int32_t workspace(const Step& s) {
    if (s.control == Step::Control::sweep) return new_buffer(Place::arena, 0, SweepMemory(s).bytes);
    const bool loop = s.control == Step::Control::loop;
    int64_t bytes = 0;
    for (const auto& body : s.bodies) bytes = std::max(bytes, body->arena_bytes);
    bytes = align_up(bytes, 64) + (loop ? 64 : 0);
    for (int64_t c = 0; c < s.carries; ++c)
      bytes = add_or_fail(
          bytes,
          mul_or_fail(loop ? 2 : 1, align_up(s.out_bytes[static_cast<size_t>(c)], 64), "workspace"),
          "workspace");
    return new_buffer(Place::arena, 0, bytes);
  }

  bool is_whole(const View& v) const {
    return covers(v, p_.buffers[static_cast<size_t>(v.buffer)]);
  }

  // An output is written where the caller wants it when its producer can write there; else it is
  // copied at the end. A donated input that is returned as it is stays where it is.
  void place_outputs() {
    std::vector<bool> returned(p_.donated.size(), false);
    std::vector<bool> updating(p_.buffers.size(), false);  // what updates write
    for (const Update& u : graph().updates)
      updating[static_cast<size_t>(view(u.value).buffer)] = true;
    for (size_t k = 0; k < graph().outputs.size(); ++k) {
      const View v = view(graph().outputs[k]);
      step_of_ = graph().outputs[k].node;
      Buffer& b = p_.buffers[static_cast<size_t>(v.buffer)];
      if (b.place == Place::arena && is_whole(v) && !updating[static_cast<size_t>(v.buffer)]) {
        b.place = Place::output;
        b.index = static_cast<int32_t>(k);
        p_.outputs.push_back(v);
        continue;
      }
      if (b.place == Place::input && is_whole(v) && !p_.donated.empty()) {
        const auto input = static_cast<size_t>(b.index);
        if (p_.donated[input] && !returned[input]) {
          returned[input] = true;
          p_.outputs.push_back(v);
          continue;
        }
      }
      const int32_t buffer = new_buffer(Place::output, static_cast<int32_t>(k), v.type().bytes());
      p_.outputs.push_back(View::dense(buffer, v.type()));
      copy(v, p_.outputs.back(), fmt::format("copy: output {}", k));
    }
  }

  // Whoever runs the program does not clear the outputs: the steps write all of each. (Kernels write
  // all of their result views, and the views of several steps in one buffer do not overlap, but for a
  // first one that covers it.)
  void check_outputs() const {
    std::vector<int64_t> written(p_.buffers.size(), 0);
    for (const Step& s : p_.steps)
      for (const View& v : s.out)
        written[static_cast<size_t>(v.buffer)] += v.elements() * size_of(v.dtype);
    for (size_t b = 0; b < p_.buffers.size(); ++b)
      check(p_.buffers[b].place != Place::output || written[b] >= p_.buffers[b].bytes,
            "output {}: {} of {} bytes are written", p_.buffers[b].index, written[b],
            p_.buffers[b].bytes);
  }

  // Per buffer, what deciding about an update needs to know of the steps.
  struct Access {
    int32_t writer = -1, writes = 0, last_read = -1;
  };
  std::vector<Access> accesses() const {
    std::vector<Access> out(p_.buffers.size());
    for (size_t s = 0; s < p_.steps.size(); ++s) {
      for (const View& v : p_.steps[s].in)
        out[static_cast<size_t>(v.buffer)].last_read = static_cast<int32_t>(s);
      for (const View& v : p_.steps[s].out) {
        Access& a = out[static_cast<size_t>(v.buffer)];
        a.writer = static_cast<int32_t>(s), ++a.writes;
      }
    }
    return out;
  }

  // An update is written in place when its producer runs after, or together with, the last reader
  // of the old value.
  Decision in_place(const View& value, int32_t param, const std::vector<Access>& access) const {
    const Buffer& b = p_.buffers[static_cast<size_t>(value.buffer)];
    if (b.place != Place::arena || !is_whole(value))
      return Decision::no("the new value is a view or is returned too");
    const Access& written = access[static_cast<size_t>(value.buffer)];
    if (written.writes != 1) return Decision::no("the new value is written by several steps");
    if (access[static_cast<size_t>(param)].last_read > written.writer)
      return Decision::no("the old value is read later");
    const Step& step = p_.steps[static_cast<size_t>(written.writer)];
    if (!step.kernel) return Decision::no("control flow does not write in place");
    for (size_t i = 0; i < step.in.size(); ++i)
      for (size_t o = 0; o < step.out.size(); ++o)
        if (step.in[i].buffer == param && step.out[o].buffer == value.buffer &&
            !step.kernel->may_share(static_cast<int>(i), static_cast<int>(o)))
          return Decision::no("its kernel reads the old value after writing");
    return Decision::yes();
  }

  void place_updates() {
    struct Pending {
      View from, to;
      int32_t node;
    };
    std::vector<Pending> pending;
    std::vector<int32_t> target;  // per update
    std::vector<bool> is_target(p_.buffers.size(), false);
    for (const Update& u : graph().updates) {
      target.push_back(p_.param_buffers[param_index(u.param)]);
      is_target[static_cast<size_t>(target.back())] = true;
    }
    std::vector<View> values;
    for (size_t k = 0; k < graph().updates.size();
         ++k) {  // old values of written parameters move out of the way first
      View v = view(graph().updates[k].value);
      step_of_ = graph().updates[k].value.node;
      const bool moves = v.buffer != target[k] || !is_whole(v);
      if (moves && is_target[static_cast<size_t>(v.buffer)])
        v = make_dense(v, "update of " + graph().updates[k].param);
      values.push_back(v);
    }
    // A buffer that becomes a parameter's new value belongs to that one from then on, and each
    // parameter is written by one update, so no decision changes what a later one reads here.
    const std::vector<Access> access = accesses();
    for (size_t k = 0; k < graph().updates.size(); ++k) {
      const View& v = values[k];
      const size_t param = param_index(graph().updates[k].param);
      p_.param_updated[param] = true;
      if (v.buffer == target[k] && is_whole(v)) continue;  // p <- p
      if (in_place(v, target[k], access)) {
        Buffer& b = p_.buffers[static_cast<size_t>(v.buffer)];
        b.place = Place::param, b.index = static_cast<int32_t>(param);
      } else {
        pending.push_back({v, View::dense(target[k], v.type()), graph().updates[k].value.node});
      }
    }
    for (const Pending& c : pending) {
      step_of_ = c.node;
      copy(c.from, c.to, "copy: update");
    }
  }

  Target& target_;
  bool is_body_;
  DimBinding sizes_;
  const Graph* graph_ = nullptr;  // p_.graph, or what stands in the place of one of its nodes
  const Outline* outline_;        // of that; nullptr: all sizes are numbers
  const std::vector<View>* given_ = nullptr;  // its inputs
  size_t next_given_ = 0;
  int32_t node_ = 0;      // that is being lowered
  int32_t step_of_ = -1;  // the node of the program's graph for which steps are made
  std::vector<std::vector<View>> views_;
  std::unordered_map<std::string_view, size_t> param_index_;
  std::vector<bool> sized_;       // per node of the program that was lowered
  std::vector<bool> of_weights_;  // per node: is computed once; empty in bodies
  std::vector<bool> written_;     // per parameter: an update writes it
  Program p_;
};

const Lowering::Move Lowering::kMoves[] = {
    {&op::reshape, &Lowering::reshape}, {&op::transpose, &Lowering::transpose},
    {&op::slice, &Lowering::slice},     {&op::broadcast, &Lowering::broadcast},
    {&op::reverse, &Lowering::reverse}, {&op::concat, &Lowering::concat},
    {&op::pad, &Lowering::pad},         {&op::barrier, &Lowering::barrier},
};

}  // namespace

SweepMemory::SweepMemory(const Step& s) {
  const auto sum = [](int64_t a, int64_t b) { return add_or_fail(a, b, "workspace"); };
  const auto given = static_cast<int64_t>(s.times.size());
  int64_t carries = 0, entering = 0;
  for (int64_t c = 0; c < s.carries; ++c)
    carries = sum(carries, align_up(s.out_bytes[static_cast<size_t>(c)], 64));
  for (int64_t c = s.carries; c < s.carries + s.entering; ++c)
    entering = sum(entering, align_up(s.in_bytes[static_cast<size_t>(c)] / given, 64));
  ahead = align_up(s.bodies[0]->arena_bytes, 64);
  swept = std::max(sum(ahead, entering), align_up(s.bodies[1]->arena_bytes, 64));
  here = sum(swept, carries);
  more = sum(here, entering);
  bytes = sum(more, mul_or_fail(s.slots + 1 - given, entering, "workspace"));
}

std::shared_ptr<const KernelForm> Target::form(const Node&, std::span<const Layout>,
                                               std::span<const Layout>) {
  fail(ErrorKind::unsupported, "symbolic-sizes",
       "the target {} makes no code for sizes that are not known", name());
}

void Target::arrange(Program& p) const {
  for (int32_t s = 0; s < static_cast<int32_t>(p.steps.size()); ++s)
    p.chains.push_back({s, s + 1, 0, 0});
}

Program lower(const Graph& g, Target& target, const Donated& donated) {
  return Lowering(g, target, false, nullptr, {}, donated).run();
}
Program lower_body(const Graph& g, Target& target) { return Lowering(g, target, true).run(); }
Program lower(const Outline& outline, const DimBinding& sizes, Target& target, bool is_body,
              const Donated& donated) {
  return Lowering(outline.bound(sizes), target, is_body, &outline, sizes, donated).run();
}

Program make_program(const Graph& g, Target& target, double* seconds, const Donated& donated) {
  Program p = lower(g, target, donated);
  const auto start = Clock::now();
  target.finish();
  if (seconds) *seconds = seconds_since(start);
  describe_target(p, target);
  return p;
}

void describe_target(Program& p, const Target& target) {
  p.target = target.name();
  p.generated = target.generated();
  p.cached = target.cached();
  p.code_bytes = target.code_bytes();
}

bool is_lowered(const OpDef& op) {
  return op.kind == Kind::leaf || op.kind == Kind::control ||
         (op.kind == Kind::movement && Lowering::moves(&op));
}

}  // namespace rlx
