#include "rlx/backend/cpu/llvm_emitter.h"

#include <llvm/IR/IRBuilder.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "rlx/backend/cpu/llvm_ops.h"
#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/base/function_ref.h"

namespace rlx::cpu {
namespace {

using namespace codegen;
using Values = llvm::SmallVector<llvm::Value*, 4>;

// A float sum over more than kSumRun steps of a loop is the sum of sums over runs of as many, twice
// as many where the loop sums kSumRun or more elements side by side. Short enough that a sum is
// nowhere less exact than one by halves, long enough to cost no more than a plain one.
constexpr int64_t kSumRun = 16, kFewRuns = 4;
// The most operations in the body of a loop that does little but read.
constexpr int kCheap = 6;

// What the emitter needs to know about a kernel's values before it starts.
struct Analysis {
  explicit Analysis(const Kernel& k) {
    int n = static_cast<int>(k.body.size());
    home.assign(n, -1), end_of.assign(n, -1), varying.assign(n, false), as_value.assign(n, false);
    std::vector<int> open;
    int vector = -1;
    for (int i = 0; i < n; ++i) {
      const Instr& in = k.body[i];
      if (in.op == KernelOp::Loop) {
        open.push_back(i);
        if (in.kind == LoopKind::Vector) vector = i;
      }
      home[i] = open.empty() ? -1 : open.back();
      if (in.op == KernelOp::End) {
        end_of[open.back()] = i;
        if (open.back() == vector) vector = -1;
        open.pop_back();
        continue;
      }
      for (ValueId v : in.args)
        if (v) as_value[v.id] = true;
      if (vector >= 0) varying[i] = varies(in, i, vector);
    }
  }

  std::vector<int> home;  // the loop whose body a value lives in (a loop's index: that loop), or -1
  std::vector<int> end_of;     // per loop
  std::vector<bool> varying;   // differs between the iterations of the vector loop around it
  std::vector<bool> as_value;  // is an operand, not only part of addresses

 private:
  bool varies(const Instr& in, int i, int vector) const {
    if (i == vector || in.op == KernelOp::Carry) return true;
    for (ValueId v : in.args)
      if (v && varying[v.id]) return true;
    for (const Term& t : in.address)
      if (t.index && varying[t.index.id]) return true;
    return false;
  }
};

class KernelEmitter {
 public:
  KernelEmitter(const Kernel& kernel, llvm::Module& module, const std::string& symbol,
                const EmitOptions& options)
      : k_(kernel),
        a_(kernel),
        options_(options),
        b_(module.getContext()),
        ops_(b_, options.vector_bits == 512),
        values_(kernel.body.size()),
        state_(kernel.body.size()) {
    llvm::Type *ptr = b_.getPtrTy(), *i64 = b_.getInt64Ty();
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr, i64, i64}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    function_->addFnAttr("prefer-vector-width", std::to_string(options.vector_bits));
    function_->addFnAttr("min-legal-vector-width", std::to_string(options.vector_bits));
  }

  llvm::Function* run() {
    entry_ = block("entry");
    llvm::BasicBlock* start = block("start");
    b_.SetInsertPoint(entry_);
    b_.CreateBr(start);
    parameters();
    b_.SetInsertPoint(start);
    emit_range(0, static_cast<int>(k_.body.size()));
    b_.CreateRetVoid();
    return function_;
  }

 private:
  // An open loop: instructions that do not depend on it go before `pre`'s end.
  struct Frame {
    int loop;
    llvm::BasicBlock* pre;
  };
  // How the values of the vector loop around are held: `unroll` vectors of `lanes`.
  struct Shape {
    int loop = -1;
    int lanes = 1;
    int unroll = 1;
    llvm::Value* mask = nullptr;   // active lanes; null: all
    llvm::Value* index = nullptr;  // the first lane's
  };
  struct Range {
    llvm::Value* start;
    llvm::Value* stop;
    int64_t step;
    bool runs = false;  // surely at least once
  };
  using LoopBody = FunctionRef<Values(llvm::Value* index, const Values& carried)>;

  llvm::BasicBlock* block(const char* name) {
    return llvm::BasicBlock::Create(b_.getContext(), name, function_);
  }

  void parameters() {
    b_.SetInsertPoint(entry_->getTerminator());
    llvm::Type* ptr = b_.getPtrTy();
    for (int i = 0; i < k_.sizes; ++i) {
      llvm::Value* at = b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), function_->getArg(1), i);
      sizes_.push_back(b_.CreateLoad(b_.getInt64Ty(), at));
    }
    for (const BufferDecl& d : k_.buffers) {
      if (d.access == Access::Scratch) {
        auto* array = b_.CreateAlloca(ops_.memory_type(d.dtype, 1), b_.getInt64(d.length));
        array->setAlignment(llvm::Align(64));
        bases_.push_back(array);
      } else {
        bases_.push_back(
            b_.CreateLoad(ptr, b_.CreateConstInBoundsGEP1_64(ptr, function_->getArg(0), d.slot)));
      }
    }
  }

  // ---- Sizes and places

  llvm::Value* size(Size s) {
    if (s.is_constant()) return b_.getInt64(s.scale);
    if (s.scale == 1) return sizes_[s.argument];
    llvm::Value*& scaled = scaled_sizes_[{s.argument, s.scale}];
    if (!scaled) {
      llvm::IRBuilder<>::InsertPointGuard guard(b_);
      b_.SetInsertPoint(entry_->getTerminator());
      scaled = b_.CreateMul(sizes_[s.argument], b_.getInt64(s.scale));
    }
    return scaled;
  }

  // The low bits of its word.
  llvm::Value* argument(const Instr& in) {
    llvm::Value* word = sizes_[in.extent.total.argument];
    llvm::Type* type = ops_.constant(in.dtype, 0)->getType();
    const unsigned bits = type->getScalarSizeInBits();
    llvm::Value* low = bits < 64 ? b_.CreateTrunc(word, b_.getIntNTy(bits)) : word;
    return b_.CreateBitCast(low, type);
  }

  llvm::Value* extent(const Extent& e) {
    llvm::Value* n = size(e.total);
    if (!e.is_tile()) return n;
    llvm::Value* tile = size(e.tile);
    llvm::Value* done = b_.CreateMul(index_of(e.outer), tile);
    return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, tile, b_.CreateSub(n, done));
  }

  llvm::Value* index_of(ValueId v) { return v.id == shape_.loop ? shape_.index : values_[v.id][0]; }

  // Position in frames_ of the loop that a value lives in; -1: before all loops.
  int depth_of(ValueId v) const {
    for (int d = static_cast<int>(frames_.size()) - 1; d >= 0; --d)
      if (frames_[d].loop == a_.home[v.id]) return d;
    return -1;
  }

  // Emits where values of this depth and outer ones are known: before the next inner open loop, or
  // here.
  llvm::Value* at_depth(int depth, FunctionRef<llvm::Value*()> emit) {
    if (depth + 1 >= static_cast<int>(frames_.size())) return emit();
    llvm::IRBuilder<>::InsertPointGuard guard(b_);
    b_.SetInsertPoint(frames_[depth + 1].pre->getTerminator());
    return emit();
  }

  // ---- Values

  llvm::Value* lane(ValueId v, int k) {
    if (a_.varying[v.id]) return values_[v.id][k];
    llvm::Value* x = values_[v.id][0];
    if (shape_.lanes == 1) return x;
    if (llvm::isa<llvm::Constant>(x)) return b_.CreateVectorSplat(shape_.lanes, x);
    return at_depth(depth_of(v), [&] {
      llvm::Value*& splat = splats_[{b_.GetInsertBlock(), x, shape_.lanes}];
      if (!splat) splat = b_.CreateVectorSplat(shape_.lanes, x);
      return splat;
    });
  }

  llvm::Value* operand(bool varying, ValueId v, int k) {
    if (!v) return nullptr;
    return varying ? lane(v, k) : values_[v.id][0];
  }

  llvm::Constant* iota(llvm::Type* element, int64_t first, int64_t stride) {
    llvm::SmallVector<llvm::Constant*, 64> c;
    for (int i = 0; i < shape_.lanes; ++i)
      c.push_back(llvm::ConstantInt::get(element, first + stride * i, true));
    return shape_.lanes == 1 ? c[0] : llvm::ConstantVector::get(c);
  }

  llvm::Value* splat(llvm::Value* x) {
    return shape_.lanes == 1 ? x : b_.CreateVectorSplat(shape_.lanes, x);
  }

  // ---- Memory

  llvm::Value* advance(llvm::Value* ptr, llvm::Type* element, Size stride, llvm::Value* index) {
    llvm::Value* by = size(stride);
    Step key{b_.GetInsertBlock(), ptr, by, index};
    llvm::Value*& next = steps_[key];
    if (!next) next = b_.CreateGEP(element, ptr, index ? b_.CreateMul(by, index) : by);
    return next;
  }

  // Base plus all terms that are the same for all lanes, each added as far out as it can be.
  llvm::Value* uniform_pointer(const Instr& in, llvm::Type* element) {
    std::vector<std::pair<int, const Term*>> terms;
    for (const Term& t : in.address)
      if (!(t.index && a_.varying[t.index.id]) && !(t.stride.is_constant() && !t.index))
        terms.push_back({t.index ? depth_of(t.index) : -1, &t});
    std::stable_sort(terms.begin(), terms.end(),
                     [](auto& x, auto& y) { return x.first < y.first; });
    llvm::Value* ptr = bases_[in.buffer.id];
    for (auto [depth, t] : terms)
      ptr = at_depth(depth, [&] {
        return advance(ptr, element, t->stride, t->index ? values_[t->index.id][0] : nullptr);
      });
    return ptr;
  }

  struct Place {
    llvm::Value* pointer;  // of the first lane, or of all when offsets is null and not contiguous
    llvm::Value* offsets = nullptr;  // per lane, in elements; null: contiguous (or a single lane)
  };

  bool is_varying_address(const Instr& in) const {
    return std::any_of(in.address.begin(), in.address.end(),
                       [&](const Term& t) { return t.index && a_.varying[t.index.id]; });
  }

  Place place(const Instr& in, int k) {
    llvm::Type* element = ops_.memory_type(k_[in.buffer].dtype, 1);
    llvm::Value* ptr = uniform_pointer(in, element);
    int64_t displacement = 0;
    bool contiguous = true;
    llvm::Value* offsets = nullptr;
    for (const Term& t : in.address) {
      if (!t.index && t.stride.is_constant()) displacement += t.stride.scale;
      if (!t.index || !a_.varying[t.index.id]) continue;
      llvm::Value* more;
      if (t.index.id == shape_.loop) {
        ptr = advance(ptr, element, t.stride, shape_.index);
        if (t.stride.is(1)) {
          displacement += k * shape_.lanes;
          more = iota(b_.getInt64Ty(), 0, 1);
        } else {
          contiguous = false;
          more = lane_offsets(t.stride, k);
        }
      } else {
        contiguous = false;
        more = b_.CreateMul(values_[t.index.id][k], splat(size(t.stride)));
      }
      contiguous &= !offsets;
      offsets = offsets ? b_.CreateAdd(offsets, more) : more;
    }
    if (displacement) ptr = b_.CreateConstGEP1_64(element, ptr, displacement);
    if (contiguous) return {ptr};
    if (shape_.lanes == 1) return {b_.CreateGEP(element, ptr, offsets)};
    return {ptr, offsets};
  }

  llvm::Value* lane_offsets(Size stride, int k) {
    int64_t first = int64_t{k} * shape_.lanes;
    if (stride.is_constant()) return iota(b_.getInt64Ty(), first * stride.scale, stride.scale);
    return b_.CreateMul(iota(b_.getInt64Ty(), first, 1), splat(size(stride)));
  }

  llvm::Value* all_lanes() {
    return llvm::ConstantInt::getAllOnesValue(
        llvm::FixedVectorType::get(b_.getInt1Ty(), shape_.lanes));
  }

  void load(const Instr& in, int at) {
    DType memory = k_[in.buffer].dtype;
    llvm::Align align(size_of(memory == DType::C64 ? DType::F32 : memory));
    if (!a_.varying[at]) {
      llvm::Value* x =
          b_.CreateAlignedLoad(ops_.memory_type(memory, 1), place(in, 0).pointer, align);
      values_[at] = {ops_.from_memory(x, memory)};
      return;
    }
    llvm::Type* type = ops_.memory_type(memory, shape_.lanes);
    Values raw;
    for (int k = 0; k < shape_.unroll; ++k) {
      Place p = place(in, k);
      llvm::Value* zero = llvm::Constant::getNullValue(type);
      if (p.offsets) {
        llvm::Value* ptrs = b_.CreateGEP(ops_.memory_type(memory, 1), p.pointer, p.offsets);
        raw.push_back(b_.CreateMaskedGather(type, ptrs, align,
                                            shape_.mask ? shape_.mask : all_lanes(), zero));
      } else if (shape_.mask) {
        raw.push_back(b_.CreateMaskedLoad(type, p.pointer, align, shape_.mask, zero));
      } else {
        raw.push_back(b_.CreateAlignedLoad(type, p.pointer, align));
      }
    }
    values_[at].clear();
    for (llvm::Value* x : raw) values_[at].push_back(ops_.from_memory(x, memory));
  }

  void store(const Instr& in) {
    DType memory = k_[in.buffer].dtype;
    llvm::Align align(size_of(memory == DType::C64 ? DType::F32 : memory));
    if (!is_varying_address(in)) {
      b_.CreateAlignedStore(ops_.to_memory(values_[in.args[0].id][0], memory), place(in, 0).pointer,
                            align);
      return;
    }
    for (int k = 0; k < shape_.unroll; ++k) {
      Place p = place(in, k);
      llvm::Value* x = ops_.to_memory(lane(in.args[0], k), memory);
      if (p.offsets) {
        llvm::Value* ptrs = b_.CreateGEP(ops_.memory_type(memory, 1), p.pointer, p.offsets);
        b_.CreateMaskedScatter(x, ptrs, align, shape_.mask ? shape_.mask : all_lanes());
      } else if (shape_.mask) {
        b_.CreateMaskedStore(x, p.pointer, align, shape_.mask);
      } else {
        b_.CreateAlignedStore(x, p.pointer, align);
      }
    }
  }

  // ---- Loops

  // for (i = start; i < stop; i += step) carried = body(i, carried); gives the last carried values.
  Values counted(int loop, Range r, const Values& init, LoopBody body) {
    auto *first = llvm::dyn_cast<llvm::ConstantInt>(r.start),
         *last = llvm::dyn_cast<llvm::ConstantInt>(r.stop);
    bool fixed = first && last, known = fixed || r.runs;
    if (fixed && first->getSExtValue() >= last->getSExtValue()) return init;
    bool once = fixed && first->getSExtValue() + r.step >= last->getSExtValue();
    llvm::BasicBlock *before = b_.GetInsertBlock(), *pre = block("pre"), *top = block("loop");
    llvm::BasicBlock* exit = known ? nullptr : block("exit");
    if (known)
      b_.CreateBr(pre);
    else
      b_.CreateCondBr(b_.CreateICmpSLT(r.start, r.stop), pre, exit);
    b_.SetInsertPoint(pre);
    b_.CreateBr(top);
    b_.SetInsertPoint(top);
    frames_.push_back({loop, pre});
    Values now = init;
    llvm::PHINode* index = nullptr;
    if (!once) {
      index = b_.CreatePHI(b_.getInt64Ty(), 2);
      index->addIncoming(r.start, pre);
      for (auto& v : now) {
        auto* phi = b_.CreatePHI(v->getType(), 2);
        phi->addIncoming(v, pre);
        v = phi;
      }
    }
    Values next = body(once ? r.start : index, now);
    frames_.pop_back();
    llvm::BasicBlock* latch = b_.GetInsertBlock();
    if (!exit) exit = block("exit");
    if (once) {
      b_.CreateBr(exit);
    } else {
      llvm::Value* i = b_.CreateNSWAdd(index, b_.getInt64(r.step));
      index->addIncoming(i, latch);
      for (size_t c = 0; c < now.size(); ++c)
        llvm::cast<llvm::PHINode>(now[c])->addIncoming(next[c], latch);
      b_.CreateCondBr(b_.CreateICmpSLT(i, r.stop), top, exit);
    }
    b_.SetInsertPoint(exit);
    if (known) return next;
    for (size_t c = 0; c < next.size(); ++c) {
      auto* phi = b_.CreatePHI(init[c]->getType(), 2);
      phi->addIncoming(init[c], before);
      phi->addIncoming(next[c], latch);
      next[c] = phi;
    }
    return next;
  }

  bool is_float_sum(int carry) const {
    return k_.body[carry].combine == Combine::Add && is_float(k_.body[carry].dtype);
  }

  // counted(), except that float sums are formed over runs of `run` steps, so that an element
  // passes through that many roundings and a few more, however long the loop is. `carries` says
  // which carry each carried value belongs to. `many`: whether there are many runs; nullptr: no.
  Values counted_sums(int loop, const Range& r, int64_t run, llvm::Value* many, const Values& init,
                      llvm::ArrayRef<int> carries, LoopBody body) {
    const size_t count = init.size();
    Values sums = init;
    // Where there are many runs, what adding one rounds away is added with the next. (Where there turn out to
    // be few, nothing is: a sum of no more than a run is the plain one then, which begins with -0.)
    for (size_t v = 0; v < count; ++v)
      if (many && is_float_sum(carries[v]))
        sums.push_back(llvm::Constant::getNullValue(init[v]->getType()));
    const Range runs{r.start, r.stop, r.step * run, r.runs};
    sums = counted(loop, runs, sums, [&](llvm::Value* start, const Values& so_far) {
      Values from(so_far.begin(), so_far.begin() + count);
      for (size_t v = 0; v < count; ++v)
        if (is_float_sum(carries[v])) from[v] = llvm::ConstantFP::get(from[v]->getType(), -0.0);
      llvm::Value* stop = b_.CreateBinaryIntrinsic(
          llvm::Intrinsic::smin, b_.CreateNSWAdd(start, b_.getInt64(runs.step)), r.stop);
      Values next = counted(loop, {start, stop, r.step, true}, from, body);
      next.append(so_far.begin() + count, so_far.end());
      for (size_t v = 0, lost = count; v < count; ++v) {
        if (!is_float_sum(carries[v])) continue;
        llvm::Value *sum = so_far[v], *x = next[v];
        if (many) x = b_.CreateFAdd(x, so_far[lost]);
        next[v] = b_.CreateFAdd(sum, x);
        if (!many) continue;
        llvm::Value* added = b_.CreateFSub(next[v], sum);
        llvm::Value* error = b_.CreateFAdd(b_.CreateFSub(sum, b_.CreateFSub(next[v], added)),
                                           b_.CreateFSub(x, added));
        llvm::Value* none = llvm::Constant::getNullValue(error->getType());
        llvm::Value* counts = b_.CreateFCmpORD(error, error);  // an infinity loses NaN
        if (!llvm::isa<llvm::Constant>(many))
          counts = b_.CreateAnd(counts, counts->getType()->isVectorTy()
                                            ? b_.CreateVectorSplat(lanes_of(counts), many)
                                            : many);
        next[lost++] = b_.CreateSelect(counts, error, none);
      }
      return next;
    });
    Values out(sums.begin(), sums.begin() + count);
    for (size_t v = 0, lost = count; v < count; ++v)
      if (many && is_float_sum(carries[v])) out[v] = b_.CreateFAdd(out[v], sums[lost++]);
    return out;
  }

  // The loop of `loop`'s carries, each `lanes` accumulators side by side: counted_sums() where one
  // of them is a float sum over more than a run.
  Values accumulated(int loop, const Range& r, int64_t lanes, const Values& init,
                     llvm::ArrayRef<int> carries, LoopBody body) {
    const Extent& e = k_.body[loop].extent;
    const Size most = e.is_tile() ? e.tile : e.total;
    const int64_t run = lanes >= kSumRun ? 2 * kSumRun : kSumRun;
    bool sums = false;
    for (int c : carries) sums |= is_float_sum(c);
    if (!sums) return counted(loop, r, init, body);
    if (!most.is_constant())  // the order is that of a loop whose length is known
      return counted_sums(loop, r, run,
                          b_.CreateICmpSGE(size(most), b_.getInt64((kFewRuns * run + 1) * r.step)),
                          init, carries, body);
    const int64_t runs = ceil_div(most.scale / r.step, run);
    if (runs <= 1) return counted(loop, r, init, body);
    return counted_sums(loop, r, run, runs > kFewRuns ? b_.getTrue() : nullptr, init, carries,
                        body);
  }

  static unsigned lanes_of(llvm::Value* x) {
    return llvm::cast<llvm::FixedVectorType>(x->getType())->getNumElements();
  }

  int first_after_carries(int loop) const {
    int i = loop + 1;
    while (k_.body[i].op == KernelOp::Carry) ++i;
    return i;
  }

  void emit_loop(int at) {
    const Instr& in = k_.body[at];
    if (in.kind == LoopKind::Vector) return vector_loop(at);
    Range r{b_.getInt64(0), nullptr, 1};
    if (in.kind == LoopKind::Block)
      r.start = function_->getArg(2), r.stop = function_->getArg(3);
    else
      r.stop = extent(in.extent);
    int body = first_after_carries(at);
    bool lanes = shape_.loop >= 0;
    int width = lanes ? shape_.unroll : 1;
    Values init;
    for (int c = at + 1; c < body; ++c)
      for (int k = 0; k < width; ++k) init.push_back(operand(lanes, k_.body[c].args[0], k));
    llvm::SmallVector<int, 8> carries;
    for (int c = at + 1; c < body; ++c) carries.append(width, c);
    Values last = accumulated(at, r, 1, init, carries, [&](llvm::Value* i, const Values& carried) {
      values_[at] = {i};
      for (int c = at + 1; c < body; ++c) {
        auto first = carried.begin() + (c - at - 1) * width;
        values_[c] = state_[c] = Values(first, first + width);
      }
      emit_range(body, a_.end_of[at]);
      Values next;
      for (int c = at + 1; c < body; ++c) next.append(state_[c].begin(), state_[c].end());
      return next;
    });
    for (int c = at + 1; c < body; ++c) {
      auto first = last.begin() + (c - at - 1) * width;
      state_[c] = Values(first, first + width);
    }
  }

  // Lanes and unroll factor of a vector loop: full vectors of its widest arithmetic, and enough of
  // them in flight to hide latencies without running out of registers.
  Shape choose_shape(int at) const {
    int cost = 0;
    bool wide = false, word = false, index64 = false, half = false, nested = false;
    for (int i = at + 1; i < a_.end_of[at]; ++i) {
      const Instr& in = k_.body[i];
      nested |= in.op == KernelOp::Loop;
      if (!a_.varying[i] && in.op != KernelOp::Store) continue;
      cost += info(in.op).expensive ? 13 : 1;
      DType t = in.op == KernelOp::Store ? k_[in.buffer].dtype : in.dtype;
      if (in.op == KernelOp::Loop || in.op == KernelOp::Update) continue;
      wide |= t == DType::F64;
      index64 |= t == DType::I64;
      word |= size_of(t) == 4;
      half |= size_of(t) == 2;
    }
    int bits = wide ? 64 : word ? 32 : index64 ? 64 : half ? 16 : 8;
    Shape s;
    s.loop = at;
    s.lanes = options_.vector_bits / bits;
    // Columns that are summed step by step wait for memory: the more of a row is read at once, the better.
    s.unroll = nested && cost <= kCheap ? 8 : cost <= 12 ? 4 : cost <= 48 ? 2 : 1;
    const Extent& e = k_.body[at].extent;
    const Size most = e.is_tile() ? e.tile : e.total;
    if (most.is_constant()) {
      int64_t n = most.scale;
      if (e.is_tile() && e.total.is_constant()) n = std::min(n, e.total.scale);
      n = std::max<int64_t>(n, 1);
      while (s.lanes > 1 && s.lanes / 2 >= n) s.lanes /= 2;
      const int64_t vectors = n / s.lanes;
      // Float sums and products are formed in the order of a loop whose length is not known: fewer lanes than fit, or
      // one vector at a time where there is no whole step, are that order.
      if (vectors < s.unroll && is_ordered(at)) s.unroll = 1;
      while (s.unroll > 1 && !is_ordered(at) &&
             (vectors < s.unroll || (vectors % s.unroll && vectors < 4 * s.unroll)))
        s.unroll /= 2;
    }
    return s;
  }

  // Whether rounding makes the result depend on the order of a loop.
  bool is_ordered(int loop) const {
    for (int c = loop + 1; k_.body[c].op == KernelOp::Carry; ++c) {
      const Instr& carry = k_.body[c];
      if (is_float(carry.dtype) && (carry.combine == Combine::Add || carry.combine == Combine::Mul))
        return true;
    }
    return false;
  }

  llvm::Value* tail_mask(llvm::Value* left) {
    llvm::Type* i32 = b_.getInt32Ty();
    llvm::Value* lanes = b_.getInt64(shape_.lanes);
    llvm::Value* n =
        b_.CreateTrunc(b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, lanes), i32);
    return b_.CreateICmpSLT(iota(i32, 0, 1), splat(n));
  }

  // The body of a vector loop at lanes [i, i + lanes * unroll).
  void vector_body(int at, llvm::Value* i) {
    shape_.index = i;
    if (a_.as_value[at]) {
      values_[at].clear();
      for (int k = 0; k < shape_.unroll; ++k)
        values_[at].push_back(
            b_.CreateAdd(splat(i), iota(b_.getInt64Ty(), int64_t{k} * shape_.lanes, 1)));
    }
    emit_range(first_after_carries(at), a_.end_of[at]);
  }

  void vector_loop(int at) {
    int body = first_after_carries(at);
    llvm::Value* n = extent(k_.body[at].extent);
    Shape shape = choose_shape(at);
    if (!llvm::isa<llvm::Constant>(n))
      n = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, n, b_.getInt64(0));
    int64_t step = int64_t{shape.lanes} * shape.unroll;
    llvm::Value* main_end = b_.CreateAnd(n, b_.getInt64(-step));
    Values partial;
    llvm::SmallVector<int, 8> carries;
    for (int c = at + 1; c < body; ++c) {
      carries.append(shape.unroll, c);
      partial.append(shape.unroll,
                     ops_.identity(k_.body[c].combine, k_.body[c].dtype, shape.lanes));
    }

    shape_ = shape;
    partial = accumulated(at, {b_.getInt64(0), main_end, step}, step, partial, carries,
                          [&](llvm::Value* i, const Values& carried) {
                            auto from = carried.begin();
                            for (int c = at + 1; c < body; ++c, from += shape.unroll)
                              state_[c] = Values(from, from + shape.unroll);
                            vector_body(at, i);
                            Values next;
                            for (int c = at + 1; c < body; ++c)
                              next.append(state_[c].begin(), state_[c].end());
                            return next;
                          });

    Values first;
    for (size_t c = 0; c < partial.size(); c += shape.unroll) first.push_back(partial[c]);
    shape_.unroll = 1;
    const auto one_vector = [&](llvm::Value* i, const Values& carried, bool whole) {
      if (shape_.lanes > 1 && !whole) shape_.mask = tail_mask(b_.CreateSub(n, i));
      for (int c = at + 1; c < body; ++c) state_[c] = {carried[c - at - 1]};
      vector_body(at, i);
      Values next;
      for (int c = at + 1; c < body; ++c) {
        llvm::Value *now = state_[c][0], *old = carried[c - at - 1];
        next.push_back(shape_.mask ? b_.CreateSelect(shape_.mask, now, old) : now);
      }
      return next;
    };
    // Whole vectors first where the length is known; else all that is left is masked.
    if (llvm::isa<llvm::Constant>(n)) {
      llvm::Value* vectors_end = b_.CreateAnd(n, b_.getInt64(-int64_t{shape.lanes}));
      first = counted(
          at, {main_end, vectors_end, shape.lanes}, first,
          [&](llvm::Value* i, const Values& carried) { return one_vector(i, carried, true); });
      main_end = vectors_end;
    }
    first = counted(
        at, {main_end, n, shape.lanes}, first,
        [&](llvm::Value* i, const Values& carried) { return one_vector(i, carried, false); });
    shape_ = Shape{};

    for (int c = at + 1; c < body; ++c) {
      const Instr& in = k_.body[c];
      Values p(partial.begin() + (c - at - 1) * shape.unroll,
               partial.begin() + (c - at) * shape.unroll);
      p[0] = first[c - at - 1];
      for (size_t half = p.size() / 2; half > 0; half /= 2)
        for (size_t k = 0; k < half; ++k)
          p[k] = ops_.combine(in.combine, in.dtype, p[k], p[k + half]);
      llvm::Value* total = ops_.reduce(in.combine, in.dtype, p[0]);
      state_[c] = {ops_.combine(in.combine, in.dtype, values_[in.args[0].id][0], total)};
    }
  }

  void update(const Instr& in) {
    int c = in.args[0].id;
    const Instr& carry = k_.body[c];
    bool lanes = shape_.loop >= 0;
    for (size_t k = 0; k < state_[c].size(); ++k) {
      llvm::Value* x = operand(lanes, in.args[1], static_cast<int>(k));
      llvm::Value*& s = state_[c][k];
      if (carry.combine == Combine::None)
        s = x;
      else
        s = ops_.combine(carry.combine, carry.dtype, s, x);
    }
  }

  // ---- Instructions

  void emit_range(int from, int to) {
    for (int i = from; i < to; ++i) {
      const Instr& in = k_.body[i];
      switch (in.op) {
        case KernelOp::Loop:
          emit_loop(i);
          i = a_.end_of[i];
          break;
        case KernelOp::Const:
          values_[i] = {ops_.constant(in.dtype, in.bits)};
          break;
        case KernelOp::SizeValue:
          values_[i] = {size(in.extent.total)};
          break;
        case KernelOp::Argument:
          values_[i] = {argument(in)};
          break;
        case KernelOp::Update:
          update(in);
          break;
        case KernelOp::Result:
          values_[i] = state_[in.args[0].id];
          break;
        case KernelOp::Load:
          load(in, i);
          break;
        case KernelOp::Store:
          store(in);
          break;
        default:
          compute(in, i);
      }
    }
  }

  void compute(const Instr& in, int at) {
    bool varying = a_.varying[at];
    DType type = k_[in.args[in.op == KernelOp::Select]].dtype;
    Values out;
    for (int k = 0; k < (varying ? shape_.unroll : 1); ++k) {
      std::array<llvm::Value*, 3> x{};
      for (int i = 0; i < 3; ++i) x[i] = operand(varying, in.args[i], k);
      if (in.op == KernelOp::Cast)
        out.push_back(ops_.cast(x[0], type, in.dtype));
      else if (in.op == KernelOp::Round)
        out.push_back(ops_.round(x[0], type, in.memory));
      else
        out.push_back(ops_.apply(in.op, type, x, varying ? shape_.mask : nullptr));
    }
    values_[at] = out;
  }

  using Step = std::tuple<llvm::BasicBlock*, llvm::Value*, llvm::Value*, llvm::Value*>;

  const Kernel& k_;
  Analysis a_;
  EmitOptions options_;
  llvm::IRBuilder<> b_;
  LlvmOps ops_;
  llvm::Function* function_ = nullptr;
  llvm::BasicBlock* entry_ = nullptr;
  std::vector<llvm::Value*> sizes_, bases_;
  std::vector<Frame> frames_;
  Shape shape_;
  std::vector<Values> values_;  // per instruction: one scalar, or `unroll` vectors where it varies
  std::vector<Values> state_;   // per Carry: its current, then its final value
  std::map<std::pair<int, int64_t>, llvm::Value*> scaled_sizes_;
  std::map<Step, llvm::Value*> steps_;
  std::map<std::tuple<llvm::BasicBlock*, llvm::Value*, int>, llvm::Value*> splats_;
};

}  // namespace

llvm::Function* emit_kernel(const Kernel& kernel, llvm::Module& module, const std::string& symbol,
                            const EmitOptions& options) {
  return KernelEmitter(kernel, module, symbol, options).run();
}

}  // namespace rlx::cpu
