#include "rlx/ir/tensor_bytes.h"

namespace rlx {

std::optional<int64_t> checked_tensor_bytes(DType dtype, const Ints& sizes) {
  int64_t elements = 1;
  bool empty = false;
  for (int64_t s : sizes) {
    if (s < 0) return std::nullopt;
    if (s == 0) {
      empty = true;
      continue;
    }
    const auto next = checked_mul(elements, s);
    if (!next || *next >= int64_t{1} << 53) return std::nullopt;
    elements = *next;
  }
  const auto bytes = checked_mul(elements, size_of(dtype));
  if (!bytes || *bytes >= int64_t{1} << 48) return std::nullopt;
  return empty ? 0 : *bytes;
}

Tensor read_tensor_data(ByteReader& r, DType dtype, Ints sizes) {
  const auto bytes = checked_tensor_bytes(dtype, sizes);
  if (!bytes)
    r.error("tensor-size", "a tensor of sizes [{}] of {} is not possible", fmt::join(sizes, ", "),
            dtype);
  const size_t start = r.offset();
  const std::string_view data = r.take(static_cast<uint64_t>(*bytes));
  if (is_bool(dtype))
    for (size_t i = 0; i < data.size(); ++i)
      if (static_cast<unsigned char>(data[i]) > 1)
        r.error_at(start + i, "bool",
                   fmt::format("a bool is 0 or 1, not {}", static_cast<unsigned char>(data[i])));
  return Tensor::from_bytes(dtype, std::move(sizes), data.data(), data.size());
}

void Codec<Tensor>::write(ByteWriter& w, const Tensor& v) {
  Codec<DType>::write(w, v.dtype());
  Codec<Ints>::write(w, v.sizes());
  w.raw(v.raw(), v.bytes());
}

void Codec<Tensor>::load(ByteReader& r, Tensor& v) {
  DType dtype{};
  Ints sizes;
  Codec<DType>::load(r, dtype);
  Codec<Ints>::load(r, sizes);
  if (static_cast<int64_t>(sizes.size()) > kMaxRank)
    r.error("tensor-size", "a tensor has {} axes; {} are allowed", sizes.size(), kMaxRank);
  v = read_tensor_data(r, dtype, std::move(sizes));
}

}  // namespace rlx
