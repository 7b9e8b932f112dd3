#include "rlx/python/array.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "rlx/python/dims.h"
#include "rlx/python/program.h"
#include "rlx/python/scope.h"
#include "rlx/runtime/runtime.h"

namespace rlx::python {

Hooks& hooks() {
  static auto* all = new Hooks;  // outlives the interpreter; the package empties it at exit
  return *all;
}

Array::Array(const Tensor& t) : tensor(DeviceTensor::on(current_device(), t)), loose(true) {}

Type Array::type() const { return traced() ? scope->builder.type(value) : tensor->type(); }

DType Array::dtype() const { return traced() ? scope->builder.type(value).dtype : tensor->dtype(); }

nb::object wrap(Array a) {
  nb::object o = nb::inst_alloc(hooks().array_type);
  new (nb::inst_ptr<Array>(o)) Array(std::move(a));
  nb::inst_mark_ready(o);
  return o;
}

nb::list wrap_all(std::vector<DeviceTensor> tensors, std::span<const Array* const> of) {
  bool loose = true;
  for (const Array* a : of) loose = loose && (!a || a->goes_along());
  nb::list out;
  for (DeviceTensor& t : tensors) {
    Array a(std::move(t));
    a.loose = loose;
    out.append(wrap(std::move(a)));
  }
  return out;
}

Array* as_array(nb::handle h) {
  return nb::isinstance<Array>(h) ? nb::inst_ptr<Array>(h) : nullptr;
}

const DeviceTensor& device_tensor_of(const Array& a) {
  user_check(!a.traced(), "trace-value",
             "the value of a traced array ({}) is not known while the program is being written; "
             "use rlx.cond, rlx.select or rlx.scan for what depends on it",
             a.traced() ? a.type().to_string() : "");
  user_check(!a.is_donated(), "donated",
             "this array, {}, was donated to {} and is gone; use what {} returned", a.type(),
             a.is_donated() ? *a.donated_to : "", a.is_donated() ? *a.donated_to : "");
  return *a.tensor;
}

void Array::donate(std::shared_ptr<const std::string> function) {
  donated_to = std::move(function);
  if (!lent) tensor = DeviceTensor(tensor->backend(), tensor->dtype(), tensor->sizes(), nullptr);
}

Tensor tensor_of(const Array& a) { return device_tensor_of(a).to_host(); }

DType read_dtype(nb::handle h) {
  const auto name = nb::cast<std::string>(hooks().dtype_name(h));
  const std::optional<DType> dtype = parse_dtype(name);
  check(dtype.has_value(), "the Python package names an unknown dtype, {}", name);
  return *dtype;
}

Shape read_shape(nb::handle h) {
  Shape shape;
  if (!PySequence_Check(h.ptr()) || PyUnicode_Check(h.ptr())) return {read_dim(h)};
  for (nb::handle d : nb::borrow<nb::sequence>(h)) shape.push_back(read_dim(d));
  return shape;
}

nb::tuple shape_tuple(const Shape& shape) {
  nb::list out;
  for (const Dim& d : shape) out.append(wrap_dim(d));
  return nb::tuple(out);
}

namespace {

nb::dlpack::dtype dlpack_dtype(DType d) {
  return {info(d).dlpack, static_cast<uint8_t>(8 * size_of(d)), 1};
}

// What a buffer's shape and strides point to.
struct BufferDims {
  std::vector<Py_ssize_t> shape, strides;
  MemoryBlock bytes;  // also when the array was donated since
};

// A view of the bytes; without `format` for readers that want plain bytes. Raises BufferError.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  Array& a = *nb::inst_ptr<Array>(nb::handle(self));
  std::string why;
  if (a.traced())
    why = "a traced array has no bytes";
  else if (flags & PyBUF_WRITABLE)
    why = "an rlx.Array is immutable";
  else if (a.is_donated())
    why = fmt::format("the array was donated to {}", *a.donated_to);
  else if (!a.tensor->is_on_host())
    why = "the array does not lie in memory of the host; use to_device() or numpy()";
  else if (info(a.tensor->dtype()).buffer.empty())
    why = fmt::format("the buffer protocol has no {}", info(a.tensor->dtype()).numpy);
  if (!why.empty()) {
    PyErr_SetString(PyExc_BufferError, why.c_str());
    return -1;
  }
  // Who wants plain bytes may give the view back at once and read on while it holds the array (torch.frombuffer).
  if ((flags & (PyBUF_ND | PyBUF_FORMAT)) == 0) a.lent = true;
  const Tensor t = a.tensor->to_host();
  auto* dims = new BufferDims;
  dims->bytes = a.tensor->data();
  dims->shape.assign(t.sizes().begin(), t.sizes().end());
  for (int64_t s : row_major_strides(t.sizes())) dims->strides.push_back(s * size_of(t.dtype()));
  *view = {};
  view->buf = const_cast<std::byte*>(t.raw());
  view->obj = Py_NewRef(self);
  view->len = static_cast<Py_ssize_t>(t.bytes());
  view->itemsize = size_of(t.dtype());
  view->readonly = 1;
  view->ndim = static_cast<int>(t.rank());
  view->format = flags & PyBUF_FORMAT ? const_cast<char*>(info(t.dtype()).buffer.data()) : nullptr;
  view->shape = dims->shape.data();
  view->strides = dims->strides.data();
  view->internal = dims;
  return 0;
}

void release_buffer(PyObject*, Py_buffer* view) { delete static_cast<BufferDims*>(view->internal); }

using AnyArray = nb::ndarray<nb::ro>;

// An object that speaks DLPack, for a copy of the bytes of a concrete array: readers may write, and
// some do even where the protocol says that they must not.
nb::object dlpack_copy(const Array& a) {
  DeviceTensor copy = device_tensor_of(a).copy();
  const std::vector<size_t> shape(copy.sizes().begin(), copy.sizes().end());
  std::byte* bytes = copy.data().get();
  const DType dtype = copy.dtype();
  const int kind = copy.backend()->dlpack_kind(), ordinal = copy.device().ordinal;
  const nb::object owner = wrap(std::move(copy));
  const nb::ndarray<nb::array_api> view(bytes, shape.size(), shape.data(), owner, nullptr,
                                        dlpack_dtype(dtype), kind, ordinal);
  return nb::cast(view);
}

DType dtype_of_dlpack(nb::dlpack::dtype given) {
  for (const DTypeInfo& i : kDTypes)
    if (dlpack_dtype(i.dtype) == given) return i.dtype;
  fail(ErrorKind::user, "dtype", "from_dlpack: no dtype for code {}, {} bits, {} lanes", given.code,
       given.bits, given.lanes);
}

bool is_dense(const AnyArray& source, const Ints& sizes) {
  const Ints strides = row_major_strides(sizes);
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] > 1 && source.stride(i) != strides[i]) return false;
  return true;
}

// The device whose memory DLPack calls so.
std::shared_ptr<const Backend> backend_of_dlpack(int kind, int ordinal) {
  for (const Device& d : available_devices()) {
    auto backend = backend_for(d);
    if (backend->dlpack_kind() == kind && backend->memory() == Device(d.kind, ordinal))
      return backend;
  }
  fail(ErrorKind::user, "array-like",
       "from_dlpack: no device here has memory of DLPack's kind {}, number {}", kind, ordinal);
}

Array copy_of(const AnyArray& source) {
  Ints sizes;
  for (size_t i = 0; i < source.ndim(); ++i) sizes.push_back(static_cast<int64_t>(source.shape(i)));
  const DType dtype = dtype_of_dlpack(source.dtype());
  const int kind = source.device_type();
  if (kind != nb::device::cpu::value && kind != nb::device::cuda_host::value) {
    auto backend = backend_of_dlpack(kind, source.device_id());
    user_check(is_dense(source, sizes), "array-like",
               "from_dlpack: of memory that the host cannot read, only dense arrays are taken");
    const MemoryBlock theirs(static_cast<std::byte*>(const_cast<void*>(source.data())),
                             [](std::byte*) {});
    return Array(DeviceTensor(std::move(backend), dtype, sizes, theirs).copy());
  }
  Tensor t(dtype, sizes);
  const auto width = static_cast<int64_t>(size_of(t.dtype()));
  const auto* from = static_cast<const std::byte*>(source.data());
  std::byte* to = t.mutable_raw();
  if (is_dense(source, sizes)) {
    if (t.bytes()) std::memcpy(to, from, t.bytes());
    return Array(t);
  }
  for_each_index(sizes, [&](const Ints& index) {
    int64_t at = 0;
    for (size_t i = 0; i < index.size(); ++i) at += index[i] * source.stride(i);
    std::memcpy(to, from + at * width, static_cast<size_t>(width));
    to += width;
  });
  return Array(t);
}

// From a C-contiguous object with the buffer protocol that holds the elements' bytes.
Tensor from_buffer(const std::string& dtype, const std::vector<int64_t>& sizes, nb::handle bytes) {
  Py_buffer view;
  if (PyObject_GetBuffer(bytes.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  struct Release {
    Py_buffer* view;
    ~Release() { PyBuffer_Release(view); }
  } release{&view};
  return Tensor::from_bytes(*parse_dtype(dtype), sizes, view.buf, static_cast<size_t>(view.len));
}

nb::object item(const Array& a) {
  const Tensor t = tensor_of(a);
  user_check(t.elements() == 1, "item-size", "item: needs one element, got {}", t.type());
  if (is_complex(t.dtype())) {
    const Complex c = t.get_complex(0);
    return nb::steal(PyComplex_FromDoubles(c.real(), c.imag()));
  }
  if (is_float(t.dtype())) return nb::cast(t.get_float(0));
  if (is_bool(t.dtype())) return nb::cast(t.get_int(0) != 0);
  return nb::cast(t.get_int(0));
}

}  // namespace

void bind_array(nb::module_& m) {
  static const PyType_Slot slots[] = {
      {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
      {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
      {0, nullptr},
  };
  nb::class_<Array>(m, "ArrayBase", nb::type_slots(slots), "The storage of rlx.Array.")
      .def_prop_ro("_dtype", [](const Array& a) { return static_cast<int>(a.natural()); })
      .def_prop_ro(
          "shape", [](const Array& a) { return shape_tuple(a.type().shape); },
          "The sizes of the axes; a symbolic size is an rlx.Dim.")
      .def_prop_ro("_traced", &Array::traced)
      .def_prop_ro("_type",
                   [](const Array& a) { return Type{a.natural(), a.type().shape}.to_string(); })
      .def_prop_ro("_address",
                   [](const Array& a) {
                     return reinterpret_cast<uintptr_t>(device_tensor_of(a).data().get());
                   })
      .def("_lend",  // the address, to somebody who holds the array
           [](Array& a) {
             const auto address = reinterpret_cast<uintptr_t>(device_tensor_of(a).data().get());
             a.lent = true;
             return address;
           })
      .def("is_deleted", &Array::is_donated,
           "Whether the array was donated (`jit`, donate_argnums): its shape and dtype are known, "
           "its elements are gone.")
      .def_prop_ro(
          "device",
          [](const Array& a) { return name(a.traced() ? current_device() : a.tensor->device()); },
          "The name of the device whose memory holds the elements; of a traced array the one it is "
          "traced for.")
      .def(
          "to_device",
          [](const Array& a, const std::string& device) {
            return wrap(device_tensor_of(a).to(device));
          },
          nb::arg("device"),
          "The array in memory of this device: itself if it lies there, else a copy.")
      .def("_on_host", [](const Array& a) { return device_tensor_of(a).is_on_host(); })
      .def("_host",
           [](const Array& a) {  // a copy that the host can read
             Array out(DeviceTensor::on(default_device(), tensor_of(a)));
             out.weak = a.weak;
             return wrap(std::move(out));
           })
      .def("_dlpack_device",
           [](const Array& a) {
             const DeviceTensor& t = device_tensor_of(a);
             return nb::make_tuple(t.backend()->dlpack_kind(), t.device().ordinal);
           })
      .def("_check_concrete", [](const Array& a) { (void)device_tensor_of(a); })
      .def("_item", item)
      .def("_reshaped",
           [](const Array& a, Ints sizes) {
             Array out(device_tensor_of(a).reshaped(std::move(sizes)));
             out.loose = a.loose;
             return wrap(std::move(out));
           })
      .def("_copied",
           [](const Array& a) {
             Array out(device_tensor_of(a).copy());
             out.loose = a.loose, out.weak = a.weak;
             return wrap(std::move(out));
           })
      .def("_bytes_as",  // the same bytes under another dtype of the same width
           [](const Array& a, const std::string& dtype) {
             const DeviceTensor& t = device_tensor_of(a);
             Array out(DeviceTensor(t.backend(), *parse_dtype(dtype), t.sizes(), t.data()));
             out.loose = a.loose;
             return wrap(std::move(out));
           })
      .def("_dlpack_copy", dlpack_copy)
      .def_ro("_weak", &Array::weak)
      .def("_as_weak", [](const Array& a, bool weak) {  // the same value, weak or as it is
        Array out = a;
        out.weak = weak;
        return wrap(std::move(out));
      });
  m.def("from_buffer", [](const std::string& dtype, const std::vector<int64_t>& sizes,
                          nb::handle bytes) { return wrap(from_buffer(dtype, sizes, bytes)); });
  m.def("from_dlpack", [](const AnyArray& a) { return wrap(copy_of(a)); });
  m.def("dtypes", [] {
    nb::list out;
    for (const DTypeInfo& i : kDTypes)
      out.append(nb::make_tuple(std::string(i.name), i.bytes, static_cast<int>(i.cls),
                                std::string(i.numpy), i.buffer.empty()));
    return out;
  });
  m.def("promote", [](int a, int b) {
    return static_cast<int>(promote(static_cast<DType>(a), static_cast<DType>(b)));
  });
}

}  // namespace rlx::python
