// The specification names 92 ops; each is carried by at least one entry of the table, in its
// `reference` field.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "rlx/ops/table.h"

namespace rlx {
namespace {

using Names = std::set<std::string_view>;

// In the order of the specification's catalogue.
const Names kSpecified{
    // leaves
    "Input",
    "Param",
    "Constant",
    // elementwise, compare, select
    "Activation",
    "Cast",
    "Binary",
    "Compare",
    "Where",
    "ElementwiseRegion",
    // linear algebra
    "MatMul",
    "DotGeneral",
    "DenseSolve",
    "BatchedDenseSolve",
    // convolution, pooling, resize
    "Conv",
    "ConvTranspose2d",
    "Pool",
    "ResizeNearest2x",
    // normalisation
    "LayerNorm",
    "RmsNorm",
    "LayerNorm2d",
    "GroupNorm",
    // reduction, scan, sort
    "Reduce",
    "Softmax",
    "Cumsum",
    "TopK",
    // shape and indexing
    "Reshape",
    "Transpose",
    "Narrow",
    "Concat",
    "Expand",
    "Gather",
    "ScatterAdd",
    // attention, rotary
    "Attention",
    "Rope",
    "AxialRope2d",
    // recurrent
    "SelectiveScan",
    "GatedDeltaNet",
    // quantisation
    "Quantize",
    "Dequantize",
    "FakeQuantize",
    "FakeQuantizeBackward",
    "FakeQuantizeLSQ",
    "FakeQuantizeLSQBackwardX",
    "FakeQuantizeLSQBackwardScale",
    "QMatMul",
    "QConv2d",
    "DequantMatMul",
    // control flow
    "If",
    "While",
    "Scan",
    "ScanBackward",
    "ScanBackwardXs",
    // custom
    "Custom",
    "CustomFn",
    // FFT and complex numbers
    "Fft",
    "ComplexNormSq",
    "ComplexNormSqBackward",
    "Conjugate",
    // sampling
    "Sample",
    // experts, groups, LoRA
    "GroupedMatMul",
    "DequantGroupedMatMul",
    "DequantMoEWeights",
    "LoraMatMul",
    // fused
    "FusedMatMulBiasAct",
    "FusedResidualLN",
    "FusedResidualRmsNorm",
    "FusedSwiGLU",
    "FusedAttentionBlock",
    "FusedTransformerLayer",
    // backward
    "ReluBackward",
    "ActivationBackward",
    "LayerNormBackwardInput",
    "LayerNormBackwardGamma",
    "RmsNormBackwardInput",
    "RmsNormBackwardGamma",
    "RmsNormBackwardBeta",
    "GroupNormBackwardInput",
    "GroupNormBackwardGamma",
    "GroupNormBackwardBeta",
    "RopeBackward",
    "CumsumBackward",
    "GatherBackward",
    "MaxPool2dBackward",
    "Conv2dBackwardInput",
    "Conv2dBackwardWeight",
    "SoftmaxCrossEntropyWithLogits",
    "SoftmaxCrossEntropyBackward",
    "AttentionBackward",
    // Gaussian splats
    "GaussianSplatRender",
    "GaussianSplatRenderBackward",
    "GaussianSplatPrepare",
    "GaussianSplatRasterize",
};

// What an entry's field names, separated by commas.
std::vector<std::string_view> names_of(std::string_view reference) {
  std::vector<std::string_view> out;
  while (!reference.empty()) {
    const size_t comma = std::min(reference.find(','), reference.size());
    out.push_back(reference.substr(0, comma));
    reference.remove_prefix(std::min(comma + 1, reference.size()));
    while (reference.starts_with(' ')) reference.remove_prefix(1);
  }
  return out;
}

TEST(ReferenceNames, AreThoseOfTheSpecification) {
  EXPECT_EQ(kSpecified.size(), 92u);
  for (const OpTable::Entry& e : op_table().entries())
    for (std::string_view name : names_of(e.op->reference))
      EXPECT_TRUE(kSpecified.contains(name)) << e.op->name << ": " << name;
}

TEST(ReferenceNames, AllAreCarried) {
  Names missing = kSpecified;
  for (const OpTable::Entry& e : op_table().entries())
    for (std::string_view name : names_of(e.op->reference)) missing.erase(name);
  EXPECT_TRUE(missing.empty()) << "not carried: " << fmt::format("{}", fmt::join(missing, ", "));
}

}  // namespace
}  // namespace rlx
