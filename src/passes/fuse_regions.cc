#include "rlx/passes/fuse_regions.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>

#include "rlx/ops/core.h"
#include "rlx/passes/weights.h"

namespace rlx {

namespace {

// A search for a path between two nodes ends after so many steps, with 'no': then the time for a node
// does not depend on the program around it.
constexpr int kMaxSearch = 512;

// Views: they join a region around a reduction, but never start one.
bool joins_only(const Node& n) { return n.op == &op::broadcast || n.op == &op::reshape; }

bool is_reduce(const Node& n) { return is_region_reduction(n); }

const Graph* body_of(const Node& region) { return region.get<RegionAttrs>().body.graph.get(); }

bool is_suffix(const Ints& axes, int64_t rank) {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != rank - static_cast<int64_t>(axes.size()) + static_cast<int64_t>(i)) return false;
  return !axes.empty();
}

bool at_most(const Dim& a, const Dim& b, const FusionOptions& options) {
  if (options.questions) return options.questions->at_most(a, b);
  return SizeQuestions::known(a, b).value_or(false);
}

// Whether a reduction has too few results to be shared out by them: it runs in parts.
bool runs_in_parts(const Node& n, const Graph& g, const FusionOptions& options) {
  const RegionSchedule& s = options.schedule;
  const Type& t = g.type(n.in[0]);
  const Dim elements = t.shape.elements(), results = n.type().shape.elements();
  if (elements == results) return false;
  const bool suffix = is_suffix(n.get<ReduceAttrs>().axes, t.rank());
  const int64_t few = suffix ? s.few_rows - 1 : s.few_columns;
  const bool many = !suffix && s.many_rows < std::numeric_limits<int64_t>::max();
  // Where each result has so many elements, few of them are never enough.
  if (const auto each = elements.divide(results); each && !many)
    if (const auto n_each = each->static_value();
        n_each && *n_each > 0 && ceil_div(s.split_elements, *n_each) > few)
      return false;
  if (!at_most(s.split_elements, elements, options)) return false;
  return at_most(results, few, options) ||
         (many && at_most(Dim(s.many_rows) * results, elements, options));
}

struct Group {
  Shape domain;
  size_t inner = 0;     // row region: trailing axes that are reduced
  bool column = false;  // column region, complete once made
  bool split = false;   // its reductions run in parts, so no member reads them
  Ints axes;
  std::vector<int32_t> nodes;  // ascending
  std::vector<Value> reads;    // what its nodes read from outside, ascending
  bool merged = false;         // absorbed by another group

  RegionForm form() const { return {domain, inner, split || column}; }
};

// Some of the paths of a graph: each node hangs on the operand that was computed last, and the paths are
// those of that forest. Products, norms and residual sums hang on the trunk of a model, so most questions
// whether one layer depends on another are answered here.
class TrunkPaths {
 public:
  explicit TrunkPaths(const Graph& g) : position_(g.nodes.size()), size_(g.nodes.size(), 1) {
    const size_t n = g.nodes.size();
    std::vector<size_t> parent(n, n);
    for (size_t i = 0; i < n; ++i)
      for (Value v : g.nodes[i].in)
        if (const auto p = static_cast<size_t>(v.node); parent[i] == n || p > parent[i])
          parent[i] = p;
    for (size_t i = n; i-- > 0;)
      if (parent[i] < n) size_[parent[i]] += size_[i];
    std::vector<size_t> next(n);  // the place of the next child
    size_t roots = 0;
    for (size_t i = 0; i < n; ++i) {
      size_t& place = parent[i] < n ? next[parent[i]] : roots;
      position_[i] = place;
      place += size_[i];
      next[i] = position_[i] + 1;
    }
  }
  // Whether one of the paths leads from a to b.
  bool lead(int32_t a, int32_t b) const {
    const size_t from = position_[static_cast<size_t>(a)], to = position_[static_cast<size_t>(b)];
    return from <= to && to < from + size_[static_cast<size_t>(a)];
  }

 private:
  std::vector<size_t> position_, size_;  // of each node's subtree in the order of a walk
};

class Grower {
 public:
  // came_from: of which node of the graph before each is.
  Grower(const Graph& g, FusionReport* report, const FusionOptions& options,
         const std::vector<int32_t>& came_from)
      : g_(g),
        uses_(g),
        paths_(g),
        report_(report),
        came_from_(came_from),
        grow_(options.grow),
        alone_(options.alone),
        options_(options),
        schedule_(options.schedule),
        of_weights_(options.weights_apart ? weights_alone(g)
                                          : std::vector<bool>(g.nodes.size(), false)),
        group_(g.nodes.size(), -1) {}

  Graph run() {
    for (int32_t i = 0; i < g_.size(); ++i)
      fusible_.push_back(fusible(at(i), g_) && !alone_(at(i)));
    for (int32_t i = g_.size(); i-- > 0;) start_column(i);
    for (int32_t i = 0; i < g_.size(); ++i)
      if (fusible_[static_cast<size_t>(i)] && group_of(i) < 0) place(i);
    return build();
  }

 private:
  const Node& at(int32_t i) const { return g_.nodes[static_cast<size_t>(i)]; }
  int group_of(int32_t node) const { return group_[static_cast<size_t>(node)]; }
  using Ids = std::initializer_list<int>;
  bool is_member(Ids ids, int32_t node) const {
    return std::find(ids.begin(), ids.end(), group_of(node)) != ids.end();
  }

  void refuse(int32_t producer, int32_t consumer, std::string why) {
    if (!report_) return;
    auto name = [&](int32_t i) { return fmt::format("%{} {}", i, at(i).op->name); };
    report_->refusals.push_back({name(producer), name(consumer), std::move(why), report_->where,
                                 came_from_[static_cast<size_t>(producer)],
                                 came_from_[static_cast<size_t>(consumer)]});
  }

  // A reduction over axes that are not the last ones takes the elementwise nodes that nobody else
  // reads as its prologue.
  void start_column(int32_t i) {
    const Node& n = at(i);
    if (!fusible_[static_cast<size_t>(i)] || !is_reduce(n)) return;
    const Type& operand = g_.type(n.in[0]);
    const Ints& axes = n.get<ReduceAttrs>().axes;
    if (is_suffix(axes, operand.rank())) return;
    const int id = new_group(operand.shape, i);
    groups_[static_cast<size_t>(id)].column = true;
    groups_[static_cast<size_t>(id)].split = runs_in_parts(n, g_, options_);
    groups_[static_cast<size_t>(id)].axes = axes;
    if (!grow_) return;
    std::vector<int32_t> work{n.in[0].node};
    while (!work.empty()) {
      const int32_t p = work.back();
      work.pop_back();
      Group& group = groups_[static_cast<size_t>(id)];
      if (group_of(p) >= 0 || !fusible_[static_cast<size_t>(p)] || joins_only(at(p)) ||
          is_reduce(at(p)) || uses_.is_output(p))
        continue;
      if (!(at(p).type().shape == group.domain) || group.nodes.size() >= schedule_.nodes) continue;
      if (Decision same = both_of_weights(p, i); !same) {
        refuse(p, i, same.why());
        continue;
      }
      const auto users = uses_.users(p);
      if (!std::all_of(users.begin(), users.end(), [&](int32_t u) { return group_of(u) == id; })) {
        refuse(p, i, "its result is read elsewhere too");
        continue;
      }
      add(id, p);
      for (Value v : at(p).in) work.push_back(v.node);
    }
  }

  // Values of weights alone are made once, the others in every run.
  Decision both_of_weights(int32_t a, int32_t b) const {
    if (of_weights_[static_cast<size_t>(a)] == of_weights_[static_cast<size_t>(b)])
      return Decision::yes();
    return Decision::no("one of them is of weights alone, and computed once");
  }

  int new_group(const Shape& domain, int32_t node) {
    groups_.push_back({domain, 0, false, false, {}, {}, {}, false});
    add(static_cast<int>(groups_.size()) - 1, node);
    return static_cast<int>(groups_.size()) - 1;
  }

  void add(int id, int32_t node) {
    group_[static_cast<size_t>(node)] = id;
    auto& nodes = groups_[static_cast<size_t>(id)].nodes;
    nodes.insert(std::upper_bound(nodes.begin(), nodes.end(), node), node);
    add_reads(groups_[static_cast<size_t>(id)], node);
  }

  // Members read each other, so a value that came from outside may be a member's by now.
  void add_reads(Group& group, int32_t node) {
    const int id = group_of(node);
    std::erase_if(group.reads, [&](Value v) { return group_of(v.node) == id; });
    for (Value v : at(node).in) {
      if (group_of(v.node) == id || travels(g_.node(v))) continue;
      const auto place = std::lower_bound(group.reads.begin(), group.reads.end(), v);
      if (place == group.reads.end() || *place != v) group.reads.insert(place, v);
    }
  }

  // Finds the groups of n's operands that n may join, merges them, and adds n; else starts a new
  // group.
  void place(int32_t i) {
    const Node& n = at(i);
    int home = -1;
    for (Value v : n.in) {
      const int id = group_of(v.node);
      if (id < 0 || id == home) continue;
      if (home < 0) {
        if (Decision fits = can_join(id, i))
          home = id;
        else
          refuse(v.node, i, fits.why());
      } else if (Decision fits = can_merge(home, id, i)) {
        merge(home, id);
      } else {
        refuse(v.node, i, fits.why());
      }
    }
    if (home < 0 && joins_only(n)) return;
    if (home < 0)
      home = new_group(is_reduce(n) ? g_.type(n.in[0]).shape : n.type().shape, i);
    else
      add(home, i);
    if (is_reduce(n)) {
      Group& group = groups_[static_cast<size_t>(home)];
      group.inner = n.get<ReduceAttrs>().axes.size();
      group.split = runs_in_parts(n, g_, options_);
      group.axes = n.get<ReduceAttrs>().axes;
    }
  }

  // Whether the parts of a reduction to several results may store values per element: a part of one
  // result is one run of them, of several it is scattered.
  bool stores_elements(const Group& group) const {
    return !group.column && group.form().row_shape(false).elements() == Dim(1);
  }
  // Whether somebody outside the group reads its values per element; node i does not count.
  bool elements_are_read(const Group& group, int32_t i) const {
    for (int32_t p : group.nodes) {
      const auto users = uses_.users(p);
      if (!is_reduce(at(p)) &&
          (uses_.is_output(p) || std::any_of(users.begin(), users.end(), [&](int32_t u) {
             return u != i && group_of(u) != group_of(p);
           })))
        return true;
    }
    return false;
  }

  // What a walk in parts may make besides its reductions.
  Decision fits_parts(int id, int32_t i) const {
    const Group& group = groups_[static_cast<size_t>(id)];
    if (!group.split) return Decision::yes();
    if (is_reduce(at(i))) return Decision::yes();
    if (!(at(i).type().shape == group.domain))
      return Decision::no("the result {} is not of the region's domain {}", at(i).type().shape,
                          group.domain);
    if (!stores_elements(group))
      return Decision::no("a reduction in parts to several results has no other ones");
    return Decision::yes();
  }

  // Whether all that members and node i read of each other may be read in a region of this form. What a member
  // reads of its own group was asked before.
  Decision reads_fit(Ids ids, const RegionForm& form, int32_t i) const {
    const auto fit = [&](int32_t reader) {
      for (Value v : at(reader).in)
        if (is_member(ids, v.node) && (reader == i || group_of(v.node) != group_of(reader)))
          if (Decision fits = may_read(form, at(reader), g_.node(v)); !fits) return fits;
      return Decision::yes();
    };
    if (ids.size() > 1)
      for (int id : ids)
        for (int32_t reader : groups_[static_cast<size_t>(id)].nodes)
          if (Decision fits = fit(reader); !fits) return fits;
    return fit(i);
  }

  Decision can_join(int id, int32_t i) {
    if (!grow_) return Decision::no("fusion is switched off");
    const Group& group = groups_[static_cast<size_t>(id)];
    const Node& n = at(i);
    if (group.column)
      return Decision::no("the producer is a column reduction, which ends its region");
    if (Decision same = both_of_weights(group.nodes[0], i); !same) return same;
    if (Decision ready = fits_parts(id, i); !ready) return ready;
    if (group.nodes.size() >= schedule_.nodes)
      return Decision::no("the region has {} nodes already", group.nodes.size());
    if (operands_with({id}, i) > schedule_.operands)
      return Decision::no("the region would read more than {} tensors", schedule_.operands);
    if (is_reduce(n)) {
      if (!(g_.type(n.in[0]).shape == group.domain))
        return Decision::no("it reduces another shape than the region's domain");
      const size_t inner = n.get<ReduceAttrs>().axes.size();
      if (group.inner && group.inner != inner) return Decision::no("the region reduces other axes");
      if (runs_in_parts(n, g_, options_) && elements_are_read(group, i) &&
          !(n.type().shape.elements() == Dim(1)))
        return Decision::no("the region's values are read elsewhere, too");
    }
    RegionForm form = group.form();
    if (is_reduce(n)) form.inner = n.get<ReduceAttrs>().axes.size();
    if (Decision fits = reads_fit({id}, form, i); !fits) return fits;
    if (Decision direct = no_detour({id}, i); !direct) return direct;
    return Decision::yes();
  }

  Decision can_merge(int a, int b, int32_t i) {
    const Group &x = groups_[static_cast<size_t>(a)], &y = groups_[static_cast<size_t>(b)];
    if (y.column) return Decision::no("the producer is a column reduction, which ends its region");
    if (Decision same = both_of_weights(y.nodes[0], i); !same) return same;
    if (Decision ready = fits_parts(b, i); !ready) return ready;
    if (!(x.domain == y.domain))
      return Decision::no("the domains {} and {} differ", x.domain, y.domain);
    if (x.inner && y.inner && x.inner != y.inner)
      return Decision::no("the regions reduce other axes");
    if (y.split && !(at(i).type().shape == y.domain))
      return Decision::no("a value per row must wait for the reduction in parts");
    if (x.nodes.size() + y.nodes.size() >= schedule_.nodes)
      return Decision::no("the region would have too many nodes");
    if (operands_with({a, b}, i) > schedule_.operands)
      return Decision::no("the region would read more than {} tensors", schedule_.operands);
    const RegionForm form{x.domain, std::max(x.inner, y.inner), x.split || y.split};
    if (Decision fits = reads_fit({a, b}, form, i); !fits) return fits;
    if (Decision direct = no_detour({a, b}, i); !direct) return direct;
    return Decision::yes();
  }

  void merge(int into, int from) {
    Group &x = groups_[static_cast<size_t>(into)], &y = groups_[static_cast<size_t>(from)];
    for (int32_t node : y.nodes) group_[static_cast<size_t>(node)] = into;
    x.nodes.insert(x.nodes.end(), y.nodes.begin(), y.nodes.end());
    std::sort(x.nodes.begin(), x.nodes.end());
    x.reads.insert(x.reads.end(), y.reads.begin(), y.reads.end());
    std::sort(x.reads.begin(), x.reads.end());
    x.reads.erase(std::unique(x.reads.begin(), x.reads.end()), x.reads.end());
    std::erase_if(x.reads, [&](Value v) { return group_of(v.node) == into; });
    if (y.inner) x.inner = y.inner, x.axes = y.axes, x.split = y.split;
    y.merged = true;
    y.nodes.clear();
  }

  // How many tensors the groups and the node read together.
  size_t operands_with(Ids ids, int32_t extra) const {
    std::vector<Value> in;
    auto read = [&](Value v) {
      if (!is_member(ids, v.node) && std::find(in.begin(), in.end(), v) == in.end())
        in.push_back(v);
    };
    for (int id : ids)
      for (Value v : groups_[static_cast<size_t>(id)].reads) read(v);
    for (Value v : at(extra).in)
      if (!travels(g_.node(v))) read(v);
    return in.size();
  }

  // Groups run as a whole, so the set (the groups and node n) may become one only if no path leaves it
  // and comes back; a path through one member of a group goes on from all of its members. Only nodes
  // before n matter: what comes later has no group yet, or one that nothing here reads.
  //
  // Two searches, from what reads the set and from what the set reads, take turns until they meet or one
  // of them has seen all there is.
  Decision no_detour(Ids ids, int32_t n) {
    const auto in_set = [&](int32_t i) { return i == n || is_member(ids, i); };
    const auto detour = [] {
      return Decision::no("a node between them must run outside the region");
    };
    if (known_detour(ids, n)) return detour();
    ++search_;
    seen_.resize(g_.nodes.size() + groups_.size());
    std::vector<int32_t> work[2];  // ahead, back
    int64_t steps[2] = {0, 0};
    // Looks at node i; true when it closes a path.
    const auto look = [&](int32_t i, bool back) {
      ++steps[back];
      if (in_set(i)) return true;
      auto& mine = seen_[unit(i)][back];
      if (mine == search_) return false;
      mine = search_;
      work[back].push_back(i);
      return seen_[unit(i)][!back] == search_;
    };
    bool met = false;
    const auto from_users = [&](int32_t i, bool skip_set) {
      for (int32_t u : uses_.users(i)) {
        if (u > n || steps[0] > kMaxSearch) break;
        met = met || (!(skip_set && in_set(u)) && look(u, false));
      }
    };
    const auto from_operands = [&](int32_t i) {
      for (Value v : at(i).in) met = met || look(v.node, true);
    };
    for (int id : ids)
      for (int32_t i : groups_[static_cast<size_t>(id)].nodes) from_users(i, true);
    for (Value v : at(n).in)
      if (!in_set(v.node)) met = met || look(v.node, true);
    if (ids.size() > 1)  // one group alone reads nothing that depends on it
      for (int id : ids)
        for (Value v : groups_[static_cast<size_t>(id)].reads)
          if (!in_set(v.node)) met = met || look(v.node, true);
    while (!met && !work[0].empty() && !work[1].empty() && steps[0] + steps[1] <= kMaxSearch) {
      const bool back = steps[1] < steps[0];
      const int32_t i = work[back].back();
      work[back].pop_back();
      for (int32_t member : members(i)) back ? from_operands(member) : from_users(member, false);
    }
    if (report_) report_->searched += steps[0] + steps[1];
    if (met) return detour();
    if (steps[0] + steps[1] > kMaxSearch)
      return Decision::no("no answer within {} steps whether a path leads around the region",
                          kMaxSearch);
    return Decision::yes();
  }

  // Whether the paths that were found beforehand show a detour: to an operand of n outside the set.
  bool known_detour(Ids ids, int32_t n) const {
    for (Value v : at(n).in) {
      if (is_member(ids, v.node)) continue;
      for (int id : ids)
        for (int32_t member : groups_[static_cast<size_t>(id)].nodes)
          if (paths_.lead(member, v.node)) return true;
    }
    return false;
  }

  size_t unit(int32_t i) const {
    return group_of(i) < 0 ? static_cast<size_t>(i)
                           : g_.nodes.size() + static_cast<size_t>(group_of(i));
  }
  std::vector<int32_t> members(int32_t i) const {
    return group_of(i) < 0 ? std::vector{i} : groups_[static_cast<size_t>(group_of(i))].nodes;
  }

  // ---- building the fused graph
  // ------------------------------------------------------------------------------------

  // Scalar constants, iota and sizes cost nothing: each region that reads one has its own.
  static bool travels(const Node& n) {
    return is_generated_leaf(n) || (n.op == &op::constant && n.type().shape.empty());
  }

  struct Unit {  // a group or a single node
    std::vector<int32_t> nodes;
    int group = -1;
  };

  Graph build() {
    std::vector<Unit> units;
    std::vector<int32_t> unit_of(g_.nodes.size());
    for (size_t id = 0; id < groups_.size(); ++id)
      if (!groups_[id].merged) units.push_back({groups_[id].nodes, static_cast<int>(id)});
    for (int32_t i = 0; i < g_.size(); ++i)
      if (group_of(i) < 0) units.push_back({{i}, -1});
    for (size_t u = 0; u < units.size(); ++u)
      for (int32_t i : units[u].nodes) unit_of[static_cast<size_t>(i)] = static_cast<int32_t>(u);

    Builder b(g_.name);
    std::vector<Values> map(g_.nodes.size());
    for (int32_t u : ordered(units, unit_of)) emit(b, units[static_cast<size_t>(u)], map);
    Graph out = std::move(b.mutable_graph());
    auto mapped = [&](Value v) {
      return map[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)];
    };
    for (Value v : g_.outputs) out.outputs.push_back(mapped(v));
    for (const Update& x : g_.updates) out.updates.push_back({x.param, mapped(x.value)});
    count(units);
    return out;
  }

  // Units in topological order; among those that are ready, the one whose last node came first.
  std::vector<int32_t> ordered(const std::vector<Unit>& units,
                               const std::vector<int32_t>& unit_of) const {
    std::vector<std::set<int32_t>> needs(units.size());
    std::vector<std::vector<int32_t>> feeds(units.size());
    for (size_t u = 0; u < units.size(); ++u)
      for (int32_t i : units[u].nodes)
        for (Value v : at(i).in)
          if (const int32_t p = unit_of[static_cast<size_t>(v.node)]; p != static_cast<int32_t>(u))
            if (needs[u].insert(p).second)
              feeds[static_cast<size_t>(p)].push_back(static_cast<int32_t>(u));
    std::set<std::pair<int32_t, int32_t>> ready;  // last node, unit
    for (size_t u = 0; u < units.size(); ++u)
      if (needs[u].empty()) ready.insert({units[u].nodes.back(), static_cast<int32_t>(u)});
    std::vector<int32_t> order;
    while (!ready.empty()) {
      const int32_t u = ready.begin()->second;
      ready.erase(ready.begin());
      order.push_back(u);
      for (int32_t f : feeds[static_cast<size_t>(u)]) {
        needs[static_cast<size_t>(f)].erase(u);
        if (needs[static_cast<size_t>(f)].empty())
          ready.insert({units[static_cast<size_t>(f)].nodes.back(), f});
      }
    }
    check(order.size() == units.size(), "fuse_regions made a cycle");
    return order;
  }

  void emit(Builder& b, const Unit& unit, std::vector<Values>& map) const {
    auto mapped = [&](Value v) {
      return map[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)];
    };
    if (unit.group < 0) {
      const Node& n = at(unit.nodes[0]);
      if (is_generated_leaf(n)) {  // dead unless somebody outside regions reads it
        Builder body("region");
        body.output(body.clone(n, {})[0]);
        map[static_cast<size_t>(unit.nodes[0])] = b.emit(
            op::region.def,
            RegionAttrs{
                Body(std::move(body.mutable_graph())), RegionKind::elementwise, n.type().shape, {}},
            {});
        return;
      }
      Values in;
      for (Value v : n.in) in.push_back(mapped(v));
      b.set_origin({});
      map[static_cast<size_t>(unit.nodes[0])] = b.clone(n, in);
      return;
    }
    const Group& group = groups_[static_cast<size_t>(unit.group)];
    Builder body("region");
    std::map<Value, Value> inner;
    Values operands, results;
    std::vector<int32_t> result_nodes;
    for (int32_t i : unit.nodes) {
      const Node& n = at(i);
      Values in;
      for (Value v : n.in) {
        auto [it, fresh] = inner.try_emplace(v, kNone);
        if (fresh) {
          if (const Node& p = g_.node(v); travels(p)) {
            it->second = body.clone(p, {})[0];
          } else {
            it->second = body.input(fmt::format("x{}", operands.size()), g_.type(v));
            operands.push_back(mapped(v));
          }
        }
        in.push_back(it->second);
      }
      body.set_origin({});
      inner[{i, 0}] = body.clone(n, in)[0];
      const auto users = uses_.users(i);
      if (uses_.is_output(i) || std::any_of(users.begin(), users.end(),
                                            [&](int32_t u) { return group_of(u) != unit.group; })) {
        result_nodes.push_back(i);
        results.push_back(inner[{i, 0}]);
      }
    }
    for (Value v : results) body.output(v);
    const RegionKind kind = group.split    ? RegionKind::split
                            : group.column ? RegionKind::column
                            : group.inner  ? RegionKind::row
                                           : RegionKind::elementwise;
    b.set_origin({at(unit.nodes.back()).origin.label, "fuse_regions"});
    Values out =
        b.emit(op::region.def,
               RegionAttrs{Body(std::move(body.mutable_graph())), kind, group.domain, group.axes},
               operands);
    for (size_t k = 0; k < result_nodes.size(); ++k)
      map[static_cast<size_t>(result_nodes[k])] = {out[k]};
    if (!report_) return;
    FusionReport::Group made{report_->where, {}, -1, body_of(b.graph().node(out[0]))};
    for (int32_t i : unit.nodes)
      if (const int32_t from = came_from_[static_cast<size_t>(i)];
          from >= 0 && (made.nodes.empty() || made.nodes.back() != from))
        made.nodes.push_back(from);
    report_->groups.push_back(std::move(made));
  }

  void count(const std::vector<Unit>& units) const {
    if (!report_) return;
    for (const Unit& u : units)
      if (u.group >= 0)
        report_->nodes_before += static_cast<int>(u.nodes.size()), ++report_->regions;
  }

  const Graph& g_;
  Uses uses_;
  TrunkPaths paths_;
  FusionReport* report_;
  const std::vector<int32_t>& came_from_;
  bool grow_;
  NodeFilter alone_;
  const FusionOptions& options_;
  const RegionSchedule& schedule_;
  std::vector<bool> of_weights_;  // per node: computed once
  std::vector<int> group_;
  std::vector<bool> fusible_;
  std::vector<Group> groups_;
  int64_t search_ = 0;
  std::vector<std::array<int64_t, 2>> seen_;  // per node and group: the last searches that met it
};

// Regions are known by their bodies until all that is dead has gone.
void number_groups(std::span<FusionReport::Group> groups, const Graph& g) {
  std::map<const Graph*, int32_t> regions;
  for (int32_t i = 0; i < g.size(); ++i)
    if (g.node(i).op == &op::region) regions.emplace(body_of(g.node(i)), i);
  for (FusionReport::Group& group : groups) {
    const auto found = regions.find(group.body);
    if (found != regions.end()) group.region = found->second;
    group.body = nullptr;
  }
}

// A large reduction over the last axes and others becomes two: over the last ones, which lie
// together, then over the rest. (f16 and bf16 stay whole: they round once.)
//
// How many of the axes, all of them last ones, go first; 0: the reduction stays whole.
size_t axes_to_split(const Node& n, const Graph& g, const FusionOptions& options) {
  if (!is_reduce(n) || !fusible(n, g)) return 0;
  const DType d = n.type().dtype;
  const Type& t = g.type(n.in[0]);
  if (is_narrow(d)) return 0;
  const Ints& axes = n.get<ReduceAttrs>().axes;
  size_t last = 0;
  while (last < axes.size() &&
         axes[axes.size() - 1 - last] == t.rank() - 1 - static_cast<int64_t>(last))
    ++last;
  const bool whole = last == axes.size() || last == 0;
  return !whole && at_most(options.schedule.split_elements, t.shape.elements(), options) ? last : 0;
}

Graph split_reductions(const Graph& g, const FusionOptions& options,
                       std::vector<int32_t>& came_from) {
  Builder b(g.name);
  const auto note = [&](size_t i) {  // of which node the newest ones are
    came_from.resize(static_cast<size_t>(b.graph().size()), static_cast<int32_t>(i));
  };
  std::vector<Values> map(g.nodes.size());
  auto mapped = [&](Value v) {
    return map[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)];
  };
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    Values in;
    for (Value v : n.in) in.push_back(mapped(v));
    b.set_origin({});
    const size_t last = options.alone(n) ? 0 : axes_to_split(n, g, options);
    if (!last) {
      map[i] = b.clone(n, in);
      note(i);
      continue;
    }
    const auto& a = n.get<ReduceAttrs>();
    b.set_origin({n.origin.label, "split_reductions"});
    const Ints inner(a.axes.end() - static_cast<int64_t>(last), a.axes.end()),
        outer(a.axes.begin(), a.axes.end() - static_cast<int64_t>(last));
    const Value partial = b.emit(*n.op, ReduceAttrs{inner, a.keepdims}, in)[0];
    map[i] = b.emit(*n.op, ReduceAttrs{outer, a.keepdims}, std::span(&partial, 1));
    note(i);
  }
  Graph out = std::move(b.mutable_graph());
  for (Value v : g.outputs) out.outputs.push_back(mapped(v));
  for (const Update& u : g.updates) out.updates.push_back({u.param, mapped(u.value)});
  return out;
}

}  // namespace

Decision fusible(const Node& n, const Graph& g) {
  auto real = [](const Type& t) { return !is_complex(t.dtype); };
  for (Value v : n.in)
    if (!real(g.type(v))) return Decision::no("complex values are not generated");
  if (!n.op || n.out.size() != 1 || !real(n.type()))
    return Decision::no("complex values are not generated");
  if (n.op->kind == Kind::elementwise && !n.op->scalar)
    return Decision::no("{} has no scalar form", n.op->name);
  if (joins_only(n) || (makes_regions(*n.op) && !is_generated_leaf(n) && n.op != &op::iota))
    return Decision::yes();
  return Decision::no("{} has a kernel of its own", n.op->name);
}

bool makes_regions(const OpDef& op) {
  return op.scalar || &op == &op::iota || &op == &op::dim_size ||
         (is_region_reduction(op) && &op != &op::reduce_mean);
}

bool cuts_reductions(const Graph& g, const FusionOptions& options) {
  bool cuts = false;
  for (const Node& n : g.nodes)
    if (is_reduce(n) && fusible(n, g))
      cuts = cuts || axes_to_split(n, g, options) > 0 || runs_in_parts(n, g, options);
  return cuts;
}

Graph fuse_regions(const Graph& g, FusionReport* report, const FusionOptions& options) {
  const Graph live = drop_dead(g);  // a region without results is none
  std::vector<int32_t> came_from;
  const Graph split = split_reductions(live, options, came_from);
  if (live.size() != g.size()) came_from.assign(came_from.size(), -1);
  const size_t first = report ? report->groups.size() : 0;
  Graph out = drop_dead(Grower(split, report, options, came_from).run());
  if (report) number_groups(std::span(report->groups).subspan(first), out);
  return out;
}

Graph fuse_program(const Graph& g, FusionReport* report, const FusionOptions& options) {
  Graph out = g;
  const std::string where = report ? report->where : "";
  FusionOptions in_bodies = options;
  in_bodies.weights_apart = false;
  for (size_t i = 0; i < out.nodes.size(); ++i) {
    Node& n = out.nodes[i];
    if (n.op->kind != Kind::control) continue;
    std::shared_ptr<void> copy = n.attrs.copy();
    for (const FieldInfo& f : n.attrs.fields())
      if (f.is<Body>()) {
        auto* body = static_cast<Body*>(f.member(copy.get()));
        if (report)
          report->where = fmt::format("{}{}%{}.{}", where, where.empty() ? "" : "/", i, f.name);
        *body = Body(fuse_program(**body, report, in_bodies));
      }
    n.attrs = Attrs(n.attrs.type(), std::move(copy));
  }
  if (report) report->where = where;
  return fuse_regions(out, report, options);
}

std::string FusionReport::to_string() const {
  std::string out = fmt::format("fusion: {} nodes in {} kernels\n", nodes_before, regions);
  for (const Refusal& r : refusals)
    out += fmt::format("  {} -> {}: {}\n", r.producer, r.consumer, r.why);
  return out;
}

}  // namespace rlx
