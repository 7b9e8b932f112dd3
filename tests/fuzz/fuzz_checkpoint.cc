// Mutated checkpoints: the reader answers with tensors that are saved as exactly these bytes, or with
// an Error. Most mutations get a right length and checksum, so that they reach what lies behind.
#include <filesystem>

#include "fuzz.h"
#include "rlx/formats/checkpoint.h"

namespace rlx::fuzz {
namespace {

constexpr size_t kChecksum = 8;

const std::filesystem::path& scratch_file() {
  static const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("rlx-fuzz-" + std::to_string(getpid()) + ".ckpt");
  return path;
}

std::string bytes_of(const NamedTensors& tensors) {
  save_checkpoint(scratch_file(), tensors);
  std::string out = read_file(scratch_file());
  std::filesystem::remove(scratch_file());
  return out;
}

std::vector<std::string> seeds() {
  std::vector<std::string> out{bytes_of({})};
  NamedTensors all;
  for (const DTypeInfo& d : kDTypes)
    for (const Ints& sizes : {Ints{}, Ints{3}, Ints{2, 3}, Ints{0, 4}}) {
      const Tensor t = Tensor::full(d.dtype, sizes, 1);
      all.emplace(fmt::format("{}.{}", d.name, sizes.size()), t);
      out.push_back(bytes_of({{"w", t}}));
      out.push_back(bytes_of({{"a", t}, {"Größe", t}, {"z", Tensor(DType::F32, {1})}}));
    }
  out.push_back(bytes_of(all));
  return out;
}

// A number at which sizes go wrong, in the place of the bytes of one.
std::string mutate_number(Random& r, std::string s) {
  const size_t size = size_t{1} << pick(r, 4);
  if (s.size() < size) return s;
  const uint64_t bits = pick(r, 65),
                 value = (bits == 64 ? 0 : uint64_t{1} << bits) - pick(r, 3) + 1;
  std::memcpy(s.data() + pick(r, s.size() - size + 1), &value, size);
  return s;
}

// The middle of another one in the middle of this one.
std::string splice(Random& r, std::string s, const std::string& other) {
  if (s.empty() || other.empty()) return s;
  return s.replace(pick(r, s.size()), pick(r, 40),
                   other.substr(pick(r, other.size()), 1 + pick(r, 40)));
}

std::string mutate(Random& r, const std::string& s, const std::vector<std::string>& seeds) {
  const size_t dice = pick(r, 20);
  if (dice < 3 || s.size() < kChecksum) return mutate_bytes(r, s);
  const std::string body = s.substr(0, s.size() - kChecksum);
  if (dice < 9) return seal_checkpoint(mutate_bytes(r, body));
  if (dice < 16) return seal_checkpoint(mutate_number(r, body));
  return seal_checkpoint(splice(r, body, seeds[pick(r, seeds.size())]));
}

void target(const std::string& bytes) {
  const NamedTensors tensors = parse_checkpoint(bytes);
  size_t total = 0;
  for (const auto& [name, t] : tensors) total += name.size() + t.bytes();
  if (total > bytes.size()) fail(ErrorKind::internal, "size", "tensors larger than their file");
  if (bytes_of(tensors) != bytes)
    fail(ErrorKind::internal, "round-trip", "the tensors are saved as other bytes");
}

}  // namespace
}  // namespace rlx::fuzz

int main(int argc, char** argv) {
  rlx::file_calls().fsync = [](int) { return 0; };
  return rlx::fuzz::run({rlx::fuzz::seeds(), rlx::fuzz::mutate, rlx::fuzz::target}, argc, argv);
}
