// Checkpoints: named tensors in one checksummed file.
//
//   save_checkpoint("step100.ckpt", {{"w", w}, {"step", Tensor::scalar(DType::I64, 100)}});
//   NamedTensors back = load_checkpoint("step100.ckpt");
//
// Saving is atomic (temporary file, fsync, rename): a crash leaves the old file or the new one.
// Equal tensors give equal bytes. Loading is strict and all or nothing; the bytes are not trusted.
// Error(data) with the byte offset: "checkpoint-magic", "checkpoint-version", "truncated",
// "overlong", "checksum", "checkpoint-name" (empty, not UTF-8, twice, out of order),
// "checkpoint-dtype", "checkpoint-rank", "tensor-size", "bool".
//
// The file, little-endian:
//   "RLX-CKPT"  u32 version (1)  u32 tensors  u64 length of the file
//   per tensor, names ascending:
//     u32 length, name;  u8 length, dtype's name;  u8 rank;  u64 sizes;  data, row-major
//   u64 checksum: hash_bytes over the file before it, MiB by MiB, each seeded with the one before
#pragma once

#include <map>

#include "rlx/base/file.h"
#include "rlx/ir/tensor.h"

namespace rlx {

void save_checkpoint(const std::filesystem::path& path, const NamedTensors& tensors,
                     const std::string& family = "");  // of temporary files, see AtomicFile
NamedTensors load_checkpoint(const std::filesystem::path& path);
bool is_checkpoint(const std::filesystem::path& path);  // a file that begins like one
NamedTensors parse_checkpoint(std::string_view bytes, const std::string& what = "checkpoint");
// A checkpoint without its checksum, the length made right and the checksum put behind it, for
// programs that edit files (fuzzers, repair).
std::string seal_checkpoint(std::string bytes);

}  // namespace rlx
