// MNIST's test split (../shared/data/mnist beside the project, or the folder RLX_MNIST), where it is there: the first 8,000
// images to train with, the last 2,000 to test on. The project itself does not need it.
#pragma once

#include <optional>

#include "rlx/ir/tensor.h"

namespace rlx::testing {

struct Mnist {
  static constexpr int64_t kTrain = 8000, kTest = 2000, kPixels = 28 * 28;
  // Images [count, 28 * 28] f32 of about mean 0 and deviation 1, labels [count] i32.
  Tensor train_images, train_labels, test_images, test_labels;

  // Images and labels of a batch, by number.
  Tensor images(const std::vector<int64_t>& which, Ints sizes) const;
  Tensor labels(const std::vector<int64_t>& which) const;
};

// Nothing when the files are absent.
std::optional<Mnist> load_mnist();

}  // namespace rlx::testing
