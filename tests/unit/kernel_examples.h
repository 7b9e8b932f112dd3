// Kernels as a region lowering would build them: the examples for kernel_builder.h, and what the
// tests of the interpreter and of the emitters run.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "rlx/base/philox.h"
#include "rlx/codegen/kernel_builder.h"

namespace rlx::codegen::examples {

// out[a,b,c] = x[a,b,c] * y[b] + 1 over [A,B,C]; x has runtime strides for a and b, y is broadcast.
// One block per (a, b). Sizes: n0 = A*B blocks, n1 = B, n2 = C, n3 = stride of a, n4 = stride of b.
inline Kernel strided_elementwise() {
  KernelBuilder b("strided_elementwise");
  BufferId x = b.input(DType::F32), y = b.input(DType::F32), out = b.output(DType::F32);
  Size blocks = b.size(), dim_b = b.size(), dim_c = b.size(), stride_a = b.size(),
       stride_b = b.size();
  b.loop(LoopKind::Block, blocks, [&](ValueId flat) {
    Size dims[] = {0, dim_b};
    std::vector<ValueId> at = b.unflatten(flat, dims);
    b.loop(LoopKind::Vector, dim_c, [&](ValueId c) {
      ValueId v =
          b.mul(b.load(x, {{stride_a, at[0]}, {stride_b, at[1]}, {1, c}}), b.load(y, {{1, at[1]}}));
      b.store(out, {{dim_c, flat}, {1, c}}, b.add(v, b.constant(DType::F32, 1)));
    });
  });
  return b.finish();
}

// Softmax over the last axis of [rows, n], n known.
inline Kernel softmax(int64_t n) {
  KernelBuilder b("softmax");
  BufferId in = b.input(DType::F32), out = b.output(DType::F32), row = b.scratch(DType::F32, n);
  Size rows = b.size();
  b.loop(LoopKind::Block, rows, [&](ValueId r) {
    ValueId top = b.reduce(LoopKind::Vector, n, Combine::Max, b.constant(DType::F32, -INFINITY),
                           [&](ValueId i) { return b.load(in, {{n, r}, {1, i}}); });
    ValueId sum =
        b.reduce(LoopKind::Vector, n, Combine::Add, b.constant(DType::F32, 0), [&](ValueId i) {
          ValueId e = b.exp(b.sub(b.load(in, {{n, r}, {1, i}}), top));
          b.store(row, {{1, i}}, e);
          return e;
        });
    ValueId scale = b.div(b.constant(DType::F32, 1), sum);
    b.loop(LoopKind::Vector, n,
           [&](ValueId i) { b.store(out, {{n, r}, {1, i}}, b.mul(b.load(row, {{1, i}}), scale)); });
  });
  return b.finish();
}

// Layer norm over [rows, n] with gain and bias of any memory dtype; mean and variance from two sums
// in one pass.
inline Kernel layer_norm(int64_t n, DType dtype = DType::F32) {
  KernelBuilder b("layer_norm");
  BufferId in = b.input(dtype), gain = b.input(dtype), bias = b.input(dtype), out = b.output(dtype);
  Size rows = b.size();
  ValueId inverse = b.constant(DType::F32, 1.0 / static_cast<double>(n));
  ValueId zero = b.constant(DType::F32, 0), epsilon = b.constant(DType::F32, 1e-5);
  b.loop(LoopKind::Block, rows, [&](ValueId r) {
    ValueId mean = b.mul(b.reduce(LoopKind::Vector, n, Combine::Add, zero,
                                  [&](ValueId i) { return b.load(in, {{n, r}, {1, i}}); }),
                         inverse);
    ValueId i = b.begin_loop(LoopKind::Vector, n);
    ValueId squares = b.carry(Combine::Add, zero);
    ValueId d = b.sub(b.load(in, {{n, r}, {1, i}}), mean);
    b.update(squares, b.mul(d, d));
    b.end_loop();
    ValueId variance = b.mul(b.result(squares), inverse);
    ValueId scale = b.div(b.constant(DType::F32, 1), b.sqrt(b.add(variance, epsilon)));
    b.loop(LoopKind::Vector, n, [&](ValueId j) {
      ValueId x = b.mul(b.sub(b.load(in, {{n, r}, {1, j}}), mean), scale);
      b.store(out, {{n, r}, {1, j}}, b.fma(x, b.load(gain, {{1, j}}), b.load(bias, {{1, j}})));
    });
  });
  return b.finish();
}

// Partial column sums of [rows, columns]: block k adds rows [k*chunk, k*chunk + chunk) into
// partial[k, :]. Vectorised over columns, rows inside; a second kernel (column_sum with one chunk)
// adds the partials.
inline Kernel column_sum(int64_t chunk) {
  KernelBuilder b("column_sum");
  BufferId in = b.input(DType::F32), out = b.output(DType::F32);
  Size blocks = b.size(), rows = b.size(), columns = b.size();
  b.loop(LoopKind::Block, blocks, [&](ValueId k) {
    b.loop(LoopKind::Vector, columns, [&](ValueId c) {
      ValueId sum = b.reduce(
          LoopKind::Serial, Extent::tail(rows, chunk, k), Combine::Add, b.constant(DType::F32, 0),
          [&](ValueId r) { return b.load(in, {{columns * chunk, k}, {columns, r}, {1, c}}); });
      b.store(out, {{columns, k}, {1, c}}, sum);
    });
  });
  return b.finish();
}

// Sum, max and product over the middle axis of [A, B, C] at once.
inline Kernel middle_reductions(DType dtype) {
  KernelBuilder b("middle_reductions");
  DType value = value_dtype(dtype);
  BufferId in = b.input(dtype), sum = b.output(dtype), top = b.output(dtype),
           product = b.output(dtype);
  Size dim_a = b.size(), dim_b = b.size(), dim_c = b.size(), stride_a = b.size();
  b.loop(LoopKind::Block, dim_a, [&](ValueId a) {
    b.loop(LoopKind::Vector, dim_c, [&](ValueId c) {
      ValueId first = b.load(in, {{stride_a, a}, {1, c}});
      ValueId j = b.begin_loop(LoopKind::Serial, dim_b);
      ValueId s = b.carry(Combine::Add, b.constant(value, 0));
      ValueId m = b.carry(Combine::Max, first);
      ValueId p = b.carry(Combine::Mul, b.constant(value, 1));
      ValueId x = b.load(in, {{stride_a, a}, {dim_c, j}, {1, c}});
      b.update(s, x), b.update(m, x), b.update(p, x);
      b.end_loop();
      Address at{{dim_c, a}, {1, c}};
      b.store(sum, at, b.result(s)), b.store(top, at, b.result(m)),
          b.store(product, at, b.result(p));
    });
  });
  return b.finish();
}

// All reductions over the rows of [rows, n]: out[r] = {sum, product, max, min} of row r.
inline Kernel row_reductions(DType dtype) {
  KernelBuilder b("row_reductions");
  DType value = value_dtype(dtype);
  BufferId in = b.input(dtype), out = b.output(dtype);
  Size rows = b.size(), n = b.size();
  b.loop(LoopKind::Block, rows, [&](ValueId r) {
    ValueId first = b.load(in, {{n, r}});
    ValueId i = b.begin_loop(LoopKind::Vector, n);
    ValueId c[] = {b.carry(Combine::Add, b.constant(value, 0)),
                   b.carry(Combine::Mul, b.constant(value, 1)), b.carry(Combine::Max, first),
                   b.carry(Combine::Min, first)};
    ValueId x = b.load(in, {{n, r}, {1, i}});
    for (ValueId v : c) b.update(v, x);
    b.end_loop();
    for (int k = 0; k < 4; ++k) b.store(out, {{4, r}, {k}}, b.result(c[k]));
  });
  return b.finish();
}

// First position of the largest element of each row (a NaN counts as largest): two passes.
inline Kernel argmax() {
  KernelBuilder b("argmax");
  BufferId in = b.input(DType::F32), out = b.output(DType::I64);
  Size rows = b.size(), n = b.size();
  b.loop(LoopKind::Block, rows, [&](ValueId r) {
    ValueId top = b.reduce(LoopKind::Vector, n, Combine::Max, b.constant(DType::F32, -INFINITY),
                           [&](ValueId i) { return b.load(in, {{n, r}, {1, i}}); });
    ValueId none = b.size_value(n);
    ValueId at = b.reduce(LoopKind::Vector, n, Combine::Min, none, [&](ValueId i) {
      ValueId x = b.load(in, {{n, r}, {1, i}});
      return b.select(b.bit_or(b.eq(x, top), b.ne(x, x)), i, none);
    });
    b.store(out, {{1, r}}, at);
  });
  return b.finish();
}

// Running sum along the rows of [rows, n]: a serial loop with a readable state.
inline Kernel cumsum() {
  KernelBuilder b("cumsum");
  BufferId in = b.input(DType::F32), out = b.output(DType::F32);
  Size rows = b.size(), n = b.size();
  b.loop(LoopKind::Block, rows, [&](ValueId r) {
    b.fold(n, b.constant(DType::F32, 0), [&](ValueId i, ValueId sum) {
      ValueId next = b.add(sum, b.load(in, {{n, r}, {1, i}}));
      b.store(out, {{n, r}, {1, i}}, next);
      return next;
    });
  });
  return b.finish();
}

// Running sum down the columns of [rows, n], vectorised over columns in tiles of 256.
inline Kernel column_cumsum() {
  constexpr int64_t kTile = 256;
  KernelBuilder b("column_cumsum");
  BufferId in = b.input(DType::F32), out = b.output(DType::F32);
  Size blocks = b.size(), rows = b.size(), n = b.size();
  b.loop(LoopKind::Block, blocks, [&](ValueId t) {
    b.loop(LoopKind::Vector, Extent::tail(n, kTile, t), [&](ValueId c) {
      b.fold(rows, b.constant(DType::F32, 0), [&](ValueId r, ValueId sum) {
        Address at{{kTile, t}, {n, r}, {1, c}};
        ValueId next = b.add(sum, b.load(in, at));
        b.store(out, at, next);
        return next;
      });
    });
  });
  return b.finish();
}

// An index in [0, length).
inline ValueId clamped(KernelBuilder& b, ValueId index, Size length) {
  const ValueId last = b.sub(b.size_value(length), b.integer(DType::I64, 1));
  return b.max(b.min(b.cast(index, DType::I64), last), b.integer(DType::I64, 0));
}

// out[i, :] = table[ids[i], :]; an id outside the table is the nearest one inside.
inline Kernel gather_rows(DType ids_dtype) {
  KernelBuilder b("gather_rows");
  BufferId table = b.input(DType::F32), ids = b.input(ids_dtype), out = b.output(DType::F32);
  Size count = b.size(), vocabulary = b.size(), width = b.size();
  b.loop(LoopKind::Block, count, [&](ValueId i) {
    ValueId id = clamped(b, b.load(ids, {{1, i}}), vocabulary);
    b.loop(LoopKind::Vector, width, [&](ValueId c) {
      b.store(out, {{width, i}, {1, c}}, b.load(table, {{width, id}, {1, c}}));
    });
  });
  return b.finish();
}

// out[i] = table[ids[i]] with an index per lane.
inline Kernel gather_elements() {
  constexpr int64_t kTile = 64;
  KernelBuilder b("gather_elements");
  BufferId table = b.input(DType::F32), ids = b.input(DType::I32), out = b.output(DType::F32);
  Size blocks = b.size(), n = b.size(), length = b.size();
  b.loop(LoopKind::Block, blocks, [&](ValueId t) {
    b.loop(LoopKind::Vector, Extent::tail(n, kTile, t), [&](ValueId i) {
      ValueId id = clamped(b, b.load(ids, {{kTile, t}, {1, i}}), length);
      b.store(out, {{kTile, t}, {1, i}}, b.load(table, {{1, id}}));
    });
  });
  return b.finish();
}

// Philox4x32-10: counter (block, i, 0, 0), key from memory; out[block, word, i] for words 0..3.
inline Kernel philox(int64_t n) {
  KernelBuilder b("philox");
  BufferId key = b.input(DType::U32), out = b.output(DType::U32);
  Size blocks = b.size();
  auto word = [&](uint32_t v) { return b.integer(DType::U32, v); };
  b.loop(LoopKind::Block, blocks, [&](ValueId block) {
    b.loop(LoopKind::Vector, n, [&](ValueId i) {
      ValueId c[4] = {b.cast(block, DType::U32), b.cast(i, DType::U32), word(0), word(0)};
      ValueId k[2] = {b.load(key, {{0}}), b.load(key, {{1}})};
      for (int round = 0; round < 10; ++round) {
        ValueId m0 = word(0xD2511F53), m1 = word(0xCD9E8D57);
        ValueId next[4] = {b.bit_xor(b.bit_xor(b.umulhi(m1, c[2]), c[1]), k[0]), b.mul(m1, c[2]),
                           b.bit_xor(b.bit_xor(b.umulhi(m0, c[0]), c[3]), k[1]), b.mul(m0, c[0])};
        std::copy(next, next + 4, c);
        k[0] = b.add(k[0], word(0x9E3779B9)), k[1] = b.add(k[1], word(0xBB67AE85));
      }
      for (int w = 0; w < 4; ++w) b.store(out, {{4 * n, block}, {w * n}, {1, i}}, c[w]);
    });
  });
  return b.finish();
}

// |z|^2 of C64 elements: two F32 loads with stride 2.
inline Kernel complex_norm() {
  KernelBuilder b("complex_norm");
  BufferId in = b.input(DType::C64), out = b.output(DType::F32);
  Size blocks = b.size(), n = b.size();
  b.loop(LoopKind::Block, blocks, [&](ValueId r) {
    b.loop(LoopKind::Vector, n, [&](ValueId i) {
      ValueId re = b.load(in, {{n * 2, r}, {2, i}}), im = b.load(in, {{n * 2, r}, {2, i}, {1}});
      b.store(out, {{n, r}, {1, i}}, b.fma(re, re, b.mul(im, im)));
    });
  });
  return b.finish();
}

}  // namespace rlx::codegen::examples
