// NumPy's .npy files.
//
//   Tensor x = read_npy("x.npy");
//   write_npy("y.npy", y);              // version 1.0, C order; complete or not there at all
//
// Versions 1.0, 2.0 and 3.0 are read; Fortran order is read by transposing. The dtypes are those
// with a counterpart here: bool, int8/16/32/64, uint8/32, float16/32/64, complex64, and '<V2' for
// bfloat16 (what NumPy writes for the bfloat16 of ml_dtypes; other two-byte records look the same
// and are read as bfloat16 too). Either byte order is read, ours is written.
//
// The bytes are not trusted. Error(data) with the byte offset: "npy-magic", "npy-version",
// "npy-header" (not the dictionary that NumPy writes), "npy-dtype", "tensor-size", "bool",
// "truncated", "overlong".
#pragma once

#include "rlx/base/file.h"
#include "rlx/ir/tensor.h"

namespace rlx {

Tensor read_npy(const std::filesystem::path& path);
void write_npy(const std::filesystem::path& path, const Tensor& t);

// The same on bytes; `what` names them in messages.
Tensor parse_npy(std::string_view bytes, const std::string& what = "npy");
std::string npy_header(const Type& type);  // everything before the data

}  // namespace rlx
