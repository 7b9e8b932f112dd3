#include "rlx/runtime/device_tensor.h"

#include <mutex>

#include "rlx/base/function_ref.h"
#include "rlx/runtime/runtime.h"

namespace rlx {

namespace {

// A stream of each device for copies that belong to no program.
void transfer(const std::shared_ptr<const Backend>& backend, FunctionRef<void(Stream&)> work) {
  static std::mutex mutex;
  static auto* streams = new std::map<std::shared_ptr<const Backend>, std::unique_ptr<Stream>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Stream>& stream = (*streams)[backend];
  if (!stream) stream = backend->make_stream(1);
  work(*stream);
  stream->wait();
}

}  // namespace

DeviceTensor::DeviceTensor(std::shared_ptr<const Backend> backend, DType dtype, Ints sizes,
                           MemoryBlock data)
    : backend_(std::move(backend)),
      dtype_(dtype),
      sizes_(std::move(sizes)),
      data_(std::move(data)) {}

DeviceTensor DeviceTensor::on(const Device& device, const Tensor& value) {
  return within_memory([&] {
    std::shared_ptr<const Backend> backend = backend_for(device);
    MemoryBlock data = value.storage();
    if (backend->map(data.get()) != data.get()) {
      data = backend->allocate(static_cast<int64_t>(value.bytes()));
      transfer(backend, [&](Stream& s) {
        s.upload(data.get(), value.raw(), static_cast<int64_t>(value.bytes()));
      });
    }
    return DeviceTensor(std::move(backend), value.dtype(), value.sizes(), std::move(data));
  });
}

Tensor DeviceTensor::to_host() const {
  return within_memory([&] {
    if (is_on_host()) return Tensor::over(dtype_, sizes_, data_);
    Tensor out = Tensor::uninitialised(dtype_, sizes_);
    transfer(backend_, [&](Stream& s) { s.download(out.mutable_raw(), data_.get(), bytes()); });
    return out;
  });
}

DeviceTensor DeviceTensor::to(const Device& device) const {
  std::shared_ptr<const Backend> there = backend_for(device);
  if (there->memory() == backend_->memory()) return {std::move(there), dtype_, sizes_, data_};
  return on(device, to_host());
}

DeviceTensor DeviceTensor::copy() const {
  return within_memory([&] {
    MemoryBlock data = backend_->allocate(bytes());
    transfer(backend_, [&](Stream& s) { s.copy(data.get(), data_.get(), bytes()); });
    return DeviceTensor(backend_, dtype_, sizes_, std::move(data));
  });
}

DeviceTensor DeviceTensor::reshaped(Ints sizes) const {
  check(product(sizes) == product(sizes_), "reshaped: wrong number of elements");
  return {backend_, dtype_, std::move(sizes), data_};
}

}  // namespace rlx
