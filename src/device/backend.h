// Backend: a device, as those who build one implement it. All there is to implement is in this header and in
// lower/target.h:
//
//   part        who asks                                    what it is asked
//   Target      passes, fusion, lowering (once a program)   which kernels there are; makes them; how steps are grouped
//   allocate    executables, tensors                        memory of the device
//   map         executables, tensors                        where the host can touch it, if it can
//   Stream      executables (each its own)                  launch a kernel, copy, fill, move to and from the host
//
// Everything above it (control flow, parameters, faults, clones, results) is the same for all devices
// (device/executable.h). docs/devices.md walks through a small one.
#pragma once

#include <memory>

#include "rlx/device/cancellation.h"
#include "rlx/device/device.h"
#include "rlx/lower/host_kernel.h"

namespace rlx {

class Target;    // lower/target.h
struct Program;  // lower/lir.h
struct Chain;
class StepKernel;
struct CompileOptions;  // compile/options.h
struct Compiled;        // device/executable.h
class Executable;

// A block of a device's memory, by its address there. It goes back with its last owner. The host may touch what
// map() says, nothing else.
using MemoryBlock = std::shared_ptr<std::byte[]>;

// A moment in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool has_come() const = 0;
  virtual void wait() const = 0;  // the caller does
};

// Steps of a program that are launched together.
struct Launch {
  const Program& program;  // must live until the stream was waited for, like the two below
  const Chain& chain;
  Cancellation& cancellation;  // may be looked at while the work goes on
  void* const*
      operands;  // addresses of the views of the chain's steps: inputs, then results, of each step
  std::byte* const* workspaces;  // one per step; nullptr where it has none
  uint32_t* faults;  // memory of the device: a RunFault per step, written by kernels that find one
};

// Work of a device in order. It may be late: calls return before the work is done, and what calls point to on
// the host may change as soon as they return. An error of earlier work is raised by the next call that waits, and
// the work behind it is left out until then.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual bool is_late() const = 0;
  // Makes what launches of the program need, so that they allocate nothing.
  virtual void prepare(const Program& program) { (void)program; }
  virtual void launch(const Launch& launch) = 0;
  // Puts a weight into the form that a kernel reads (StepKernel::packed).
  virtual void pack(const StepKernel& kernel, const std::byte* from, std::byte* to) = 0;
  // Inside the device.
  virtual void copy(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void fill(std::byte* to, uint8_t byte, int64_t bytes) = 0;
  // From the host, and to it; the second waits.
  virtual void upload(std::byte* to, const void* from, int64_t bytes) = 0;
  virtual void download(void* to, const std::byte* from, int64_t bytes) = 0;
  virtual void wait() = 0;
  virtual std::shared_ptr<const Event> record() = 0;
  virtual void wait_for(
      std::shared_ptr<const Event> event) = 0;  // later work does; also of another stream
  // Memory that it keeps between launches.
  virtual int64_t resident_bytes() const { return 0; }
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device device() const = 0;
  // Kernels for one compilation. nullptr: this device walks graphs node by node, as they are given, and has a
  // load() for that.
  virtual std::unique_ptr<Target> make_target(const CompileOptions& options) const = 0;

  // Raises Error(resource, "out-of-memory"). 64-byte aligned; never null.
  virtual MemoryBlock allocate(int64_t bytes) const = 0;
  // Where the host finds what lies at this address; nullptr: it cannot touch it.
  virtual std::byte* map(std::byte* address) const = 0;
  // Whose memory it works on. Devices that name the same one read each other's tensors in place.
  virtual Device memory() const { return device(); }
  // `threads`: how many of the host's it may use.
  virtual std::unique_ptr<Stream> make_stream(int threads) const = 0;

  // What runs a program: for all devices that have kernels the one executable over their streams.
  virtual std::unique_ptr<Executable> load(std::shared_ptr<const Compiled> compiled) const;
  // A kernel of the user's for an op, from now on. Raises Error(unsupported, "kernel") where there is no such thing.
  virtual void register_kernel(const OpDef& op, HostKernel kernel) const;
  // The number of its memory in DLPack's list of devices.
  virtual int dlpack_kind() const = 0;

  // For reports. Which libraries answer, a line each; what the machine can do, measured now: f32 multiply-adds in GF/s, and
  // the seconds that reading and writing so many bytes takes. Empty and 0: not known.
  virtual std::string libraries() const { return {}; }
  virtual double peak_gflops(int threads) const { return (void)threads, 0; }
  virtual double traffic_seconds(int threads, size_t read, size_t written) const {
    return (void)threads, (void)read, (void)written, 0;
  }
};

}  // namespace rlx
