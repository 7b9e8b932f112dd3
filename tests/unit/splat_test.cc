// Gaussian splats: the builders, the two-stage image against the one op, what is empty, lists that
// are wrong, threads and instruction sets, and the messages for wrong operands. The sample table and
// the golden values test the rest.
#include "rlx/backend/cpu/kernels/splat/splat.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "../support/expect_error.h"
#include "../support/worse.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/splat/splat.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

const char* const kNames[] = {"positions", "scales", "rotations", "opacities",
                              "colors",    "sh",     "meta"};

// N splats within 1 of the origin, seen from a distance of 4.
Tensors scene(int64_t n, int64_t coefficients, DType dtype, unsigned seed = 1) {
  std::mt19937 rng(seed);
  const auto draw = [&](int64_t count, double low, double high) {
    std::uniform_real_distribution<double> number(low, high);
    Tensor t(dtype, {count});
    for (int64_t i = 0; i < count; ++i) t.set_float(i, number(rng));
    return t;
  };
  Tensors out = {draw(3 * n, -1, 1), draw(3 * n, -2.2, -1), draw(4 * n, -1, 1),
                 draw(n, 0.2, 0.9),  draw(3 * n, 0, 1),     draw(3 * n * coefficients, -0.5, 0.5)};
  for (int64_t i = 0; i < n; ++i) {
    double square = 0;
    for (int64_t k = 0; k < 4; ++k) square += std::pow(out[2].get_float(4 * i + k), 2);
    for (int64_t k = 0; k < 4; ++k)
      out[2].set_float(4 * i + k, out[2].get_float(4 * i + k) / std::sqrt(square));
  }
  Tensor meta(dtype, {23});
  const double camera[] = {0.3, 0.2, -4, 0, 0, 0, 0, 1, 0, 40, 0.1, 20, 0.5, 0.25, 0.75};
  for (size_t i = 0; i < std::size(camera); ++i) meta.set_float(static_cast<int64_t>(i), camera[i]);
  out.push_back(meta);
  return out;
}

GaussianSplatInputs inputs_for(Builder& b, const Tensors& in) {
  Values v;
  for (size_t i = 0; i < in.size(); ++i) v.push_back(b.input(kNames[i], in[i].type()));
  return {v[0], v[1], v[2], v[3], v[4], v[5], v[6]};
}

template <class F>
Graph graph_of(const Tensors& in, F&& make) {
  Builder b("splats");
  b.output(make(b, inputs_for(b, in)));
  return b.finish();
}

NamedTensors named(const Graph& g, const Tensors& in) {
  NamedTensors out;
  const Values leaves = g.inputs();
  for (size_t i = 0; i < leaves.size(); ++i) out[g.node(leaves[i]).get<LeafAttrs>().name] = in[i];
  return out;
}

double distance(const Tensor& a, const Tensor& b) {
  double most = 0;
  for (int64_t i = 0; i < a.elements(); ++i)
    most = testing::worse(most, std::abs(a.get_float(i) - b.get_float(i)));
  return most;
}

const GaussianSplatRenderParams kSmall{{.width = 20, .height = 14, .tile_size = 6}, 1.2};
const std::vector<std::string> kLeaves(std::begin(kNames), std::end(kNames));

TEST(Splat, TwoStagesMakeTheSameImageAndGradients) {
  Tensors in = scene(15, 4, DType::F64);
  const Graph whole = graph_of(in, [](Builder& b, const GaussianSplatInputs& s) {
    return gaussian_splat_render(b, s, kSmall);
  });
  const Graph stages = graph_of(in, [](Builder& b, const GaussianSplatInputs& s) {
    return gaussian_splat_render_decomposed(b, s, kSmall);
  });
  const Graph one = vjp(whole, kLeaves), other = vjp(stages, kLeaves);
  in.push_back(Tensor::full(DType::F64, {4 * kSmall.pixels()}, 0.5));
  const Tensors a = evaluate(one, in), b = evaluate(other, in);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_LE(distance(a[i], b[i]), 1e-12) << i;
  EXPECT_GT(distance(a[7], Tensor(DType::F64, a[7].sizes())), 0) << "the camera has a gradient";
}

TEST(Splat, CpuAgreesWithTheReferenceAndDoesNotDependOnThreads) {
  for (DType dtype : {DType::F32, DType::F64}) {
    const Tensors in = scene(40, 4, dtype, 3);
    const Graph g = graph_of(in, [](Builder& b, const GaussianSplatInputs& s) {
      const GaussianSplatRenderParams p{{.width = 33, .height = 30, .tile_size = 8}, 1.6};
      const Value image = gaussian_splat_render(b, s, p);
      return op::reduce_sum(b, op::square(b, image), {.axes = {0}});
    });
    const Graph gradients = value_and_grad(g, kLeaves);
    const Tensors want = evaluate(gradients, in);
    const auto run = [&](int threads) {
      return Session("cpu")
          .compile(gradients, {.threads = threads, .poison = true})
          .run(named(gradients, in));
    };
    const std::vector<Tensor> one = run(1), three = run(3);
    for (size_t i = 0; i < want.size(); ++i) {
      double size = 1;
      for (int64_t k = 0; k < want[i].elements(); ++k)
        size = std::max(size, std::abs(want[i].get_float(k)));
      EXPECT_LE(distance(one[i], want[i]), (dtype == DType::F32 ? 1e-4 : 1e-11) * size) << i;
      EXPECT_TRUE(one[i].same_bits(three[i])) << i;
    }
  }
}

TEST(Splat, EmptyTilesShowTheBackgroundAndLetAllLightPass) {
  Tensors in = scene(1, 0, DType::F64);
  for (int64_t i = 0; i < 3; ++i) in[0].set_float(i, 0), in[1].set_float(i, -4);
  const Graph g = graph_of(in, [](Builder& b, const GaussianSplatInputs& s) {
    return gaussian_splat_render(b, s, {{.width = 32, .height = 32, .tile_size = 8}});
  });
  const Tensor image = evaluate(g, in)[0];
  for (int64_t c = 0; c < 3; ++c)
    EXPECT_NEAR(image.get_float(c), std::pow(in[6].get_float(12 + c), 2.2), 1e-15);
  EXPECT_EQ(image.get_float(3), 0);
  double most = 0;
  for (int64_t i = 0; i < 32 * 32; ++i) most = std::max(most, image.get_float(4 * i + 3));
  EXPECT_GT(most, 0.01);
}

TEST(Splat, TheCommonCoreSortsByDistanceAndCutsFullLists) {
  Tensors in = scene(3, 0, DType::F64);
  const double z[] = {0.5, -0.5, 0};
  for (int64_t i = 0; i < 9; ++i) {
    in[0].set_float(i, i % 3 == 2 ? z[i / 3] : 0);
    in[1].set_float(i, -1);
  }
  const auto ids = [&](int64_t entries) {
    Builder b("lists");
    const auto s = inputs_for(b, in);
    const GaussianSplatRenderParams p{
        {.width = 8, .height = 8, .tile_size = 8, .max_list_entries = entries}};
    for (Value v : b.emit(op::gaussian_splat_bin.def, p,
                          Values{s.positions, s.scales, s.rotations, s.opacities, s.meta}))
      b.output(v);
    Tensors out = evaluate(b.finish(), in);
    std::vector<int64_t> list;
    for (int64_t i = out[2].get_int(0); i < out[2].get_int(1); ++i)
      list.push_back(out[1].get_int(i));
    return list;
  };
  EXPECT_EQ(ids(5), (std::vector<int64_t>{1, 2, 0}));
  EXPECT_EQ(ids(2), (std::vector<int64_t>{1, 2}));
}

TEST(Splat, BuildersAndLengths) {
  const GaussianSplatRenderParams p;
  EXPECT_EQ(gaussian_splat_tile_count(p), 16);
  EXPECT_EQ(gaussian_splat_tile_count({.width = 17, .height = 1, .tile_size = 16}), 2);
  EXPECT_EQ(gaussian_splat_prep_packed_len(10, p), 150 + 576 + 32 + 3 * 4096 + 11);
  EXPECT_EQ(gaussian_splat_prep_packed_len(0, p), gaussian_splat_prep_packed_len(1, p));
  EXPECT_EQ(gaussian_splat_packed_grad_len(10, 4), 140 + 120);
  EXPECT_EQ(gaussian_splat_packed_grad_len(10, 0), 140 + 30);

  Builder b("builders");
  const Value meta = gaussian_splat_render_meta(b, {1, 2, 3}, {4, 5, 6}, {0, 1, 0}, 60, 0.1, 20,
                                                {0.1, 0.2, 0.3}, p);
  const Tensor& values = b.node(meta).get<ConstantAttrs>().value;
  const float want[] = {1,    2,    3,    4,  5,  6,  0,    1,          0,  60,    0.1f, 20,
                        0.1f, 0.2f, 0.3f, 64, 64, 16, 1.6f, 1.0f / 255, 32, 0.01f, 576};
  ASSERT_EQ(values.sizes(), Ints{23});
  for (int64_t i = 0; i < 23; ++i) EXPECT_EQ(values.data<float>()[i], want[i]) << i;

  const Value packed = b.input("packed", {DType::F32, {14 * 5 + 3 * 5 * 4}});
  const GaussianSplatInputs parts = unpack_gaussian_splat_packed_grads(b, packed, 5, 4);
  const int64_t sizes[] = {15, 15, 20, 5, 15, 60};
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(b.shape(parts.values()[i]), Shape{sizes[i]});
  EXPECT_EQ(parts.meta, packed);
}

TEST(Splat, WrongListsFailTheRun) {
  const GaussianSplatRasterParams p{.width = 4, .height = 2, .tile_size = 2, .max_list_entries = 4};
  Builder b("raster");
  Values in;
  Tensors values;
  const auto add = [&](Tensor t) {
    in.push_back(b.input(std::to_string(in.size()), t.type()));
    values.push_back(std::move(t));
  };
  for (const Ints& sizes : std::vector<Ints>{{2, 4}, {2, 3}, {2, 3}, {2, 4}, {8, 3}, {3}})
    add(Tensor::full(DType::F32, sizes, 0.5));
  add(Tensor::from<int32_t>({4}, {0, 1, 1, 0}));
  add(Tensor::from<int32_t>({2, 2}, {0, 2, 2, 4}));
  b.output(emit_one(b, op::gaussian_splat_raster.def, p, in));
  const Graph g = b.finish();
  const auto run = [&](const Graph& program, size_t operand, const std::vector<int32_t>& list) {
    Tensors with = values;
    with[operand] = Tensor::from<int32_t>(with[operand].sizes(), list);
    with.push_back(Tensor::full(DType::F32, {8, 4}, 1));
    with.resize(program.inputs().size());
    Session("cpu").compile(program).run(named(program, with));
  };
  EXPECT_NO_THROW(run(g, 6, {0, 1, 1, 0}));
  expect_error("index-range", "", [&] { run(g, 6, {0, 2, 1, 0}); });
  expect_error("index-range", "", [&] { run(g, 7, {0, 2, 3, 5}); });
  const Graph gradient = vjp(g, {"0"});
  EXPECT_NO_THROW(run(gradient, 7, {0, 0, 2, 4}));
  expect_error("index-range", "", [&] { run(gradient, 7, {0, 2, 1, 3}); });
}

TEST(Splat, EveryInstructionSetMakesTheSameImage) {
  const int64_t n = 37, size = 12;
  std::mt19937 rng(5);
  const auto draw = [&](int64_t count, float low, float high) {
    std::uniform_real_distribution<float> number(low, high);
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = number(rng);
    return out;
  };
  const auto look = draw(4 * n, 0.1f, 0.6f), local = draw(3 * n, -1, 1),
             inverse = draw(3 * n, 1, 2), quat = draw(4 * n, -0.7f, 0.7f),
             rays = draw(3 * size * size, -1, 1), sky = draw(3, 0, 1),
             d = draw(4 * size * size, -1, 1);
  std::vector<int32_t> ids(static_cast<size_t>(n)), ranges{0, 20, 20, 20, 20, 37, 0, 0};
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const cpu::SplatProblem p{DType::F32, n, size, size, 6, n, 1e-3, 0.01};
  const cpu::SplatBuffers buffers{look.data(), local.data(), inverse.data(), quat.data(),
                                  rays.data(), sky.data(),   ids.data(),     ranges.data()};
  std::vector<std::vector<float>> all;
  for (cpu::Isa isa : {cpu::Isa::Baseline, cpu::Isa::Avx2, cpu::Isa::Avx512}) {
    if (!cpu::isa_supported(isa)) continue;
    std::vector<double> scratch(cpu::splat_backward_scratch_bytes(p) / 8 + 1);
    std::vector<float> out(4 * size * size + 14 * n + 3 * size * size + 12);
    float* const image = out.data();
    float* const entries = image + 4 * size * size;
    float* const d_rays = entries + 14 * n;
    ASSERT_TRUE(cpu::splat_raster(p, buffers, image, 0, 4, scratch.data(), isa));
    ASSERT_TRUE(cpu::splat_raster_backward(p, buffers,
                                           {d.data(), entries, d_rays, d_rays + 3 * size * size}, 0,
                                           4, scratch.data(), isa));
    all.push_back(std::move(out));
  }
  for (const auto& other : all)
    for (size_t i = 0; i < other.size(); ++i)
      ASSERT_NEAR(other[i], all[0][i], 2e-4 * (1 + std::abs(all[0][i]))) << i;
}

TEST(Splat, WrongOperandsAreNamed) {
  const Tensors good = scene(2, 1, DType::F32);
  const auto render = [](const Tensors& in, const GaussianSplatRenderParams& p) {
    return [=] {
      graph_of(in, [&](Builder& b, const GaussianSplatInputs& s) {
        return gaussian_splat_render(b, s, p);
      });
    };
  };
  const auto with = [&](size_t i, const Tensor& t) {
    Tensors in = good;
    in[i] = t;
    return in;
  };
  EXPECT_NO_THROW(render(good, {})());
  const auto numbers = [](int64_t n) { return Tensor(DType::F32, {n}); };
  expect_error("splat-shape", "positions must be the positions [3 N] = [6]",
               render(with(0, numbers(5)), {}));
  expect_error("splat-shape", "rotations must be", render(with(2, numbers(6)), {}));
  expect_error("splat-shape", "coefficients", render(with(5, numbers(7)), {}));
  expect_error("splat-shape", "[23]", render(with(6, numbers(15)), {}));
  expect_error("dtype-mixed", "one dtype", render(with(1, Tensor(DType::F64, {6})), {}));
  expect_error("splat-attributes", "width", render(good, {{.width = 0}}));
  expect_error("splat-attributes", "alpha_cutoff", render(good, {{.alpha_cutoff = 0}}));
  expect_error("splat-attributes", "radius_scale", render(good, {{}, -1}));
  expect_error("splat-shape", "prepared buffer of 100 numbers", [&] {
    Builder b("prepared");
    gaussian_splat_rasterize(b, b.input("prep", {DType::F32, {100}}),
                             b.input("meta", {DType::F32, {23}}));
  });
}

}  // namespace
}  // namespace rlx
