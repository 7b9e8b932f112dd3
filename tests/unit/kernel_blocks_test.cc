// What kernels say about their blocks (StepKernel::span, may_share) is true. Chains and the memory
// plan rest on it, and the verifier of LIR takes it for granted.
//
// Each block of a kernel runs alone, with everything that it says it does not read filled with NaN
// and wild integers; its results must be, bit for bit, those of a plain run, and it must write
// nothing but what it says it writes. Generated kernels say what their addresses say; of native ones
// all that say anything are found by walking the sample table, and run at sizes on both sides of
// their tiles.
#include <gtest/gtest.h>

#include <set>

#include "../support/lowered.h"
#include "../support/random_graph.h"
#include "../support/samples.h"
#include "native_util.h"
#include "rlx/backend/cpu/block_kernel.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/image/pool.h"
#include "rlx/ops/quant/quantise.h"

namespace rlx::testing {
namespace {

using cpu::testing::Bytes;

constexpr int kPoison = 0xff, kUntouched = 0x5a;

Bytes copy_of(const Bytes& b) {
  Bytes out(b.size());
  std::memcpy(out.data(), b.data(), b.size());
  return out;
}

// Every block of a few, the first and last ones and some between of many.
std::vector<int64_t> some_blocks(int64_t blocks) {
  std::set<int64_t> out;
  for (int64_t i = 0; i < 12; ++i)
    for (const int64_t b : {i / 3, blocks - 1 - i / 3, i * blocks / 12})
      if (b >= 0 && b < blocks) out.insert(b);
  return {out.begin(), out.end()};
}

// One kernel on operands in memory of their own. Returns what is wrong.
class KernelCheck {
 public:
  KernelCheck(const cpu::BlockKernel& kernel, std::vector<View> views, size_t inputs,
              std::vector<Bytes>& memory)
      : kernel_(kernel),
        views_(std::move(views)),
        inputs_(inputs),
        memory_(memory),
        scratch_(kernel.scratch_bytes()) {}

  // Runs all blocks, which fills the results, then each alone.
  std::string run() {
    call(memory_, 0, kernel_.blocks());
    if (flag_) return {};  // values without a result
    for (const int64_t b : some_blocks(kernel_.blocks()))
      if (std::string why = block(b); !why.empty()) return why;
    for (size_t i = 0; i < inputs_; ++i)
      for (size_t o = inputs_; o < views_.size(); ++o)
        if (kernel_.may_share(static_cast<int>(i), static_cast<int>(o - inputs_)))
          if (std::string why = in_place(i, o); !why.empty()) return why;
    return {};
  }

 private:
  struct Bounds {
    size_t begin = 0, end = 0;
  };
  // The bytes that block b says it touches of operand i; all of them when it does not say.
  Bounds said(size_t i, int64_t b) const {
    const auto span = kernel_.span(i);
    const auto all = static_cast<int64_t>(memory_[i].size());
    if (!span) return {0, memory_[i].size()};
    if (span->empty()) return {};
    const int64_t size = size_of(views_[i].dtype), first = views_[i].offset + span->stride * b;
    return {static_cast<size_t>(std::clamp<int64_t>((first + span->low) * size, 0, all)),
            static_cast<size_t>(std::clamp<int64_t>((first + span->high + 1) * size, 0, all))};
  }

  void call(std::vector<Bytes>& memory, int64_t begin, int64_t end) {
    std::vector<void*> operands;
    for (size_t i = 0; i < views_.size(); ++i)
      operands.push_back(memory[i].data() + views_[i].offset * size_of(views_[i].dtype));
    kernel_.run({operands.data(), reinterpret_cast<std::byte*>(scratch_.data()), &flag_}, begin,
                end);
  }

  std::string block(int64_t b) {
    std::vector<Bytes> memory;
    for (size_t i = 0; i < views_.size(); ++i) {
      const Bounds at = said(i, b);
      memory.emplace_back(memory_[i].size());
      std::memset(memory[i].data(), i < inputs_ ? kPoison : kUntouched, memory[i].size());
      if (i < inputs_ && at.end > at.begin)
        std::memcpy(memory[i].data() + at.begin, memory_[i].data() + at.begin, at.end - at.begin);
    }
    call(memory, b, b + 1);
    for (size_t o = inputs_; o < views_.size(); ++o) {
      if (!kernel_.span(o)) continue;
      const Bounds at = said(o, b);
      for (size_t k = 0; k < memory[o].size(); ++k) {
        const bool own = k >= at.begin && k < at.end;
        if (memory[o].data()[k] != (own ? memory_[o].data()[k] : kUntouched))
          return fmt::format(
              "block {} of {}: byte {} of result {} {}", b, kernel_.blocks(), k, o - inputs_,
              own ? "hangs on what the block says it does not read" : "is not its own");
      }
      if (!memory[o].guard_intact()) return fmt::format("block {} writes beyond a result", b);
    }
    return {};
  }

  // Result o in the memory of operand i, which is all of it, blocks from the last to the first.
  std::string in_place(size_t i, size_t o) {
    if (memory_[i].size() != memory_[o].size() || !views_[i].is_dense() ||
        static_cast<size_t>(views_[i].type().bytes()) != memory_[i].size())
      return {};
    std::vector<Bytes> memory;
    for (const Bytes& m : memory_) memory.push_back(copy_of(m));
    std::vector<void*> operands;
    for (size_t k = 0; k < views_.size(); ++k)
      operands.push_back(memory[k == o ? i : k].data() +
                         views_[k].offset * size_of(views_[k].dtype));
    for (int64_t b = kernel_.blocks(); b-- > 0;)
      kernel_.run({operands.data(), reinterpret_cast<std::byte*>(scratch_.data()), &flag_}, b,
                  b + 1);
    if (std::memcmp(memory[i].data(), memory_[o].data(), memory_[o].size()) != 0)
      return fmt::format("result {} differs when it lies in the memory of operand {}", o - inputs_,
                         i);
    return {};
  }

  const cpu::BlockKernel& kernel_;
  std::vector<View> views_;
  size_t inputs_;
  std::vector<Bytes>& memory_;  // of each operand: its buffer
  Bytes scratch_;
  uint32_t flag_ = 0;
};

bool says_anything(const Step& s) {
  if (!s.kernel) return false;
  for (size_t i = 0; i < operand_count(s); ++i)
    if (s.kernel->span(i)) return true;
  for (size_t i = 0; i < s.in.size(); ++i)
    for (size_t o = 0; o < s.out.size(); ++o)
      if (s.kernel->may_share(static_cast<int>(i), static_cast<int>(o))) return true;
  return false;
}

bool is_generated(const Program& p, const Step& s) {
  if (!s.label.starts_with("%")) return false;
  const size_t node = std::stoul(s.label.substr(1));
  return p.graph.nodes[node].op == &op::region;
}

// Runs a program step by step, every buffer in memory of its own, and checks its kernels on the way.
// Returns how many said anything.
int check_kernels(const Lowered& l, const NamedTensors& leaves, const std::string& what) {
  l.target->finish();
  const Program& p = l.program;
  std::vector<Bytes> memory;
  for (const Buffer& b : p.buffers) memory.emplace_back(static_cast<size_t>(b.bytes));
  auto fill = [&](int32_t b, const void* from) {
    std::memcpy(memory[static_cast<size_t>(b)].data(), from, memory[static_cast<size_t>(b)].size());
  };
  auto fill_leaves = [&](const Values& values, const std::vector<int32_t>& buffers) {
    for (size_t k = 0; k < buffers.size(); ++k)
      fill(buffers[k], leaves.at(p.graph.node(values[k]).get<LeafAttrs>().name).raw());
  };
  fill_leaves(p.graph.inputs(), p.input_buffers);
  fill_leaves(p.graph.params(), p.param_buffers);
  for (size_t b = 0; b < p.buffers.size(); ++b)
    if (p.buffers[b].place == Place::constant)
      fill(static_cast<int32_t>(b), p.constants[static_cast<size_t>(p.buffers[b].index)].raw());
  for (size_t b = 0; b < p.buffers.size(); ++b)
    if (p.buffers[b].place == Place::packed) {
      const PackedWeight& w = p.packed[static_cast<size_t>(p.buffers[b].index)];
      cpu::block_kernel(p.steps[static_cast<size_t>(w.step)])
          .pack(memory[static_cast<size_t>(w.source.buffer)].data() +
                    w.source.offset * size_of(w.source.dtype),
                memory[b].data());
    }
  int checked = 0;
  for (const Step& s : p.steps) {
    if (!s.kernel) return checked;
    std::vector<View> views;
    std::vector<Bytes> own;
    for (size_t i = 0; i < operand_count(s); ++i) {
      views.push_back(operand_of(s, i));
      own.push_back(copy_of(memory[static_cast<size_t>(views.back().buffer)]));
    }
    const std::string why = KernelCheck(cpu::block_kernel(s), views, s.in.size(), own).run();
    EXPECT_EQ(why, "") << what << ": " << s.label << ", " << s.kernel->name();
    for (size_t o = s.in.size(); o < views.size(); ++o) {
      EXPECT_TRUE(s.kernel->rows() == 0 || touches_own_rows(p, s, o)) << what << ": " << s.label;
      // Other steps may have written other parts of the buffer.
      memory[static_cast<size_t>(views[o].buffer)] = copy_of(own[o]);
    }
    checked += says_anything(s);
  }
  return checked;
}

// ---- native kernels that say anything

// The ops whose native kernels work by rows, each with programs at this many rows.
struct RowCase {
  const OpDef* op;
  Graph (*build)(int64_t rows, DType d, int variant);
  int variants;
  int least;  // kernels that work by rows, in all: some take f32 alone
};

constexpr RowCase kRowCases[] = {
    {&op::matmul.def,
     [](int64_t rows, DType d, int variant) {
       // Columns, contracted, batches, weights that are packed, B turned, A turned.
       static constexpr int64_t shapes[][6] = {{33, 70, 1, 0, 0, 0}, {96, 17, 1, 1, 0, 0},
                                               {1, 300, 1, 0, 0, 0}, {64, 64, 3, 0, 1, 0},
                                               {40, 1, 1, 1, 1, 0},  {33, 20, 1, 1, 0, 1}};
       const auto& [n, k, batches, packed, turned, a_turned] = shapes[variant];
       Builder b("product");
       const Value x = b.input("x", {d, a_turned      ? Shape{k, rows}
                                        : batches > 1 ? Shape{batches, rows, k}
                                                      : Shape{rows, k}});
       const Type weights{d, turned ? Shape{n, k} : Shape{k, n}};
       const Value w = packed ? b.param("w", weights) : b.input("w", weights);
       b.output(op::matmul(b, x, w, {.transpose_a = a_turned != 0, .transpose_b = turned != 0}));
       return b.finish();
     },
     6, 100},
    {&op::conv_channels_last.def,
     [](int64_t rows, DType d, int variant) {
       // Channels in and out, groups, weights that are packed.
       static constexpr int64_t shapes[][4] = {
           {5, 33, 1, 0}, {16, 64, 1, 1}, {33, 33, 33, 0}, {70, 70, 70, 1}, {6, 9, 3, 1}};
       const auto& [in, out, groups, packed] = shapes[variant];
       Builder b("conv");
       const Value x = b.input("x", {d, {1, rows, in}});
       const Type weights{d, {3, in / groups, out}};
       const Value w = packed ? b.param("w", weights) : b.input("w", weights);
       b.output(op::conv_channels_last(b, x, w, {.low = {1}, .high = {1}, .groups = groups}));
       return b.finish();
     },
     5, 20},
    {&op::matmul_integer.def,
     [](int64_t rows, DType d, int variant) {
       // Columns, contracted, packed, zero points; what follows is made of the same rows.
       static constexpr int64_t shapes[][4] = {
           {33, 70, 0, 1}, {64, 17, 1, 1}, {1, 300, 1, 0}, {40, 64, 1, 1}, {64, 0, 1, 1}};
       const auto& [n, k, packed, zeros] = shapes[variant];
       Builder b("integers");
       Values in{b.input("a", {d, {rows, k}})};
       const Type weights{variant % 2 ? DType::I8 : DType::U8, {k, n}};
       in.push_back(packed ? b.param("b", weights) : b.input("b", weights));
       if (zeros) in.push_back(b.input("za", {d, {rows}}));
       if (zeros) in.push_back(b.param("zb", {weights.dtype, {n}}));
       const Value sums = b.emit(op::matmul_integer.def, NoAttrs{}, in)[0];
       b.output(Expr(b, op::cast(b, sums, {DType::F32})) * 0.5);
       return b.finish();
     },
     5},
    {&op::pool_channels_last.def,
     [](int64_t rows, DType d, int variant) {
       static constexpr int64_t channels[] = {5, 33, 70};
       Builder b("pool");
       const Value x = b.input("x", {d, {1, rows, channels[variant]}});
       b.output(op::pool_channels_last(
           b, x, {.kind = static_cast<PoolKind>(variant), .kernel = {3}, .low = {1}, .high = {1}}));
       return b.finish();
     },
     3, 20},
};

NamedTensors leaves_of(const Graph& g) {
  NamedTensors out;
  uint64_t seed = 1;
  for (const Node& n : g.nodes)
    if (n.op == &op::input || n.op == &op::param)
      out[n.get<LeafAttrs>().name] = make_operand(
          {.dtype = "", .sizes = n.type().shape.sizes(), .kind = ""}, n.type().dtype, ++seed);
  return out;
}

TEST(KernelBlocks, NativeKernelsByRows) {
  for (const RowCase& c : kRowCases) {
    int by_rows = 0;
    for (const DType d : {DType::F32, DType::F64, DType::BF16, DType::F16, DType::I32, DType::U8,
                          DType::I8, DType::C64}) {
      if (!c.op->dtypes.has(d)) continue;
      for (int variant = 0; variant < c.variants; ++variant)
        for (const int64_t rows : {1, 5, 63, 64, 65, 127, 128, 129, 300}) {
          const Lowered l = lower_for_cpu(c.build(rows, d, variant));
          for (const Step& s : l.program.steps) by_rows += s.kernel->rows() > 1;
          check_kernels(l, leaves_of(l.program.graph),
                        fmt::format("{} {} variant {}, {} rows", c.op->name, d, variant, rows));
        }
    }
    EXPECT_GT(by_rows, c.least) << c.op->name;
  }
}

// Many rows of bytes times packed weights run tile by tile with the scales behind them.
TEST(KernelBlocks, IntegerProductsAreChained) {
  Builder b("quantised layer");
  const Value x = b.input("x", {DType::U8, {600, 64}}), w = b.param("w", {DType::I8, {64, 2000}});
  const Expr sum(b, op::cast(b, op::matmul_integer(b, x, w), {DType::F32}));
  b.output(op::relu(b, sum * Expr(b, b.param("scale", {DType::F32, {2000}}))));
  const Lowered l = lower_for_cpu(b.finish());
  ASSERT_EQ(l.program.chains.size(), 1u);
  EXPECT_EQ(l.program.steps.size(), 2u);
  EXPECT_NE(l.program.steps[0].kernel->name().find("packed weights"), std::string::npos);
  EXPECT_LE(l.program.chains[0].tile, 128);
}

// A kernel that works by rows, or may write over an operand, is found by its op's samples; each op
// with one by rows has a row above.
TEST(KernelBlocks, AllNativeKernelsThatSayAnything) {
  std::set<std::string> by_rows;
  int programs = 0, skipped = 0, kernels = 0;
  for (const Sample& sample : samples()) {
    std::optional<Case> c;
    for (const DType d : {DType::F32, DType::F64, DType::C64, DType::I32, DType::U8, DType::Bool})
      if (!c) c = make_case(sample, d);
    if (!c) continue;
    ++programs;
    try {
      const Lowered l = lower_for_cpu(c->graph);
      bool native = false;
      for (const Step& s : l.program.steps) {
        if (is_generated(l.program, s) || !says_anything(s)) continue;
        native = true;
        if (s.kernel->rows() > 0 && s.label.starts_with("%"))
          by_rows.insert(
              std::string(l.program.graph.nodes[std::stoul(s.label.substr(1))].op->name));
      }
      if (!native) continue;
      NamedTensors leaves;
      for (size_t i = 0; i < c->operands.size(); ++i) leaves[std::to_string(i)] = c->operands[i];
      kernels += check_kernels(l, leaves, sample.text);
    } catch (const Error& e) {
      if (e.code() != "no-kernel") throw;  // control flow
      ++skipped;
    }
  }
  EXPECT_GT(programs, 500);
  EXPECT_LT(skipped, programs / 10);
  EXPECT_GT(kernels, 50);
  std::set<std::string> known;
  for (const RowCase& c : kRowCases) known.emplace(c.op->name);
  EXPECT_EQ(by_rows, known);
}

// ---- generated kernels

TEST(KernelBlocks, GeneratedKernels) {
  int kernels = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    RandomProgram p = random_large_program(seed);
    p.graph.updates.clear();
    try {
      kernels += check_kernels(lower_for_cpu(p.graph), p.leaves, fmt::format("program {}", seed));
    } catch (const Error& e) {
      if (e.code() != "no-kernel") throw;
    }
  }
  EXPECT_GT(kernels, 100);
}

// The check itself: kernels that say too little about what they touch.
class Liar final : public cpu::BlockKernel {
 public:
  enum class Lie { none, reads_the_next_row, writes_the_next_row, shares };
  explicit Liar(Lie lie) : lie_(lie) {}
  std::string name() const override { return "liar"; }
  int64_t blocks() const override { return 8; }
  std::optional<BlockSpan> span(size_t) const override { return BlockSpan{16, 0, 15}; }
  bool may_share(int, int) const override { return lie_ == Lie::shares || lie_ == Lie::none; }
  void run(const cpu::StepMemory& m, int64_t begin, int64_t end) const override {
    const auto* in = static_cast<const float*>(m.operands[0]);
    auto* out = static_cast<float*>(m.operands[1]);
    for (int64_t b = begin; b < end; ++b)
      for (int64_t i = 0; i < 16; ++i) {
        const int64_t from = lie_ == Lie::reads_the_next_row && b < 7 ? 16 * (b + 1) : 16 * b + i;
        out[16 * b + i] = lie_ == Lie::shares ? in[16 * b + 15 - i] : in[from];
        if (lie_ == Lie::writes_the_next_row && b < 7) out[16 * (b + 1)] = in[16 * (b + 1)];
      }
  }

 private:
  Lie lie_;
};

TEST(KernelBlocks, TheCheckNoticesLies) {
  const Type type{DType::F32, {8, 16}};
  auto verdict = [&](Liar::Lie lie) {
    std::vector<Bytes> memory;
    memory.emplace_back(512), memory.emplace_back(512);
    for (int i = 0; i < 128; ++i) reinterpret_cast<float*>(memory[0].data())[i] = 1.0f + i;
    return KernelCheck(Liar(lie), {View::dense(0, type), View::dense(1, type)}, 1, memory).run();
  };
  EXPECT_EQ(verdict(Liar::Lie::none), "");
  EXPECT_NE(verdict(Liar::Lie::reads_the_next_row).find("hangs on"), std::string::npos);
  EXPECT_NE(verdict(Liar::Lie::writes_the_next_row).find("is not its own"), std::string::npos);
  EXPECT_NE(verdict(Liar::Lie::shares).find("differs when"), std::string::npos);
}

}  // namespace
}  // namespace rlx::testing
