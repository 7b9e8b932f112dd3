#include "mnist.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "rlx/base/error.h"

namespace rlx::testing {

namespace {

namespace fs = std::filesystem;

// What gzip makes of the file, without the first `header` bytes.
std::string unzipped(const fs::path& path, size_t header) {
  const std::string command = fmt::format("gzip -dc '{}'", path.string());
  FILE* pipe = popen(command.c_str(), "r");
  check(pipe != nullptr, "cannot start gzip");
  std::string out;
  char part[1 << 16];
  for (size_t n; (n = fread(part, 1, sizeof part, pipe)) > 0;) out.append(part, n);
  check(pclose(pipe) == 0 && out.size() > header, "cannot unpack {}", path.string());
  return out.substr(header);
}

}  // namespace

std::optional<Mnist> load_mnist() {
  const char* given = std::getenv("RLX_MNIST");
  const fs::path folder = given ? given : RLX_SOURCE_DIR "/../shared/data/mnist";
  const fs::path images = folder / "t10k-images-idx3-ubyte.gz",
                 labels = folder / "t10k-labels-idx1-ubyte.gz";
  if (!fs::exists(images) || !fs::exists(labels)) return {};
  const std::string pixels = unzipped(images, 16), digits = unzipped(labels, 8);
  Mnist m;
  auto part = [&](int64_t from, int64_t count, Tensor& x, Tensor& y) {
    x = Tensor(DType::F32, {count, Mnist::kPixels}), y = Tensor(DType::I32, {count});
    for (int64_t i = 0; i < x.elements(); ++i) {
      const auto byte =
          static_cast<uint8_t>(pixels.at(static_cast<size_t>(from * Mnist::kPixels + i)));
      x.set_float(i, (byte / 255.0 - 0.13) / 0.31);
    }
    for (int64_t i = 0; i < count; ++i) y.set_int(i, digits.at(static_cast<size_t>(from + i)));
  };
  part(0, Mnist::kTrain, m.train_images, m.train_labels);
  part(Mnist::kTrain, Mnist::kTest, m.test_images, m.test_labels);
  return m;
}

Tensor Mnist::images(const std::vector<int64_t>& which, Ints sizes) const {
  Tensor out(DType::F32, std::move(sizes));
  for (size_t i = 0; i < which.size(); ++i)
    std::copy_n(train_images.raw() + which[i] * kPixels * 4, kPixels * 4,
                out.mutable_raw() + static_cast<int64_t>(i) * kPixels * 4);
  return out;
}

Tensor Mnist::labels(const std::vector<int64_t>& which) const {
  Tensor out(DType::I32, {static_cast<int64_t>(which.size())});
  for (size_t i = 0; i < which.size(); ++i)
    out.set_int(static_cast<int64_t>(i), train_labels.get_int(which[i]));
  return out;
}

}  // namespace rlx::testing
