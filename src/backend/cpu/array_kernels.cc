// Native kernels: sorting, indexing and running reductions.
#include <cstring>

#include "rlx/backend/cpu/kernel_list.h"
#include "rlx/backend/cpu/kernels/indexing/gather.h"
#include "rlx/backend/cpu/kernels/indexing/index.h"
#include "rlx/backend/cpu/kernels/indexing/scatter.h"
#include "rlx/backend/cpu/kernels/indexing/sort.h"
#include "rlx/backend/cpu/kernels/movement/copy.h"
#include "rlx/backend/cpu/kernels/reduce/axis_kernels.h"
#include "rlx/ops/ops.h"

namespace rlx::cpu {

namespace {

using Views = std::span<const View>;

size_t bytes_of(const View& v) { return static_cast<size_t>(size_of(v.dtype)); }

// ---- gather and scatter -------------------------------------------------------------------------

// Of a dense tensor that is read or written at indices along an axis.
template <class Problem>
Problem index_problem(const View& x, int64_t axis, const View& indices) {
  const auto a = static_cast<size_t>(axis);
  Problem p;
  p.index_dtype = indices.dtype;
  p.outer = product_of(x.dims, 0, a);
  p.axis = x.dims[a];
  p.inner = product_of(x.dims, a + 1, x.dims.size());
  p.count = indices.elements();
  p.set_dense();
  return p;
}

Plan plan_gather(const Node& n, Views in, Views) {
  auto p = index_problem<GatherProblem>(in[0], n.get<AxisAttrs>().axis, in[1]);
  p.element_bytes = bytes_of(in[0]);
  return {.blocks = gather_blocks(p),
          .work = p.outer * p.count * p.inner,
          .run = [p](const StepMemory& m, int64_t begin, int64_t end) {
            gather(p, m.operands[0], m.operands[1], m.operands[2], m.flag, begin, end);
          }};
}

Plan plan_take_along(const Node& n, Views in, Views out) {
  const auto a = static_cast<size_t>(n.get<TakeAttrs>().axis);
  const TakeAlongProblem p{.element_bytes = bytes_of(in[0]),
                           .index_dtype = in[1].dtype,
                           .outer = product_of(in[0].dims, 0, a),
                           .axis = in[0].dims[a],
                           .count = in[1].dims[a],
                           .inner = product_of(in[0].dims, a + 1, in[0].dims.size())};
  return {.blocks = take_along_blocks(p),
          .work = out[0].elements(),
          .run = [p](const StepMemory& m, int64_t begin, int64_t end) {
            take_along(p, m.operands[0], m.operands[1], m.operands[2], m.flag, begin, end);
          }};
}

// Rows are added up and copied several times as fast as elements one by one.
int64_t scatter_work(const ScatterProblem& p) {
  const int64_t elements = p.outer * (p.axis + p.count) * p.inner;
  return p.inner >= 8 ? elements / 8 : elements;
}

Plan plan_scatter_add(const Node& n, Views in, Views out) {
  auto p = index_problem<ScatterProblem>(out[0], n.get<ScatterAttrs>().axis, in[1]);
  p.dtype = out[0].dtype;
  return {.blocks = scatter_blocks(p),
          .work = scatter_work(p),
          .scratch = scatter_scratch_bytes(p),
          .run = [p](const StepMemory& m, int64_t begin, int64_t end) {
            scatter(p, nullptr, m.operands[0], m.operands[1], m.operands[2], m.flag, begin, end,
                    m.scratch);
          }};
}

Plan plan_scatter(const Node& n, Views in, Views out) {
  const auto& a = n.get<ScatterIntoAttrs>();
  static_assert(static_cast<int>(ScatterKind::max) == static_cast<int>(ScatterMode::max));
  auto p = index_problem<ScatterProblem>(out[0], a.axis, in[1]);
  p.kind = static_cast<ScatterKind>(a.mode);
  p.dtype = out[0].dtype;
  return {.blocks = scatter_blocks(p),
          .work = scatter_work(p),
          .scratch = scatter_scratch_bytes(p),
          .in_place = 0,
          .run = [p](const StepMemory& m, int64_t begin, int64_t end) {
            scatter(p, m.operands[0], m.operands[2], m.operands[1], m.operands[3], m.flag, begin,
                    end, m.scratch);
          }};
}

// ---- windows ------------------------------------------------------------------------------------

// Reads where a window begins, each start clamped so that the window fits.
struct WindowStarts {
  DType dtype;
  Ints limits, strides;  // of x
  WindowStarts(const View& x, const Ints& window, DType index) : dtype(index), strides(x.strides) {
    for (size_t i = 0; i < window.size(); ++i) limits.push_back(x.dims[i] - window[i] + 1);
  }
  int64_t start(const void* starts, size_t axis) const {
    return Index(starts, dtype, limits[axis], nullptr)(static_cast<int64_t>(axis));
  }
  // Of the first element, in x, counted from `axis` on.
  int64_t offset(const void* starts, size_t axis) const {
    int64_t sum = 0;
    for (; axis < limits.size(); ++axis) sum += start(starts, axis) * strides[axis];
    return sum;
  }
};

Plan plan_dynamic_slice(const Node&, Views in, Views out) {
  const WindowStarts window(in[0], out[0].dims, in[1].dtype);
  const size_t bytes = bytes_of(in[0]);
  const CopyPlan copy =
      CopyPlan::make(bytes, out[0].dims, in[0].strides, row_major_strides(out[0].dims));
  return {.blocks = copy.blocks(),
          .work = out[0].elements(),
          .run = [=](const StepMemory& m, int64_t begin, int64_t end) {
            const auto* x = static_cast<const std::byte*>(m.operands[0]);
            copy.run(x + static_cast<size_t>(window.offset(m.operands[1], 0)) * bytes,
                     m.operands[2], begin, end);
          }};
}

// The leading axes that the window takes whole are one; then an axis of rows, of which the window
// takes some; each block has a few rows of the result.
Plan plan_dynamic_update_slice(const Node&, Views in, Views out) {
  const Ints &x = out[0].dims, &window = in[1].dims;
  if (x.empty() || out[0].elements() == 0)  // all of it, or nothing
    return {.blocks = out[0].elements(),
            .run = [bytes = bytes_of(in[0])](const StepMemory& m, int64_t, int64_t) {
              std::memcpy(m.operands[3], m.operands[1], bytes);
            }};
  size_t axis = 0;
  while (axis + 1 < x.size() && x[axis] == window[axis]) ++axis;
  const WindowStarts starts(out[0], window, in[2].dtype);
  const int64_t bytes = static_cast<int64_t>(bytes_of(in[0]));
  const Ints x_row(x.begin() + static_cast<int64_t>(axis) + 1, x.end()),
      window_row(window.begin() + static_cast<int64_t>(axis) + 1, window.end());
  const CopyPlan copy = CopyPlan::make(static_cast<size_t>(bytes), window_row,
                                       row_major_strides(window_row), row_major_strides(x_row));
  const int64_t rows = product_of(x, 0, axis + 1), n = x[axis], taken = window[axis];
  const int64_t row_bytes = product(x_row) * bytes, window_bytes = product(window_row) * bytes;
  const int64_t per_block = std::max<int64_t>(1, (64 << 10) / row_bytes);
  return {.blocks = ceil_div(rows, per_block),
          .work = out[0].elements(),
          .in_place = 0,
          .run = [=](const StepMemory& m, int64_t begin, int64_t end) {
            const auto* from = static_cast<const std::byte*>(m.operands[0]);
            const auto* update = static_cast<const std::byte*>(m.operands[1]);
            auto* to = static_cast<std::byte*>(m.operands[3]);
            const int64_t first = begin * per_block, last = std::min(rows, end * per_block);
            if (from != to)
              std::memcpy(to + first * row_bytes, from + first * row_bytes,
                          static_cast<size_t>((last - first) * row_bytes));
            const int64_t start = starts.start(m.operands[2], axis),
                          offset = starts.offset(m.operands[2], axis + 1) * bytes;
            for (int64_t row = first; row < last; ++row) {
              const int64_t i = row % n - start;
              if (i < 0 || i >= taken) continue;
              copy.run(update + (row / n * taken + i) * window_bytes, to + row * row_bytes + offset,
                       0, copy.blocks());
            }
          }};
}

// ---- order --------------------------------------------------------------------------------------

SortProblem sort_problem(const View& x, int64_t axis, bool descending, int64_t k) {
  const auto a = static_cast<size_t>(axis);
  return {.dtype = x.dtype,
          .descending = descending,
          .outer = product_of(x.dims, 0, a),
          .n = x.dims[a],
          .inner = product_of(x.dims, a + 1, x.dims.size()),
          .k = k};
}

// values and indices: where among the operands they are, or -1.
Plan sort_plan(const SortProblem& p, int values, int indices) {
  return {.blocks = sort_blocks(p),
          .work = 16 * p.outer * p.n * p.inner,
          .scratch = sort_scratch_bytes(p),
          .run = [=](const StepMemory& m, int64_t begin, int64_t end) {
            sort(p, m.operands[0], values < 0 ? nullptr : m.operands[values],
                 indices < 0 ? nullptr : m.operands[indices], begin, end, m.scratch, stop_poll(m));
          }};
}

Plan plan_argsort(const Node& n, Views in, Views) {
  const auto& a = n.get<SortAttrs>();
  const int64_t size = in[0].dims[static_cast<size_t>(a.axis)];
  return sort_plan(sort_problem(in[0], a.axis, a.descending, size), -1, 1);
}

Plan plan_sort(const Node& n, Views in, Views) {
  const auto& a = n.get<SortAttrs>();
  const int64_t size = in[0].dims[static_cast<size_t>(a.axis)];
  return sort_plan(sort_problem(in[0], a.axis, a.descending, size), 1, -1);
}

Plan plan_topk(const Node& n, Views in, Views out) {
  const auto& a = n.get<TopkAttrs>();
  SortProblem p = sort_problem(in[0], a.axis, a.largest, a.k);
  p.index_dtype = out[1].dtype;
  return sort_plan(p, 1, 2);
}

Plan plan_searchsorted(const Node& n, Views in, Views out) {
  SearchProblem p;
  p.dtype = in[0].dtype;
  p.right = n.get<SearchAttrs>().right;
  p.one_line = in[0].dims.size() == 1;
  p.n = in[0].dims.back();
  p.m = in[1].dims.empty() ? 1 : in[1].dims.back();
  p.lines = p.m ? out[0].elements() / p.m : 0;
  return {.blocks = search_blocks(p),
          .work = 16 * out[0].elements(),
          .run = [p](const StepMemory& m, int64_t begin, int64_t end) {
            search(p, m.operands[0], m.operands[1], static_cast<int64_t*>(m.operands[2]), begin,
                   end);
          }};
}

// ---- along one axis -----------------------------------------------------------------------------

AxisProblem axis_problem(const View& v, int64_t axis) {
  const auto a = static_cast<size_t>(axis);
  AxisProblem p;
  p.dtype = v.dtype;
  p.outer = product_of(v.dims, 0, a);
  p.n = v.dims[a];
  p.inner = product_of(v.dims, a + 1, v.dims.size());
  p.set_dense();
  return p;
}

template <bool minimum>
Plan plan_argmax(const Node& n, Views in, Views) {
  const auto& a = n.get<ArgmaxAttrs>();
  const AxisProblem p = axis_problem(in[0], a.axis);
  const ArgmaxOptions options{.minimum = minimum, .last = a.select_last};
  return {.blocks = axis_blocks(p),
          .work = in[0].elements(),
          .run = [=](const StepMemory& m, int64_t begin, int64_t end) {
            argmax(p, options, m.operands[0], m.operands[1], begin, end);
          }};
}

// run(problem, options, memory, begin, end)
template <auto run>
Plan plan_scan(const Node& n, Views in, Views) {
  const auto& a = n.get<CumsumAttrs>();
  const AxisProblem p = axis_problem(in[0], a.axis);
  const ScanOptions options{a.exclusive, a.reverse};
  return {.blocks = axis_blocks(p),
          .work = in[0].elements(),
          .in_place = 0,
          .run = [=](const StepMemory& m, int64_t begin, int64_t end) {
            run(p, options, m, begin, end);
          }};
}

template <auto scan>
void fold_line(const AxisProblem& p, ScanOptions options, const StepMemory& m, int64_t begin,
               int64_t end) {
  scan(p, options, m.operands[0], m.operands[1], begin, end);
}
template <bool minimum>
void extremum_line(const AxisProblem& p, ScanOptions options, const StepMemory& m, int64_t begin,
                   int64_t end) {
  cumulative_extremum(p, options, minimum, m.operands[0], m.operands[1],
                      static_cast<int64_t*>(m.operands[2]), begin, end);
}

Plan plan_recurrence(const Node& n, Views in, Views out) {
  Plan plan = plan_scan<[](const AxisProblem& p, ScanOptions options, const StepMemory& m,
                           int64_t begin, int64_t end) {
    linear_recurrence(p, options, m.operands[0], m.operands[1], m.operands[2], begin, end);
  }>(n, in, out);
  plan.in_place = 1;
  return plan;
}

// ---- iota ---------------------------------------------------------------------------------------

// Complex numbers are not generated.
Decision only_complex(const Node& n, const Graph&) {
  return is_complex(n.type().dtype) ? Decision::yes() : Decision::no("generated");
}

Plan plan_iota(const Node& n, Views, Views out) {
  const auto axis = static_cast<size_t>(n.get<IotaAttrs>().axis);
  const int64_t size = out[0].dims[axis],
                inner = product_of(out[0].dims, axis + 1, out[0].dims.size());
  constexpr int64_t kElements = 4096;  // of a block
  const int64_t elements = out[0].elements();
  return {.blocks = ceil_div(elements, kElements),
          .work = elements,
          .run = [=](const StepMemory& m, int64_t begin, int64_t end) {
            auto* to = static_cast<float*>(m.operands[0]);
            for (int64_t i = begin * kElements; i < std::min(elements, end * kElements); ++i) {
              to[2 * i] = static_cast<float>(i / inner % size);
              to[2 * i + 1] = 0;
            }
          }};
}

}  // namespace

std::span<const KernelRow> array_kernels() {
  static const KernelRow rows[] = {
      dense_kernel<plan_gather>(&op::gather),
      dense_kernel<plan_take_along>(&op::take_along_axis),
      dense_kernel<plan_scatter_add>(&op::scatter_add),
      dense_kernel<plan_scatter>(&op::scatter),
      dense_kernel<plan_dynamic_slice>(&op::dynamic_slice),
      dense_kernel<plan_dynamic_update_slice>(&op::dynamic_update_slice),
      dense_kernel<plan_argsort>(&op::argsort),
      dense_kernel<plan_sort>(&op::sort),
      dense_kernel<plan_topk>(&op::topk),
      dense_kernel<plan_searchsorted>(&op::searchsorted),
      dense_kernel<plan_argmax<false>>(&op::argmax),
      dense_kernel<plan_argmax<true>>(&op::argmin),
      dense_kernel<plan_scan<fold_line<cumsum>>>(&op::cumsum),
      dense_kernel<plan_scan<fold_line<cumprod>>>(&op::cumprod),
      dense_kernel<plan_scan<fold_line<cumlogsumexp>>>(&op::cumlogsumexp),
      dense_kernel<plan_recurrence>(&op::linear_recurrence),
      dense_kernel<plan_scan<extremum_line<false>>>(&op::cummax),
      dense_kernel<plan_scan<extremum_line<true>>>(&op::cummin),
      dense_kernel<plan_iota>(&op::iota, only_complex),
  };
  return rows;
}

}  // namespace rlx::cpu
