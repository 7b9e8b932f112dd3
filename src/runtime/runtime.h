// The runtime: compile a graph for a device and run it.
//
//   Session session(Device::cpu);
//   CompiledGraph f = session.compile(graph);
//   f.set_param("w", w);                               // once; updates of the program write it in place
//   std::vector<Tensor> y = f.run({{"x", x}});          // by name, new tensors out
//
// The hot path: bind() once, then run() allocates nothing, looks up no name and takes no lock of ours.
//
//   f.set_input("x", x);                               // copies x; or f.bind_input("x", pointer)
//   f.run();                                           // outputs stay inside: f.output(0)
//   f.run_into({y.data()...});                         // or go where the caller wants
//
// A CompiledGraph is movable and not shared between threads; clone() gives another thread its own, with the code and the
// parameters that no update writes shared. Wrong names, dtypes and sizes raise Error(user) and change nothing.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rlx/lower/backend.h"

namespace rlx {

enum class Device : uint8_t { reference, cpu };
std::string_view name(Device d);
std::optional<Device> parse_device(std::string_view name);
bool is_available(Device d);
std::vector<Device> available_devices();

// Backends by device. The built-in ones are there from the start; registering replaces.
void register_backend(Device d, std::shared_ptr<const Backend> backend);
std::shared_ptr<const Backend> backend_for(Device d);  // raises Error(unsupported, "device")

using NamedTensors = std::map<std::string, Tensor>;

class CompiledGraph {
 public:
  explicit CompiledGraph(std::unique_ptr<Executable> executable);
  CompiledGraph(CompiledGraph&&) noexcept = default;
  CompiledGraph& operator=(CompiledGraph&&) noexcept = default;
  CompiledGraph clone() const;

  // Parameters.
  void set_param(const std::string& name, const Tensor& value);
  Tensor param(const std::string& name) const;  // the current value
  NamedTensors params() const;
  void set_params(const NamedTensors& values);  // all or nothing; names must be parameters

  // By name.
  std::vector<Tensor> run(const NamedTensors& inputs, const RunOptions& options = {});
  // Raw bytes with their dtype, as a caller without Tensors has them.
  struct TypedInput {
    std::string name;
    DType dtype;
    std::span<const std::byte> bytes;
  };
  std::vector<Tensor> run_typed(std::span<const TypedInput> inputs, const RunOptions& options = {});

  // The hot path. Inputs keep their values until set or bound again.
  void set_input(const std::string& name, const Tensor& value);
  size_t input_index(const std::string& name) const;
  void bind_input(size_t index, const void* data) { input_pointers_[index] = data; }  // must stay valid while running
  void bind_output(size_t index, void* data) { output_pointers_[index] = data; }
  void run(const RunOptions& options = {}) { executable_->run(input_pointers_.data(), output_pointers_.data(), options); }
  void run_into(std::span<void* const> outputs, const RunOptions& options = {});
  const void* output(size_t index) const { return output_pointers_[index]; }
  Tensor output_tensor(size_t index) const;

  const Graph& signature() const { return executable_->signature(); }
  const CompileInfo& info() const { return executable_->info(); }
  std::vector<StepTime> times() const { return executable_->times(); }

 private:
  size_t param_index(const std::string& name) const;
  void check_type(std::string_view what, const std::string& name, const Type& expected, const Type& got) const;
  void store_input(size_t index, const void* data);

  std::unique_ptr<Executable> executable_;
  std::vector<std::string> input_names_, param_names_;
  std::vector<Type> input_types_, param_types_, output_types_;
  std::vector<Tensor> inputs_, outputs_;  // owned memory behind the pointers
  std::vector<bool> input_set_;
  std::vector<const void*> input_pointers_;
  std::vector<void*> output_pointers_;
};

class Session {
 public:
  explicit Session(Device device = Device::cpu, CompileOptions options = {});
  CompiledGraph compile(const Graph& g) const;
  CompiledGraph compile(const Graph& g, const CompileOptions& options) const;
  Device device() const { return device_; }

 private:
  Device device_;
  CompileOptions options_;
  std::shared_ptr<const Backend> backend_;
};

}  // namespace rlx
