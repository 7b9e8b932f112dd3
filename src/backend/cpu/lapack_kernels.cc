// Native kernels: dense linear algebra by LAPACK, one block per matrix.
#include "rlx/backend/cpu/kernel_list.h"
#include "rlx/backend/cpu/kernels/linalg/lapack.h"
#include "rlx/ops/linalg/factor.h"
#include "rlx/ops/linalg/matrix.h"

namespace rlx::cpu {

namespace {

template <class F>
Plan for_matrix_type(DType d, F&& f) {
  if (d == DType::F32) return f.template operator()<float>();
  if (d == DType::F64) return f.template operator()<double>();
  return f.template operator()<std::complex<float>>();
}

// The sizes of a batch of matrices.
struct Matrices {
  int64_t rows, columns, count = 1;
  explicit Matrices(const View& v) : rows(v.dims[v.dims.size() - 2]), columns(v.dims.back()) {
    for (size_t d = 0; d + 2 < v.dims.size(); ++d) count *= v.dims[d];
  }
  int64_t size() const { return rows * columns; }
};

// `count` blocks that each work on one matrix; `flops` is about one matrix.
template <class Run>
Plan per_matrix(int64_t count, size_t scratch, double flops, const Run& run) {
  Plan p;
  p.blocks = count;
  p.scratch = scratch;
  p.flops = flops * static_cast<double>(count);
  p.work = static_cast<int64_t>(p.flops / 4) + 500 * count;
  p.run = [run](const StepMemory& m, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) run(m, i);
  };
  return p;
}

double cube(int64_t n) {
  const auto x = static_cast<double>(n);
  return x * x * x;
}
double flops_of(const Matrices& a, double factor) {
  return factor * static_cast<double>(a.size()) * static_cast<double>(std::min(a.rows, a.columns));
}

template <class T>
T* part(const StepMemory& m, size_t operand, int64_t index, int64_t size) {
  return static_cast<T*>(m.operands[operand]) + index * size;
}

// Of two operands whose batch dims broadcast: which matrix of each makes result number i.
class Pairing {
 public:
  Pairing(Ints batch, const View& left, size_t left_rank, const View& right, size_t right_rank)
      : dims_(std::move(batch)),
        left_(strides(left, left_rank)),
        right_(strides(right, right_rank)) {}
  std::pair<int64_t, int64_t> operator()(int64_t i) const {
    int64_t left = 0, right = 0;
    for (size_t d = dims_.size(); d-- > 0; i /= dims_[d])
      left += i % dims_[d] * left_[d], right += i % dims_[d] * right_[d];
    return {left, right};
  }

 private:
  Ints strides(const View& v, size_t rank) const {
    const size_t own = v.dims.size() - rank, extra = dims_.size() - own;
    Ints out(dims_.size(), 0);
    int64_t stride = 1;
    for (size_t d = own; d-- > 0; stride *= v.dims[d])
      if (v.dims[d] != 1) out[d + extra] = stride;
    return out;
  }
  Ints dims_, left_, right_;
};

Ints batch_dims(const View& v, size_t rank) {
  return Ints(v.dims.begin(), v.dims.end() - static_cast<int64_t>(rank));
}

Plan plan_solve(const Node&, std::span<const View> in, std::span<const View> out) {
  const size_t rank = in[1].dims.size() + 1 == in[0].dims.size() ? 1 : 2;
  const int64_t n = in[0].dims.back(), columns = rank == 1 ? 1 : in[1].dims.back();
  const Pairing pairing(batch_dims(out[0], rank), in[0], 2, in[1], rank);
  int64_t count = 1;
  for (int64_t d : batch_dims(out[0], rank)) count *= d;
  return for_matrix_type(in[0].dtype, [&]<class T>() {
    const SolveJob<T> solve(n, columns);
    const double flops = 2.0 / 3 * cube(n) + 2.0 * static_cast<double>(n * n * columns);
    return per_matrix(count, solve.scratch_bytes(), flops, [=](const StepMemory& m, int64_t i) {
      const auto [a, b] = pairing(i);
      if (!solve(part<T>(m, 0, a, n * n), part<T>(m, 1, b, n * columns),
                 part<T>(m, 2, i, n * columns), m.scratch))
        report(m.flag, RunFault::singular);
    });
  });
}

Plan plan_cholesky(const Node& node, std::span<const View> in, std::span<const View>) {
  const Matrices a(in[0]);
  return for_matrix_type(in[0].dtype, [&]<class T>() {
    const CholeskyJob<T> factor(a.rows, node.get<CholeskyAttrs>().lower);
    return per_matrix(a.count, 0, cube(a.rows) / 3, [=](const StepMemory& m, int64_t i) {
      factor(part<T>(m, 0, i, a.size()), part<T>(m, 1, i, a.size()));
    });
  });
}

Plan plan_triangular(const Node& node, std::span<const View> in, std::span<const View> out) {
  const auto& t = node.get<TriangularAttrs>();
  const Matrices a(in[0]), x(out[0]);
  const Pairing pairing(batch_dims(out[0], 2), in[0], 2, in[1], 2);
  return for_matrix_type(in[0].dtype, [&]<class T>() {
    const TriangularJob<T> solve(x.rows, x.columns,
                                 {t.left, t.lower, t.transpose, t.unit_diagonal});
    const double flops = static_cast<double>(x.size()) * static_cast<double>(a.rows);
    return per_matrix(x.count, 0, flops, [=](const StepMemory& m, int64_t i) {
      const auto [left, right] = pairing(i);
      solve(part<T>(m, 0, left, a.size()), part<T>(m, 1, right, x.size()),
            part<T>(m, 2, i, x.size()));
    });
  });
}

Plan plan_lu(const Node&, std::span<const View> in, std::span<const View> out) {
  const Matrices a(in[0]);
  const int64_t pivots = out[1].dims.back();
  return for_matrix_type(in[0].dtype, [&]<class T>() {
    const LuJob<T> lu(a.rows, a.columns);
    return per_matrix(
        a.count, lu.scratch_bytes(), flops_of(a, 0.7), [=](const StepMemory& m, int64_t i) {
          lu(part<T>(m, 0, i, a.size()), part<T>(m, 1, i, a.size()), part<int32_t>(m, 2, i, pivots),
             part<int32_t>(m, 3, i, a.rows), m.scratch);
        });
  });
}

Plan plan_qr(const Node& node, std::span<const View> in, std::span<const View> out) {
  const Matrices a(in[0]), q(out[0]), r(out[1]);
  return for_matrix_type(in[0].dtype, [&]<class T>() {
    const QrJob<T> job(a.rows, a.columns, node.get<QrAttrs>().complete);
    return per_matrix(a.count, job.scratch_bytes(), flops_of(a, 4),
                      [=](const StepMemory& m, int64_t i) {
                        job(part<T>(m, 0, i, a.size()), part<T>(m, 1, i, q.size()),
                            part<T>(m, 2, i, r.size()), m.scratch);
                      });
  });
}

Plan plan_eigh(const Node&, std::span<const View> in, std::span<const View>) {
  const Matrices a(in[0]);
  return for_matrix_type(in[0].dtype, [&]<class T>() {
    const EighJob<T> job(a.rows);
    return per_matrix(a.count, job.scratch_bytes(), 9 * cube(a.rows),
                      [=](const StepMemory& m, int64_t i) {
                        job(part<T>(m, 0, i, a.size()), part<Real<T>>(m, 1, i, a.rows),
                            part<T>(m, 2, i, a.size()), m.scratch);
                      });
  });
}

template <class T>
Plan eig_plan(const Matrices& a) {
  const EigJob<T> job(a.rows);
  return per_matrix(a.count, job.scratch_bytes(), 25 * cube(a.rows),
                    [=](const StepMemory& m, int64_t i) {
                      job(part<T>(m, 0, i, a.size()), part<std::complex<float>>(m, 1, i, a.rows),
                          part<std::complex<float>>(m, 2, i, a.size()), m.scratch);
                    });
}

Plan plan_eig(const Node&, std::span<const View> in, std::span<const View>) {
  const Matrices a(in[0]);
  return in[0].dtype == DType::F32 ? eig_plan<float>(a) : eig_plan<std::complex<float>>(a);
}

Plan plan_svd(const Node& node, std::span<const View> in, std::span<const View> out) {
  const Matrices a(in[0]), u(out[0]), vh(out[2]);
  const int64_t k = out[1].dims.back();
  return for_matrix_type(in[0].dtype, [&]<class T>() {
    const SvdJob<T> job(a.rows, a.columns, node.get<SvdAttrs>().full_matrices);
    return per_matrix(a.count, job.scratch_bytes(), flops_of(a, 20),
                      [=](const StepMemory& m, int64_t i) {
                        job(part<T>(m, 0, i, a.size()), part<T>(m, 1, i, u.size()),
                            part<Real<T>>(m, 2, i, k), part<T>(m, 3, i, vh.size()), m.scratch);
                      });
  });
}

Plan plan_expm(const Node&, std::span<const View> in, std::span<const View>) {
  const Matrices a(in[0]);
  return for_matrix_type(in[0].dtype, [&]<class T>() {
    const ExpmJob<T> job(a.rows);
    return per_matrix(a.count, job.scratch_bytes(), 20 * cube(a.rows),
                      [=](const StepMemory& m, int64_t i) {
                        job(part<T>(m, 0, i, a.size()), part<T>(m, 1, i, a.size()), m.scratch);
                      });
  });
}

Plan plan_expm_frechet(const Node&, std::span<const View> in, std::span<const View>) {
  const Matrices a(in[0]);
  return for_matrix_type(in[0].dtype, [&]<class T>() {
    const ExpmFrechetJob<T> job(a.rows);
    return per_matrix(a.count, job.scratch_bytes(), 60 * cube(a.rows),
                      [=](const StepMemory& m, int64_t i) {
                        job(part<T>(m, 0, i, a.size()), part<T>(m, 1, i, a.size()),
                            part<T>(m, 2, i, a.size()), m.scratch);
                      });
  });
}

}  // namespace

std::span<const KernelRow> lapack_kernels() {
  static const KernelRow kRows[] = {
      dense_kernel<plan_solve>(&op::dense_solve),
      dense_kernel<plan_cholesky>(&op::cholesky),
      dense_kernel<plan_triangular>(&op::triangular_solve),
      dense_kernel<plan_lu>(&op::lu),
      dense_kernel<plan_qr>(&op::qr),
      dense_kernel<plan_eigh>(&op::eigh),
      dense_kernel<plan_eig>(&op::eig),
      dense_kernel<plan_svd>(&op::svd),
      dense_kernel<plan_expm>(&op::expm),
      dense_kernel<plan_expm_frechet>(&op::expm_frechet),
  };
  return kRows;
}

}  // namespace rlx::cpu
