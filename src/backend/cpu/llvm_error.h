// What LLVM reports as an Error of ours. For sources that include LLVM.
#pragma once

#include <llvm/Support/Error.h>

#include "rlx/base/error.h"

namespace rlx::cpu {

// Raises (device, "llvm"), or (resource, "out-of-memory").
inline void require(llvm::Error error) {
  if (!error) return;
  bool out_of_memory = false;
  llvm::visitErrors(error, [&](const llvm::ErrorInfoBase& e) {
    out_of_memory = out_of_memory || e.convertToErrorCode() == std::errc::not_enough_memory;
  });
  const std::string text = llvm::toString(std::move(error));
  if (out_of_memory) raise_out_of_memory();
  fail(ErrorKind::device, "llvm", "LLVM: {}", text);
}

template <class T>
T require(llvm::Expected<T> value) {
  if (!value) require(value.takeError());
  return std::move(*value);
}

}  // namespace rlx::cpu
