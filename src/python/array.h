// Array: a tensor as Python sees it, either a concrete one (its bytes are there) or a traced one (a
// value of a program that is being written).
//
// Python's class rlx.Array derives from it and adds operators and methods; wrap() makes instances
// of that class. Concrete arrays are immutable: the buffer protocol hands out read-only views of
// their bytes, DLPack copies of them. They lie in memory of a device and stay there; ops run where their operands lie.
// One that was donated to a function (jit's donate_argnums) still knows its type, and nothing else.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>

#include "rlx/ir/graph.h"
#include "rlx/runtime/device_tensor.h"

namespace rlx::python {

namespace nb = nanobind;

class ProgramScope;

struct Array {
  explicit Array(DeviceTensor t) : tensor(std::move(t)) {}
  explicit Array(const Tensor& t);  // on the current device
  Array(std::shared_ptr<ProgramScope> s, Value v) : scope(std::move(s)), value(v) {}

  bool traced() const { return scope != nullptr; }
  Type type() const;
  DType dtype() const;
  // The dtype that Python sees: of a weak array that which its number has alone.
  DType natural() const { return weak && is_float(dtype()) ? DType::F32 : dtype(); }

  std::optional<DeviceTensor> tensor;   // of a concrete array
  std::shared_ptr<ProgramScope> scope;  // of a traced one: the program, and its value there
  Value value;
  bool weak = false;  // stands for a number handed to a traced function: promotes as that would
  // Nobody said where it should lie, neither of it nor of what it was made of: it goes where it is needed.
  bool loose = false;
  bool goes_along() const { return weak || loose; }

  // Donation. Whoever reads the bytes holds their MemoryBlock; who was told the address alone (`lent`) reads them as long
  // as the array is there.
  bool is_donated() const { return donated_to != nullptr; }
  bool lent = false;
  // Gives the memory to `function`; the array is gone then, for all who use it.
  void donate(std::shared_ptr<const std::string> function);
  std::shared_ptr<const std::string> donated_to;
};

// What the Python half of the package tells this one when it is imported.
struct Hooks {
  nb::object array_type;   // rlx.Array
  nb::object as_array;     // anything array-like to an rlx.Array
  nb::object scalar_type;  // numpy.generic
  nb::object dtype_name;   // anything that names a dtype to its name, "f32"
  nb::object make_error;   // (kind, code, message, text) to an exception
  nb::object dim_type;     // rlx.Dim
};
Hooks& hooks();

nb::object wrap(Array a);
inline nb::object wrap(const Tensor& t) { return wrap(Array(t)); }
inline nb::object wrap(DeviceTensor t) { return wrap(Array(std::move(t))); }
// What was computed of these arrays is loose if all of them are.
nb::list wrap_all(std::vector<DeviceTensor> tensors, std::span<const Array* const> of);

// The array behind a Python object, or nullptr when it is none.
Array* as_array(nb::handle h);
// A concrete array where it lies, and its bytes on the host. Raise Error(user), "trace-value" for a traced one, "donated"
// for one that was given away.
const DeviceTensor& device_tensor_of(const Array& a);
Tensor tensor_of(const Array& a);

DType read_dtype(nb::handle h);
Shape read_shape(nb::handle h);  // a sequence of dims, or one dim
nb::tuple shape_tuple(const Shape& shape);

void bind_array(nb::module_& m);

}  // namespace rlx::python
