#include "rlx/codegen/region_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "rlx/codegen/block_access.h"
#include "rlx/codegen/region_access.h"
#include "rlx/codegen/scalar_emitter.h"
#include "rlx/ops/core.h"

namespace rlx::codegen {

namespace {

bool is_reduce(const Node& n) { return n.op->kind == Kind::reduction; }

struct Reduction {
  Combine combine;
  double identity;  // for floats
};
Reduction reduction_of(const Node& n) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  if (n.op == &op::reduce_sum) return {Combine::Add, 0};
  if (n.op == &op::reduce_prod) return {Combine::Mul, 1};
  if (n.op == &op::reduce_max) return {Combine::Max, -inf};
  check(n.op == &op::reduce_min, "no reduction for {}", n.op->name);
  return {Combine::Min, inf};
}

class Lowering {
 public:
  Lowering(const Node& region, std::span<const Layout> in, std::span<const Layout> out,
           const RegionSchedule& schedule, SizeQuestions& questions)
      : schedule_(schedule),
        questions_(questions),
        attrs_(region.get<RegionAttrs>()),
        body_(*attrs_.body),
        domain_(attrs_.domain),
        in_(in),
        out_(out),
        b_(kernel_name()),
        emitter_(b_) {}

  RegionCode run() {
    for (const Layout& v : in_) result_.buffers.push_back(b_.input(v.dtype));
    for (size_t k = 0; k < out_.size(); ++k)
      result_.buffers.push_back(
          b_.output(is_partial(k) ? value_dtype(out_[k].dtype) : out_[k].dtype));
    size_t next = 0;
    for (Value v : body_.inputs()) input_index_[v.node] = next++;
    result_.elements = domain_.elements();
    for (const Node& n : body_.nodes) result_.operations += n.op->kind != Kind::leaf;
    switch (attrs_.kind) {
      case RegionKind::elementwise:
        elementwise();
        break;
      case RegionKind::row:
        row();
        break;
      case RegionKind::column:
        column();
        break;
      case RegionKind::split:
        split();
        break;
    }
    finish(b_, result_);
    for (size_t i = 0; i < in_.size(); ++i) {
      result_.alike.emplace_back();
      for (size_t k = 0; k < out_.size(); ++k)
        result_.alike[i].push_back(in_[i].is_dense() && !is_partial(k) &&
                                   in_[i].elements() == out_[k].elements());
    }
    return std::move(result_);
  }

 private:
  std::string kernel_name() const {
    std::string name(enum_names(attrs_.kind)[static_cast<size_t>(attrs_.kind)]);
    int shown = 0;
    for (const Node& n : body_.nodes)
      if (n.op->kind != Kind::leaf && shown++ < 4) name += "_" + std::string(n.op->name);
    return name;
  }

  const Node& node(Value v) const { return body_.node(v); }
  // Whether the kernel leaves partial results in the place of result k.
  bool is_partial(size_t k) const {
    return attrs_.kind == RegionKind::split && is_reduce(node(body_.outputs[k]));
  }
  bool is_row_value(Value v) const {
    if (attrs_.kind != RegionKind::row) return false;
    const Node& n = node(v);
    if (n.op->kind == Kind::leaf || is_generated_leaf(n)) return false;
    if (is_reduce(n)) return true;
    return !(body_.type(v).shape == attrs_.domain);
  }

  // ---- accesses: strides of operands and results over the domain
  // ------------------------------------------------------

  // Right-aligned to the domain; with `outer`, to the domain without the reduced axes (a value per
  // row without kept axes).
  Shape domain_strides(const Shape& dims, const Shape& strides, bool outer) const {
    Shape s(domain_.size(), Dim(0));
    const size_t rank = outer ? domain_.size() - attrs_.axes.size() : domain_.size();
    for (size_t d = 0; d < dims.size(); ++d)
      if (!(dims[d] == Dim(1))) s[rank - dims.size() + d] = strides[d];
    return s;
  }
  Shape view_strides(const Layout& v, bool outer) const {
    return domain_strides(v.dims, v.strides, outer);
  }
  Shape iota_strides(const Node& n, bool outer) const {
    const auto& a = n.get<IotaAttrs>();
    Shape strides(a.shape.size(), Dim(0));
    strides[static_cast<size_t>(a.axis)] = Dim(1);
    return domain_strides(a.shape, strides, outer);
  }
  // Results of a row region that are values per row, and of a column region, have the strides of
  // what is kept.
  Shape result_strides(size_t k) const {
    const Layout& v = out_[k];
    if (attrs_.kind == RegionKind::column || is_partial(k)) {
      Shape s(domain_.size(), Dim(0));
      const bool keepdims = v.dims.size() == domain_.size();
      size_t d = 0;
      for (size_t axis = 0; axis < domain_.size(); ++axis) {
        const bool reduced = std::find(attrs_.axes.begin(), attrs_.axes.end(),
                                       static_cast<int64_t>(axis)) != attrs_.axes.end();
        if (!reduced) s[axis] = v.strides[d];
        if (!reduced || keepdims) ++d;
      }
      return s;
    }
    const Value value = body_.outputs[k];
    const bool outer = is_row_value(value) && v.dims.size() != domain_.size();
    return view_strides(v, outer);
  }

  // Every stride vector that loads and stores will use; loop dims may only be merged when all of
  // them allow it.
  std::vector<Shape> all_strides() const {
    std::vector<Shape> all;
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      const Node& n = body_.nodes[i];
      const bool input = n.op == &op::input;
      if (!input && n.op != &op::iota) continue;
      const Value v{static_cast<int32_t>(i), 0};
      for (bool outer : {false, true}) {
        if (!used_as(v, outer)) continue;
        all.push_back(input ? view_strides(in_[input_index_.at(v.node)], outer)
                            : iota_strides(n, outer));
      }
    }
    for (size_t k = 0; k < out_.size(); ++k) all.push_back(result_strides(k));
    return all;
  }

  // Whether leaf v is read by values per row without kept axes (outer) or by anything else (not
  // outer).
  bool used_as(Value v, bool outer) const {
    if (!outer && std::find(body_.outputs.begin(), body_.outputs.end(), v) != body_.outputs.end())
      return true;
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      const Node& n = body_.nodes[i];
      if (std::find(n.in.begin(), n.in.end(), v) == n.in.end()) continue;
      if (reads_outer({static_cast<int32_t>(i), 0}) == outer) return true;
    }
    return false;
  }
  bool reads_outer(Value consumer) const {
    return is_row_value(consumer) && !is_reduce(node(consumer)) &&
           body_.type(consumer).rank() != static_cast<int64_t>(domain_.size());
  }

  // ---- values
  // ----------------------------------------------------------------------------------------------------------

  // The value of v where the loops stand; memo_ holds what this scope has computed already.
  ValueId value(Value v, bool outer = false) {
    const auto key = std::pair(v, outer);
    if (auto it = row_memo_.find(key); it != row_memo_.end()) return it->second;
    if (auto it = memo_.find(key); it != memo_.end()) return it->second;
    const ValueId result = compute(v, outer);
    (in_row_scope_ ? row_memo_ : memo_)[key] = result;
    return result;
  }

  ValueId compute(Value v, bool outer) {
    const Node& n = node(v);
    if (n.op == &op::input) {
      const size_t k = input_index_.at(v.node);
      return b_.load(result_.buffers[k], loops_.address(b_, view_strides(in_[k], outer)));
    }
    if (n.op == &op::constant) return emitter_.constant_of(n.get<ConstantAttrs>().value);
    if (n.op == &op::dim_size) {
      const auto& a = n.get<DimSizeAttrs>();
      return emitter_.cast(b_.size_value(b_.size(a.size)), a.dtype);
    }
    if (n.op == &op::iota) {
      const ValueId index = loops_.linear(b_, iota_strides(n, outer));
      return emitter_.cast(index, n.type().dtype);
    }
    if (auto it = staged_.find(v); it != staged_.end() && it->second.pass < pass_)
      return b_.load(it->second.buffer, staged_address(it->second));
    if (n.op == &op::broadcast || n.op == &op::reshape) return value(n.in[0], outer_of(v, n.in[0]));
    std::vector<ValueId> in;
    for (Value operand : n.in) in.push_back(value(operand, outer_of(v, operand)));
    return emitter_.node(n, body_, in);
  }
  bool outer_of(Value consumer, Value operand) const {
    const Node& p = node(operand);
    return (p.op == &op::input || p.op == &op::iota) && reads_outer(consumer);
  }

  // The reduction of a single value: -0 summed is 0.
  ValueId combined(Value v, ValueId x) {
    const Combine c = reduction_of(node(v)).combine;
    return c == Combine::Add ? b_.add(identity(node(v)), x) : x;
  }

  ValueId identity(const Node& n) { return identity(b_, n); }
  static ValueId identity(KernelBuilder& b, const Node& n) {
    const Reduction r = reduction_of(n);
    const DType d = value_dtype(n.type().dtype);
    if (is_float(d) || std::isfinite(r.identity)) return b.constant(d, r.identity);
    return b.integer(d, integer_limit(d, r.identity > 0));
  }

  void store(size_t k, ValueId v) {
    b_.store(result_.buffers[in_.size() + k], loops_.address(b_, result_strides(k)), v);
  }

  // ---- the kinds of regions
  // ---------------------------------------------------------------------------------------------------

  void elementwise() {
    loops_ = LoopNest::make(domain_, all_strides(), all_axes());
    const Dim inner = loops_.last_size();
    if (loops_.rank() == 0) {  // one element
      b_.loop(LoopKind::Block, blocks(1), [&](ValueId) { store_all(); });
      return;
    }
    if (loops_.rank() == 1) {
      const Size n = b_.word(inner);
      b_.loop(LoopKind::Block, blocks(parts_of(inner, schedule_.tile)), [&](ValueId block) {
        b_.loop(LoopKind::Vector, Extent::tail(n, schedule_.tile, block), [&](ValueId i) {
          loops_.bind_tile(block, schedule_.tile, i);
          store_all();
        });
      });
      by_rows(domain_.back(), schedule_.tile);
      return;
    }
    b_.loop(LoopKind::Block, blocks(loops_.outer_size()), [&](ValueId block) {
      loops_.bind_outer(b_, block);
      b_.loop(LoopKind::Vector, Extent(b_.size(inner)), [&](ValueId i) {
        loops_.bind_inner(i);
        store_all();
      });
    });
    by_rows(domain_.back(), inner);
  }

  // A row is `length` elements of the domain; a block is `block` elements.
  void by_rows(const Dim& length, const Amount& block) {
    result_.row = length;
    result_.block = block;
  }

  Ints all_axes() const {
    Ints axes;
    for (size_t i = 0; i < domain_.size(); ++i) axes.push_back(static_cast<int64_t>(i));
    return axes;
  }

  // The number of blocks is a size argument, so that kernels for other sizes of the outermost loop
  // are the same code.
  Extent blocks(const Amount& n) {
    result_.blocks = n;
    return Extent(b_.word(n));
  }

  void store_all() {
    memo_.clear();
    std::vector<ValueId> values;
    for (Value v : body_.outputs) values.push_back(value(v));
    for (size_t k = 0; k < values.size(); ++k) store(k, values[k]);
  }

  // Row regions.
  struct Stage {
    int pass = 0;
    BufferId buffer;
    int result = -1;  // whose memory it is; -1: a scratch row
  };
  int level(Value v) {
    if (auto it = levels_.find(v); it != levels_.end()) return it->second;
    const Node& n = node(v);
    int l = 0;
    for (Value operand : n.in) l = std::max(l, level(operand));
    if (is_reduce(n)) ++l;
    return levels_[v] = l;
  }

  // What recomputing v in another pass costs, in simple operations; loads and values per row are
  // free.
  int cost(Value v) {
    const Node& n = node(v);
    if (n.op->kind == Kind::leaf || is_row_value(v)) return 0;
    if (auto it = costs_.find(v); it != costs_.end()) return it->second;
    int c = emitter_.cost(n);
    for (Value operand : n.in) c += cost(operand);
    return costs_[v] = std::min(c, 1000);
  }

  // Gives v a scratch row, or, where the rows are too long for the stack, the memory of a result
  // that the last pass writes. Rows of one element have no loop and nothing to stage.
  bool stage(Value v) {
    if (staged_.contains(v)) return true;
    const DType d = value_dtype(body_.type(v).dtype);
    if (loops_.inner_sizes().empty() || inner_elements_ == Dim(0)) return false;
    const int64_t row_bytes = staged_bytes_ + size_of(d);  // of an element of the row
    if (questions_.at_most(Dim(row_bytes) * inner_elements_, schedule_.stage_bytes)) {
      staged_bytes_ = row_bytes;
      staged_[v] = {level(v), b_.scratch(d, inner_elements_.static_value().value_or(0))};
      return true;
    }
    for (size_t k = 0; k < out_.size(); ++k) {
      const BufferId buffer = result_.buffers[in_.size() + k];
      const bool last = !is_row_value(body_.outputs[k]) && level(body_.outputs[k]) == last_pass_;
      const bool taken = std::any_of(staged_.begin(), staged_.end(),
                                     [&](auto& s) { return s.second.buffer == buffer; });
      if (!last || taken || out_[k].dtype != d) continue;
      b_.make_readable(buffer);
      staged_[v] = {level(v), buffer, static_cast<int>(k)};
      return true;
    }
    return false;
  }
  Address staged_address(const Stage& s) {
    if (s.result < 0) return {{1, loops_.inner()}};
    return loops_.address(b_, result_strides(static_cast<size_t>(s.result)));
  }
  // Rows whose length is a symbol are as long as they can be where they are staged.
  void size_stages() {
    if (inner_elements_.is_static()) return;
    for (const auto& [v, stage] : staged_)
      if (stage.result < 0) b_.resize_scratch(stage.buffer, schedule_.stage_bytes / staged_bytes_);
  }

  // Marks the values that pass p needs from earlier passes and that are worth keeping. What could not be kept once
  // cannot be later: there is less room then.
  void plan_staging(Value v, int pass, std::set<Value>& seen) {
    const Node& n = node(v);
    if (n.op->kind == Kind::leaf || is_row_value(v) || !seen.insert(v).second) return;
    if (level(v) < pass && cost(v) >= schedule_.stage_cost && stage(v)) return;
    for (Value operand : n.in) plan_staging(operand, pass, seen);
  }

  void row() {
    const size_t outer_rank = domain_.size() - attrs_.axes.size();
    Ints outer_axes, inner_axes;
    for (size_t i = 0; i < domain_.size(); ++i)
      (i < outer_rank ? outer_axes : inner_axes).push_back(static_cast<int64_t>(i));
    loops_ = LoopNest::make(domain_, all_strides(), outer_axes, inner_axes);
    inner_elements_ = loops_.inner_size();
    const Dim rows = loops_.outer_size();
    const int64_t per_block = schedule_.rows_per_block;
    by_rows(inner_elements_, Dim(per_block) * inner_elements_);

    int passes = 1;
    std::vector<std::vector<Value>> reduces(1), outputs(1);  // by pass
    auto at_pass = [&](std::vector<std::vector<Value>>& list, int p) -> std::vector<Value>& {
      passes = std::max(passes, p + 1);
      if (static_cast<int>(list.size()) <= p) list.resize(static_cast<size_t>(p) + 1);
      return list[static_cast<size_t>(p)];
    };
    for (int32_t i = 0; i < body_.size(); ++i)
      if (is_reduce(body_.nodes[static_cast<size_t>(i)]))
        at_pass(reduces, level({i, 0}) - 1).push_back({i, 0});
    for (Value v : body_.outputs)
      if (!is_row_value(v)) at_pass(outputs, level(v)).push_back(v);
    reduces.resize(static_cast<size_t>(passes));
    outputs.resize(static_cast<size_t>(passes));
    last_pass_ = passes - 1;
    for (int p = 1; p < passes; ++p) {
      std::set<Value> seen;
      for (Value v : reduces[static_cast<size_t>(p)]) plan_staging(node(v).in[0], p, seen);
      for (Value v : outputs[static_cast<size_t>(p)]) plan_staging(v, p, seen);
    }
    size_stages();
    auto one_row = [&](ValueId row) {
      loops_.bind_outer(b_, row);
      for (pass_ = 0; pass_ < passes; ++pass_)
        row_pass(reduces[static_cast<size_t>(pass_)], outputs[static_cast<size_t>(pass_)]);
      store_row_values();
    };
    const Extent extent = blocks(parts_of(rows, per_block));
    if (per_block == 1) return b_.loop(LoopKind::Block, extent, one_row);
    const Size count = b_.word(rows);
    b_.loop(LoopKind::Block, extent, [&](ValueId block) {
      b_.loop(LoopKind::Serial, Extent::tail(count, per_block, block), [&](ValueId r) {
        one_row(b_.add(b_.mul(block, b_.integer(DType::I64, per_block)), r));
      });
    });
  }

  void row_pass(const std::vector<Value>& reduces, const std::vector<Value>& outputs) {
    bool stages = false;
    for (const auto& [v, stage] : staged_) stages = stages || stage.pass == pass_;
    if (reduces.empty() && outputs.empty() && !stages) return;
    // Values per row that this pass reads are computed before its loop, where they belong.
    in_row_scope_ = true;
    std::set<Value> done;
    for (Value v : reduces) row_values_below(node(v).in[0], done);
    for (Value v : outputs) row_values_below(v, done);
    std::vector<ValueId> inits;
    for (Value v : reduces) inits.push_back(identity(node(v)));
    in_row_scope_ = false;

    memo_.clear();
    if (loops_.inner_sizes().empty()) return row_of_one(reduces, outputs);
    const ValueId i = b_.begin_loop(LoopKind::Vector, Extent(b_.size(inner_elements_)));
    std::vector<ValueId> carries, values;
    for (size_t k = 0; k < reduces.size(); ++k)
      carries.push_back(b_.carry(reduction_of(node(reduces[k])).combine, inits[k]));
    loops_.bind_inner_flat(b_, i);
    for (Value v : reduces) values.push_back(value(node(v).in[0]));
    std::vector<std::pair<size_t, ValueId>> stores;
    for (size_t k = 0; k < out_.size(); ++k)
      if (std::find(outputs.begin(), outputs.end(), body_.outputs[k]) != outputs.end())
        stores.push_back({k, value(body_.outputs[k])});
    for (auto& [v, stage] : staged_)
      if (stage.pass == pass_) b_.store(stage.buffer, staged_address(stage), value(v));
    for (auto& [k, v] : stores) store(k, v);
    for (size_t k = 0; k < reduces.size(); ++k) b_.update(carries[k], values[k]);
    b_.end_loop();
    loops_.leave_inner();
    memo_.clear();
    for (size_t k = 0; k < reduces.size(); ++k)
      row_memo_[{reduces[k], false}] =
          emitter_.finish(b_.result(carries[k]), node(reduces[k]).type().dtype);
  }

  // The reduced axes have size 1: no loop, and each reduction is its one value.
  void row_of_one(const std::vector<Value>& reduces, const std::vector<Value>& outputs) {
    in_row_scope_ = true;
    for (Value v : reduces) row_memo_[{v, false}] = combined(v, value(node(v).in[0]));
    std::vector<std::pair<size_t, ValueId>> stores;
    for (size_t k = 0; k < out_.size(); ++k)
      if (std::find(outputs.begin(), outputs.end(), body_.outputs[k]) != outputs.end())
        stores.push_back({k, value(body_.outputs[k])});
    for (auto& [k, v] : stores) store(k, v);
    in_row_scope_ = false;
  }

  void row_values_below(Value v, std::set<Value>& done) {
    if (!done.insert(v).second) return;
    const Node& n = node(v);
    if (n.op->kind == Kind::leaf) return;
    if (is_row_value(v)) {
      value(v);
      return;
    }
    if (auto it = staged_.find(v); it != staged_.end() && it->second.pass < pass_) return;
    for (Value operand : n.in) row_values_below(operand, done);
  }

  void store_row_values() {
    in_row_scope_ = true;
    std::vector<std::pair<size_t, ValueId>> stores;
    for (size_t k = 0; k < out_.size(); ++k)
      if (is_row_value(body_.outputs[k])) stores.push_back({k, value(body_.outputs[k])});
    for (auto& [k, v] : stores) store(k, v);
    in_row_scope_ = false;
    row_memo_.clear();
  }

  // The loops of a column or split region: over the axes that are kept, and over those that are
  // reduced.
  LoopNest reduction_loops() const {
    Ints kept;
    for (size_t i = 0; i < domain_.size(); ++i)
      if (std::find(attrs_.axes.begin(), attrs_.axes.end(), static_cast<int64_t>(i)) ==
          attrs_.axes.end())
        kept.push_back(static_cast<int64_t>(i));
    return LoopNest::make(domain_, all_strides(), kept, attrs_.axes);
  }

  // Column regions.
  void column() {
    loops_ = reduction_loops();
    reductions_ = body_.outputs;
    const Dim columns = loops_.last_size();
    const Amount tiles = parts_of(columns, schedule_.columns);
    // One run of columns: its tiles are the blocks. Several: each is a block.
    const bool one = loops_.outer_rank() <= 1;
    b_.loop(LoopKind::Block, blocks(one ? tiles : Amount(loops_.outer_size_but_last())),
            [&](ValueId block) {
              if (one) {
                column_tile(columns, block);
              } else {
                loops_.bind_outer_but_last(b_, block);
                b_.loop(LoopKind::Serial, Extent(b_.size(tiles)),
                        [&](ValueId tile) { column_tile(columns, tile); });
              }
            });
  }

  void column_tile(const Dim& columns, ValueId tile) {
    if (loops_.outer_rank() == 0) return column_totals();  // one result
    const Extent extent = Extent::tail(b_.size(columns), schedule_.columns, tile);
    b_.loop(LoopKind::Vector, extent, [&](ValueId i) {
      loops_.bind_last_tile(tile, schedule_.columns, i);
      column_totals();
    });
  }

  void column_totals() {
    const std::vector<ValueId> totals = reduce_dims(0, loops_.inner_sizes().size(), identities());
    for (size_t k = 0; k < totals.size(); ++k)
      store(k, emitter_.finish(totals[k], node(body_.outputs[k]).type().dtype));
  }

  std::vector<ValueId> identities() {
    std::vector<ValueId> inits;
    for (Value v : reductions_) inits.push_back(identity(node(v)));
    return inits;
  }

  // Loops over the reduced dims [depth, end); gives the combined values. Inside them the results
  // that are values per element are stored.
  std::vector<ValueId> reduce_dims(size_t depth, size_t end, const std::vector<ValueId>& inits) {
    if (depth == end) {
      memo_.clear();
      std::vector<ValueId> values, elements;
      for (Value v : reductions_) {
        const ValueId x = value(node(v).in[0]);
        values.push_back(loops_.inner_sizes().empty() ? combined(v, x) : x);
      }
      for (Value v : body_.outputs) elements.push_back(is_reduce(node(v)) ? ValueId() : value(v));
      for (size_t k = 0; k < elements.size(); ++k)
        if (elements[k]) store(k, elements[k]);
      return values;
    }
    return reduce_loop(LoopKind::Serial, depth, inits,
                       [&] { return reduce_dims(depth + 1, end, inits); });
  }

  // The loop over one reduced dim, or over this block's part of it.
  std::vector<ValueId> reduce_loop(LoopKind kind, size_t dim, const std::vector<ValueId>& inits,
                                   FunctionRef<std::vector<ValueId>()> body) {
    const bool cut = part_.block && part_.dim == dim;
    const ValueId j =
        b_.begin_loop(kind, cut ? Extent::tail(part_.total, b_.size(part_.size), part_.block)
                                : Extent(b_.size(loops_.inner_sizes()[dim])));
    if (cut)
      loops_.bind_inner_tile(dim, part_.block, part_.size, j);
    else
      loops_.bind_inner_dim(dim, j);
    std::vector<ValueId> carries, totals;
    for (size_t k = 0; k < inits.size(); ++k)
      carries.push_back(b_.carry(reduction_of(node(reductions_[k])).combine, inits[k]));
    const std::vector<ValueId> values = body();
    for (size_t k = 0; k < carries.size(); ++k) b_.update(carries[k], values[k]);
    b_.end_loop();
    for (ValueId c : carries) totals.push_back(b_.result(c));
    return totals;
  }

  // Split regions: blocks are parts of the longest reduced dim. What is kept are a few rows, or, where
  // that lies innermost in memory, the columns of a few rows.
  void split() {
    for (size_t k = 0; k < out_.size(); ++k)
      if (is_partial(k)) {
        reductions_.push_back(body_.outputs[k]);
        result_.reductions.push_back(k);
      }
    loops_ = reduction_loops();
    const Shape& dims = loops_.inner_sizes();
    const Dim kept = loops_.outer_size();
    const bool columns =
        loops_.outer_rank() > 0 && attrs_.axes.back() + 1 < static_cast<int64_t>(domain_.size());
    // A block that stores values per element stores one run of them.
    if (reductions_.size() == out_.size())
      for (size_t d = 1; d < dims.size(); ++d)
        if (questions_.less(dims[part_.dim], dims[d])) part_.dim = d;
    const Dim length = dims[part_.dim];
    Dim others = kept;  // elements of the domain for one of the cut dim
    for (size_t d = 0; d < dims.size(); ++d)
      if (d != part_.dim) others = others * dims[d];
    part_.size = part_size(others);
    part_.total = b_.word(length);
    b_.loop(LoopKind::Block, blocks(parts_of(length, part_.size)), [&](ValueId block) {
      part_.block = block;
      const Dim rows = columns ? loops_.outer_size_but_last() : kept;
      if (rows == Dim(1)) return columns ? split_columns({}) : split_row({});
      b_.loop(LoopKind::Serial, Extent(b_.size(rows)),
              [&](ValueId row) { columns ? split_columns(row) : split_row(row); });
    });
    for (Value v : reductions_) result_.partials.push_back(value_dtype(node(v).type().dtype));
    result_.results = kept;
    result_.combine = std::make_shared<RegionCode>(combine_parts(kept, result_.blocks));
  }

  Amount part_size(const Dim& others) const {
    const auto rule = [part = schedule_.part, align = schedule_.part_align](int64_t n) {
      const int64_t size = std::max<int64_t>(1, part / std::max<int64_t>(1, n));  // 0: of nothing
      return size > align ? size - size % align : size;
    };
    if (const auto n = others.static_value()) return rule(*n);
    return Amount::computed(
        [others, rule](const DimBinding& sizes) { return rule(others.bind(sizes).value()); });
  }

  // One row: the last reduced dim is vectorised, the others are loops inside.
  void split_row(ValueId row) {
    if (row) loops_.bind_outer(b_, row);
    const size_t last = loops_.inner_sizes().size() - 1;
    const std::vector<ValueId> inits = identities(),
                               totals = reduce_loop(LoopKind::Vector, last, inits,
                                                    [&] { return reduce_dims(0, last, inits); });
    Address at{{b_.size(loops_.outer_size()), part_.block}};
    if (row) at.push_back({1, row});
    for (size_t k = 0; k < totals.size(); ++k) store_partial(k, at, totals[k]);
  }

  // A row of columns, which are vectorised.
  void split_columns(ValueId row) {
    const Size columns = b_.size(loops_.last_size());
    if (row) loops_.bind_outer_but_last(b_, row);
    b_.loop(LoopKind::Vector, Extent(columns), [&](ValueId i) {
      loops_.bind_last(i);
      const std::vector<ValueId> totals = reduce_dims(0, loops_.inner_sizes().size(), identities());
      Address at{{b_.size(loops_.outer_size()), part_.block}, {1, i}};
      if (row) at.push_back({columns, row});
      for (size_t k = 0; k < totals.size(); ++k) store_partial(k, at, totals[k]);
    });
  }

  void store_partial(size_t k, const Address& at, ValueId v) {
    b_.store(result_.buffers[in_.size() + result_.reductions[k]], at, v);
  }

  // The second step of a split region: each result from its `parts` partial ones.
  RegionCode combine_parts(const Dim& results, const Amount& parts) const {
    RegionCode out;
    RegionBuilder b("combine" + kernel_name().substr(kernel_name().find('_')));
    NodeEmitter emitter(b);
    std::vector<BufferId> from, to;
    for (Value v : reductions_) from.push_back(b.input(value_dtype(node(v).type().dtype)));
    for (Value v : reductions_) to.push_back(b.output(node(v).type().dtype));
    const Size rows = b.word(results), length = b.word(parts);
    out.blocks = results;
    out.operations = 1;
    out.elements = results;
    b.loop(LoopKind::Block, Extent(rows), [&](ValueId r) {
      std::vector<ValueId> inits, carries;
      for (Value v : reductions_) inits.push_back(identity(b, node(v)));
      const ValueId i = b.begin_loop(LoopKind::Vector, Extent(length));
      for (size_t k = 0; k < inits.size(); ++k)
        carries.push_back(b.carry(reduction_of(node(reductions_[k])).combine, inits[k]));
      for (size_t k = 0; k < inits.size(); ++k)
        b.update(carries[k], b.load(from[k], {{1, r}, {b.size(results), i}}));
      b.end_loop();
      for (size_t k = 0; k < inits.size(); ++k)
        b.store(to[k], {{1, r}},
                emitter.finish(b.result(carries[k]), node(reductions_[k]).type().dtype));
    });
    for (const auto& list : {from, to})
      out.buffers.insert(out.buffers.end(), list.begin(), list.end());
    out.alike.assign(from.size(), std::vector<bool>(to.size(), false));
    finish(b, out);
    return out;
  }

  static void finish(RegionBuilder& b, RegionCode& out) {
    out.words = b.words();
    Ints words(out.words.size());
    const size_t sizes = words.size();
    out.kernel = std::make_shared<const Kernel>(b.finish(&words));
    for (size_t i = sizes; i < words.size(); ++i) out.words.emplace_back(words[i]);
  }

  struct Part {  // of one reduced dim, for each block
    size_t dim = 0;
    Amount size;
    Size total;
    ValueId block;
  };

  const RegionSchedule& schedule_;
  SizeQuestions& questions_;
  const RegionAttrs& attrs_;
  const Graph& body_;
  Shape domain_;
  std::span<const Layout> in_, out_;
  RegionBuilder b_;
  NodeEmitter emitter_;
  LoopNest loops_;
  RegionCode result_;
  std::map<int32_t, size_t> input_index_;
  std::map<std::pair<Value, bool>, ValueId> memo_, row_memo_;
  std::map<Value, int> levels_, costs_;
  std::map<Value, Stage> staged_;
  Values reductions_;  // of a column or split region
  Part part_;
  int pass_ = 0, last_pass_ = 0;
  Dim inner_elements_;
  int64_t staged_bytes_ = 0;  // of an element of the row
  bool in_row_scope_ = false;
};

}  // namespace

RegionKernel RegionCode::at(const DimBinding& sizes) const {
  RegionKernel out;
  out.kernel = kernel;
  for (const Amount& word : words) out.sizes.push_back(word.at(sizes));
  out.blocks = blocks.at(sizes);
  out.elements = Amount(elements).at(sizes);
  out.flops = static_cast<double>(out.elements) * static_cast<double>(operations);
  const int64_t length = Amount(row).at(sizes), per_block = block.at(sizes);
  if (length > 0 && per_block > 0 && per_block % length == 0) {
    out.rows = out.elements / length;
    out.rows_per_block = per_block / length;
  }
  const BlockAccess access(*kernel, out.sizes, out.blocks);
  for (BufferId buffer : buffers) out.spans.push_back(access.span(buffer));
  for (size_t i = 0; i < alike.size(); ++i) {
    out.may_share.emplace_back();
    for (size_t k = 0; k < alike[i].size(); ++k)
      out.may_share[i].push_back(alike[i][k] &&
                                 access.may_overwrite(buffers[i], buffers[alike.size() + k]));
  }
  out.reductions = reductions;
  for (DType d : partials)
    out.partials.push_back({d, Shape::of({out.blocks, Amount(results).at(sizes)})});
  if (combine) {
    auto second = std::make_shared<RegionKernel>(combine->at(sizes));
    second->elements *= out.blocks;
    second->flops = static_cast<double>(second->elements);
    out.combine = std::move(second);
  }
  return out;
}

RegionCode lower_region(const Node& region, std::span<const Layout> in, std::span<const Layout> out,
                        const RegionSchedule& schedule, SizeQuestions& questions) {
  const Decision fits = region_fits(region.get<RegionAttrs>());
  check(static_cast<bool>(fits), "region: {}", fits.why());
  return Lowering(region, in, out, schedule, questions).run();
}

RegionKernel lower_region(const Node& region, std::span<const View> in, std::span<const View> out,
                          const RegionSchedule& schedule) {
  std::vector<Layout> from, to;
  for (const View& v : in) from.push_back(Layout::of(v));
  for (const View& v : out) to.push_back(Layout::of(v));
  SizeQuestions none;
  return lower_region(region, from, to, schedule, none).at({});
}

}  // namespace rlx::codegen
