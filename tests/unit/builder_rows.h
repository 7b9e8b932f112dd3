// What a row of the table of builders is, and the rows of attention, gradients and splats
// (builders_test.cc has the others).
#pragma once

#include <gtest/gtest.h>

#include "rlx/build.h"

namespace rlx {

using G = GraphBuilder;

inline NodeId in(G& g, Shape shape, DType dtype = DType::F32) {
  return g.input(fmt::format("x{}", g.len()), {dtype, std::move(shape)});
}
inline Type f32(Shape shape) { return {DType::F32, std::move(shape)}; }

// The ops that were emitted, leaves left out, and the type of the value.
inline std::string did(const G& g, NodeId id) {
  std::string out;
  for (const Node& n : g.nodes())
    if (n.op != &op::input && n.op != &op::param)
      out += (out.empty() ? "" : " ") + std::string(n.op->name);
  return out + " : " + g.shape(id).to_string();
}
inline std::string did(const G& g, const NodePair& pair) {
  EXPECT_EQ(g.shape(pair.first), g.shape(pair.second));
  return did(g, pair.first);
}

struct Row {
  std::string_view name;
  std::function<std::string(G&)> run;
  std::string want;
};
using Rows = std::vector<Row>;

struct Qkv {
  NodeId q, k, v;
};
inline Qkv qkv(G& g) { return {in(g, {2, 4, 16}), in(g, {2, 6, 16}), in(g, {2, 6, 16})}; }

inline Rows attention_rows() {
  const Type t = f32({2, 4, 16});
  const std::string one = "attention : [2, 4, 16] f32";
  return {
      {"attention",
       [=](G& g) {
         const auto [q, k, v] = qkv(g);
         return did(g, g.attention(q, k, v, in(g, {2, 6}), 2, 8, t));
       },
       one},
      {"attention_opts",
       [=](G& g) {
         const auto [q, k, v] = qkv(g);
         const NodeId y = g.attention_opts(q, k, v, in(g, {2, 6}), 2, 8, t, 0.5, 30.0);
         EXPECT_EQ(g.node(y).get<AttentionAttrs>().scale, 0.5);
         EXPECT_EQ(g.node(y).get<AttentionAttrs>().softcap, 30.0);
         return did(g, y);
       },
       one},
      {"attention_kind",
       [=](G& g) {
         const auto [q, k, v] = qkv(g);
         const NodeId y = g.attention_kind(q, k, v, 2, 8, AttentionMask::sliding_window(3), t);
         EXPECT_EQ(g.node(y).get<AttentionAttrs>().window, 3);
         return did(g, y);
       },
       one},
      {"attention_kind_opts",
       [=](G& g) {
         const auto [q, k, v] = qkv(g);
         return did(g, g.attention_kind_opts(q, k, v, 2, 8, AttentionMask::causal(), t, 0.5, 30.0));
       },
       one},
      {"attention_bias",
       [=](G& g) {
         const auto [q, k, v] = qkv(g);
         return did(g, g.attention_bias(q, k, v, in(g, {2, 2, 4, 6}), 2, 8, t));
       },
       one},
      {"axial_rope2d",
       [](G& g) { return did(g, g.axial_rope2d(in(g, {1, 4, 8}), 2, 2, 4, 2, 10000, 1)); },
       "axial_rope2d : [1, 4, 8] f32"},
      {"attention_backward",
       [](G& g) {
         const auto [q, k, v] = qkv(g);
         return did(g, g.attention_backward(AttentionOperand::key, q, k, v, in(g, {2, 4, 16}), 2, 8,
                                            AttentionMask::custom(), in(g, {2, 6})));
       },
       "attention_gradient : [2, 6, 16] f32"},
      {"attention_backward_all",
       [](G& g) {
         const auto [q, k, v] = qkv(g);
         const auto [dq, dk, dv] =
             g.attention_backward_all(q, k, v, in(g, {2, 4, 16}), 2, 8, AttentionMask::causal());
         EXPECT_EQ(g.shape(dv), g.shape(v));
         return did(g, dq);
       },
       "attention_gradient attention_gradient attention_gradient : [2, 4, 16] f32"},
  };
}

inline Rows backward_rows() {
  const Type w = f32({8, 2, 3, 3}), image = f32({1, 4, 8, 8});
  return {
      {"relu_backward", [](G& g) { return did(g, g.relu_backward(in(g, {3}), in(g, {3}))); },
       "relu_backward : [3] f32"},
      {"activation_backward",
       [](G& g) { return did(g, g.activation_backward(Activation::gelu, in(g, {3}), in(g, {3}))); },
       "activation_backward : [3] f32"},
      {"layer_norm_backward_input",
       [](G& g) {
         return did(
             g, g.layer_norm_backward_input(in(g, {4, 8}), in(g, {8}), in(g, {4, 8}), -1, 1e-5));
       },
       "layer_norm_backward_input : [4, 8] f32"},
      {"layer_norm_backward_gamma",
       [](G& g) {
         return did(g,
                    g.layer_norm_backward_gamma(in(g, {4, 8}), in(g, {4, 8}), f32({8}), -1, 1e-5));
       },
       "layer_norm_backward_gamma : [8] f32"},
      {"rms_norm_backward_input",
       [](G& g) {
         return did(g, g.rms_norm_backward_input(in(g, {4, 8}), in(g, {8}), in(g, {8}),
                                                 in(g, {4, 8}), -1, 1e-5));
       },
       "rms_norm_backward_input : [4, 8] f32"},
      {"rms_norm_backward_gamma",
       [](G& g) {
         return did(g, g.rms_norm_backward_gamma(in(g, {4, 8}), in(g, {8}), in(g, {8}),
                                                 in(g, {4, 8}), -1, 1e-5));
       },
       "rms_norm_backward_gamma : [8] f32"},
      {"rms_norm_backward_beta",
       [](G& g) {
         return did(g, g.rms_norm_backward_beta(in(g, {4, 8}), in(g, {8}), in(g, {8}),
                                                in(g, {4, 8}), -1, 1e-5));
       },
       "rms_norm_backward_beta : [8] f32"},
      {"rope_backward",
       [](G& g) {
         return did(g, g.rope_backward(in(g, {2, 3, 8}), in(g, {3, 2}), in(g, {3, 2}), 4, 4));
       },
       "rope_backward : [2, 3, 8] f32"},
      {"cumsum_backward",
       [](G& g) { return did(g, g.cumsum_backward(in(g, {2, 4}), f32({2, 4}), -1, true)); },
       "cumsum_backward : [2, 4] f32"},
      {"gather_backward",
       [](G& g) { return did(g, g.gather_backward(in(g, {3, 8}), in(g, {3}), f32({5, 8}), 0)); },
       "gather_backward : [5, 8] f32"},
      {"group_norm_backward_input",
       [](G& g) {
         return did(g, g.group_norm_backward_input(in(g, {1, 4, 2, 2}), in(g, {4}), in(g, {4}),
                                                   in(g, {1, 4, 2, 2}), 2, 1e-5));
       },
       "group_norm_backward_input : [1, 4, 2, 2] f32"},
      {"group_norm_backward_gamma",
       [](G& g) {
         return did(g, g.group_norm_backward_gamma(in(g, {1, 4, 2, 2}), in(g, {1, 4, 2, 2}),
                                                   f32({4}), 2, 1e-5));
       },
       "group_norm_backward_gamma : [4] f32"},
      {"group_norm_backward_beta",
       [](G& g) {
         return did(g, g.group_norm_backward_beta(in(g, {1, 4, 2, 2}), in(g, {1, 4, 2, 2}),
                                                  f32({4}), 2, 1e-5));
       },
       "group_norm_backward_beta : [4] f32"},
      {"maxpool2d_backward",
       [](G& g) {
         return did(g, g.maxpool2d_backward(in(g, {1, 2, 4, 4}), in(g, {1, 2, 2, 2}), {2, 2},
                                            {2, 2}, {0, 0}));
       },
       "max_pool_backward : [1, 2, 4, 4] f32"},
      {"conv2d_backward_input",
       [=](G& g) {
         return did(g, g.conv2d_backward_input(in(g, {1, 8, 8, 8}), in(g, w.shape), image, {3, 3},
                                               {1, 1}, {1, 1}, {1, 1}, 2));
       },
       "conv_backward_input : [1, 4, 8, 8] f32"},
      {"conv2d_backward_weight",
       [=](G& g) {
         return did(g, g.conv2d_backward_weight(in(g, image.shape), in(g, {1, 8, 8, 8}), w, {3, 3},
                                                {1, 1}, {1, 1}, {1, 1}, 2));
       },
       "conv_backward_weight : [8, 2, 3, 3] f32"},
      {"softmax_cross_entropy_with_logits",
       [](G& g) { return did(g, g.softmax_cross_entropy_with_logits(in(g, {4, 3}), in(g, {4}))); },
       "softmax_cross_entropy : [4] f32"},
      {"softmax_cross_entropy_backward",
       [](G& g) {
         return did(g, g.softmax_cross_entropy_backward(in(g, {4, 3}), in(g, {4}), in(g, {4})));
       },
       "softmax_cross_entropy_backward : [4, 3] f32"},
      {"complex_norm_sq", [](G& g) { return did(g, g.complex_norm_sq(in(g, {3}, DType::C64))); },
       "complex_norm_sq : [3] f32"},
      {"complex_norm_sq_backward",
       [](G& g) { return did(g, g.complex_norm_sq_backward(in(g, {3}, DType::C64), in(g, {3}))); },
       "complex_norm_sq_backward : [3] c64"},
      {"conjugate", [](G& g) { return did(g, g.conjugate(in(g, {3}, DType::C64))); },
       "conj : [3] c64"},
  };
}

// Two splats on an image of 8 x 8 pixels in tiles of 4.
inline GaussianSplatBackwardParams splat_params() {
  GaussianSplatBackwardParams p;
  p.width = p.height = 8;
  p.tile_size = 4;
  p.max_list_entries = 16;
  return p;
}
inline GaussianSplatInputs splats(G& g) {
  return {in(g, {6}), in(g, {6}), in(g, {8}), in(g, {2}), in(g, {6}), in(g, {6}), in(g, {23})};
}

inline Rows splat_rows() {
  return {
      {"gaussian_splat_render",
       [](G& g) { return did(g, g.gaussian_splat_render(splats(g), splat_params())); },
       "gaussian_splat_render : [256] f32"},
      {"gaussian_splat_render_meta",
       [](G& g) {
         return did(g, g.gaussian_splat_render_meta({0, 0, -3}, {0, 0, 0}, {0, 1, 0}, 60, 0.1, 20,
                                                    {0, 0, 0}, splat_params()));
       },
       "constant : [23] f32"},
      {"gaussian_splat_prepare",
       [](G& g) { return did(g, g.gaussian_splat_prepare(splats(g), splat_params())); },
       "gaussian_splat_prepare : [257] f32"},
      {"gaussian_splat_rasterize",
       [](G& g) {
         return did(g, g.gaussian_splat_rasterize(in(g, {257}), in(g, {23}), splat_params()));
       },
       "gaussian_splat_rasterize : [256] f32"},
      {"gaussian_splat_render_decomposed",
       [](G& g) { return did(g, g.gaussian_splat_render_decomposed(splats(g), splat_params())); },
       "gaussian_splat_prepare gaussian_splat_rasterize : [256] f32"},
      {"gaussian_splat_render_backward",
       [](G& g) {
         return did(g, g.gaussian_splat_render_backward(splats(g), in(g, {256}), splat_params()));
       },
       "gaussian_splat_render_backward : [34] f32"},
  };
}

}  // namespace rlx
