// Device: which machine a program runs on and where memory lies, as a kind and a number.
//
//   Device d = "cuda:1";        // the second of that kind
//   d.kind, d.ordinal;          // "cuda", 1
//   name(Device("cuda:0"));     // "cuda": the first one needs no number
//
// A Device is a name. Which there are is asked of the registry (runtime/runtime.h); kinds are words of
// backends, nothing else knows one. Raises Error(user, "device-name") for what is no name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rlx {

struct Device {
  Device(std::string_view text);                                       // NOLINT: a name is a device
  Device(const char* text) : Device(std::string_view(text)) {}         // NOLINT
  Device(const std::string& text) : Device(std::string_view(text)) {}  // NOLINT
  Device(std::string kind, int ordinal) : kind(std::move(kind)), ordinal(ordinal) {}

  std::string kind;
  int ordinal = 0;
  bool operator==(const Device&) const = default;
  auto operator<=>(const Device&) const = default;
};

std::string name(const Device& d);
uint64_t hash(const Device& d);

}  // namespace rlx
