// The kernel form: builder, text, hash, verifier, hoisting, and the interpreter against plain C++.
#include "rlx/codegen/kernel.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "kernel_examples.h"
#include "rlx/base/error.h"

namespace rlx::codegen {
namespace {

std::vector<float> random_floats(size_t n, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> d(-2, 2);
  std::vector<float> x(n);
  for (float& v : x) v = d(random);
  return x;
}

void run(const Kernel& k, std::vector<void*> buffers, std::vector<int64_t> sizes, int64_t blocks) {
  interpret(k, buffers.data(), sizes.data(), 0, blocks);
}

// ---- The examples do what they say

TEST(KernelExamples, StridedElementwise) {
  constexpr int A = 2, B = 3, C = 5;
  std::vector<float> x = random_floats(200), y = random_floats(B), out(A * B * C);
  run(examples::strided_elementwise(), {x.data(), y.data(), out.data()}, {A * B, B, C, 50, 7},
      A * B);
  for (int a = 0; a < A; ++a)
    for (int b = 0; b < B; ++b)
      for (int c = 0; c < C; ++c)
        EXPECT_EQ(out[(a * B + b) * C + c], x[a * 50 + b * 7 + c] * y[b] + 1);
}

TEST(KernelExamples, Softmax) {
  constexpr int R = 3, N = 37;
  std::vector<float> x = random_floats(R * N), out(R * N);
  run(examples::softmax(N), {x.data(), out.data()}, {R}, R);
  for (int r = 0; r < R; ++r) {
    double sum = 0;
    for (int i = 0; i < N; ++i) sum += std::exp(double(x[r * N + i]));
    for (int i = 0; i < N; ++i)
      EXPECT_NEAR(out[r * N + i], std::exp(double(x[r * N + i])) / sum, 1e-6);
  }
}

TEST(KernelExamples, LayerNorm) {
  constexpr int R = 2, N = 33;
  std::vector<float> x = random_floats(R * N), gain = random_floats(N, 2),
                     bias = random_floats(N, 3), out(R * N);
  run(examples::layer_norm(N), {x.data(), gain.data(), bias.data(), out.data()}, {R}, R);
  for (int r = 0; r < R; ++r) {
    double mean = 0, variance = 0;
    for (int i = 0; i < N; ++i) mean += x[r * N + i] / double(N);
    for (int i = 0; i < N; ++i) variance += (x[r * N + i] - mean) * (x[r * N + i] - mean) / N;
    for (int i = 0; i < N; ++i) {
      double want = (x[r * N + i] - mean) / std::sqrt(variance + 1e-5) * gain[i] + bias[i];
      EXPECT_NEAR(out[r * N + i], want, 1e-5);
    }
  }
}

TEST(KernelExamples, ColumnSum) {
  constexpr int R = 10, C = 4, kChunk = 4, kBlocks = 3;
  std::vector<float> x(R * C), out(kBlocks * C);
  std::iota(x.begin(), x.end(), 0.0f);
  run(examples::column_sum(kChunk), {x.data(), out.data()}, {kBlocks, R, C}, kBlocks);
  for (int k = 0; k < kBlocks; ++k)
    for (int c = 0; c < C; ++c) {
      float want = 0;
      for (int r = k * kChunk; r < std::min(R, k * kChunk + kChunk); ++r) want += x[r * C + c];
      EXPECT_EQ(out[k * C + c], want);
    }
}

TEST(KernelExamples, MiddleReductions) {
  std::vector<int32_t> x{3, -1, 4, 1, -5, 9, 2, 6}, sum(4), top(4), product(4);  // [2, 2, 2]
  run(examples::middle_reductions(DType::I32), {x.data(), sum.data(), top.data(), product.data()},
      {2, 2, 2, 4}, 2);
  EXPECT_EQ(sum, (std::vector<int32_t>{7, 0, -3, 15}));
  EXPECT_EQ(top, (std::vector<int32_t>{4, 1, 2, 9}));
  EXPECT_EQ(product, (std::vector<int32_t>{12, -1, -10, 54}));
}

TEST(KernelExamples, Argmax) {
  std::vector<float> x{1, 5, 5, 2, NAN, 3, 7, NAN};
  std::vector<int64_t> out(2);
  run(examples::argmax(), {x.data(), out.data()}, {2, 4}, 2);
  EXPECT_EQ(out, (std::vector<int64_t>{1, 0}));
}

TEST(KernelExamples, Cumsum) {
  std::vector<float> x{1, 2, 3, 4, 5, 6}, rows(6), columns(6);
  run(examples::cumsum(), {x.data(), rows.data()}, {2, 3}, 2);
  EXPECT_EQ(rows, (std::vector<float>{1, 3, 6, 4, 9, 15}));
  run(examples::column_cumsum(), {x.data(), columns.data()}, {1, 2, 3}, 1);
  EXPECT_EQ(columns, (std::vector<float>{1, 2, 3, 5, 7, 9}));
}

TEST(KernelExamples, GatherByIndicesFromMemory) {
  std::vector<float> table{0, 1, 10, 11, 20, 21}, out(4);
  std::vector<int64_t> ids{2, 0};
  Kernel k = examples::gather_rows(DType::I64);
  run(k, {table.data(), ids.data(), out.data()}, {2, 3, 2}, 2);
  EXPECT_EQ(out, (std::vector<float>{20, 21, 0, 1}));
  ids = {INT64_MIN, INT64_MAX};
  run(k, {table.data(), ids.data(), out.data()}, {2, 3, 2}, 2);
  EXPECT_EQ(out, (std::vector<float>{0, 1, 20, 21}));
}

TEST(KernelExamples, Philox) {
  std::vector<uint32_t> key{17, 42}, out(2 * 4 * 5);
  run(examples::philox(5), {key.data(), out.data()}, {2}, 2);
  for (uint32_t block = 0; block < 2; ++block)
    for (uint32_t i = 0; i < 5; ++i) {
      PhiloxBlock want = philox4x32({17, 42}, {block, i, 0, 0});
      for (int w = 0; w < 4; ++w) EXPECT_EQ(out[block * 20 + w * 5 + i], want[w]);
    }
}

// ---- Scalar semantics

// One operation on two operands, as the interpreter computes it.
template <class T, class R = T>
R evaluate(KernelOp op, DType dtype, T x, T y) {
  KernelBuilder b("one");
  BufferId in = b.input(dtype);
  DType result = info(op).form == OpForm::Compare ? DType::Bool : dtype;
  BufferId out = b.output(result);
  b.loop(LoopKind::Block, 1, [&](ValueId) {
    ValueId args[] = {b.load(in, {{0}}), b.load(in, {{1}})};
    b.store(out, {}, b.apply(op, std::span<const ValueId>(args, info(op).arity)));
  });
  T data[] = {x, y};
  R answer{};
  run(b.finish(), {data, &answer}, {}, 1);
  return answer;
}

TEST(KernelSemantics, Integers) {
  EXPECT_EQ(evaluate<int32_t>(KernelOp::Div, DType::I32, -7, 2), -3);
  EXPECT_EQ(evaluate<int32_t>(KernelOp::Div, DType::I32, 7, 0), 0);
  EXPECT_EQ(evaluate<int32_t>(KernelOp::Div, DType::I32, INT32_MIN, -1), INT32_MIN);
  EXPECT_EQ(evaluate<int64_t>(KernelOp::Div, DType::I64, INT64_MIN, -1), INT64_MIN);
  EXPECT_EQ(evaluate<int8_t>(KernelOp::Div, DType::I8, -128, -1), -128);
  EXPECT_EQ(evaluate<int32_t>(KernelOp::Rem, DType::I32, -7, 2), -1);
  EXPECT_EQ(evaluate<int32_t>(KernelOp::Rem, DType::I32, 7, 0), 0);
  EXPECT_EQ(evaluate<int64_t>(KernelOp::Rem, DType::I64, INT64_MIN, -1), 0);
  EXPECT_EQ(evaluate<uint32_t>(KernelOp::Div, DType::U32, 0xffffffff, 2), 0x7fffffffu);
  EXPECT_EQ(evaluate<uint32_t>(KernelOp::Div, DType::U32, 7, 0xffffffff), 0u);
  EXPECT_EQ(evaluate<int8_t>(KernelOp::Add, DType::I8, 127, 1), -128);
  EXPECT_EQ(evaluate<int8_t>(KernelOp::Abs, DType::I8, -128, 0), -128);
  EXPECT_EQ(evaluate<int32_t>(KernelOp::Shl, DType::I32, 1, 32), 0);
  EXPECT_EQ(evaluate<int32_t>(KernelOp::Shl, DType::I32, 1, -1), 0);
  EXPECT_EQ(evaluate<int32_t>(KernelOp::Shr, DType::I32, -8, 1), -4);
  EXPECT_EQ(evaluate<int32_t>(KernelOp::Shr, DType::I32, -8, 40), -1);
  EXPECT_EQ(evaluate<uint32_t>(KernelOp::Shr, DType::U32, 0x80000000, 31), 1u);
  EXPECT_EQ(evaluate<uint32_t>(KernelOp::Shr, DType::U32, 0x80000000, 32), 0u);
  EXPECT_EQ(evaluate<uint32_t>(KernelOp::UMulHi, DType::U32, 0xffffffff, 0xffffffff), 0xfffffffeu);
}

TEST(KernelSemantics, Floats) {
  auto max = [](float a, float b) { return evaluate<float>(KernelOp::Max, DType::F32, a, b); };
  auto min = [](float a, float b) { return evaluate<float>(KernelOp::Min, DType::F32, a, b); };
  EXPECT_TRUE(std::isnan(max(NAN, 1)) && std::isnan(max(1, NAN)) && std::isnan(min(NAN, 1)) &&
              std::isnan(min(1, NAN)));
  EXPECT_EQ(max(1, 2), 2);
  EXPECT_EQ(min(1, 2), 1);
  EXPECT_EQ(evaluate<float>(KernelOp::Rint, DType::F32, 2.5f, 0), 2);
  EXPECT_EQ(evaluate<float>(KernelOp::Rem, DType::F32, -7.5f, 2), -1.5f);
  EXPECT_TRUE((evaluate<float, bool>(KernelOp::Ne, DType::F32, NAN, NAN)));
  EXPECT_FALSE((evaluate<float, bool>(KernelOp::Eq, DType::F32, NAN, NAN)));
  EXPECT_FALSE((evaluate<float, bool>(KernelOp::Ge, DType::F32, NAN, 1)));
  EXPECT_EQ(evaluate<float>(KernelOp::CopySign, DType::F32, 3.0f, -0.0f), -3.0f);
  EXPECT_TRUE(std::signbit(evaluate<float>(KernelOp::CopySign, DType::F32, 0.0f, -1.0f)));
}

template <class T, class R>
R convert(DType from, DType to, T x) {
  KernelBuilder b("convert");
  BufferId in = b.input(from), out = b.output(to);
  b.loop(LoopKind::Block, 1, [&](ValueId) { b.store(out, {}, b.cast(b.load(in, {}), to)); });
  R answer{};
  run(b.finish(), {&x, &answer}, {}, 1);
  return answer;
}

TEST(KernelSemantics, Casts) {
  EXPECT_EQ((convert<float, int32_t>(DType::F32, DType::I32, -1.9f)), -1);
  EXPECT_EQ((convert<float, int32_t>(DType::F32, DType::I32, 3e9f)), INT32_MAX);
  EXPECT_EQ((convert<float, int8_t>(DType::F32, DType::I8, -1000.f)), -128);
  EXPECT_EQ((convert<float, uint8_t>(DType::F32, DType::U8, -1.f)), 0);
  EXPECT_EQ((convert<double, uint32_t>(DType::F64, DType::U32, 5e9)), UINT32_MAX);
  EXPECT_EQ((convert<float, int64_t>(DType::F32, DType::I64, NAN)), 0);
  EXPECT_EQ((convert<float, int64_t>(DType::F32, DType::I64, INFINITY)), INT64_MAX);
  EXPECT_EQ((convert<int32_t, int8_t>(DType::I32, DType::I8, 300)), 44);
  EXPECT_EQ((convert<int8_t, uint32_t>(DType::I8, DType::U32, -1)), UINT32_MAX);
  EXPECT_EQ((convert<float, bool>(DType::F32, DType::Bool, NAN)), true);
  EXPECT_EQ((convert<float, bool>(DType::F32, DType::Bool, -0.f)), false);
  EXPECT_EQ((convert<bool, float>(DType::Bool, DType::F32, true)), 1.0f);
  EXPECT_EQ((convert<float, uint16_t>(DType::F32, DType::F16, 1.0f + 0x1p-11f)),
            0x3c00);  // tie to even
  EXPECT_EQ((convert<float, uint16_t>(DType::F32, DType::BF16, 1.0f + 0x3p-8f)), 0x3f82);
  // Rounding twice, by way of F32, would give 0x3c00.
  EXPECT_EQ((convert<double, uint16_t>(DType::F64, DType::F16, 1 + 0x1p-11 + 0x1p-40)), 0x3c01);
}

// ---- Text, hash, hoisting

TEST(KernelText, ShowsEverything) {
  EXPECT_EQ(to_string(examples::column_sum(8)),
            R"(kernel column_sum sizes=3 {
  b0 = read f32
  b1 = write f32
  %0 = const.f32 0
  %1 = loop block n0
    %2 = loop vector n2
      %3 = loop serial min(8, n1 - 8*%1)
        %4 = carry.f32 add %0
        %5 = load.f32 b0[8*n2*%1 + n2*%3 + %2]
        update %4, %5
      end %3
      %8 = result.f32 %4
      store b1[n2*%1 + %2], %8
    end %2
  end %1
}
)");
}

TEST(KernelHash, NameDoesNotCountEverythingElseDoes) {
  Kernel a = examples::softmax(16), same = examples::softmax(16);
  same.name = "other";
  EXPECT_TRUE(same_structure(a, same));
  EXPECT_EQ(structural_hash(a), structural_hash(same));
  std::vector<Kernel> others(7, a);
  others[0] = examples::softmax(17);
  others[1].buffers[0].dtype = DType::F64;
  others[2].sizes = 2;
  for (Instr& in : others[3].body)
    if (in.op == KernelOp::Exp) in.op = KernelOp::Log;
  for (Instr& in : others[4].body)
    if (in.op == KernelOp::Const) in.bits ^= 1;
  for (Instr& in : others[5].body)
    if (in.op == KernelOp::Carry) in.combine = Combine::Min;
  for (Instr& in : others[6].body)
    if (in.op == KernelOp::Load) in.address.back().stride = Size(2);
  for (const Kernel& k : others) {
    EXPECT_FALSE(same_structure(a, k));
    EXPECT_NE(structural_hash(a), structural_hash(k));
  }
}

TEST(KernelHoisting, MovesWhatDoesNotDependOnTheLoop) {
  KernelBuilder b("hoist");
  BufferId x = b.input(DType::F32), y = b.input(DType::F32), out = b.output(DType::F32);
  Size n = b.size();
  b.loop(LoopKind::Block, n, [&](ValueId r) {
    b.loop(LoopKind::Vector, 8, [&](ValueId i) {
      ValueId row = b.exp(b.load(y, {{1, r}}));  // per row
      b.store(out, {{8, r}, {1, i}}, b.mul(b.load(x, {{8, r}, {1, i}}), row));
    });
  });
  Kernel k = b.finish();
  auto position = [&](KernelOp op) {
    for (size_t i = 0; i < k.body.size(); ++i)
      if (k.body[i].op == op) return static_cast<int>(i);
    return -1;
  };
  int vector = -1;
  for (size_t i = 0; i < k.body.size(); ++i)
    if (k.body[i].kind == LoopKind::Vector) vector = static_cast<int>(i);
  EXPECT_LT(position(KernelOp::Exp), vector);
  EXPECT_GT(position(KernelOp::Mul), vector);
  EXPECT_GT(position(KernelOp::Exp), position(KernelOp::Loop));
}

TEST(KernelHoisting, LeavesLoadsThatMayFaultOrChange) {
  KernelBuilder b("stay");
  BufferId x = b.parameter(DType::F32, Access::ReadWrite), y = b.input(DType::F32);
  Size n = b.size(), m = b.size();
  b.loop(LoopKind::Block, n, [&](ValueId r) {
    b.loop(LoopKind::Serial, m, [&](ValueId i) {
      ValueId changing = b.load(x, {{1, r}});  // the loop writes x
      ValueId maybe = b.load(y, {{1, r}});     // m may be 0 and y empty
      b.store(x, {{1, i}}, b.add(changing, maybe));
    });
  });
  Kernel k = b.finish();
  EXPECT_EQ(k.body[2].op, KernelOp::Load);
  EXPECT_EQ(k.body[3].op, KernelOp::Load);
}

TEST(KernelHoisting, LeavesLoadsOfWhatTheLoopWrites) {
  KernelBuilder b("changes");
  BufferId x = b.parameter(DType::F32, Access::ReadWrite), y = b.input(DType::F32);
  Size n = b.size();
  b.loop(LoopKind::Block, n, [&](ValueId r) {
    b.loop(LoopKind::Serial, 8, [&](ValueId) {  // runs, so that what it only reads may leave it
      b.store(x, {{1, r}}, b.add(b.load(x, {{1, r}}), b.load(y, {{1, r}})));
    });
  });
  const Kernel k = b.finish();
  int loop = -1, of_x = -1, of_y = -1;
  for (int i = 0; i < static_cast<int>(k.body.size()); ++i) {
    const Instr& in = k.body[static_cast<size_t>(i)];
    if (in.op == KernelOp::Loop && in.kind == LoopKind::Serial) loop = i;
    if (in.op == KernelOp::Load) (in.buffer == x ? of_x : of_y) = i;
  }
  EXPECT_GT(of_x, loop);
  EXPECT_LT(of_y, loop);
}

// ---- The verifier refuses

std::string refusal(void (*build)(KernelBuilder&)) {
  try {
    KernelBuilder b("bad");
    build(b);
    b.finish();
  } catch (const Error& e) {
    return e.message();
  }
  return "accepted";
}

#define EXPECT_REFUSED(text, ...)                                                     \
  EXPECT_NE(refusal([](KernelBuilder & b) __VA_ARGS__).find(text), std::string::npos) \
      << refusal([](KernelBuilder & b) __VA_ARGS__)

TEST(KernelVerifier, NamesWhatIsWrong) {
  EXPECT_REFUSED("one block loop", { b.constant(DType::F32, 1); });
  EXPECT_REFUSED("outside the block loop", { b.loop(LoopKind::Serial, 3, [](ValueId) {}); });
  EXPECT_REFUSED("vector loop inside a vector loop", {
    b.loop(LoopKind::Block, 1, [&](ValueId) {
      b.loop(LoopKind::Vector, 3, [&](ValueId) { b.loop(LoopKind::Vector, 3, [](ValueId) {}); });
    });
  });
  EXPECT_REFUSED("out of scope", {
    ValueId inner;
    BufferId out = b.output(DType::I64);
    b.loop(LoopKind::Block, 1, [&](ValueId) {
      b.loop(LoopKind::Serial, 3, [&](ValueId i) { inner = i; });
      b.store(out, {}, inner);
    });
  });
  EXPECT_REFUSED("needs a combine operation", {
    b.loop(LoopKind::Block, 1, [&](ValueId) {
      b.begin_loop(LoopKind::Vector, 3);
      ValueId c = b.carry(Combine::None, b.constant(DType::F32, 0));
      b.update(c, c);
      b.end_loop();
    });
  });
  EXPECT_REFUSED("cannot be read inside its loop", {
    b.loop(LoopKind::Block, 1, [&](ValueId) {
      b.begin_loop(LoopKind::Serial, 3);
      ValueId c = b.carry(Combine::Add, b.constant(DType::F32, 0));
      b.update(c, c);
      b.end_loop();
    });
  });
  EXPECT_REFUSED("has 0 updates", {
    b.loop(LoopKind::Block, 1, [&](ValueId) {
      b.begin_loop(LoopKind::Serial, 3);
      b.carry(Combine::Add, b.constant(DType::F32, 0));
      b.end_loop();
    });
  });
  EXPECT_REFUSED("to one address", {
    BufferId out = b.output(DType::F32);
    b.loop(LoopKind::Block, 1, [&](ValueId) {
      b.loop(LoopKind::Vector, 3, [&](ValueId i) { b.store(out, {}, b.cast(i, DType::F32)); });
    });
  });
  EXPECT_REFUSED("store to the read-only", {
    BufferId in = b.input(DType::F32);
    b.loop(LoopKind::Block, 1, [&](ValueId) { b.store(in, {}, b.constant(DType::F32, 0)); });
  });
  EXPECT_REFUSED("store of f64 to f32", {
    BufferId out = b.output(DType::F32);
    b.loop(LoopKind::Block, 1, [&](ValueId) { b.store(out, {}, b.constant(DType::F64, 0)); });
  });
  EXPECT_REFUSED("bytes of scratch", {
    b.scratch(DType::F64, 200000);
    b.loop(LoopKind::Block, 1, [](ValueId) {});
  });
  EXPECT_REFUSED("add of f32 and f64", {
    b.loop(LoopKind::Block, 1,
           [&](ValueId) { b.add(b.constant(DType::F32, 0), b.constant(DType::F64, 0)); });
  });
  EXPECT_REFUSED("exp does not take i32", {
    b.loop(LoopKind::Block, 1, [&](ValueId) { b.exp(b.integer(DType::I32, 0)); });
  });
  EXPECT_REFUSED("still open", { b.begin_loop(LoopKind::Block, 1); });
}

}  // namespace
}  // namespace rlx::codegen
