// Runs LIR on any device: {launch, copy, fill, read} of a stream are all it knows of one.
#include <cmath>
#include <cstring>
#include <list>
#include <map>

#include "rlx/base/clock.h"
#include "rlx/device/program_tables.h"
#include "rlx/ops/control/scan_checkpoints.h"

namespace rlx {

namespace {

using namespace running;

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

// An executable keeps so many; making one that was dropped is a fraction of binding.
constexpr size_t kMaxBindings = 32;

class ProgramExecutable final : public Executable {
 public:
  explicit ProgramExecutable(std::shared_ptr<const Compiled> c)
      : ProgramExecutable(std::move(c), nullptr) {
    for (Value v : c_->signature.params()) {
      const Type& t = c_->signature.type(v);
      const int64_t bytes = t.shape.is_static() ? t.bytes() : -1;
      param_bytes_.push_back(bytes);
      params_.push_back(bytes < 0 ? nullptr : backend().allocate(bytes));
      if (params_.back()) stream_->fill(params_.back().get(), 0, bytes);
    }
    stream_->wait();
  }
  // A clone. Shared memory is never written: whoever changes its value takes memory of its own.
  ProgramExecutable(const ProgramExecutable& o) : ProgramExecutable(o.c_, &o) {
    param_bytes_ = o.param_bytes_;
    for (size_t i = 0; i < o.params_.size(); ++i) {
      params_.push_back(o.params_[i]);
      if (c_->param_updated[i] && params_[i]) params_[i] = copied(params_[i], param_bytes_[i]);
    }
    stream_->wait();
  }

  ~ProgramExecutable() override { abandon(); }

  const Graph& signature() const override { return c_->signature; }
  const CompileInfo& info() const override { return now_ ? now_->bound->info : c_->info; }
  const Bound* bound() const override { return now_ ? now_->bound.get() : nullptr; }
  void bind(const DimBinding& sizes) override {
    if (now_ && now_->bound->sizes == sizes) return;
    for (auto it = bindings_.begin(); it != bindings_.end(); ++it)
      if ((*it)->bound->sizes == sizes) {
        bindings_.splice(bindings_.begin(), bindings_, it);
        return choose(*bindings_.front());
      }
    check(static_cast<bool>(c_->bind), "sizes for a program without symbols");
    enter(c_->bind(sizes));
  }
  Stream& stream() const override { return *stream_; }
  const std::shared_ptr<const Backend>& shared_backend() const override { return c_->backend; }
  std::unique_ptr<Executable> clone() const override {
    stream_->wait();
    return std::make_unique<ProgramExecutable>(*this);
  }

  void upload_param(size_t i, const void* data, int64_t bytes) override {
    if (!params_[i] || !is_mine(params_[i]) || param_bytes_[i] != bytes) {
      if (params_[i]) stream_->wait();  // nobody reads the old one any more
      params_[i] = backend().allocate(bytes);
      param_bytes_[i] = bytes;
    }
    stream_->upload(params_[i].get(), data, bytes);
    forget_prepared(i);
  }
  void share_param(size_t i, MemoryBlock value, int64_t bytes) override {
    stream_->wait();  // nobody reads the old one any more
    params_[i] = c_->param_updated[i] ? copied(value, bytes) : std::move(value);
    param_bytes_[i] = bytes;
    forget_prepared(i);
  }
  void bind_param(size_t i, MemoryBlock value, int64_t bytes) override {
    stream_->wait();
    params_[i] = std::move(value);
    param_bytes_[i] = bytes;
    forget_prepared(i);
  }
  MemoryBlock param(size_t i) const override { return params_[i]; }
  bool is_updated(size_t i) const override { return c_->param_updated[i]; }
  bool is_donated(size_t i) const override { return c_->is_donated(i); }

  void prepare() override {
    if (!now_) return;  // what to make depends on sizes
    Binding& b = *now_;
    for (size_t k = 0; k < b.joined.size(); ++k)
      if (!b.joined[k] && (b.keeps_joined[k] || is_to_pack(k)))
        b.joined[k] = prepared(joined_form(b, k), [&] { return join(k); });
    for (size_t k = 0; k < b.packed.size(); ++k)
      if (!b.packed[k])
        b.packed[k] = prepared(packed_form(b, k), [&] { return pack(program().packed[k]); });
    for (size_t k = 0; k < b.joined.size(); ++k)
      if (b.joined[k] && !b.keeps_joined[k]) let_go(k);
  }

  void run(const std::byte* const* inputs, std::byte* const* outputs,
           const RunOptions& options) override {
    check(now_, "a run before sizes are bound");
    prepare();
    options_ = &options;
    watch(options.cancel);
    make_arena();
    depth_ = 0;
    if (!now_->ready) stream_->prepare(program());
    now_->ready = true;
    make_faults();
    if (!pending_) stream_->fill(faults_.get(), 0, fault_bytes());
    pending_ = true;
    try {
      if (c_->poison) {
        stream_->fill(arena_.get(), 0xff, program().arena_bytes);
        for (size_t k = 0; k < program().outputs.size(); ++k)
          if (now_->bound->donor(k) < 0)
            stream_->fill(outputs[k], 0xff, program().outputs[k].type().bytes());
      }
      started_ = Clock::now();
      if (options.trace) *options.trace = {started_, {}, 0};
      run_program(now_->frame, inputs, outputs, arena_.get());
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
    int64_t bytes = stream_->resident_bytes();
    bytes += c_->kept_bytes() + static_cast<int64_t>(sizeof(*this));
    if (now_) bytes += now_->constants->total;
    for (const auto& b : bindings_) bytes += b->bytes;
    if (arena_) bytes += std::max<int64_t>(arena_bytes_, 1);
    if (faults_) bytes += fault_bytes();
    for (size_t i = 0; i < params_.size(); ++i)
      if (params_[i]) bytes += std::max<int64_t>(param_bytes_[i], 1);
    for (const auto& [form, p] : prepared_) bytes += p.bytes;
    return bytes;
  }

  std::vector<StepTime> times() const override {
    std::vector<StepTime> out;
    for (size_t s = 0; now_ && s < now_->times.size(); ++s) {
      const Step& step = program().steps[s];
      // A chain is timed as a whole, under the name of its first step.
      out.push_back({step.label, step.kernel ? step.kernel->name() : "control flow", now_->times[s],
                     step.kernel ? step.kernel->flops() : 0});
    }
    return out;
  }

 private:
  ProgramExecutable(std::shared_ptr<const Compiled> c, const ProgramExecutable* source)
      : c_(std::move(c)), stream_(c_->backend->make_stream(c_->threads)) {
    if (source) prepared_ = source->prepared_, uploads_ = source->uploads_;
    if (source && source->now_)
      enter(source->now_->bound);
    else if (c_->bound)
      enter(c_->bound);
  }

  // Makes the tables of a program, which is run from now on.
  void enter(std::shared_ptr<const Bound> bound) {
    uploads_.forget_dead();
    auto constants =
        std::make_shared<const Constants>(*bound->program, *c_->backend, *stream_, uploads_);
    auto binding = std::make_unique<Binding>(std::move(bound), std::move(constants));
    bindings_.push_front(std::move(binding));
    choose(*bindings_.front());
    if (bindings_.size() > kMaxBindings) drop_last();
    std::erase_if(prepared_, [](const auto& p) { return p.first.is_dead(); });
  }
  // With the last binding of an origin goes what only that origin knows.
  void drop_last() {
    const std::unique_ptr<Binding> last = std::move(bindings_.back());
    bindings_.pop_back();
    const auto& origin = last->program().origin;
    if (std::any_of(bindings_.begin(), bindings_.end(),
                    [&](const auto& b) { return b->program().origin == origin; }))
      return;
    std::erase_if(prepared_, [&](const auto& p) { return p.first.is_owned_by(origin); });
  }
  // Runs that were not waited for read the tables of their program, and the memory that programs share.
  void choose(Binding& b) {
    if (pending_) wait();
    now_ = &b;
  }
  void make_arena() {
    if (arena_ && arena_bytes_ >= program().arena_bytes) return;
    if (pending_) wait();
    arena_ = nullptr;
    arena_ = backend().allocate(program().arena_bytes);
    arena_bytes_ = program().arena_bytes;
  }

  const Program& program() const { return now_->program(); }
  int64_t fault_bytes() const { return static_cast<int64_t>(faults_of_steps_ * sizeof(uint32_t)); }
  bool is_watched() const {
    return options_->cancel || options_->check_nan || options_->profile || options_->trace;
  }

  // Whether no clone has it any more. If so, all that they did with it has happened before: the release
  // below reads the count that the last of them wrote, in order.
  static bool is_mine(const MemoryBlock& memory) {
    if (memory.use_count() > 1) return false;
    MemoryBlock(memory).reset();
    return true;
  }

  MemoryBlock copied(const MemoryBlock& from, int64_t bytes) {
    MemoryBlock out = backend().allocate(bytes);
    stream_->copy(out.get(), from.get(), bytes);
    stream_->wait();  // `from` may go
    return out;
  }

  // Forgets what was made of the parameter.
  void forget_prepared(size_t param) {
    stream_->wait();  // runs that were not waited for read it
    std::erase_if(prepared_, [&](const auto& p) {
      const std::vector<size_t>& params = p.second.params;
      return std::find(params.begin(), params.end(), param) != params.end();
    });
    for (const auto& b : bindings_) {
      auto forget = [&](MemoryBlock& block, const Form& form) {
        if (!prepared_.contains(form)) block = nullptr;
      };
      for (size_t k = 0; k < b->joined.size(); ++k) forget(b->joined[k], joined_form(*b, k));
      for (size_t k = 0; k < b->packed.size(); ++k) forget(b->packed[k], packed_form(*b, k));
    }
  }

  MemoryBlock prepared(const Form& form, FunctionRef<Prepared()> make) {
    if (const auto it = prepared_.find(form); it != prepared_.end()) return it->second.block;
    return prepared_.emplace(form, make()).first->second.block;
  }

  // Whether something is to be packed of the joined weight.
  bool is_to_pack(size_t k) const {
    for (size_t i = 0; i < now_->packed.size(); ++i) {
      const PackedWeight& w = program().packed[i];
      const Buffer& from = program().buffers[static_cast<size_t>(w.source.buffer)];
      if (from.place == Place::joined && static_cast<size_t>(from.index) == k && !now_->packed[i] &&
          !prepared_.contains(packed_form(*now_, i)))
        return true;
    }
    return false;
  }

  // Of a joined weight that only packed ones were made of, nothing is read any more.
  void let_go(size_t k) {
    stream_->wait();
    now_->joined[k] = nullptr;
    prepared_.erase(joined_form(*now_, k));
  }

  // The parameters behind a buffer that no run changes.
  void add_params(int32_t buffer, std::vector<size_t>& params) const {
    const Buffer& b = program().buffers[static_cast<size_t>(buffer)];
    const auto k = static_cast<size_t>(b.index);
    if (b.place == Place::param) params.push_back(now_->bound->param_of[k]);
    if (b.place == Place::joined)
      for (int32_t source : program().joined[k].sources) add_params(source, params);
  }

  // What lies in a buffer from run to run.
  const std::byte* fixed(int32_t buffer) const {
    const Buffer& b = program().buffers[static_cast<size_t>(buffer)];
    const auto k = static_cast<size_t>(b.index);
    if (b.place == Place::param) return params_[now_->bound->param_of[k]].get();
    return b.place == Place::joined ? now_->joined[k].get() : now_->constants->blocks[k].get();
  }

  Prepared join(size_t k) {
    static const RunOptions plain;
    options_ = &plain;
    watch(nullptr);
    make_faults();
    Frame& f = *now_->joined_frames[k];
    std::vector<const std::byte*> parts;
    Prepared out;
    for (int32_t source : program().joined[k].sources) {
      parts.push_back(fixed(source));
      add_params(source, out.params);
    }
    out.bytes = f.p.outputs[0].type().bytes();
    out.block = backend().allocate(out.bytes);
    std::byte* const whole = out.block.get();
    const MemoryBlock arena = f.p.arena_bytes > 0 ? backend().allocate(f.p.arena_bytes) : nullptr;
    stream_->prepare(f.p);
    run_program(f, parts.data(), &whole, arena.get());
    if (arena) stream_->wait();  // it goes
    return out;
  }

  // A word for each step of the program that has the most.
  void make_faults() {
    if (faults_ && faults_of_steps_ >= now_->steps) return;
    if (pending_) wait();
    faults_of_steps_ = now_->steps;
    faults_ = backend().allocate(fault_bytes());
    stream_->fill(faults_.get(), 0, fault_bytes());
  }

  const StepKernel& packed_kernel(const PackedWeight& w) const {
    return *program().steps[static_cast<size_t>(w.step)].kernel;
  }

  // A weight in its kernel's form.
  Prepared pack(const PackedWeight& w) {
    const StepKernel& kernel = packed_kernel(w);
    const std::byte* base = fixed(w.source.buffer);
    Prepared out{backend().allocate(kernel.packed_bytes()), kernel.packed_bytes(), {}};
    add_params(w.source.buffer, out.params);
    stream_->pack(kernel, base + w.source.offset * size_of(w.source.dtype), out.block.get());
    return out;
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
          f.base[b] =
              buffer.shares < 0 ? outputs[k] : const_cast<std::byte*>(inputs[donor(f.p, buffer)]);
          break;
        case Place::param:
          f.base[b] = params_[now_->bound->param_of[k]].get();
          break;
        case Place::joined:
          f.base[b] = now_->joined[k].get();
          break;
        case Place::packed:
          f.base[b] = now_->packed[k].get();
          break;
        case Place::constant:
          f.base[b] = f.constants.blocks[k].get();
          break;
      }
    }
  }

  // The donated input in whose memory the output lies.
  static size_t donor(const Program& p, const Buffer& output) {
    return static_cast<size_t>(p.buffers[static_cast<size_t>(output.shares)].index);
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
      if (RunTrace* trace = options_->trace)
        run_traced(f, chain, *trace);
      else
        run_chain(f, chain);
      if (options_->profile && &f == &now_->frame) {
        stream_->wait();
        now_->times[static_cast<size_t>(chain.begin)] = seconds_since(start);
      }
      for (int32_t s = chain.begin; s < chain.end; ++s) after_step(f, static_cast<size_t>(s));
    }
  }

  void run_traced(Frame& f, const Chain& chain, RunTrace& trace) {
    const size_t at = trace.spans.size();
    const bool kept = at < RunTrace::kMost;
    if (kept)
      trace.spans.push_back(span_of(f.p, chain));
    else
      ++trace.dropped;
    stream_->wait();
    const double start = seconds_since(started_);
    ++depth_;
    run_chain(f, chain);
    stream_->wait();
    --depth_;
    if (kept)
      trace.spans[at].start = start, trace.spans[at].seconds = seconds_since(started_) - start;
  }
  // What is launched together is timed as a whole.
  RunSpan span_of(const Program& p, const Chain& chain) const {
    RunSpan span;
    span.depth = depth_;
    for (int32_t s = chain.begin; s < chain.end; ++s) {
      const Step& step = p.steps[static_cast<size_t>(s)];
      const std::string_view with = s > chain.begin ? " + " : "";
      span.label += fmt::format("{}{}", with, step.label);
      span.kernel += fmt::format("{}{}", with, step.kernel ? step.kernel->name() : "control flow");
      if (step.kernel) span.flops += step.kernel->flops();
    }
    return span;
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
    } catch (...) {  // NOLINT(bugprone-empty-catch): the first error is the one that is told
    }
    pending_ = false;
  }

  // What the chain writes first holds nothing yet, whatever lay there before, results included.
  void poison_fresh(const Frame& f, const Chain& chain) {
    for (int32_t s = chain.begin; s < chain.end; ++s)
      for (const View& v : f.p.steps[static_cast<size_t>(s)].out) {
        const Buffer& b = f.p.buffers[static_cast<size_t>(v.buffer)];
        const bool fresh = b.shares < 0 && (b.place == Place::output || b.place == Place::arena);
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
      if (step.control == Step::Control::sweep) return run_sweep(f, s);
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
    std::vector<uint32_t> faults(faults_of_steps_);
    stream_->download(faults.data(), faults_.get(), fault_bytes());
    raise_fault(now_->frame, faults);
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

  // Where the copies of carries take turns: the last of `length` is the result.
  static std::byte* turn(int64_t i, int64_t length, std::byte* result, std::byte* other) {
    return (length - 1 - i) % 2 ? other : result;
  }

  // Whether last carries go where the first ones are.
  static bool writes_over_carries(const Frame& f, const Step& step) {
    for (int32_t out = 0; out < step.carries; ++out)
      for (int32_t in = 0; in < step.carries; ++in)
        if (address(f, step.out[static_cast<size_t>(out)]) ==
            address(f, step.in[static_cast<size_t>(in)]))
          return true;
    return false;
  }

  void run_scan(Frame& f, size_t s) {
    const Step& step = f.p.steps[s];
    Frame& body = *f.bodies[s][0];
    const auto carries = static_cast<size_t>(step.carries), xs = static_cast<size_t>(step.xs);
    // Behind what the body gives lie the carries that enter steps.
    const size_t snapshots = step.times.size(),
                 results = step.out.size() - (snapshots ? carries : 0);
    std::byte* work = f.base[static_cast<size_t>(step.workspace)];
    std::byte* const spare = work + align_up(body.p.arena_bytes, 64);
    const auto snapshot = [&](size_t c, size_t k) {
      const auto bytes = step.out_bytes[results + c] / static_cast<int64_t>(snapshots);
      return address(f, step.out[results + c]) + static_cast<int64_t>(k) * bytes;
    };
    for (size_t c = 0; c < step.in.size(); ++c) f.in[c] = address(f, step.in[c]);
    if (step.length == 0) {
      for (size_t c = 0; c < carries; ++c)
        stream_->copy(address(f, step.out[c]), f.in[c], step.out_bytes[c]);
      return;
    }
    for (size_t c = 0; snapshots && c < carries; ++c)
      stream_->copy(snapshot(c, 0), f.in[c], step.out_bytes[c]);
    if (step.length % 2 == 1 && writes_over_carries(f, step)) {
      // The first step would write results: it reads what enters it elsewhere.
      std::byte* other = spare;
      for (size_t c = 0; c < carries; ++c) {
        stream_->copy(other, f.in[c], step.in_bytes[c]);
        f.in[c] = other;
        other += align_up(step.out_bytes[c], 64);
      }
    }
    size_t due = 1;  // the snapshot that comes next
    for (int64_t i = 0; i < step.length; ++i) {
      check_cancelled();
      const int64_t t = step.reverse ? step.length - 1 - i : i;
      for (size_t x = carries; x < carries + xs; ++x)
        f.in[x] = address(f, step.in[x]) + t * (step.in_bytes[x] / step.length);
      const bool kept = due < snapshots && step.times[due] == i + 1;
      std::byte* other = spare;
      for (size_t c = 0; c < carries; ++c) {
        f.out[c] = kept ? snapshot(c, due) : turn(i, step.length, address(f, step.out[c]), other);
        other += align_up(step.out_bytes[c], 64);
      }
      if (kept) ++due;
      for (size_t y = carries; y < results; ++y)
        f.out[y] = address(f, step.out[y]) + t * (step.out_bytes[y] / step.length);
      run_program(body, f.in.data(), f.out.data(), work);
      for (size_t c = 0; c < carries; ++c) f.in[c] = f.out[c];
    }
  }

  // Step after step back in time: from the nearest snapshot forward, leaving further ones where that is best.
  void run_sweep(Frame& f, size_t s) {
    const Step& step = f.p.steps[s];
    Frame &forward = *f.bodies[s][0], &back = *f.bodies[s][1];
    const auto carries = static_cast<size_t>(step.carries),
               entering = static_cast<size_t>(step.entering),
               stacked = static_cast<size_t>(step.xs + step.cotangents),
               constants = step.in.size() - carries - entering - stacked, given = step.times.size();
    const SweepMemory memory(step);
    std::byte* work = f.base[static_cast<size_t>(step.workspace)];
    const auto bytes_of = [&](size_t c) {  // of an entering carry
      return step.in_bytes[carries + c] / static_cast<int64_t>(given);
    };
    const auto place = [&](int64_t part,
                           size_t c) {  // of an entering carry in a part of the workspace
      std::byte* at = work + part;
      for (size_t i = 0; i < c; ++i) at += align_up(bytes_of(i), 64);
      return at;
    };
    const int64_t snapshot_bytes = place(0, entering) - work;
    const auto snapshot = [&](size_t c, size_t depth) {
      return depth < given
                 ? address(f, step.in[carries + c]) + static_cast<int64_t>(depth) * bytes_of(c)
                 : place(memory.more + static_cast<int64_t>(depth - given) * snapshot_bytes, c);
    };
    const auto row = [&](size_t i, int64_t time) {  // of a stacked operand
      const int64_t t = step.reverse ? step.length - 1 - time : time;
      return address(f, step.in[i]) + t * (step.in_bytes[i] / step.length);
    };
    // Runs the forward body from snapshot `depth`, which enters step `from`, up to step `to`; the last carries become the
    // next snapshot, or go to their place `here`.
    const auto advance = [&](size_t depth, int64_t from, int64_t to, bool keeps) {
      for (size_t c = 0; c < entering; ++c) f.in[c] = snapshot(c, depth);
      for (size_t k = 0; k < constants; ++k)
        f.in[entering + static_cast<size_t>(step.xs) + k] =
            address(f, step.in[carries + entering + stacked + k]);
      for (int64_t time = from; time < to; ++time) {
        check_cancelled();
        for (size_t x = 0; x < static_cast<size_t>(step.xs); ++x)
          f.in[entering + x] = row(carries + entering + x, time);
        for (size_t c = 0; c < entering; ++c)
          f.out[c] =
              turn(time - from, to - from, keeps ? snapshot(c, depth + 1) : place(memory.here, c),
                   place(memory.ahead, c));
        run_program(forward, f.in.data(), f.out.data(), work);
        for (size_t c = 0; c < entering; ++c) f.in[c] = f.out[c];
      }
    };
    size_t depth = given - 1;  // of the nearest snapshot
    std::copy(step.times.begin(), step.times.end(), f.snapshots.begin());
    for (int64_t i = 0; i < step.length; ++i) {
      const int64_t time = step.length - 1 - i;
      while (f.snapshots[depth] < time && static_cast<int64_t>(depth) < step.slots) {
        const int64_t from = f.snapshots[depth];
        const int64_t to =
            from + next_snapshot(time - from + 1, step.slots - static_cast<int64_t>(depth));
        advance(depth, from, to, true);
        f.snapshots[++depth] = to;
      }
      const bool there = f.snapshots[depth] == time;
      if (!there) advance(depth, f.snapshots[depth], time, false);
      // f.in: swept values, the carries that enter this step, slices, constants.
      std::byte* other = work + memory.swept;
      for (size_t c = 0; c < carries; ++c) {
        std::byte* const result = address(f, step.out[c]);
        f.in[c] = i == 0 ? address(f, step.in[c]) : turn(i - 1, step.length, result, other);
        f.out[c] = turn(i, step.length, result, other);
        other += align_up(step.out_bytes[c], 64);
      }
      for (size_t c = 0; c < entering; ++c)
        f.in[carries + c] = there ? snapshot(c, depth) : place(memory.here, c);
      for (size_t x = carries + entering; x < carries + entering + stacked; ++x)
        f.in[x] = row(x, time);
      for (size_t k = carries + entering + stacked; k < step.in.size(); ++k)
        f.in[k] = address(f, step.in[k]);
      const int64_t t = step.reverse ? i : time;
      for (size_t y = carries; y < step.out.size(); ++y)
        f.out[y] = address(f, step.out[y]) + t * (step.out_bytes[y] / step.length);
      check_cancelled();
      run_program(back, f.in.data(), f.out.data(), work);
      if (there && depth > 0) --depth;
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
    for (size_t c = 0; c < carries; ++c)  // without a step, a carry may be there already
      if (std::byte* const out = address(f, step.out[c]); out != f.in[c])
        stream_->copy(out, f.in[c], step.out_bytes[c]);
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
  Uploads uploads_;
  std::list<std::unique_ptr<Binding>> bindings_;  // last used first
  Binding* now_ = nullptr;                        // the one that is run
  MemoryBlock arena_, faults_;                    // made by the first run, for the largest program
  int64_t arena_bytes_ = 0;
  size_t faults_of_steps_ = 0;
  std::vector<MemoryBlock> params_;
  std::vector<int64_t> param_bytes_;  // -1: not known yet
  std::map<Form, Prepared> prepared_;
  const RunOptions* options_ = nullptr;
  Clock::time_point started_;  // the run that is traced
  int depth_ = 0;              // of the span that is being traced
  bool pending_ = false;       // a run that was not waited for
  Cancellation cancellation_;
};

}  // namespace

std::string CompileInfo::plan() const { return program ? to_string(*program) : std::string(); }

std::unique_ptr<Executable> load_program(std::shared_ptr<const Compiled> compiled) {
  return std::make_unique<ProgramExecutable>(std::move(compiled));
}

}  // namespace rlx
