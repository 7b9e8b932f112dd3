// What blocks touch, from the addresses of kernels: spans, and which results may be written in
// place.
#include "rlx/codegen/block_access.h"

#include <gtest/gtest.h>

#include "rlx/codegen/kernel_builder.h"

namespace rlx::codegen {
namespace {

constexpr DType kF32 = DType::F32;

// out[block, i] = in[address(block, i)].
struct Made {
  Kernel kernel;
  BufferId in, out;
};
template <class F>
Made make(int64_t blocks, int64_t columns, F&& address) {
  KernelBuilder b("made");
  const BufferId in = b.input(kF32), out = b.output(kF32);
  b.loop(LoopKind::Block, blocks, [&](ValueId block) {
    b.loop(LoopKind::Vector, columns, [&](ValueId i) {
      const ValueId x = b.load(in, address(b, block, i));
      b.store(out, {{columns, block}, {1, i}}, x);
    });
  });
  return {b.finish(), in, out};
}

std::optional<BlockSpan> read_by(const Made& m, int64_t blocks) {
  const BlockAccess access(m.kernel, {}, blocks);
  return access.span(m.in);
}

TEST(BlockAccess, ARowOfEachBlock) {
  const Made m = make(70, 12, [](KernelBuilder&, ValueId block, ValueId i) {
    return Address{{12, block}, {1, i}};
  });
  EXPECT_EQ(read_by(m, 70), (BlockSpan{12, 0, 11}));
  const BlockAccess access(m.kernel, {}, 70);
  EXPECT_EQ(access.span(m.out), (BlockSpan{12, 0, 11}));
  EXPECT_TRUE(access.may_overwrite(m.in, m.out));
}

TEST(BlockAccess, ColumnsAndConstantsAreReadByAll) {
  const Made columns =
      make(12, 12, [](KernelBuilder&, ValueId, ValueId i) { return Address{{1, i}}; });
  EXPECT_EQ(read_by(columns, 12), (BlockSpan{0, 0, 11}));
  EXPECT_FALSE(BlockAccess(columns.kernel, {}, 12).may_overwrite(columns.in, columns.out));
  const Made one = make(12, 12, [](KernelBuilder&, ValueId, ValueId) { return Address{}; });
  EXPECT_EQ(read_by(one, 12), (BlockSpan{0, 0, 0}));
  EXPECT_FALSE(BlockAccess(one.kernel, {}, 12).may_overwrite(one.in, one.out));
}

TEST(BlockAccess, UnflattenedIndices) {
  const Size dims[] = {5, 7};
  // A dense operand: the quotients cancel.
  const Made dense = make(35, 6, [&](KernelBuilder& b, ValueId block, ValueId i) {
    const auto at = b.unflatten(block, dims);
    return Address{{42, at[0]}, {6, at[1]}, {1, i}};
  });
  EXPECT_EQ(read_by(dense, 35), (BlockSpan{6, 0, 5}));
  EXPECT_TRUE(BlockAccess(dense.kernel, {}, 35).may_overwrite(dense.in, dense.out));
  // Transposed: any row.
  const Made turned = make(35, 6, [&](KernelBuilder& b, ValueId block, ValueId i) {
    const auto at = b.unflatten(block, dims);
    return Address{{6, at[0]}, {30, at[1]}, {1, i}};
  });
  EXPECT_EQ(read_by(turned, 35), (BlockSpan{0, 0, 209}));
  EXPECT_FALSE(BlockAccess(turned.kernel, {}, 35).may_overwrite(turned.in, turned.out));
  // Inside a row: repeated over its first dim, so a third of the elements.
  const Size inner[] = {3, 4};
  const Made repeated = make(35, 12, [&](KernelBuilder& b, ValueId block, ValueId i) {
    return Address{{4, block}, {1, b.unflatten(i, inner)[1]}};
  });
  EXPECT_EQ(read_by(repeated, 35), (BlockSpan{4, 0, 3}));
  EXPECT_FALSE(BlockAccess(repeated.kernel, {}, 35).may_overwrite(repeated.in, repeated.out));
}

TEST(BlockAccess, TilesEndWhereTheTotalEnds) {
  KernelBuilder b("tiles");
  const BufferId in = b.input(kF32), out = b.output(kF32);
  const int64_t columns = 100;
  b.loop(LoopKind::Block, Extent(Size::arg(b.size().argument)), [&](ValueId block) {
    const ValueId zero = b.constant(kF32, 0);
    const ValueId sum = b.reduce(LoopKind::Serial, 2, Combine::Add, zero, [&](ValueId chunk) {
      return b.reduce(
          LoopKind::Vector, Extent::tail(columns, 64, chunk), Combine::Add, zero,
          [&](ValueId i) { return b.load(in, {{columns, block}, {64, chunk}, {1, i}}); });
    });
    b.store(out, {{1, block}}, sum);
  });
  const Kernel kernel = b.finish();
  const int64_t sizes[] = {9};
  const BlockAccess access(kernel, sizes, 9);
  EXPECT_EQ(access.span(in), (BlockSpan{100, 0, 99}));
  EXPECT_EQ(access.span(out), (BlockSpan{1, 0, 0}));
}

TEST(BlockAccess, AnIndexFromMemoryMayBeAnything) {
  KernelBuilder b("gather");
  const BufferId in = b.input(kF32), index = b.input(DType::I64), out = b.output(kF32);
  b.loop(LoopKind::Block, 8, [&](ValueId block) {
    b.store(out, {{1, block}}, b.load(in, {{1, b.load(index, {{1, block}})}}));
  });
  const Kernel kernel = b.finish();
  const BlockAccess access(kernel, {}, 8);
  EXPECT_EQ(access.span(in), std::nullopt);
  EXPECT_EQ(access.span(index), (BlockSpan{1, 0, 0}));
  EXPECT_FALSE(access.may_overwrite(in, out));
}

TEST(BlockAccess, ReadAfterTheWrite) {
  auto row_kernel = [](auto&& body) {
    KernelBuilder b("row");
    const BufferId in = b.input(kF32), out = b.output(kF32);
    b.loop(LoopKind::Block, 8, [&](ValueId block) { body(b, in, out, block); });
    const Kernel kernel = b.finish();
    return BlockAccess(kernel, {}, 8).may_overwrite(in, out);
  };
  auto copy = [](KernelBuilder& b, BufferId in, BufferId out, ValueId block, int64_t shift) {
    b.loop(LoopKind::Vector, 16, [&](ValueId i) {
      b.store(out, {{16, block}, {1, i}}, b.load(in, {{16, block}, {1, i}, {shift}}));
    });
  };
  auto sum = [](KernelBuilder& b, BufferId in, ValueId block) {
    return b.reduce(LoopKind::Vector, 16, Combine::Add, b.constant(kF32, 0),
                    [&](ValueId i) { return b.load(in, {{16, block}, {1, i}}); });
  };
  // One pass, a sum before it, a sum after it.
  EXPECT_TRUE(row_kernel(
      [&](auto& b, BufferId in, BufferId out, ValueId block) { copy(b, in, out, block, 0); }));
  EXPECT_TRUE(row_kernel([&](auto& b, BufferId in, BufferId out, ValueId block) {
    sum(b, in, block);
    copy(b, in, out, block, 0);
  }));
  EXPECT_FALSE(row_kernel([&](auto& b, BufferId in, BufferId out, ValueId block) {
    copy(b, in, out, block, 0);
    sum(b, in, block);
  }));
  // Neighbours, inside the row and across blocks.
  EXPECT_FALSE(row_kernel(
      [&](auto& b, BufferId in, BufferId out, ValueId block) { copy(b, in, out, block, 1); }));
  EXPECT_FALSE(row_kernel(
      [&](auto& b, BufferId in, BufferId out, ValueId block) { copy(b, in, out, block, 16); }));
  // The same elements in each iteration of a loop around both.
  EXPECT_FALSE(row_kernel([&](auto& b, BufferId in, BufferId out, ValueId block) {
    b.loop(LoopKind::Serial, 3, [&](ValueId) { copy(b, in, out, block, 0); });
  }));
  // Elements of another size.
  KernelBuilder b("halves");
  const BufferId in = b.input(DType::F16), out = b.output(kF32);
  b.loop(LoopKind::Block, 8,
         [&](ValueId block) { b.store(out, {{1, block}}, b.load(in, {{1, block}})); });
  const Kernel kernel = b.finish();
  EXPECT_FALSE(BlockAccess(kernel, {}, 8).may_overwrite(in, out));
}

TEST(BlockSpan, Apart) {
  EXPECT_TRUE(apart({16, 0, 15}, {16, 0, 15}, 9));
  EXPECT_FALSE(apart({16, 0, 16}, {16, 0, 15}, 9));
  EXPECT_FALSE(apart({16, 0, 15}, {16, -1, 14}, 9));
  EXPECT_FALSE(apart({16, 0, 15}, {16, 48, 63}, 9));  // three blocks ahead
  EXPECT_TRUE(apart({16, 0, 15}, {16, 48, 63}, 3));   // which are not there
  EXPECT_FALSE(apart({16, 0, 15}, {0, 0, 15}, 9));
  EXPECT_TRUE(apart({16, 0, 15}, {0, 144, 200}, 9));
  EXPECT_TRUE(apart({16, 0, 15}, {0, 0, 15}, 1));
  EXPECT_TRUE(apart({}, {0, 0, 15}, 9));
}

// The closed form against a walk over all pairs of blocks.
TEST(BlockSpan, ApartAgreesWithAllPairs) {
  int yes = 0;
  for (int64_t stride : {-3, 0, 2, 3})
    for (int64_t other : {-3, 0, 2, 3})
      for (int64_t low = -7; low <= 7; ++low)
        for (int64_t length = 0; length <= 4; ++length)
          for (int64_t blocks = 1; blocks <= 4; ++blocks) {
            const BlockSpan a{stride, 0, 2}, b{other, low, low + length - 1};
            bool all = true;
            for (int64_t s = 0; s < blocks; ++s)
              for (int64_t t = 0; t < blocks; ++t)
                all = all && (s == t || b.empty() || a.high + stride * s < b.low + other * t ||
                              b.high + other * t < a.low + stride * s);
            const bool got = apart(a, b, blocks);
            yes += got;
            EXPECT_TRUE(!got || all)
                << stride << " " << other << " " << low << " " << length << " " << blocks;
            if (stride == other) {
              EXPECT_EQ(got, all);
            }
          }
  EXPECT_GT(yes, 500);
}

}  // namespace
}  // namespace rlx::codegen
