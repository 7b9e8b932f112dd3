// The verifier of LIR refuses every program that the lowering could have made by mistake: chains
// whose tiles meet, memory shared by buffers that are both needed, results over operands that
// others view. Each is a good program with one thing changed.
#include <gtest/gtest.h>

#include <numeric>

#include "../support/expect_error.h"
#include "../support/gpt_case.h"
#include "../support/lowered.h"

namespace rlx::testing {
namespace {

Buffer& buffer(Program& p, int32_t b) { return p.buffers[static_cast<size_t>(b)]; }
Step& step(Program& p, size_t s) { return p.steps[s]; }

std::string refusal(const Program& p) {
  try {
    verify(p);
    return {};
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::internal);
    return e.what();
  }
}

#define EXPECT_REFUSED(program, part) \
  EXPECT_NE(refusal(program).find(part), std::string::npos) << refusal(program)

// (x * x.sum(axis=1)).sum(axis=1)
Graph columns_by_row_sums(int64_t n) {
  Builder b("columns");
  const Value x = b.input("x", {DType::F32, {n, n}});
  b.output(op::reduce_sum(b, op::mul(b, x, op::reduce_sum(b, x, {{1}})), {{1}}));
  return b.finish();
}

TEST(VerifyLir, TilesThatReadRowsOfOtherTiles) {
  Program p = lower_for_cpu(columns_by_row_sums(100)).program;
  ASSERT_EQ(p.steps.size(), 2u);
  ASSERT_EQ(p.chains.size(), 2u);
  p.chains = {{.begin = 0, .end = 2, .rows = 100, .tile = 64}};
  EXPECT_REFUSED(p, "written by one tile and touched by another");
  p.chains[0].tile = 128;  // one tile: one step after the other
  EXPECT_EQ(refusal(p), "");
}

// A product with an epilogue: a chain.
Graph chained(int64_t rows) {
  Builder b("chained");
  const Value y =
      op::matmul(b, b.input("x", {DType::F32, {rows, 64}}), b.input("w", {DType::F32, {64, 96}}));
  b.output(op::softmax(b, y));
  return b.finish();
}

TEST(VerifyLir, ChainsAreMadeOfWholeBlocks) {
  const Program good = lower_for_cpu(chained(300)).program;
  ASSERT_EQ(good.chains.size(), 1u);
  Program p = good;
  p.chains[0].tile -= 1;
  EXPECT_REFUSED(p, "cannot run in tiles");
  p = good;
  p.chains[0].rows = 200;
  EXPECT_REFUSED(p, "cannot run in tiles");
  p = good;
  p.chains[0].rows = 0;
  EXPECT_REFUSED(p, "a chain without rows");
  p = good;
  p.chains[0].end = 1;
  EXPECT_REFUSED(p, "chains cover 1 of 2 steps");
  p.chains.push_back({.begin = 0, .end = 2});
  EXPECT_REFUSED(p, "a chain covers steps");
}

// Prologue, product and epilogue are one chain, however long the rows are: what blocks touch is
// found exactly.
TEST(VerifyLir, RowsOfAnyLengthAreChained) {
  for (const int64_t columns : {7, 96, 130, 1000, 5000}) {
    Builder b("chain");
    const Value x = b.input("x", {DType::F32, {300, columns}}),
                scale = b.input("scale", {DType::F32, {columns}});
    const Value y = op::matmul(b, op::mul(b, op::softmax(b, x), scale),
                               b.input("w", {DType::F32, {columns, 64}}));
    b.output(op::mul(b, y, op::reduce_max(b, op::abs(b, y), {{1}, true})));
    const Program p = lower_for_cpu(b.finish()).program;
    EXPECT_EQ(p.steps.size(), 3u) << to_string(p);
    EXPECT_EQ(p.chains.size(), 1u) << to_string(p);
  }
}

// A step that reads another operand of the chain whole: rows of other tiles.
TEST(VerifyLir, AWeightThatTheChainWrites) {
  Builder b("weights");
  const Value x = b.input("x", {DType::F32, {256, 256}});
  b.output(op::matmul(b, x, op::tanh(b, b.input("w", {DType::F32, {256, 64}}))));
  Program p = lower_for_cpu(b.finish()).program;
  ASSERT_EQ(p.steps.size(), 2u);
  ASSERT_EQ(p.chains.size(), 2u);
  const int64_t tile =
      std::lcm(step(p, 0).kernel->rows_per_block(), step(p, 1).kernel->rows_per_block());
  ASSERT_LT(tile, 256);
  p.chains = {{.begin = 0, .end = 2, .rows = 256, .tile = tile}};
  EXPECT_REFUSED(p, "written by one tile and touched by another");
}

TEST(VerifyLir, AResultOverAnOperandThatAnotherOperandViews) {
  Builder b("views");
  const Value x = op::cumsum(b, b.input("x", {DType::F32, {70, 70}}), {.axis = 0});
  b.output(op::cumsum(b, op::add(b, x, op::transpose(b, x, {{1, 0}})), {.axis = 0}));
  Program p = lower_for_cpu(b.finish()).program;
  ASSERT_EQ(p.steps.size(), 3u);
  Buffer& out = buffer(p, step(p, 1).out[0].buffer);
  const Buffer& in = buffer(p, step(p, 1).in[0].buffer);
  ASSERT_EQ(out.place, Place::arena);
  ASSERT_EQ(out.shares, -1);
  out.offset = in.offset;
  EXPECT_REFUSED(p, "which its kernel does not allow");
}

TEST(VerifyLir, APartOfABufferThatIsNeverWritten) {
  Builder b("parts");
  const Value x = b.input("x", {DType::F32, {8, 4}}), y = b.input("y", {DType::F32, {8, 3}});
  b.output(op::cumsum(b, op::concat(b, x, y, {.axis = 1}), {.axis = 0}));
  Program p = lower_for_cpu(b.finish()).program;
  ASSERT_EQ(p.steps.size(), 3u);
  p.steps.erase(p.steps.begin());
  p.chains.pop_back();
  EXPECT_REFUSED(p, "bytes are written");
}

TEST(VerifyLir, AStepBeforeWhatItReads) {
  Builder b("order");
  const Value x = b.input("x", {DType::F32, {8, 4}});
  b.output(op::cumsum(b, op::cumsum(b, x, {.axis = 0}), {.axis = 1}));
  Program p = lower_for_cpu(b.finish()).program;
  ASSERT_EQ(p.steps.size(), 2u);
  std::swap(p.steps[0], p.steps[1]);
  EXPECT_REFUSED(p, "before step");
}

// w <- w - x; the output reads the old w.
TEST(VerifyLir, AParameterAfterItsUpdate) {
  Builder b("update");
  const Type type{DType::F32, {64, 64}};
  const Value w = b.param("w", type), x = b.input("x", type);
  const Value product = op::matmul(b, w, x);
  b.update("w", op::sub(b, product, x));
  b.output(op::matmul(b, product, x));
  Program p = lower_for_cpu(b.finish()).program;
  ASSERT_EQ(p.steps.size(), 3u);
  const int32_t old_w = p.param_buffers[0];
  size_t writer = 0;
  while (buffer(p, step(p, writer).out[0].buffer).place != Place::param) ++writer;
  ASSERT_LT(writer, 2u);  // in place
  EXPECT_NE(step(p, writer).out[0].buffer, old_w);
  step(p, 2).in[0].buffer = step(p, writer).out[0].buffer;  // the new value may be read
  EXPECT_EQ(refusal(p), "");
  step(p, 2).in[0].buffer = old_w;
  EXPECT_REFUSED(p, "after step 1 writes its update");
}

TEST(VerifyLir, AViewBeyondItsBuffer) {
  Program p = lower_for_cpu(chained(300)).program;
  step(p, 0).in[0].offset = 1;
  EXPECT_REFUSED(p, "outside of its buffer");
}

// The plan of a training step with any two buffers that are needed at the same time laid over each
// other.
TEST(VerifyLir, EveryPairOfLiveBuffersInOnePlace) {
  const Program good = lower_for_cpu(GptCase().graph).program;
  int tried = 0;
  for (size_t a = 0; a < good.buffers.size(); ++a)
    for (size_t b = 0; b < good.buffers.size(); ++b) {
      const Buffer &x = good.buffers[a], &y = good.buffers[b];
      if (x.place != Place::arena || y.place != Place::arena || !x.bytes || !y.bytes) continue;
      if (x.shares >= 0 || y.shares >= 0) continue;
      // y is written while x is still to be read.
      if (!(x.first >= 0 && x.first < y.first && y.first < x.last)) continue;
      if (++tried % 7) continue;
      Program p = good;
      p.buffers[b].offset = x.offset;
      for (Buffer& other : p.buffers)
        if (other.shares == static_cast<int32_t>(b)) other.offset = x.offset;
      EXPECT_NE(refusal(p), "") << "b" << b << " over b" << a;
    }
  EXPECT_GT(tried, 700);
}

// ---- and lowering asks it

// Three blocks that say they write all of the result: each would write over what another wrote.
class LyingKernel final : public StepKernel {
 public:
  explicit LyingKernel(int64_t stride) : stride_(stride) {}
  std::string name() const override { return "lying"; }
  int64_t blocks() const override { return 3; }
  std::optional<BlockSpan> span(size_t) const override { return BlockSpan{stride_, 0, 3}; }

 private:
  int64_t stride_;
};

class LyingTarget final : public Target {
 public:
  explicit LyingTarget(int64_t stride) : stride_(stride) {}
  std::string_view name() const override { return "lying"; }
  Decision accepts(const Node&, const Graph&) const override { return Decision::yes(); }
  Decision takes_view(const Node&, const Graph&, size_t, const View&) const override {
    return Decision::no("views are not read");
  }
  std::shared_ptr<const StepKernel> make(const Node&, const Graph&, std::span<const View>,
                                         std::span<const View>) override {
    return std::make_shared<LyingKernel>(stride_);
  }
  std::shared_ptr<const StepKernel> make_copy(const View&, const View&) override {
    return std::make_shared<LyingKernel>(stride_);
  }
  void finish() override {}

 private:
  int64_t stride_;
};

TEST(VerifyLir, LoweringRefusesWhatItMade) {
  Builder b("tanh");
  b.output(op::tanh(b, b.input("x", {DType::F32, {12}})));
  const Graph g = b.finish();
  LyingTarget honest(4), lying(2);
  EXPECT_NO_THROW(lower(g, honest));
  try {
    lower(g, lying);
    ADD_FAILURE() << "blocks that write over each other were lowered";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::internal);
    EXPECT_NE(std::string(e.what()).find("written by one tile and touched by another"),
              std::string::npos)
        << e.what();
  }
}

// Kernels that ask for memory while they run.
class HungryKernel final : public StepKernel {
 public:
  std::string name() const override { return "hungry"; }
  int64_t workspace_bytes() const override { return 1000; }
};

class HungryTarget final : public Target {
 public:
  std::string_view name() const override { return "hungry"; }
  Decision accepts(const Node&, const Graph&) const override { return Decision::yes(); }
  Decision takes_view(const Node&, const Graph&, size_t, const View&) const override {
    return Decision::yes();
  }
  std::shared_ptr<const StepKernel> make(const Node&, const Graph&, std::span<const View>,
                                         std::span<const View>) override {
    return std::make_shared<HungryKernel>();
  }
  std::shared_ptr<const StepKernel> make_copy(const View&, const View&) override {
    return std::make_shared<HungryKernel>();
  }
  void finish() override {}
};

TEST(VerifyLir, WorkspacesArePlanned) {
  Builder b("chain");
  Value x = b.input("x", {DType::F32, {12}});
  for (int i = 0; i < 3; ++i) x = op::tanh(b, x);
  b.output(x);
  HungryTarget target;
  const Program p = lower(b.finish(), target);
  ASSERT_EQ(p.steps.size(), 3u);
  for (size_t s = 0; s < p.steps.size(); ++s) {
    ASSERT_GE(p.steps[s].workspace, 0);
    const Buffer& work = p.buffers[static_cast<size_t>(p.steps[s].workspace)];
    EXPECT_EQ(work.place, Place::arena);
    EXPECT_EQ(work.bytes, 1000);
    EXPECT_EQ(work.first, static_cast<int32_t>(s));
    EXPECT_EQ(work.last, static_cast<int32_t>(s));
    for (size_t i = 0; i < operand_count(p.steps[s]); ++i) {
      const Buffer& other = p.buffers[static_cast<size_t>(operand_of(p.steps[s], i).buffer)];
      if (other.place != Place::arena) continue;
      EXPECT_TRUE(other.offset + other.bytes <= work.offset ||
                  work.offset + work.bytes <= other.offset);
    }
  }
  EXPECT_LT(p.arena_bytes, 3 * 1000);  // one after the other
}

}  // namespace
}  // namespace rlx::testing
