// Compiled kernels against the interpreter: every operation on every dtype, every cast, both vector
// widths, sizes around the vector tail, the example kernels, and independence of how blocks are
// split. Buffers end at an unreadable page, so an access behind the end ends the test program.
#ifdef RLX_CPU
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>

#include "kernel_examples.h"
#include "rlx/backend/cpu/jit.h"
#include "rlx/base/error.h"
#include "rlx/ir/tensor.h"

namespace rlx::cpu {
namespace {

using namespace codegen;
using codegen::KernelOp, codegen::ValueId;  // not the graph's

// ---- Buffers

// Memory that ends where a page without access begins.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : bytes_(bytes) {
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (bytes + page - 1) / page * page + page;
    base_ = static_cast<uint8_t*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + mapped_ - page, page, PROT_NONE);
    data_ = base_ + mapped_ - page - bytes;
  }
  Guarded(Guarded&& o) noexcept
      : base_(o.base_), data_(o.data_), bytes_(o.bytes_), mapped_(o.mapped_) {
    o.base_ = nullptr;
  }
  ~Guarded() {
    if (base_) munmap(base_, mapped_);
  }
  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t *base_, *data_;
  size_t bytes_, mapped_;
};

std::vector<double> special_numbers() {
  return {0.0,        -0.0,       1,        -1,        0.5,  -0.5,  1.5,   2.5,     -2.5, 127,
          128,        -128,       -129,     255,       256,  1e-3,  65504, 7e4,     -7e4, 2e9,
          2147483647, 2147483648, -3e9,     4.3e9,     1e19, -1e19, 1e38,  -1e38,   3e38, 1e-45,
          1e-40,      1e-310,     INFINITY, -INFINITY, NAN,  1e300, 0.1,   3.14159, 31};
}

// Bits of elements: specials, then random bit patterns and random moderate numbers.
void fill(DType dtype, uint8_t* out, size_t count, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> specials = special_numbers();
  for (size_t i = 0; i < count; ++i) {
    int kind = static_cast<int>(random() % 4);
    double v = kind == 0 ? specials[random() % specials.size()]
                         : (static_cast<double>(random() % 20001) - 10000) / 997;
    uint64_t bits = random();
    auto put = [&](auto x) { std::memcpy(&bits, &x, sizeof(x)); };
    if (kind != 1) {
      if (dtype == DType::F32) put(static_cast<float>(v));
      if (dtype == DType::F64) put(v);
      if (const NarrowFloat* f = info(dtype).narrow) put(f->from_double(v));
      if (!is_float(dtype) && std::abs(v) < 1e18) put(static_cast<int64_t>(v));
    } else if (random() % 4 == 0) {
      bits = random() % 2 ? uint64_t{1} << (8 * size_of(dtype) - 1) : ~uint64_t{0};  // MIN and -1
    }
    if (dtype == DType::Bool) bits &= 1;
    std::memcpy(out + i * size_of(dtype), &bits, size_of(dtype));
  }
}

bool is_nan(DType dtype, const uint8_t* p) {
  if (is_complex(dtype)) return is_nan(DType::F32, p);
  return is_float(dtype) && std::isnan(element_value(dtype, p));
}

double as_double(DType dtype, const uint8_t* p) { return element_value(dtype, p); }

// Equal bits (any NaN equals any NaN), or within `tolerance` relative to the larger of 1e-30 and
// the value.
bool agree(DType dtype, const uint8_t* a, const uint8_t* b, double tolerance) {
  if (std::memcmp(a, b, size_of(dtype)) == 0) return true;
  if (!is_float(dtype)) return false;
  if (is_nan(dtype, a) || is_nan(dtype, b)) return is_nan(dtype, a) && is_nan(dtype, b);
  if (tolerance == 0) return false;
  double x = as_double(dtype, a), y = as_double(dtype, b);
  return x == y || std::abs(x - y) <= tolerance * std::max(std::abs(x), 1e-30);
}

std::string show(DType dtype, const uint8_t* p) {
  uint64_t bits = 0;
  std::memcpy(&bits, p, size_of(dtype));
  return is_float(dtype) ? fmt::format("{} ({:#x})", as_double(dtype, p), bits)
                         : fmt::format("{:#x}", bits);
}

// ---- The comparison

std::vector<int> widths() {
  return host_vector_bits() == 512 ? std::vector<int>{256, 512} : std::vector<int>{256};
}

std::vector<KernelFn> compile(CpuJit& jit, const std::vector<Kernel>& kernels) {
  std::vector<const Kernel*> list;
  for (const Kernel& k : kernels) list.push_back(&k);
  return jit.compile(list);
}

struct Problem {
  std::vector<int64_t> elements;  // per buffer parameter
  std::vector<int64_t> sizes;
  int64_t blocks;
  double tolerance = 0;
};

// Runs both on the same input, the compiled one whole and in two parts, and compares all buffers.
void compare(const Kernel& k, KernelFn fn, const Problem& p, const std::string& what) {
  auto buffers = [&] {
    std::vector<Guarded> list;
    for (const BufferDecl& d : k.buffers) {
      if (d.access == Access::Scratch) continue;
      Guarded& g = list.emplace_back(p.elements[list.size()] * size_of(d.dtype));
      if (d.access == Access::Read)
        fill(d.dtype, g.data(), p.elements[list.size() - 1], static_cast<uint32_t>(list.size()));
    }
    return list;
  };
  auto pointers = [](const std::vector<Guarded>& list) {
    std::vector<void*> out;
    for (const Guarded& g : list) out.push_back(g.data());
    return out;
  };
  std::vector<Guarded> want = buffers(), got = buffers(), parts = buffers();
  interpret(k, pointers(want).data(), p.sizes.data(), 0, p.blocks);
  fn(pointers(got).data(), p.sizes.data(), 0, p.blocks);
  int64_t middle = p.blocks / 3;
  fn(pointers(parts).data(), p.sizes.data(), middle, p.blocks);
  fn(pointers(parts).data(), p.sizes.data(), 0, middle);
  for (const BufferDecl& d : k.buffers) {
    if (d.access == Access::Scratch || d.access == Access::Read) continue;
    int step = size_of(d.dtype);
    ASSERT_EQ(std::memcmp(got[d.slot].data(), parts[d.slot].data(), got[d.slot].bytes()), 0)
        << what << ": the result depends on how the blocks are split";
    for (size_t i = 0; i < got[d.slot].bytes(); i += step)
      ASSERT_TRUE(agree(d.dtype, want[d.slot].data() + i, got[d.slot].data() + i, p.tolerance))
          << what << ": buffer " << d.slot << " element " << i / step << ": "
          << show(d.dtype, got[d.slot].data() + i) << ", interpreter "
          << show(d.dtype, want[d.slot].data() + i) << "\n"
          << to_string(k);
  }
}

std::vector<int64_t> sizes_around(int bits, DType dtype) {
  int64_t w = bits / (8 * std::min(size_of(dtype), 8));
  return {0, 1, w - 1, w, w + 1, 2 * w + 3, 9 * w + 5};
}

// Operation on three inputs of `dtype`, applied to each element of [rows, n]; n from sizes[1], or
// `fixed` if not negative. vector: in a vector loop, else one block per element in scalar code.
Kernel map_kernel(KernelOp op, DType dtype, bool vector, int64_t fixed = -1) {
  KernelBuilder b(fmt::format("{}_{}", info(op).name, dtype));
  BufferId in[3];
  for (BufferId& x : in) x = b.input(dtype);
  BufferId out = b.output(info(op).form == OpForm::Compare ? DType::Bool : dtype);
  Size rows = b.size(), n = b.size();
  if (fixed >= 0) n = Size(fixed);
  auto body = [&](Address at) {
    ValueId x[3];
    for (int i = 0; i < 3; ++i) x[i] = b.load(in[i], at);
    if (op == KernelOp::Select) x[0] = b.lt(x[0], x[1]);
    b.store(out, at, b.apply(op, std::span<const ValueId>(x, info(op).arity)));
  };
  b.loop(LoopKind::Block, rows, [&](ValueId r) {
    if (!vector) return body({{1, r}});
    b.loop(LoopKind::Vector, n, [&](ValueId i) { body({{n, r}, {1, i}}); });
  });
  return b.finish();
}

double op_tolerance(KernelOp op, DType dtype) {
  static const KernelOp kMath[] = {KernelOp::Exp, KernelOp::Log, KernelOp::Tanh, KernelOp::Erf,
                                   KernelOp::Sin, KernelOp::Cos, KernelOp::Pow};
  bool math = std::find(std::begin(kMath), std::end(kMath), op) != std::end(kMath);
  return !math ? 0 : dtype == DType::F32 ? 3 * 0x1p-23 : 3 * 0x1p-52;
}

std::vector<KernelOp> arithmetic_ops() {
  std::vector<KernelOp> ops;
  for (int i = 0; i < op_count(); ++i) {
    OpForm form = info(static_cast<KernelOp>(i)).form;
    if (form == OpForm::Arithmetic || form == OpForm::Compare || form == OpForm::Choice)
      ops.push_back(static_cast<KernelOp>(i));
  }
  return ops;
}

constexpr DType kValueTypes[] = {DType::F32, DType::F64, DType::I8,  DType::I16, DType::I32,
                                 DType::I64, DType::U8,  DType::U32, DType::Bool};
constexpr DType kMemoryTypes[] = {
    DType::F32, DType::F16, DType::BF16, DType::F64,  DType::I8,       DType::I16,   DType::I32,
    DType::I64, DType::U8,  DType::U32,  DType::Bool, DType::F8E4M3FN, DType::F8E5M2};

TEST(LlvmEmitter, EveryOperationOnEveryType) {
  int checked = 0;
  for (int bits : widths()) {
    CpuJit jit({.vector_bits = bits});
    for (DType dtype : kValueTypes) {
      std::vector<Kernel> kernels;
      std::vector<KernelOp> ops;
      for (KernelOp op : arithmetic_ops()) {
        if (!info(op).operands.has(dtype)) continue;
        ops.push_back(op);
        kernels.push_back(map_kernel(op, dtype, true));
        kernels.push_back(map_kernel(op, dtype, false));
      }
      std::vector<KernelFn> fns = compile(jit, kernels);
      for (size_t i = 0; i < kernels.size(); ++i) {
        double tolerance = op_tolerance(ops[i / 2], dtype);
        std::string what = fmt::format("{} {} at {} bits", info(ops[i / 2]).name, dtype, bits);
        ++checked;
        if (i % 2) {
          compare(kernels[i], fns[i], {std::vector<int64_t>(4, 500), {500, 0}, 500, tolerance},
                  what + ", scalar");
          continue;
        }
        for (int64_t n : sizes_around(bits, dtype))
          compare(kernels[i], fns[i], {std::vector<int64_t>(4, 3 * n), {3, n}, 3, tolerance},
                  fmt::format("{}, n = {}", what, n));
      }
    }
  }
  EXPECT_GT(checked, 200 * static_cast<int>(widths().size()));
}

TEST(LlvmEmitter, KnownExtents) {
  for (int bits : widths()) {
    CpuJit jit({.vector_bits = bits});
    std::vector<Kernel> kernels;
    std::vector<int64_t> extents;
    for (int64_t n = 0; n <= 70; ++n) extents.push_back(n);
    for (int64_t n : {96, 100, 127, 128, 129, 192, 255, 257, 1000}) extents.push_back(n);
    for (int64_t n : extents) kernels.push_back(map_kernel(KernelOp::Add, DType::F32, true, n));
    std::vector<KernelFn> fns = compile(jit, kernels);
    for (size_t i = 0; i < kernels.size(); ++i)
      compare(kernels[i], fns[i], {std::vector<int64_t>(4, 3 * extents[i]), {3, 0}, 3},
              fmt::format("add, n = {} at {} bits", extents[i], bits));
  }
}

// ---- Casts

Kernel cast_kernel(DType from, DType to, bool vector) {
  KernelBuilder b(fmt::format("{}_to_{}", from, to));
  BufferId in = b.input(from), out = b.output(to);
  Size rows = b.size(), n = b.size();
  b.loop(LoopKind::Block, rows, [&](ValueId r) {
    if (!vector) return b.store(out, {{1, r}}, b.cast(b.load(in, {{1, r}}), to));
    b.loop(LoopKind::Vector, n, [&](ValueId i) {
      b.store(out, {{n, r}, {1, i}}, b.cast(b.load(in, {{n, r}, {1, i}}), to));
    });
  });
  return b.finish();
}

TEST(LlvmEmitter, EveryCast) {
  for (int bits : widths()) {
    CpuJit jit({.vector_bits = bits});
    std::vector<Kernel> kernels;
    for (DType from : kMemoryTypes)
      for (DType to : kMemoryTypes)
        for (bool vector : {true, false}) kernels.push_back(cast_kernel(from, to, vector));
    std::vector<KernelFn> fns = compile(jit, kernels);
    for (size_t i = 0; i < kernels.size(); ++i) {
      std::string what = fmt::format("{} at {} bits", kernels[i].name, bits);
      if (i % 2) {
        compare(kernels[i], fns[i], {{1000, 1000}, {1000, 0}, 1000}, what + ", scalar");
        continue;
      }
      for (int64_t n : {1, 7, 15, 33, 70, 517})
        compare(kernels[i], fns[i], {{3 * n, 3 * n}, {3, n}, 3}, what);
    }
  }
}

// All 2^16 halves to F32 and back.
TEST(LlvmEmitter, HalvesSurviveARoundTrip) {
  for (int bits : widths())
    for (DType half : {DType::F16, DType::BF16}) {
      CpuJit jit({.vector_bits = bits});
      KernelFn fn = compile(jit, {cast_kernel(half, half, true)})[0];
      std::vector<uint16_t> in(65536), out(65536);
      for (int i = 0; i < 65536; ++i) in[i] = static_cast<uint16_t>(i);
      void* buffers[] = {in.data(), out.data()};
      int64_t sizes[] = {1, 65536};
      fn(buffers, sizes, 0, 1);
      for (int i = 0; i < 65536; ++i) {
        bool nan = is_nan(half, reinterpret_cast<uint8_t*>(&in[i]));
        ASSERT_TRUE(nan ? is_nan(half, reinterpret_cast<uint8_t*>(&out[i])) : in[i] == out[i])
            << to_string(half) << " " << i;
      }
    }
}

// All 256 codes to F32 and back, and every F32 of 16 bits to either format, as on the host.
TEST(LlvmEmitter, EightBitFloatsAsOnTheHost) {
  for (int bits : widths())
    for (DType f8 : {DType::F8E4M3FN, DType::F8E5M2}) {
      CpuJit jit({.vector_bits = bits});
      const std::vector<KernelFn> fns =
          compile(jit, {cast_kernel(f8, DType::F32, true), cast_kernel(DType::F32, f8, true)});
      std::vector<uint8_t> codes(256), back(65536);
      for (int i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(i);
      std::vector<float> values(256), floats(65536);
      for (uint32_t i = 0; i < 65536; ++i) floats[i] = std::bit_cast<float>(i << 16 | (i & 1));
      const auto run = [](KernelFn fn, const void* in, void* out, int64_t n) {
        void* buffers[] = {const_cast<void*>(in), out};
        const int64_t sizes[] = {1, n};
        fn(buffers, sizes, 0, 1);
      };
      run(fns[0], codes.data(), values.data(), 256);
      run(fns[1], floats.data(), back.data(), 65536);
      const NarrowFloat& host = *info(f8).narrow;
      for (uint16_t i = 0; i < 256; ++i)
        ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(host.to_float(i)))
            << to_string(f8) << " " << i;
      for (size_t i = 0; i < 65536; ++i)
        ASSERT_EQ(back[i], host.from_float(floats[i])) << to_string(f8) << " of " << floats[i];
    }
}

// ---- Examples

TEST(LlvmEmitter, Examples) {
  using namespace examples;
  struct Case {
    Kernel kernel;
    std::vector<Problem> problems;
  };
  // Sums of numbers up to 1e38 would drown in rounding, so float reductions compare loosely; exact
  // ones follow below.
  std::vector<Case> cases;
  cases.push_back(
      {strided_elementwise(),
       {{{200, 3, 30}, {6, 3, 5, 50, 7}, 6}, {{2000, 5, 700}, {10, 5, 70, 400, 71}, 10}}});
  cases.push_back(
      {column_cumsum(), {{{7 * 300, 7 * 300}, {2, 7, 300}, 2}, {{5, 5}, {1, 5, 1}, 1}}});
  cases.push_back({cumsum(), {{{70, 70}, {7, 10}, 7}, {{0, 0}, {7, 0}, 7}}});
  cases.push_back(
      {argmax(), {{{700, 7}, {7, 100}, 7}, {{7, 7}, {7, 1}, 7}, {{119, 7}, {7, 17}, 7}}});
  cases.push_back({philox(5), {{{2, 60}, {3}, 3}}});
  cases.push_back({philox(64), {{{2, 768}, {3}, 3}}});
  cases.push_back({complex_norm(), {{{99, 99}, {3, 33}, 3}, {{6, 6}, {3, 2}, 3}}});
  cases.push_back({gather_rows(DType::I32), {{{10 * 40, 20, 20 * 40}, {20, 10, 40}, 20}}});
  cases.push_back({gather_rows(DType::U8), {{{10 * 3, 20, 20 * 3}, {20, 10, 3}, 20}}});
  cases.push_back(
      {gather_elements(), {{{10, 200, 200}, {4, 200, 10}, 4}, {{10, 1, 1}, {1, 1, 10}, 1}}});
  for (DType t : {DType::I8, DType::I32, DType::I64, DType::U8, DType::U32}) {
    cases.push_back({row_reductions(t),
                     {{{90, 12}, {3, 30}, 3}, {{3 * 257, 12}, {3, 257}, 3}, {{3, 12}, {3, 1}, 3}}});
    cases.push_back({middle_reductions(t), {{{2 * 5 * 37, 74, 74, 74}, {2, 5, 37, 5 * 37}, 2}}});
  }
  for (int bits : widths()) {
    CpuJit jit({.vector_bits = bits, .compile_threads = 2, .kernels_per_module = 3});
    std::vector<Kernel> kernels;
    for (const Case& c : cases) kernels.push_back(c.kernel);
    std::vector<KernelFn> fns = compile(jit, kernels);
    for (size_t i = 0; i < cases.size(); ++i)
      for (const Problem& p : cases[i].problems)
        compare(cases[i].kernel, fns[i], p,
                fmt::format("{} at {} bits", cases[i].kernel.name, bits));
  }
}

// Float rows on small integers, where every order of summation is exact.
TEST(LlvmEmitter, FloatReductionsOnIntegers) {
  for (int bits : widths()) {
    CpuJit jit({.vector_bits = bits});
    for (DType dtype : {DType::F32, DType::F64}) {
      Kernel k = examples::row_reductions(dtype), columns = examples::column_sum(16);
      std::vector<KernelFn> fns = compile(jit, {k, columns});
      for (int64_t n : {1, 5, 16, 31, 64, 129, 1000}) {
        std::vector<double> x(n), out(4);
        std::vector<float> xf(n), outf(4);
        double sum = 0, top = -1e9, low = 1e9;
        for (int64_t i = 0; i < n; ++i) {
          x[i] = static_cast<double>((i * 37) % 101 - 50);
          xf[i] = static_cast<float>(x[i]);
          sum += x[i], top = std::max(top, x[i]), low = std::min(low, x[i]);
        }
        bool wide = dtype == DType::F64;
        void* buffers[] = {wide ? static_cast<void*>(x.data()) : xf.data(),
                           wide ? static_cast<void*>(out.data()) : outf.data()};
        int64_t sizes[] = {1, n};
        fns[0](buffers, sizes, 0, 1);
        EXPECT_EQ(wide ? out[0] : outf[0], sum);
        EXPECT_EQ(wide ? out[2] : outf[2], top);
        EXPECT_EQ(wide ? out[3] : outf[3], low);
      }
    }
  }
}

TEST(LlvmEmitter, NanReachesEveryReduction) {
  for (int bits : widths()) {
    CpuJit jit({.vector_bits = bits});
    KernelFn fn = compile(jit, {examples::row_reductions(DType::F32)})[0];
    for (int64_t n : {1, 3, 16, 40, 200})
      for (int64_t at = 0; at < n; at += 7) {
        std::vector<float> x(n, 1.0f), out(4);
        x[at] = NAN;
        void* buffers[] = {x.data(), out.data()};
        int64_t sizes[] = {1, n};
        fn(buffers, sizes, 0, 1);
        for (float v : out) ASSERT_TRUE(std::isnan(v)) << "NaN at " << at << " of " << n << " lost";
      }
  }
}

TEST(LlvmEmitter, RowKernelsAgreeWithTheInterpreter) {
  for (int bits : widths()) {
    CpuJit jit({.vector_bits = bits});
    for (int64_t n : {1, 5, 16, 37, 128, 200, 1000}) {
      std::vector<Kernel> kernels{examples::softmax(n), examples::layer_norm(n),
                                  examples::layer_norm(n, DType::BF16)};
      std::vector<KernelFn> fns = compile(jit, kernels);
      constexpr int64_t kRows = 4;
      std::mt19937 random(7);
      std::normal_distribution<float> d;
      std::vector<float> x(kRows * n), gain(n), bias(n), want(kRows * n), got(kRows * n);
      for (auto* v : {&x, &gain, &bias})
        for (float& f : *v) f = d(random);
      int64_t rows = kRows;
      for (int i = 0; i < 2; ++i) {
        std::vector<void*> a{x.data()}, b{x.data()};
        if (i == 1) a.insert(a.end(), {gain.data(), bias.data()}), b = a;
        a.push_back(want.data()), b.push_back(got.data());
        interpret(kernels[i], a.data(), &rows, 0, rows);
        fns[i](b.data(), &rows, 0, rows);
        for (size_t j = 0; j < want.size(); ++j)
          ASSERT_NEAR(got[j], want[j], 2e-5 * (1 + std::abs(want[j])))
              << kernels[i].name << " n = " << n;
      }
      auto halves = [](const std::vector<float>& v) {
        std::vector<uint16_t> h;
        for (float f : v) h.push_back(float_to_bf16(f));
        return h;
      };
      std::vector<uint16_t> hx = halves(x), hg = halves(gain), hb = halves(bias), hw(kRows * n),
                            hh(kRows * n);
      void *a[] = {hx.data(), hg.data(), hb.data(), hw.data()},
           *b[] = {hx.data(), hg.data(), hb.data(), hh.data()};
      interpret(kernels[2], a, &rows, 0, rows);
      fns[2](b, &rows, 0, rows);
      for (size_t j = 0; j < hw.size(); ++j)
        ASSERT_NEAR(bf16_to_float(hh[j]), bf16_to_float(hw[j]),
                    0.01 * (1 + std::abs(bf16_to_float(hw[j]))));
    }
  }
}

// ---- Addresses

// out[i] = in[start + stride * i] with the stride known or an argument, both ways round.
Kernel strided_copy(DType dtype, Size stride, Size start, bool scatter) {
  KernelBuilder b("strided_copy");
  BufferId in = b.input(dtype), out = b.output(dtype);
  Size n = b.size();
  for (int i = 0; i < 2; ++i) b.size();  // stride, start
  b.loop(LoopKind::Block, 1, [&](ValueId) {
    b.loop(LoopKind::Vector, n, [&](ValueId i) {
      Address dense{{1, i}}, strided{{start}, {stride, i}};
      b.store(out, scatter ? strided : dense, b.load(in, scatter ? dense : strided));
    });
  });
  return b.finish();
}

TEST(LlvmEmitter, StridesOfAllKinds) {
  for (int bits : widths()) {
    CpuJit jit({.vector_bits = bits});
    for (DType dtype : {DType::F32, DType::F64, DType::F16, DType::I8, DType::I64, DType::Bool})
      for (int64_t stride : {0, 1, 2, 3, -1, -2})
        for (bool known : {true, false})
          for (bool scatter : {false, true}) {
            if (scatter && stride == 0) continue;
            constexpr int64_t n = 45;
            int64_t start = stride < 0 ? -stride * (n - 1) : 0,
                    extent = std::abs(stride) * (n - 1) + 1;
            Size s = known ? Size(stride) : Size::arg(1), o = known ? Size(start) : Size::arg(2);
            Kernel k = strided_copy(dtype, s, o, scatter);
            KernelFn fn = compile(jit, {k})[0];
            std::vector<int64_t> elements{extent, n};
            if (scatter) std::swap(elements[0], elements[1]);
            compare(
                k, fn, {elements, {n, stride, start}, 1},
                fmt::format("{} stride {} {} {} at {} bits", dtype, stride,
                            known ? "known" : "argument", scatter ? "scatter" : "gather", bits));
          }
  }
}

// An index computed per lane from the loop's own index: in[(i * 7) % n] by integer arithmetic.
TEST(LlvmEmitter, ComputedIndices) {
  KernelBuilder b("computed");
  BufferId in = b.input(DType::F32), out = b.output(DType::F32), index = b.output(DType::I32);
  Size n = b.size();
  b.loop(LoopKind::Block, 1, [&](ValueId) {
    b.loop(LoopKind::Vector, n, [&](ValueId i) {
      ValueId j = b.rem(b.mul(i, b.integer(DType::I64, 7)), b.size_value(n));
      b.store(out, {{1, i}}, b.load(in, {{1, j}}));
      b.store(index, {{1, i}}, b.cast(j, DType::I32));
    });
  });
  Kernel k = b.finish();
  for (int bits : widths()) {
    CpuJit jit({.vector_bits = bits});
    KernelFn fn = compile(jit, {k})[0];
    for (int64_t n : {1, 9, 16, 50, 300})
      compare(k, fn, {{n, n, n}, {n}, 1}, fmt::format("computed, n = {}", n));
  }
}

// In-place: the same memory read and written.
TEST(LlvmEmitter, InPlace) {
  for (int bits : widths()) {
    CpuJit jit({.vector_bits = bits});
    KernelFn fn = compile(jit, {map_kernel(KernelOp::Add, DType::F32, true)})[0];
    std::vector<float> x(1000), y(1000, 2.0f);
    for (int i = 0; i < 1000; ++i) x[i] = static_cast<float>(i);
    void* buffers[] = {x.data(), y.data(), y.data(), x.data()};
    int64_t sizes[] = {1, 1000};
    fn(buffers, sizes, 0, 1);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(x[i], static_cast<float>(i) + 2);
  }
}

// ---- The JIT

TEST(CpuJit, RefusesWidthsItDoesNotHave) {
  for (int bits : {128, 1024, -1}) {
    try {
      CpuJit jit({.vector_bits = bits});
      ADD_FAILURE() << bits << " accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), "vector-bits");
    }
  }
}

TEST(CpuJit, RefusesAKernelThatDoesNotVerify) {
  Kernel k = examples::cumsum();
  k.body.pop_back();
  const Kernel* list[] = {&k};
  EXPECT_THROW(CpuJit().compile(list), Error);
}

TEST(CpuJit, CompilesRepeatedlyAndDumps) {
  std::string folder = ::testing::TempDir() + "rlx_jit_dump_" + std::to_string(getpid());
  {
    CpuJit jit({.dump_directory = folder});
    compile(jit, {examples::cumsum()});
    compile(jit, {examples::cumsum(), examples::argmax()});
    EXPECT_TRUE(jit.compile({}).empty());
  }
  int ir = 0, assembly = 0;
  for (const auto& f : std::filesystem::directory_iterator(folder)) {
    ir += f.path().extension() == ".ll";
    assembly += f.path().extension() == ".s";
  }
  EXPECT_EQ(ir, 2);
  EXPECT_EQ(assembly, 2);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace rlx::cpu

#endif  // RLX_CPU
