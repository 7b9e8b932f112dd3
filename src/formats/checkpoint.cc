#include "rlx/formats/checkpoint.h"

#include <array>
#include <fstream>

#include "rlx/base/hash.h"
#include "rlx/ir/tensor_bytes.h"

namespace rlx {

namespace {

constexpr std::string_view kCheckpointMagic = "RLX-CKPT";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 24, kChecksumBytes = 8;
constexpr size_t kMinRecordBytes = 4 + 1 + 1 + 2 + 1;  // a name of one byte, rank 0, no data
constexpr size_t kChunk = size_t{1} << 20;
constexpr uint64_t kSeed = 0x524c582d434b5054ull;

uint64_t checksum(std::string_view bytes) {
  uint64_t h = kSeed;
  for (size_t at = 0; at < bytes.size(); at += kChunk) {
    const std::string_view chunk = bytes.substr(at, kChunk);
    h = hash_bytes(chunk.data(), chunk.size(), h);
  }
  return h;
}

// Writes in chunks of 1 MiB and hashes them on the way.
class Writer {
 public:
  Writer(const std::filesystem::path& path, const std::string& family) : file_(path, family) {
    chunk_.reserve(kChunk);
  }

  void bytes(const void* data, size_t size) {
    const auto* p = static_cast<const char*>(data);
    while (size > 0) {
      const size_t n = std::min(size, kChunk - chunk_.size());
      chunk_.append(p, n);
      p += n;
      size -= n;
      if (chunk_.size() == kChunk) flush();
    }
  }
  template <class T>
  void number(T v) {
    bytes(&v, sizeof v);
  }
  void text(std::string_view s) { bytes(s.data(), s.size()); }

  void finish() {
    if (!chunk_.empty()) flush();
    file_.write(&hash_, sizeof hash_);
    file_.commit();
  }

 private:
  void flush() {
    hash_ = hash_bytes(chunk_.data(), chunk_.size(), hash_);
    file_.write(chunk_.data(), chunk_.size());
    chunk_.clear();
  }
  AtomicFile file_;
  std::string chunk_;
  uint64_t hash_ = kSeed;
};

size_t record_bytes(const std::string& name, const Tensor& t) {
  return 4 + name.size() + 1 + to_string(t.dtype()).size() + 1 + 8 * t.sizes().size() + t.bytes();
}

bool is_name(std::string_view s) { return !s.empty() && is_utf8(s); }

void read_record(ByteReader& r, NamedTensors& out) {
  const size_t start = r.offset();
  const std::string name(r.take(r.u32()));
  if (!is_name(name)) r.error_at(start, "checkpoint-name", "a name is not UTF-8 text, or empty");
  if (!out.empty() && out.rbegin()->first >= name)
    r.error_at(start, "checkpoint-name",
               fmt::format("\"{}\" does not come after \"{}\"", name, out.rbegin()->first));
  const std::string_view dtype_name = r.take(r.u8());
  const auto dtype = parse_dtype(dtype_name);
  if (!dtype) r.error("checkpoint-dtype", "\"{}\" has the unknown dtype \"{}\"", name, dtype_name);
  const int64_t rank = r.u8();
  if (rank > kMaxRank)
    r.error("checkpoint-rank", "\"{}\" has {} axes; {} are allowed", name, rank, kMaxRank);
  Ints sizes;
  for (int64_t a = 0; a < rank; ++a) {
    const uint64_t size = r.u64();
    if (size >> 62) r.error("tensor-size", "\"{}\" has an axis of size {}", name, size);
    sizes.push_back(static_cast<int64_t>(size));
  }
  out.emplace_hint(out.end(), name, read_tensor_data(r, *dtype, std::move(sizes)));
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const NamedTensors& tensors,
                     const std::string& family) {
  within_memory([&] {
    uint64_t length = kHeaderBytes + kChecksumBytes;
    for (const auto& [name, t] : tensors) {
      user_check(is_name(name), "checkpoint-name",
                 "a tensor's name must be UTF-8 text and not empty");
      user_check(t.rank() <= kMaxRank, "checkpoint-rank", "\"{}\" has more than {} axes", name,
                 kMaxRank);
      length += record_bytes(name, t);
    }
    Writer w(path, family);
    w.text(kCheckpointMagic);
    w.number(kVersion);
    w.number(static_cast<uint32_t>(tensors.size()));
    w.number(length);
    for (const auto& [name, t] : tensors) {
      w.number(static_cast<uint32_t>(name.size()));
      w.text(name);
      w.number(static_cast<uint8_t>(to_string(t.dtype()).size()));
      w.text(to_string(t.dtype()));
      w.number(static_cast<uint8_t>(t.sizes().size()));
      for (int64_t s : t.sizes()) w.number(static_cast<uint64_t>(s));
      w.bytes(t.raw(), t.bytes());
    }
    w.finish();
  });
}

NamedTensors parse_checkpoint(std::string_view bytes, const std::string& what) {
  return within_memory([&] {
    ByteReader header(bytes, what);
    if (header.left() < kCheckpointMagic.size() ||
        header.take(kCheckpointMagic.size()) != kCheckpointMagic)
      header.error_at(0, "checkpoint-magic", "this is not a checkpoint");
    const uint32_t version = header.u32();
    if (version != kVersion)
      header.error("checkpoint-version", "version {} is not known; this program reads version {}",
                   version, kVersion);
    const uint32_t count = header.u32();
    const uint64_t length = header.u64();
    if (length < kHeaderBytes + kChecksumBytes)
      header.error("truncated", "a length of {} bytes is not possible", length);
    if (length > bytes.size())
      header.error("truncated", "{} bytes of {} are there", bytes.size(), length);
    if (length < bytes.size())
      header.error("overlong", "{} bytes follow the end", bytes.size() - length);

    const std::string_view body = bytes.substr(0, bytes.size() - kChecksumBytes);
    uint64_t stored;
    std::memcpy(&stored, bytes.data() + body.size(), sizeof stored);
    if (checksum(body) != stored) header.error("checksum", "the checksum does not fit the content");

    ByteReader r(body, what);
    r.take(kHeaderBytes);
    if (count > r.left() / kMinRecordBytes + 1)
      r.error("truncated", "{} tensors do not fit in {} bytes", count, r.left());
    NamedTensors out;
    for (uint32_t i = 0; i < count; ++i) read_record(r, out);
    if (!r.done()) r.error("overlong", "{} bytes follow the last tensor", r.left());
    return out;
  });
}

std::string seal_checkpoint(std::string bytes) {
  const uint64_t length = bytes.size() + kChecksumBytes;
  if (bytes.size() >= kHeaderBytes) std::memcpy(bytes.data() + 16, &length, sizeof length);
  const uint64_t sum = checksum(bytes);
  return bytes.append(reinterpret_cast<const char*>(&sum), sizeof sum);
}

bool is_checkpoint(const std::filesystem::path& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return false;  // opening a pipe may never end
  std::array<char, kCheckpointMagic.size()> begin{};
  std::ifstream file(path, std::ios::binary);
  return file.read(begin.data(), begin.size()) &&
         std::string_view(begin.data(), begin.size()) == kCheckpointMagic;
}

NamedTensors load_checkpoint(const std::filesystem::path& path) {
  return within_memory([&] { return parse_checkpoint(read_file(path), path.string()); });
}

}  // namespace rlx
