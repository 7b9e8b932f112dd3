// The runtime: compile a graph for a device and run it.
//
//   Session session;                              // the best device there is; Session("cpu") for a certain one
//   CompiledGraph f = session.compile(graph);
//   f.set_param("w", w);                          // once; updates of the program write it in place
//   std::vector<Tensor> y = f.run({{"x", x}});    // by name, new tensors out
//
// Sizes that are symbols arrive with the inputs and parameters: the program is compiled once and runs at any size. The first
// run at a new size binds it (views, memory plan, library kernels; no code is made), runs at the sizes seen last find
// what was bound. set_sizes() says those that no tensor has.
//
//   CompiledGraph f = session.compile(graph);     // x: [?n, 384]
//   f.run({{"x", x_of_17_rows}}), f.run({{"x", x_of_400_rows}});
//
// The hot path: set or bind once; from the second run on run() allocates nothing, looks up no name
// and takes no lock of ours (on the cpu device; the reference device evaluates tensors).
//
//   f.set_input("x", x);                          // copies x; or f.bind_input(i, pointer)
//   f.run();                                      // outputs stay inside: f.output(0)
//   f.run_into({y.data()...});                    // or go where the caller wants
//
// A CompiledGraph is movable and belongs to one thread at a time; clone() gives another thread its
// own, with the code and the parameters that no update writes shared. prepare() puts those into the
// form that kernels read; clones made after it, or after a run, share that form too.
//
// Pointers and DeviceTensors are memory of the device (on the cpu: the host's); Tensors are copied to it and from it.
//
// Inputs that are given away (CompileOptions::donate) hold outputs after the run, where the plan allows it: a step whose state
// comes in and goes out writes it in place. A run takes their values with it, also one that fails: they are set anew before
// the next. Whoever shares the memory of one that was set on the device, or bound, finds the output there.
//
//   CompiledGraph f = session.compile(step, {.donate = {0}});     // state, batch -> state, loss
//   state = f.run_on_device({{"state", state}, {"batch", batch}})[0];
//
// Memory is made when it is asked for: what a run needs by the first run, that of outputs by run()
// and not by run_into(). Nothing is cleared before a run; it writes all of every output.
//
// Raises Error(user), and changes nothing: "input-unknown", "param-unknown" (the message lists the
// names there are), "input-type", "param-type" (wrong dtype or sizes), "input-missing",
// "param-missing" (run before it was ever set, or a donated input after a run), "donate" (an index that no input has), "output-index", "output-missing" (read before
// a run() that succeeds), "running" (another thread, or a kernel of the program, is inside a call of the same
// object), "moved-from", "dim-guard" (sizes at which the program has no meaning: two symbols that must be equal are not,
// two inputs are at odds; the message has the symbols and their values), "unbound-dim" (run: a size that follows from no
// input), "dim-unknown", "input-sizes" (a pointer without the sizes that its symbols need),
// "threads", "input-device", "param-device" (a DeviceTensor of another device: move it with to()), "device-name";
// Error(unsupported, "device"); Error(resource, "out-of-memory"). A run that fails
// (cancelled, an index out of range, no memory) may have written some of the parameters' updates.
#pragma once

#include <atomic>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "rlx/compile/options.h"
#include "rlx/device/executable.h"
#include "rlx/runtime/device_tensor.h"

namespace rlx {

class GraphModule;

// The devices of this process, best first. The built-in ones are there from the start; registering another one puts it
// last, or in the place of the one with its name; unregistering takes one away. Sessions keep the backend they were made
// with.
std::vector<Device> available_devices();
bool is_available(const Device& d);
const Device& default_device();  // the first, when it is first asked for
void register_backend(std::shared_ptr<const Backend> backend);
void unregister_backend(const Device& d);
std::shared_ptr<const Backend> backend_for(const Device& d);  // raises Error(unsupported, "device")

class CompiledGraph {
 public:
  explicit CompiledGraph(std::unique_ptr<Executable> executable);
  CompiledGraph(CompiledGraph&&) noexcept = default;
  CompiledGraph& operator=(CompiledGraph&& other) noexcept {
    if (this != &other) std::destroy_at(this), std::construct_at(this, std::move(other));
    return *this;
  }
  // Has the same parameters and the same inputs (bound ones stay bound); outputs go to its own
  // memory.
  CompiledGraph clone() const;
  // Optional: what the next run would do first, once for all clones made afterwards.
  void prepare();

  // Parameters.
  void set_param(const std::string& name, const Tensor& value);
  Tensor param(const std::string& name) const;  // the current value
  NamedTensors params() const;                  // those that were set
  void set_params(const NamedTensors& values);  // all or nothing; names must be parameters
  // On the device: shares the memory, unless the program updates the parameter.
  void set_param(const std::string& name, const DeviceTensor& value);
  void set_params(const NamedDeviceTensors& values);  // all or nothing
  // The same, and updates are written into that memory, which other programs may read between runs. Who changes it
  // otherwise binds it again.
  void bind_param(const std::string& name, const DeviceTensor& value);
  DeviceTensor device_param(const std::string& name) const;
  std::vector<std::string> param_names() const;  // of those that were set

  // By name. Inputs that are not given keep their values; bound outputs are left alone. A run that refuses what it is given
  // changes nothing.
  std::vector<Tensor> run(const NamedTensors& inputs, const RunOptions& options = {});
  // The same for a list in braces, so that run({}) says what it means: no input is new.
  std::vector<Tensor> run(std::initializer_list<NamedTensors::value_type> inputs,
                          const RunOptions& options = {}) {
    return run(NamedTensors(inputs), options);
  }
  // Raw bytes with their dtype, as a caller without Tensors has them.
  struct TypedInput {
    std::string name;
    DType dtype;
    std::span<const std::byte> bytes;
    Ints sizes = {};  // needed where the input's are symbols
  };
  std::vector<Tensor> run_typed(std::span<const TypedInput> inputs, const RunOptions& options = {});
  // By name, with inputs and results that stay on the device.
  std::vector<DeviceTensor> run_on_device(const NamedDeviceTensors& inputs,
                                          const RunOptions& options = {});

  // The hot path. Inputs keep their values until set or bound again.
  void set_input(const std::string& name, const Tensor& value);
  void set_input(const std::string& name, const DeviceTensor& value);  // shares the memory
  size_t input_index(const std::string& name) const;
  void bind_input(size_t index, const void* data);  // must stay valid while running
  void bind_input(size_t index, const void* data, Ints sizes);
  // Sizes of symbols, besides those that follow from inputs and parameters.
  void set_sizes(const DimBinding& sizes);
  // What the symbols stood for in the last run; empty where there are none.
  DimBinding sizes() const;
  // The types of the outputs at the sizes of what was set, which are bound now: raises what a run would ("dim-guard"). This
  // reference, donors() and info() are of those sizes: they hold until the next call that may bind others.
  const Types& output_types();
  // Outputs must not overlap inputs: the program may write one before it has read the other. One that has a donor may be
  // bound to that input's memory, where it is written in place, or have no pointer and be found there; anywhere else it is
  // copied to.
  void bind_output(size_t index, void* data);
  // Inputs and outputs that are bound to memory of others are not any more.
  void unbind();
  void run(const RunOptions& options = {});
  void run_into(std::span<void* const> outputs, const RunOptions& options = {});
  // By output, the donated input in whose memory a run leaves it, -1 where there is none; empty where no output has one. At
  // the sizes of what was set, which are bound now.
  std::span<const int32_t> donors();
  // For runs that were not waited for (RunOptions::wait). after(): the next run begins when the other's have ended.
  void wait();
  void after(const CompiledGraph& other);
  const void* output(size_t index) const;    // of the last run()
  Tensor output_tensor(size_t index) const;  // a copy

  Device device() const { return executable().backend().device(); }
  const Graph& signature() const { return executable().signature(); }  // leaves in order
  const CompileInfo& info() const { return executable().info(); }
  std::vector<StepTime> times() const;
  // Memory that this object keeps between runs, with what it shares with clones.
  int64_t resident_bytes() const;

 private:
  struct Leaf {
    std::string name;
    Type type;
    Ints sizes;  // where symbols stand in the type: those of the value
    bool set = false;
    bool is_symbolic = false;
    bool donated = false, gone = false;  // of an input: a run takes it; and has
    int64_t bytes() const;
    Type value_type() const { return {type.dtype, is_symbolic ? Shape::of(sizes) : type.shape}; }
  };
  using Index = std::unordered_map<std::string, size_t>;  // of leaves by name
  // Whether a call is inside. A moved object is a new one.
  struct Busy {
    std::atomic<bool> flag{false};
    Busy() = default;
    Busy(Busy&&) noexcept {}                            // NOLINT: the flag stays behind
    Busy& operator=(Busy&&) noexcept { return *this; }  // NOLINT
  };
  // One call at a time: every public function that touches what runs change makes one.
  class Use;

  Executable& executable() const {
    if (!executable_) [[unlikely]]
      refuse_moved_from();
    return *executable_;
  }
  [[noreturn]] static void refuse_moved_from();
  size_t param_index(const std::string& name) const;
  // Memory behind a pointer: our own, which we write, or a DeviceTensor's, which we do not.
  struct Held {
    MemoryBlock block;
    bool shared = false;
    int64_t bytes = 0;
  };
  void resize(Leaf& leaf, const Ints& sizes);
  void learn_outputs();
  void bind_sizes();
  void store_input(size_t index, const Ints& sizes, const void* host);
  void share_input(size_t index, const Ints& sizes, MemoryBlock block);
  // A run's inputs: (index, sizes) of each, and what stores the k-th. Sizes that do not fit are an error before anything changes.
  void take_inputs(std::span<const std::pair<size_t, const Ints*>> given,
                   FunctionRef<void(size_t k)> store);
  void point_input(size_t index, const std::byte* data);
  void check_device(std::string_view what, const std::string& name, const DeviceTensor& t) const;
  Tensor to_host(const Type& type, const std::byte* data) const;
  void store_param(size_t index, const Tensor& value);
  void share_param(size_t index, const DeviceTensor& value);
  void took_param(size_t index, const Ints& sizes);
  Tensor read_param(size_t index) const;
  void make_outputs();
  void execute(std::span<std::byte* const> outputs, const RunOptions& options);
  MemoryBlock memory_of_donor(size_t output) const;
  void take_donors();
  void copy_from_donors(std::span<std::byte* const> outputs, bool wait);
  void forget_donated(bool is_done);
  std::vector<DeviceTensor> run_to_device(const RunOptions& options);
  std::vector<Tensor> run_to_tensors(const RunOptions& options);
  void check_output(size_t index) const;
  Leaf& input_leaf(size_t index);
  void get_ready(size_t outputs);
  [[noreturn]] void refuse_to_run(size_t outputs) const;

  std::vector<Leaf> input_leaves_, param_leaves_;
  Index input_index_, param_index_;
  std::vector<Held> inputs_;  // memory behind the pointers, where not bound
  std::vector<const std::byte*> input_pointers_;
  std::vector<std::pair<DType, Ints>> output_types_;
  std::vector<int64_t> output_bytes_;
  std::vector<MemoryBlock> outputs_;         // likewise, from the first run() on
  std::vector<std::byte*> output_pointers_;  // nullptr: neither bound nor made
  size_t unset_ = 0;                         // leaves without a value
  DimBinding known_;                         // sizes that were set
  bool is_symbolic_ = false;                 // the signature has symbols
  bool donates_ = false;                     // some input is given away
  bool resized_ = false;                     // since they were bound
  bool outputs_made_ = false;                // every output has memory
  bool has_run_ = false;                     // that memory holds what the last run() gave
  mutable Busy busy_;
  std::unique_ptr<Executable>
      executable_;  // goes first: it waits for runs that use the memory above
};

class Session {
 public:
  explicit Session(Device device = default_device(), CompileOptions options = {});
  CompiledGraph compile(const Graph& g) const { return compile(g, options_); }
  CompiledGraph compile(const Graph& g, const CompileOptions& options) const;
  // At any stage (stages/module.h). LIR that was made for this device runs with the plan it has.
  CompiledGraph compile(const GraphModule& program) const { return compile(program, options_); }
  CompiledGraph compile(const GraphModule& program, const CompileOptions& options) const;
  const Device& device() const { return device_; }

 private:
  Device device_;
  CompileOptions options_;
  std::shared_ptr<const Backend> backend_;
};

}  // namespace rlx
