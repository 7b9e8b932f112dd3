// Runs LIR on any device: {launch, copy, fill, read} of a stream are all it knows of one.
#include <cmath>
#include <cstring>

#include "rlx/base/clock.h"
#include "rlx/device/executable.h"
#include "rlx/lower/lir.h"

namespace rlx {

namespace {

bool is_nan(DType d, const std::byte* p) {
  if (is_complex(d)) return is_nan(DType::F32, p) || is_nan(DType::F32, p + 4);
  return is_float(d) && std::isnan(element_value(d, p));
}

// `data`: the buffer's first byte.
bool has_nan(const View& v, const std::byte* data) {
  bool found = false;
  for_each_index(v.dims, [&](const Ints& index) {
    int64_t at = v.offset;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * v.strides[d];
    found = found || is_nan(v.dtype, data + at * size_of(v.dtype));
  });
  return found;
}

// Constants in memory of the device; all clones read the same.
struct Constants {
  Constants() = default;
  Constants(const Program& p, const Backend& backend, Stream& stream) {
    for (const Tensor& t : p.constants) {
      const auto bytes = static_cast<int64_t>(t.bytes());
      total += bytes;
      if (backend.map(t.storage().get()) == t.raw()) {  // the host's memory is the device's
        blocks.push_back(t.storage());
        continue;
      }
      blocks.push_back(backend.allocate(bytes));
      stream.upload(blocks.back().get(), t.raw(), bytes);
    }
    for (const Step& s : p.steps)
      for (const auto& body : s.bodies) {
        bodies.push_back(std::make_unique<Constants>(*body, backend, stream));
        total += bodies.back()->total;
      }
  }
  std::vector<MemoryBlock> blocks;
  std::vector<std::unique_ptr<Constants>> bodies;  // in the order of steps and their bodies
  int64_t total = 0;                               // bytes
};

// The run-time tables of one program; bodies of control flow have their own. Made once, reused by
// every run.
struct Frame {
  Frame(const Program& program, const Constants& constants, size_t& steps)
      : p(program), constants(constants), base(program.buffers.size(), nullptr), first_step(steps) {
    steps += p.steps.size();
    size_t operand_count = 0;
    auto body_constants = constants.bodies.begin();
    for (const Step& s : p.steps) {
      first_operand.push_back(operand_count);
      operand_count += s.in.size() + s.out.size();
      bodies.emplace_back();
      for (const auto& body : s.bodies)
        bodies.back().push_back(std::make_unique<Frame>(*body, **body_constants++, steps));
      if (s.control == Step::Control::none) continue;
      in.resize(std::max(in.size(), s.in.size()));
      out.resize(std::max(out.size(), s.out.size()));
    }
    operands.resize(operand_count);
    workspaces.resize(p.steps.size());
  }
  const Program& p;
  const Constants& constants;
  std::vector<std::byte*> base;                             // per buffer
  std::vector<void*> operands;                              // of all steps, inputs then results
  std::vector<size_t> first_operand;                        // per step
  std::vector<std::byte*> workspaces;                       // per step
  std::vector<std::vector<std::unique_ptr<Frame>>> bodies;  // per step
  std::vector<const std::byte*> in;                         // of the body that runs
  std::vector<std::byte*> out;
  size_t first_step;  // where its steps stand among those of all frames
};

class ProgramExecutable final : public Executable {
 public:
  explicit ProgramExecutable(std::shared_ptr<const Compiled> c)
      : ProgramExecutable(std::move(c), nullptr) {
    for (Value v : c_->signature.params()) {
      params_.push_back(backend().allocate(c_->signature.type(v).bytes()));
      stream_->fill(params_.back().get(), 0, c_->signature.type(v).bytes());
    }
    stream_->wait();
  }
  // A clone. Shared memory is never written: whoever changes its value takes memory of its own.
  ProgramExecutable(const ProgramExecutable& o) : ProgramExecutable(o.c_, &o) {
    for (size_t i = 0; i < o.params_.size(); ++i) {
      params_.push_back(o.params_[i]);
      if (c_->param_updated[i]) own_copy(i);
    }
    stream_->wait();
  }

  ~ProgramExecutable() override { abandon(); }

  const Graph& signature() const override { return c_->signature; }
  const CompileInfo& info() const override { return c_->info; }
  Stream& stream() const override { return *stream_; }
  const std::shared_ptr<const Backend>& shared_backend() const override { return c_->backend; }
  std::unique_ptr<Executable> clone() const override {
    stream_->wait();
    return std::make_unique<ProgramExecutable>(*this);
  }

  void upload_param(size_t i, const void* data) override {
    if (!is_mine(params_[i])) params_[i] = backend().allocate(param_bytes(i));
    stream_->upload(params_[i].get(), data, param_bytes(i));
    forget_prepared(i);
  }
  void share_param(size_t i, MemoryBlock value) override {
    stream_->wait();  // nobody reads the old one any more
    params_[i] = std::move(value);
    if (c_->param_updated[i]) own_copy(i);
    forget_prepared(i);
  }
  MemoryBlock param(size_t i) const override { return params_[i]; }
  bool is_updated(size_t i) const override { return c_->param_updated[i]; }

  void prepare() override {
    for (size_t k = 0; k < joined_.size(); ++k)
      if (!joined_[k]) joined_[k] = join(k);
    for (size_t k = 0; k < packed_.size(); ++k)
      if (!packed_[k]) packed_[k] = pack(program().packed[k]);
  }

  void run(const std::byte* const* inputs, std::byte* const* outputs,
           const RunOptions& options) override {
    prepare();
    options_ = &options;
    watch(options.cancel);
    if (!arena_) {
      arena_ = backend().allocate(program().arena_bytes);
      stream_->prepare(program());
    }
    if (!faults_) make_faults();
    if (!pending_) stream_->fill(faults_.get(), 0, fault_bytes());
    pending_ = true;
    try {
      if (c_->poison) {
        stream_->fill(arena_.get(), 0xff, program().arena_bytes);
        for (size_t k = 0; k < program().outputs.size(); ++k)
          stream_->fill(outputs[k], 0xff, program().outputs[k].type().bytes());
      }
      run_program(frame_, inputs, outputs, arena_.get());
      if (options.wait || !stream_->is_late() || is_watched()) wait();
    } catch (...) {
      abandon();
      throw;
    }
  }

  void wait() override {
    if (!pending_) return;
    pending_ = false;
    stream_->wait();
    if (stream_->is_late()) raise_fault();
    if (cancellation_.seen()) check_cancelled();  // blocks were left out
  }

  int64_t resident_bytes() const override {
    int64_t bytes = program().code_bytes + constants_->total + stream_->resident_bytes();
    if (arena_) bytes += std::max<int64_t>(program().arena_bytes, 1);
    if (faults_) bytes += fault_bytes();
    for (size_t k = 0; k < joined_.size(); ++k)
      if (joined_[k]) bytes += joined_frames_[k]->p.buffers[0].bytes;
    for (size_t i = 0; i < params_.size(); ++i) bytes += std::max<int64_t>(param_bytes(i), 1);
    for (size_t k = 0; k < packed_.size(); ++k)
      if (packed_[k]) bytes += packed_kernel(program().packed[k]).packed_bytes();
    return bytes;
  }

  std::vector<StepTime> times() const override {
    std::vector<StepTime> out;
    for (size_t s = 0; s < times_.size(); ++s) {
      const Step& step = program().steps[s];
      // A chain is timed as a whole, under the name of its first step.
      out.push_back({step.label, step.kernel ? step.kernel->name() : "control flow", times_[s],
                     step.kernel ? step.kernel->flops() : 0});
    }
    return out;
  }

 private:
  ProgramExecutable(std::shared_ptr<const Compiled> c, const ProgramExecutable* source)
      : c_(std::move(c)),
        stream_(c_->backend->make_stream(c_->threads)),
        constants_(source
                       ? source->constants_
                       : std::make_shared<const Constants>(*c_->program, *c_->backend, *stream_)),
        frame_(*c_->program, *constants_, steps_),
        times_(c_->program->steps.size(), 0) {
    static const Constants none;
    for (const JoinedWeight& w : program().joined)
      joined_frames_.push_back(std::make_unique<Frame>(*w.program, none, steps_));
    if (source) packed_ = source->packed_, joined_ = source->joined_;
    packed_.resize(program().packed.size());
    joined_.resize(program().joined.size());
  }

  const Program& program() const { return *c_->program; }
  int64_t fault_bytes() const { return static_cast<int64_t>(steps_ * sizeof(uint32_t)); }
  bool is_watched() const { return options_->cancel || options_->check_nan || options_->profile; }

  // Whether no clone has it any more. If so, all that they did with it has happened before: the release
  // below reads the count that the last of them wrote, in order.
  static bool is_mine(const MemoryBlock& memory) {
    if (memory.use_count() > 1) return false;
    MemoryBlock(memory).reset();
    return true;
  }

  void own_copy(size_t i) {
    const MemoryBlock shared = std::move(params_[i]);
    params_[i] = backend().allocate(param_bytes(i));
    stream_->copy(params_[i].get(), shared.get(), param_bytes(i));
    stream_->wait();  // `shared` may go
  }

  int64_t param_bytes(size_t i) const {
    return c_->signature.type(c_->signature.params()[i]).bytes();
  }

  // Forgets what was made of the parameter.
  void forget_prepared(size_t param) {
    stream_->wait();  // runs that were not waited for read it
    auto is_made_of = [&](int32_t buffer) {
      const Buffer& b = program().buffers[static_cast<size_t>(buffer)];
      const auto k = static_cast<size_t>(b.index);
      return (b.place == Place::param && c_->param_of[k] == param) ||
             (b.place == Place::joined && !joined_[k]);
    };
    for (size_t k = 0; k < joined_.size(); ++k)
      for (int32_t source : program().joined[k].sources)
        if (is_made_of(source)) joined_[k] = nullptr;
    for (size_t k = 0; k < packed_.size(); ++k)
      if (is_made_of(program().packed[k].source.buffer)) packed_[k] = nullptr;
  }

  // What lies in a buffer from run to run.
  const std::byte* fixed(int32_t buffer) const {
    const Buffer& b = program().buffers[static_cast<size_t>(buffer)];
    const auto k = static_cast<size_t>(b.index);
    if (b.place == Place::param) return params_[c_->param_of[k]].get();
    return b.place == Place::joined ? joined_[k].get() : constants_->blocks[k].get();
  }

  MemoryBlock join(size_t k) {
    static const RunOptions plain;
    options_ = &plain;
    watch(nullptr);
    if (!faults_) make_faults();
    Frame& f = *joined_frames_[k];
    std::vector<const std::byte*> parts;
    for (int32_t source : program().joined[k].sources) parts.push_back(fixed(source));
    MemoryBlock whole = backend().allocate(f.p.buffers[0].bytes);
    std::byte* const out = whole.get();
    run_program(f, parts.data(), &out, nullptr);
    return whole;
  }

  void make_faults() {
    faults_ = backend().allocate(fault_bytes());
    stream_->fill(faults_.get(), 0, fault_bytes());
  }

  const StepKernel& packed_kernel(const PackedWeight& w) const {
    return *program().steps[static_cast<size_t>(w.step)].kernel;
  }

  // A weight in its kernel's form.
  MemoryBlock pack(const PackedWeight& w) {
    const StepKernel& kernel = packed_kernel(w);
    const std::byte* base = fixed(w.source.buffer);
    MemoryBlock memory = backend().allocate(kernel.packed_bytes());
    stream_->pack(kernel, base + w.source.offset * size_of(w.source.dtype), memory.get());
    return memory;
  }

  void resolve(Frame& f, const std::byte* const* inputs, std::byte* const* outputs,
               std::byte* arena) {
    for (size_t b = 0; b < f.base.size(); ++b) {
      const Buffer& buffer = f.p.buffers[b];
      const auto k = static_cast<size_t>(buffer.index);
      switch (buffer.place) {
        case Place::arena:
          f.base[b] = arena + buffer.offset;
          break;
        case Place::input:
          f.base[b] = const_cast<std::byte*>(inputs[k]);
          break;
        case Place::output:
          f.base[b] = outputs[k];
          break;
        case Place::param:
          f.base[b] = params_[c_->param_of[k]].get();
          break;
        case Place::joined:
          f.base[b] = joined_[k].get();
          break;
        case Place::packed:
          f.base[b] = packed_[k].get();
          break;
        case Place::constant:
          f.base[b] = f.constants.blocks[k].get();
          break;
      }
    }
  }

  static std::byte* address(const Frame& f, const View& v) {
    return f.base[static_cast<size_t>(v.buffer)] + v.offset * size_of(v.dtype);
  }

  void run_program(Frame& f, const std::byte* const* inputs, std::byte* const* outputs,
                   std::byte* arena) {
    resolve(f, inputs, outputs, arena);
    for (const Chain& chain : f.p.chains) {
      check_cancelled();
      const auto start = options_->profile ? Clock::now() : Clock::time_point();
      if (c_->poison) poison_fresh(f, chain);
      run_chain(f, chain);
      if (options_->profile && &f == &frame_) {
        stream_->wait();
        times_[static_cast<size_t>(chain.begin)] = seconds_since(start);
      }
      for (int32_t s = chain.begin; s < chain.end; ++s) after_step(f, static_cast<size_t>(s));
    }
  }

  // Work of runs that nobody waited for may look at the request, which is none then, and stays.
  void watch(const std::atomic<bool>* request) {
    if (request) wait();
    if (!pending_) cancellation_.begin(request);
  }

  void check_cancelled() {
    if (cancellation_.poll()) fail(ErrorKind::user, "cancelled", "the run was cancelled");
  }

  // After an error: nothing of this run is under way any more.
  void abandon() noexcept {
    try {
      stream_->wait();
    } catch (...) {  // the first error is the one that is told
    }
    pending_ = false;
  }

  // What the chain writes first holds nothing yet, whatever lay there before, results included.
  void poison_fresh(const Frame& f, const Chain& chain) {
    for (int32_t s = chain.begin; s < chain.end; ++s)
      for (const View& v : f.p.steps[static_cast<size_t>(s)].out) {
        const Buffer& b = f.p.buffers[static_cast<size_t>(v.buffer)];
        const bool fresh = b.place == Place::output || (b.place == Place::arena && b.shares < 0);
        if (fresh && b.first == s)
          stream_->fill(f.base[static_cast<size_t>(v.buffer)], 0xff, b.bytes);
      }
  }

  uint32_t* faults_of(const Frame& f) const {
    return reinterpret_cast<uint32_t*>(faults_.get()) + f.first_step;
  }

  void run_chain(Frame& f, const Chain& chain) {
    for (int32_t i = chain.begin; i < chain.end; ++i) {
      const auto s = static_cast<size_t>(i);
      const Step& step = f.p.steps[s];
      if (step.control == Step::Control::scan) return run_scan(f, s);
      if (step.control == Step::Control::cond) return run_cond(f, s);
      if (step.control == Step::Control::loop) return run_loop(f, s);
      void** operands = f.operands.data() + f.first_operand[s];
      for (const View& v : step.in) *operands++ = address(f, v);
      for (const View& v : step.out) *operands++ = address(f, v);
      f.workspaces[s] = step.workspace < 0 ? nullptr : f.base[static_cast<size_t>(step.workspace)];
    }
    const auto first = static_cast<size_t>(chain.begin);
    stream_->launch({f.p, chain, cancellation_, f.operands.data() + f.first_operand[first],
                     f.workspaces.data() + first, faults_of(f) + first});
    if (cancellation_.seen()) check_cancelled();  // blocks were left out
  }

  static Error fault(const Step& step, RunFault found) {
    const std::string name = step.kernel ? step.kernel->name() : "the body";
    if (found == RunFault::singular)
      return {ErrorKind::user, "singular", fmt::format("a matrix given to {} is singular", name)};
    std::string read;  // sizes tell which range it is
    for (const View& v : step.in) read += fmt::format("{}{}", read.empty() ? "" : ", ", v.type());
    return {ErrorKind::user, "index-range",
            fmt::format("an index that {} reads is out of range; it reads {}", name, read)};
  }

  // What kernels have reported so far, on streams that are late. Steps inside of others come behind those: the error
  // is told at the innermost one.
  void raise_fault() {
    std::vector<uint32_t> faults(steps_);
    stream_->download(faults.data(), faults_.get(), fault_bytes());
    raise_fault(frame_, faults);
  }
  void raise_fault(const Frame& f, std::span<const uint32_t> faults) const {
    for (size_t s = 0; s < f.p.steps.size(); ++s) {
      for (const auto& body : f.bodies[s]) raise_fault(*body, faults);
      if (const uint32_t found = faults[f.first_step + s])
        throw fault(f.p.steps[s], static_cast<RunFault>(found)).at(f.p.steps[s].label);
    }
  }

  void after_step(Frame& f, size_t s) {
    const Step& step = f.p.steps[s];
    if (!stream_->is_late())
      if (const uint32_t found = *reinterpret_cast<const uint32_t*>(
              backend().map(reinterpret_cast<std::byte*>(faults_of(f) + s))))
        throw fault(step, static_cast<RunFault>(found)).at(step.label);
    if (options_->check_nan)
      for (const View& v : step.out) check_nan(f, step, v);
    if (c_->poison)
      for (size_t b = 0; b < f.p.buffers.size(); ++b) {
        const Buffer& buffer = f.p.buffers[b];
        if (buffer.place == Place::arena && buffer.shares < 0 &&
            buffer.last == static_cast<int32_t>(s))
          stream_->fill(f.base[b], 0xff, buffer.bytes);
      }
  }

  void check_nan(const Frame& f, const Step& step, const View& v) {
    const auto b = static_cast<size_t>(v.buffer);
    const std::byte* data = backend().map(f.base[b]);
    std::vector<std::byte> copy;
    if (!data) {
      copy.resize(static_cast<size_t>(f.p.buffers[b].bytes));
      stream_->download(copy.data(), f.base[b], f.p.buffers[b].bytes);
      data = copy.data();
    }
    if (has_nan(v, data))
      throw Error(ErrorKind::user, "nan",
                  fmt::format("{} made a NaN", step.kernel ? step.kernel->name() : "control flow"))
          .at(step.label);
  }

  // A bool that decides what is launched next.
  bool read_flag(const std::byte* address) {
    uint8_t flag = 0;
    stream_->download(&flag, address, 1);
    if (stream_->is_late()) raise_fault();  // a wrong one may never end a loop
    return flag != 0;
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
        stream_->copy(address(f, step.out[c]), f.in[c], step.out_bytes[c]);
      return;
    }
    for (int64_t i = 0; i < step.length; ++i) {
      check_cancelled();
      const int64_t t = step.reverse ? step.length - 1 - i : i;
      for (size_t x = carries; x < carries + xs; ++x)
        f.in[x] = address(f, step.in[x]) + t * (step.in_bytes[x] / step.length);
      std::byte* next = spare;  // two copies of each carry, used in turn
      for (size_t c = 0; c < carries; ++c) {
        const int64_t bytes = align_up(step.out_bytes[c], 64);
        f.out[c] = i + 1 == step.length ? address(f, step.out[c]) : next + (i & 1) * bytes;
        next += 2 * bytes;
      }
      for (size_t y = carries; y < step.out.size(); ++y)
        f.out[y] = address(f, step.out[y]) + t * (step.out_bytes[y] / step.length);
      run_program(body, f.in.data(), f.out.data(), work);
      for (size_t c = 0; c < carries; ++c) f.in[c] = f.out[c];
    }
  }

  void run_loop(Frame& f, size_t s) {
    const Step& step = f.p.steps[s];
    Frame &condition = *f.bodies[s][0], &body = *f.bodies[s][1];
    const auto carries = static_cast<size_t>(step.carries);
    std::byte* work = f.base[static_cast<size_t>(step.workspace)];
    std::byte* const predicate =
        work + align_up(std::max(condition.p.arena_bytes, body.p.arena_bytes), 64);
    for (size_t i = 0; i < step.in.size(); ++i) f.in[i] = address(f, step.in[i]);
    for (int64_t i = 0; step.length < 0 || i < step.length; ++i) {
      check_cancelled();
      run_program(condition, f.in.data(), &predicate, work);
      if (!read_flag(predicate)) break;
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
      stream_->copy(address(f, step.out[c]), f.in[c], step.out_bytes[c]);
  }

  void run_cond(Frame& f, size_t s) {
    const Step& step = f.p.steps[s];
    const bool chosen = read_flag(address(f, step.in[0]));
    for (size_t i = 1; i < step.in.size(); ++i) f.in[i - 1] = address(f, step.in[i]);
    for (size_t o = 0; o < step.out.size(); ++o) f.out[o] = address(f, step.out[o]);
    run_program(*f.bodies[s][chosen ? 0 : 1], f.in.data(), f.out.data(),
                f.base[static_cast<size_t>(step.workspace)]);
  }

  std::shared_ptr<const Compiled> c_;
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<const Constants> constants_;
  size_t steps_ = 0;  // of all frames
  Frame frame_;
  std::vector<std::unique_ptr<Frame>> joined_frames_;
  MemoryBlock arena_, faults_;  // made by the first run
  std::vector<MemoryBlock> params_;
  std::vector<MemoryBlock> joined_, packed_;  // nullptr: not made since a weight was set
  std::vector<double> times_;
  const RunOptions* options_ = nullptr;
  bool pending_ = false;  // a run that was not waited for
  Cancellation cancellation_;
};

}  // namespace

std::unique_ptr<Executable> load_program(std::shared_ptr<const Compiled> compiled) {
  return std::make_unique<ProgramExecutable>(std::move(compiled));
}

}  // namespace rlx
