#include "rlx/backend/cpu/executable.h"

#include <cmath>
#include <cstring>
#include <new>

#include "rlx/base/clock.h"
#include "rlx/base/parallel.h"
#include "rlx/lower/lir.h"

namespace rlx::cpu {

namespace {

constexpr int64_t kSerialWork = 1 << 14;  // smaller steps are not worth waking a thread for
constexpr double kPollWork =
    1 << 20;  // between two looks at a request to stop: a millisecond or so

class Memory {
 public:
  explicit Memory(int64_t bytes) : bytes_(static_cast<size_t>(std::max<int64_t>(bytes, 1))) {
    data_ = static_cast<std::byte*>(::operator new[](bytes_, std::align_val_t(64), std::nothrow));
    if (!data_) fail(ErrorKind::resource, "out-of-memory", "cannot allocate {} bytes", bytes_);
  }
  Memory(const Memory& o) : Memory(static_cast<int64_t>(o.bytes_)) {
    std::memcpy(data_, o.data_, bytes_);
  }
  Memory& operator=(const Memory&) = delete;
  ~Memory() { ::operator delete[](data_, std::align_val_t(64)); }
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  std::byte* data_;
};

// The run-time tables of one program; bodies of control flow have their own. Made once, reused by
// every run.
struct Frame {
  explicit Frame(const Program& program) : p(program), base(program.buffers.size(), nullptr) {
    size_t operand_count = 0;
    for (const Step& s : p.steps) {
      first_operand.push_back(operand_count);
      operand_count += s.in.size() + s.out.size();
      bodies.emplace_back();
      for (const auto& body : s.bodies) bodies.back().push_back(std::make_unique<Frame>(*body));
    }
    operands.resize(operand_count);
    for (const Step& s : p.steps)
      if (s.control != Step::Control::none) {
        in.resize(std::max(in.size(), s.in.size()));
        out.resize(std::max(out.size(), s.out.size()));
      }
  }
  const Program& p;
  std::vector<std::byte*> base;                             // per buffer
  std::vector<void*> operands;                              // of all steps, inputs then results
  std::vector<size_t> first_operand;                        // per step
  std::vector<std::vector<std::unique_ptr<Frame>>> bodies;  // per step
  std::vector<const void*> in;                              // of the body that runs
  std::vector<void*> out;
};

bool is_nan(DType d, const std::byte* p) {
  switch (d) {
    case DType::F32:
      return std::isnan(*reinterpret_cast<const float*>(p));
    case DType::F64:
      return std::isnan(*reinterpret_cast<const double*>(p));
    case DType::F16:
      return std::isnan(f16_to_float(*reinterpret_cast<const uint16_t*>(p)));
    case DType::BF16:
      return std::isnan(bf16_to_float(*reinterpret_cast<const uint16_t*>(p)));
    case DType::C64:
      return is_nan(DType::F32, p) || is_nan(DType::F32, p + 4);
    default:
      return false;
  }
}

bool has_nan(const View& v, const void* data) {
  const auto* bytes = static_cast<const std::byte*>(data);
  bool found = false;
  for_each_index(v.dims, [&](const Ints& index) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * v.strides[d];
    found = found || is_nan(v.dtype, bytes + at * size_of(v.dtype));
  });
  return found;
}

int64_t constant_bytes(const Program& p) {
  int64_t bytes = 0;
  for (const Tensor& t : p.constants) bytes += static_cast<int64_t>(t.bytes());
  for (const Step& s : p.steps)
    for (const auto& body : s.bodies) bytes += constant_bytes(*body);
  return bytes;
}

class CpuExecutable final : public Executable {
 public:
  explicit CpuExecutable(std::shared_ptr<const Compiled> c) : CpuExecutable(std::move(c), {}) {
    for (Value v : c_->signature.params()) {
      params_.push_back(std::make_shared<Memory>(c_->signature.type(v).bytes()));
      std::memset(params_.back()->data(), 0, params_.back()->bytes());
    }
  }
  // A clone. Shared memory is never written: whoever changes its value takes memory of its own.
  CpuExecutable(const CpuExecutable& o) : CpuExecutable(o.c_, o.packed_) {
    for (size_t i = 0; i < o.params_.size(); ++i)
      params_.push_back(c_->param_updated[i] ? std::make_shared<Memory>(*o.params_[i])
                                             : o.params_[i]);
  }

  const Graph& signature() const override { return c_->signature; }
  const CompileInfo& info() const override { return c_->info; }
  std::unique_ptr<Executable> clone() const override {
    return std::make_unique<CpuExecutable>(*this);
  }

  void set_param(size_t i, const void* data) override {
    if (!is_mine(params_[i]))
      params_[i] = std::make_shared<Memory>(static_cast<int64_t>(params_[i]->bytes()));
    std::memcpy(params_[i]->data(), data, static_cast<size_t>(param_bytes(i)));
    for (size_t k = 0; k < packed_.size(); ++k) {
      const Buffer& source =
          c_->program->buffers[static_cast<size_t>(c_->program->packed[k].source.buffer)];
      if (source.place == Place::param && c_->param_of[static_cast<size_t>(source.index)] == i)
        packed_[k] = nullptr;
    }
  }
  const void* param(size_t i) const override { return params_[i]->data(); }

  void prepare() override {
    for (size_t k = 0; k < packed_.size(); ++k)
      if (!packed_[k]) packed_[k] = pack(c_->program->packed[k]);
  }

  void run(const void* const* inputs, void* const* outputs, const RunOptions& options) override {
    options_ = &options;
    flag_ = 0;
    cancellation_.begin(options.cancel);
    prepare();
    if (!arena_) arena_.emplace(c_->program->arena_bytes);
    if (!scratch_) scratch_.emplace(c_->program->scratch_bytes * c_->threads);
    if (c_->poison) {
      std::memset(arena_->data(), 0xff, arena_->bytes());
      for (size_t k = 0; k < c_->program->outputs.size(); ++k)
        if (const int64_t bytes = c_->program->outputs[k].type().bytes())
          std::memset(outputs[k], 0xff, static_cast<size_t>(bytes));
    }
    run_program(frame_, inputs, outputs, arena_->data());
  }

  int64_t resident_bytes() const override {
    auto bytes = static_cast<size_t>(c_->program->code_bytes + constant_bytes(*c_->program));
    for (const std::optional<Memory>* m : {&arena_, &scratch_})
      if (*m) bytes += (*m)->bytes();
    for (const auto* list : {&params_, &packed_})
      for (const std::shared_ptr<Memory>& m : *list)
        if (m) bytes += m->bytes();
    return static_cast<int64_t>(bytes);
  }

  std::vector<StepTime> times() const override {
    std::vector<StepTime> out;
    for (size_t s = 0; s < times_.size(); ++s) {
      const Step& step = c_->program->steps[s];
      // A chain is timed as a whole, under the name of its first step.
      out.push_back({step.label, step.kernel ? step.kernel->name() : "control flow", times_[s],
                     step.kernel ? step.kernel->flops() : 0});
    }
    return out;
  }

 private:
  CpuExecutable(std::shared_ptr<const Compiled> c, std::vector<std::shared_ptr<Memory>> packed)
      : c_(std::move(c)),
        packed_(std::move(packed)),
        frame_(*c_->program),
        times_(c_->program->steps.size(), 0) {
    packed_.resize(c_->program->packed.size());
  }

  // Whether no clone has it any more. If so, all that they did with it has happened before: the release
  // below reads the count that the last of them wrote, in order.
  static bool is_mine(const std::shared_ptr<Memory>& memory) {
    if (memory.use_count() > 1) return false;
    std::shared_ptr<Memory>(memory).reset();
    return true;
  }

  int64_t param_bytes(size_t i) const {
    return c_->signature.type(c_->signature.params()[i]).bytes();
  }

  // A weight in its kernel's form.
  std::shared_ptr<Memory> pack(const PackedWeight& w) const {
    const StepKernel& kernel = *c_->program->steps[static_cast<size_t>(w.step)].kernel;
    const Buffer& b = c_->program->buffers[static_cast<size_t>(w.source.buffer)];
    const std::byte* base = b.place == Place::param
                                ? params_[c_->param_of[static_cast<size_t>(b.index)]]->data()
                                : c_->program->constants[static_cast<size_t>(b.index)].raw();
    auto memory = std::make_shared<Memory>(static_cast<int64_t>(kernel.packed_bytes()));
    kernel.pack(base + w.source.offset * size_of(w.source.dtype), memory->data());
    return memory;
  }

  void resolve(Frame& f, const void* const* inputs, void* const* outputs, std::byte* arena) {
    for (size_t b = 0; b < f.base.size(); ++b) {
      const Buffer& buffer = f.p.buffers[b];
      const auto k = static_cast<size_t>(buffer.index);
      switch (buffer.place) {
        case Place::arena:
          f.base[b] = arena + buffer.offset;
          break;
        case Place::input:
          f.base[b] = static_cast<std::byte*>(const_cast<void*>(inputs[k]));
          break;
        case Place::output:
          f.base[b] = static_cast<std::byte*>(outputs[k]);
          break;
        case Place::param:
          f.base[b] = params_[c_->param_of[k]]->data();
          break;
        case Place::packed:
          f.base[b] = packed_[k]->data();
          break;
        case Place::constant:
          f.base[b] = const_cast<std::byte*>(f.p.constants[k].raw());
          break;
      }
    }
  }

  static void* address(const Frame& f, const View& v) {
    return f.base[static_cast<size_t>(v.buffer)] + v.offset * size_of(v.dtype);
  }

  void run_program(Frame& f, const void* const* inputs, void* const* outputs, std::byte* arena) {
    resolve(f, inputs, outputs, arena);
    for (const Chain& chain : f.p.chains) {
      check_cancelled();
      const auto start = options_->profile ? Clock::now() : Clock::time_point();
      if (c_->poison) poison_fresh(f, chain);
      run_chain(f, chain);
      if (options_->profile && &f == &frame_)
        times_[static_cast<size_t>(chain.begin)] = seconds_since(start);
      for (int32_t s = chain.begin; s < chain.end; ++s) after_step(f, static_cast<size_t>(s));
    }
  }

  void check_cancelled() {
    if (cancellation_.poll()) fail(ErrorKind::user, "cancelled", "the run was cancelled");
  }

  // What the chain writes first holds nothing yet, whatever lay there before, results included.
  static void poison_fresh(const Frame& f, const Chain& chain) {
    for (int32_t s = chain.begin; s < chain.end; ++s)
      for (const View& v : f.p.steps[static_cast<size_t>(s)].out) {
        const Buffer& b = f.p.buffers[static_cast<size_t>(v.buffer)];
        const bool fresh = b.place == Place::output || (b.place == Place::arena && b.shares < 0);
        if (fresh && b.first == s && b.bytes > 0)
          std::memset(f.base[static_cast<size_t>(v.buffer)], 0xff, static_cast<size_t>(b.bytes));
      }
  }

  // Steps one after the other over all their blocks, or, in a longer chain, over one row tile after
  // the other.
  void run_chain(Frame& f, const Chain& chain) {
    int64_t work = 0;
    for (int32_t s = chain.begin; s < chain.end; ++s) {
      const Step& step = f.p.steps[static_cast<size_t>(s)];
      if (step.control == Step::Control::scan) return run_scan(f, static_cast<size_t>(s));
      if (step.control == Step::Control::cond) return run_cond(f, static_cast<size_t>(s));
      if (step.control == Step::Control::loop) return run_loop(f, static_cast<size_t>(s));
      void** operands = f.operands.data() + f.first_operand[static_cast<size_t>(s)];
      for (const View& v : step.in) *operands++ = address(f, v);
      for (const View& v : step.out) *operands++ = address(f, v);
      work += step.kernel->work();
    }
    const int64_t tiles = chain.rows ? ceil_div(chain.rows, chain.tile)
                                     : f.p.steps[static_cast<size_t>(chain.begin)].kernel->blocks();
    const int threads = work < kSerialWork ? 1 : c_->threads;
    // Blocks may be tiny, so several run between two polls.
    const double share = kPollWork / static_cast<double>(std::max<int64_t>(work, 1));
    const int64_t per_poll =
        cancellation_.watched() && share < 1
            ? std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(tiles)))
            : tiles;
    parallel_for_worker(threads, tiles, [&](int worker, int64_t begin, int64_t end) {
      for (; begin < end && !cancellation_.poll(); begin += per_poll)
        run_tiles(f, chain, worker, begin, std::min(begin + per_poll, end));
    });
    if (cancellation_.seen()) check_cancelled();  // blocks were left out
  }

  void run_tiles(const Frame& f, const Chain& chain, int worker, int64_t begin, int64_t end) {
    std::byte* scratch = scratch_->data() + worker * c_->program->scratch_bytes;
    auto run = [&](int32_t s, int64_t first, int64_t last) {
      const StepKernel& kernel = *f.p.steps[static_cast<size_t>(s)].kernel;
      kernel.run({f.operands.data() + f.first_operand[static_cast<size_t>(s)], scratch, &flag_,
                  &cancellation_},
                 first, last);
    };
    if (!chain.rows) return run(chain.begin, begin, end);
    for (int64_t tile = begin; tile < end; ++tile)
      for (int32_t s = chain.begin; s < chain.end && !cancellation_.poll(); ++s) {
        const int64_t per_block = f.p.steps[static_cast<size_t>(s)].kernel->rows_per_block();
        const int64_t last_row = std::min((tile + 1) * chain.tile, chain.rows);
        run(s, tile * chain.tile / per_block, ceil_div(last_row, per_block));
      }
  }

  Error fault(const Step& step) const {
    const std::string name = step.kernel ? step.kernel->name() : "the body";
    if (static_cast<RunFault>(flag_) == RunFault::singular)
      return {ErrorKind::user, "singular", fmt::format("a matrix given to {} is singular", name)};
    std::string read;  // sizes tell which range it is
    for (const View& v : step.in) read += fmt::format("{}{}", read.empty() ? "" : ", ", v.type());
    return {ErrorKind::user, "index-range",
            fmt::format("an index that {} reads is out of range; it reads {}", name, read)};
  }

  void after_step(Frame& f, size_t s) {
    const Step& step = f.p.steps[s];
    if (flag_) throw fault(step).at(step.label);
    if (options_->check_nan)
      for (const View& v : step.out)
        if (has_nan(v, address(f, v)))
          throw Error(
              ErrorKind::user, "nan",
              fmt::format("{} made a NaN", step.kernel ? step.kernel->name() : "control flow"))
              .at(step.label);
    if (c_->poison)
      for (size_t b = 0; b < f.p.buffers.size(); ++b) {
        const Buffer& buffer = f.p.buffers[b];
        if (buffer.place == Place::arena && buffer.shares < 0 &&
            buffer.last == static_cast<int32_t>(s))
          std::memset(f.base[b], 0xff, static_cast<size_t>(buffer.bytes));
      }
  }

  void run_scan(Frame& f, size_t s) {
    const Step& step = f.p.steps[s];
    Frame& body = *f.bodies[s][0];
    const auto carries = static_cast<size_t>(step.carries), xs = static_cast<size_t>(step.xs);
    std::byte* work = f.base[static_cast<size_t>(step.workspace)];
    std::byte* spare = work + align_up(body.p.arena_bytes, 64);
    for (size_t c = 0; c < step.in.size(); ++c) f.in[c] = address(f, step.in[c]);
    if (step.length == 0) {
      for (size_t c = 0; c < carries; ++c)
        std::memcpy(address(f, step.out[c]), f.in[c], static_cast<size_t>(step.out_bytes[c]));
      return;
    }
    for (int64_t i = 0; i < step.length; ++i) {
      check_cancelled();
      const int64_t t = step.reverse ? step.length - 1 - i : i;
      for (size_t x = carries; x < carries + xs; ++x)
        f.in[x] =
            static_cast<std::byte*>(address(f, step.in[x])) + t * (step.in_bytes[x] / step.length);
      std::byte* next = spare;  // two copies of each carry, used in turn
      for (size_t c = 0; c < carries; ++c) {
        const int64_t bytes = align_up(step.out_bytes[c], 64);
        f.out[c] = i + 1 == step.length ? address(f, step.out[c]) : next + (i & 1) * bytes;
        next += 2 * bytes;
      }
      for (size_t y = carries; y < step.out.size(); ++y)
        f.out[y] = static_cast<std::byte*>(address(f, step.out[y])) +
                   t * (step.out_bytes[y] / step.length);
      run_program(body, f.in.data(), f.out.data(), work);
      for (size_t c = 0; c < carries; ++c) f.in[c] = f.out[c];
    }
  }

  void run_loop(Frame& f, size_t s) {
    const Step& step = f.p.steps[s];
    Frame &condition = *f.bodies[s][0], &body = *f.bodies[s][1];
    const auto carries = static_cast<size_t>(step.carries);
    std::byte* work = f.base[static_cast<size_t>(step.workspace)];
    std::byte* predicate =
        work + align_up(std::max(condition.p.arena_bytes, body.p.arena_bytes), 64);
    for (size_t i = 0; i < step.in.size(); ++i) f.in[i] = address(f, step.in[i]);
    for (int64_t i = 0; step.length < 0 || i < step.length; ++i) {
      check_cancelled();
      void* const result = predicate;
      run_program(condition, f.in.data(), &result, work);
      if (*predicate == std::byte{0}) break;
      std::byte* next = predicate + 64;  // two copies of each carry, used in turn
      for (size_t c = 0; c < carries; ++c) {
        const int64_t bytes = align_up(step.out_bytes[c], 64);
        f.out[c] = next + (i & 1) * bytes;
        next += 2 * bytes;
      }
      run_program(body, f.in.data(), f.out.data(), work);
      for (size_t c = 0; c < carries; ++c) f.in[c] = f.out[c];
    }
    for (size_t c = 0; c < carries; ++c)
      if (step.out_bytes[c])
        std::memcpy(address(f, step.out[c]), f.in[c], static_cast<size_t>(step.out_bytes[c]));
  }

  void run_cond(Frame& f, size_t s) {
    const Step& step = f.p.steps[s];
    const bool chosen = *static_cast<const uint8_t*>(address(f, step.in[0])) != 0;
    for (size_t i = 1; i < step.in.size(); ++i) f.in[i - 1] = address(f, step.in[i]);
    for (size_t o = 0; o < step.out.size(); ++o) f.out[o] = address(f, step.out[o]);
    run_program(*f.bodies[s][chosen ? 0 : 1], f.in.data(), f.out.data(),
                f.base[static_cast<size_t>(step.workspace)]);
  }

  std::shared_ptr<const Compiled> c_;
  std::optional<Memory> arena_, scratch_;  // made by the first run
  std::vector<std::shared_ptr<Memory>> params_;
  std::vector<std::shared_ptr<Memory>> packed_;  // nullptr: not made since its weight was set
  Frame frame_;
  std::vector<double> times_;
  const RunOptions* options_ = nullptr;
  uint32_t flag_ = 0;
  Cancellation cancellation_;
};

}  // namespace

std::unique_ptr<Executable> make_executable(std::shared_ptr<const Compiled> compiled) {
  return std::make_unique<CpuExecutable>(std::move(compiled));
}

}  // namespace rlx::cpu
