// DeviceTensor: a tensor in memory of a device, where it stays from run to run.
//
//   DeviceTensor x = DeviceTensor::on("cuda:0", host);       // a copy there; free where the host's memory is the device's
//   f.set_input("x", x);                                     // no copy
//   std::vector<DeviceTensor> y = f.run_on_device({});        // the results stay there, too
//   Tensor back = y[0].to_host();
//
// It is a value: copies share the bytes, and nobody changes them. Raises what allocating and copying on the device raises,
// and Error(unsupported, "device") for one that is not there.
#pragma once

#include <map>

#include "rlx/device/backend.h"
#include "rlx/ir/tensor.h"

namespace rlx {

class DeviceTensor {
 public:
  // Shares the bytes of `value` where the device reads the host's memory; they must not change then.
  static DeviceTensor on(const Device& device, const Tensor& value);
  // Memory that holds the elements already.
  DeviceTensor(std::shared_ptr<const Backend> backend, DType dtype, Ints sizes, MemoryBlock data);

  DType dtype() const { return dtype_; }
  const Ints& sizes() const { return sizes_; }
  Type type() const { return {dtype_, Shape::of(sizes_)}; }
  int64_t bytes() const { return type().bytes(); }
  Device device() const { return backend_->memory(); }  // whose memory it is
  const std::shared_ptr<const Backend>& backend() const { return backend_; }
  const MemoryBlock& data() const { return data_; }  // an address of the device
  bool is_on_host() const { return backend_->map(data_.get()) == data_.get(); }

  Tensor to_host() const;                       // shares the bytes where it can
  DeviceTensor to(const Device& device) const;  // itself, if it is there
  DeviceTensor copy() const;                    // in memory of its own
  DeviceTensor reshaped(Ints sizes) const;      // shares the bytes

 private:
  std::shared_ptr<const Backend> backend_;
  DType dtype_;
  Ints sizes_;
  MemoryBlock data_;
};

using NamedDeviceTensors = std::map<std::string, DeviceTensor>;

}  // namespace rlx
