// Every builder of the specification by its name: what it emits and the type of its result. One row
// per builder, so that a missing one is seen; 134 methods and 33 inferring ones. Attention,
// gradients and splats stand in builder_rows.h.
#include <set>

#include "builder_rows.h"
#include "rlx/ops/custom.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/movement/movement.h"

namespace rlx {
namespace {

// A body that adds its inputs.
Graph adding(std::initializer_list<Type> types) {
  G g("body");
  NodeId sum;
  for (const Type& t : types) {
    const NodeId x = g.input(fmt::format("x{}", g.len()), t);
    sum = sum ? g.add(sum, x) : x;
  }
  g.set_outputs({sum});
  return g.finish();
}

// x -> tanh(x) as a module with one output.
Graph tanh_graph() {
  G g("t");
  g.set_outputs({g.tanh(in(g, {4}))});
  return g.finish();
}

Rows core_rows() {
  return {
      {"new", [](G&) { return G("name").graph().name; }, "name"},
      {"len", [](G& g) { return in(g, {2}), std::to_string(g.len()); }, "1"},
      {"is_empty", [](G& g) { return std::to_string(g.is_empty()); }, "1"},
      {"node", [](G& g) { return std::string(g.node(g.relu(in(g, {2}))).op->name); }, "relu"},
      {"nodes", [](G& g) { return g.relu(in(g, {2})), std::to_string(g.nodes().size()); }, "2"},
      {"shape", [](G& g) { return g.shape(in(g, {2, 3})).to_string(); }, "[2, 3] f32"},
      {"set_outputs",
       [](G& g) {
         const NodeId x = in(g, {2});
         g.set_outputs({x, x});
         return std::to_string(g.finish().outputs.size());
       },
       "2"},
      {"set_inputs",
       [](G& g) {
         const NodeId x = in(g, {2}), y = in(g, {2}), z = g.relu(x);
         g.set_inputs(z, {y});
         return to_string(g.node(z).in[0]);
       },
       "%1"},
      {"node_mut",
       [](G& g) {
         const NodeId x = g.relu(in(g, {2}));
         g.node_mut(x).origin.label = "act";
         return g.node(x).origin.label.str();
       },
       "act"},
      {"nodes_mut",
       [](G& g) {
         in(g, {2});
         for (Node& n : g.nodes_mut()) n.origin.label = "leaf";
         return g.nodes()[0].origin.label.str();
       },
       "leaf"},
      {"append_node",
       [](G& g) {
         const NodeId y = g.append_node({op::concat, {.axis = 1}}, {in(g, {2, 3}), in(g, {2, 1})},
                                        f32({2, 4}), "joined");
         return did(g, y) + " " + g.node(y).origin.label.str();
       },
       "concat : [2, 4] f32 joined"},
      {"users",
       [](G& g) {
         const NodeId x = in(g, {2});
         g.add(x, x), g.relu(x);
         return fmt::format("{}", fmt::join(g.users(x), " "));
       },
       "%1 %2"},
      {"use_count",
       [](G& g) {
         const NodeId x = in(g, {2});
         g.add(x, x), g.relu(x);
         return std::to_string(g.use_count(x));
       },
       "2"},
      {"topo_order",
       [](G& g) { return g.relu(in(g, {2})), fmt::format("{}", fmt::join(g.topo_order(), " ")); },
       "%0 %1"},
      {"reverse_topo",
       [](G& g) { return g.relu(in(g, {2})), fmt::format("{}", fmt::join(g.reverse_topo(), " ")); },
       "%1 %0"},
      {"define",
       [](G&) {
         const GraphModule m = G::define("m", [](HirModule& h) { return h.input("x", f32({4})); });
         return fmt::format("{} {}", name(m.stage()), m.as_hir()->outputs().size());
       },
       "HIR 1"},
      {"hir", [](G&) { return fmt::format("{} {}", name(G::hir("m").stage()), G::hir("m").len()); },
       "HIR 0"},
      {"module", [](G&) { return std::string(name(G(tanh_graph()).module().stage())); }, "MIR"},
      {"to_mir", [](G&) { return std::to_string(G(tanh_graph()).to_mir().len()); }, "2"},
      {"from_hir",
       [](G&) {
         return std::to_string(G::from_hir(HirModule::wrap_mir_graph(tanh_graph())).size());
       },
       "2"},
      {"from_lir",
       [](G&) { return std::to_string(G::from_lir(LirModule(tanh_graph())) == tanh_graph()); },
       "1"},
      {"inspect", [](G& g) { return in(g, {2}), g.inspect().substr(0, 46); },
       "graph @main (1 nodes, 0 outputs, 8 B arena)\n  "},
      {"inspect_module", [](G&) { return G::inspect_module(G::hir("m")).substr(0, 6); }, "hir @m"},
      {"has_dynamic_dims",
       [](G& g) { return in(g, {Dim::symbol("n")}), std::to_string(g.has_dynamic_dims()); }, "1"},
      {"dynamic_symbols",
       [](G& g) {
         in(g, {Dim::symbol("n"), 2 * Dim::symbol("m")});
         return fmt::format("{}", fmt::join(g.dynamic_symbols(), " "));
       },
       "m n"},
      {"bind",
       [](G& g) {
         g.set_outputs({g.relu(in(g, {Dim::symbol("n")}))});
         return g.bind({{"n", 5}}).output_types()[0].to_string();
       },
       "[5] f32"},
  };
}

void register_test_ops() {
  register_custom_op(
      {.name = "test.twice",
       .num_inputs = 1,
       .infer = [](std::span<const Type> t, std::string_view) { return Types{t[0]}; },
       .compute = [](std::span<const Tensor> t, std::string_view) { return Tensors{t[0]}; }});
}

Rows leaf_and_fft_rows() {
  const std::string rfft4 = "constant broadcast concat fft slice slice slice slice";
  const std::string rfft8 = "constant broadcast concat " + rfft4;
  const std::string frame = "slice " + rfft4 + " concat reshape ";
  const auto c64 = DType::C64;
  return {
      {"input", [](G& g) { return g.shape(g.input("x", f32({2}))).to_string(); }, "[2] f32"},
      {"param", [](G& g) { return std::string(g.node(g.param("w", f32({2}))).op->name); }, "param"},
      {"add_node", [](G& g) { return did(g, g.add_node(op::relu, {in(g, {2})}, f32({2}))); },
       "relu : [2] f32"},
      {"custom_op", [](G& g) { return did(g, g.custom_op("test.twice", "", {in(g, {2})})); },
       "custom : [2] f32"},
      {"custom_op_packed",
       [](G& g) {
         return did(g, g.custom_op_packed("test.twice", "", {in(g, {2})}, {DType::F64, {7}}));
       },
       "custom : [7] f64"},
      {"fft", [](G& g) { return did(g, g.fft(in(g, {2, 8}), false)); }, "fft : [2, 8] f32"},
      {"fft_norm",
       [](G& g) { return did(g, g.fft_norm(in(g, {2, 8}), true, BuilderFftNorm::ortho)); },
       "fft : [2, 8] f32"},
      {"fft_axis", [=](G& g) { return did(g, g.fft_axis(in(g, {4, 3}, c64), 0, false)); },
       "transpose fft transpose : [4, 3] c64"},
      {"fftn", [=](G& g) { return did(g, g.fftn(in(g, {4, 3}, c64), {1, 0, 1}, false)); },
       "transpose fft transpose fft : [4, 3] c64"},
      {"ifftn", [=](G& g) { return did(g, g.ifftn(in(g, {4, 3}, c64), {1})); }, "fft : [4, 3] c64"},
      {"pad_last_axis_to_pow2", [](G& g) { return did(g, g.pad_last_axis_to_pow2(in(g, {2, 6}))); },
       "constant broadcast concat : [2, 8] f32"},
      {"split_spectrum", [](G& g) { return did(g, g.split_spectrum(in(g, {2, 8}))); },
       "slice slice : [2, 4] f32"},
      {"fft_real", [](G& g) { return did(g, g.fft_real(in(g, {2, 6}), BuilderFftNorm::forward)); },
       "constant broadcast concat constant broadcast concat fft slice slice : [2, 8] f32"},
      {"fft_batch_real",
       [](G& g) { return did(g, g.fft_batch_real(in(g, {2, 4}), BuilderFftNorm::forward)); },
       "constant broadcast concat fft slice slice : [2, 4] f32"},
      {"rfft", [](G& g) { return did(g, g.rfft(in(g, {2, 6}), BuilderFftNorm::forward)); },
       rfft8 + " : [2, 5] f32"},
      {"irfft",
       [](G& g) {
         const NodeId re = in(g, {2, 5}), im = in(g, {2, 5});
         return did(g, g.irfft(re, im, 6, BuilderFftNorm::forward));
       },
       "slice reverse slice reverse neg concat concat concat fft slice slice : [2, 6] f32"},
      {"stft", [](G& g) { return did(g, g.stft(in(g, {10}), 4, 3, BuilderFftNorm::backward)); },
       frame + frame + frame + "concat : [3, 6] f32"},
      {"fft_conv1d",
       [](G& g) {
         const NodeId a = in(g, {3}), b = in(g, {2});
         const NodeId y = g.fft_conv1d(a, b, 0, BuilderFftNorm::forward);
         return fmt::format("{} {}", g.len() - 2, g.shape(y));
       },
       "40 [4] f32"},
      {"fftfreq_tensor", [](G& g) { return did(g, g.fftfreq_tensor(5)); }, "constant : [5] f64"},
      {"rfftfreq_tensor", [](G& g) { return did(g, g.rfftfreq_tensor(5)); }, "constant : [3] f64"},
      {"psd_real", [](G& g) { return did(g, g.psd_real(in(g, {2, 6}), BuilderFftNorm::backward)); },
       rfft8 + " mul mul add constant mul : [2, 5] f32"},
      {"ifft_spectrum",
       [](G& g) {
         return did(g, g.ifft_spectrum(in(g, {2, 4}), in(g, {2, 4}), BuilderFftNorm::forward));
       },
       "concat fft slice : [2, 4] f32"},
      {"psd", [](G& g) { return did(g, g.psd(in(g, {2, 5}), in(g, {2, 5}))); },
       "mul mul add constant mul : [2, 5] f32"},
  };
}

Rows block_rows() {
  const auto ffn = [](G& g) {
    return std::array{in(g, {4, 8}), in(g, {8, 16}), in(g, {8, 16}), in(g, {16, 8})};
  };
  return {
      {"linear_bias",
       [](G& g) { return did(g, g.linear_bias(in(g, {4, 8}), in(g, {8, 16}), in(g, {16}))); },
       "matmul add : [4, 16] f32"},
      {"linear_bias_act",
       [](G& g) {
         return did(g, g.linear_bias_act(in(g, {4, 8}), in(g, {8, 16}), {}, Activation::relu));
       },
       "matmul relu : [4, 16] f32"},
      {"linear_fused",
       [](G& g) {
         return did(g, g.linear_fused(in(g, {4, 8}), in(g, {8, 16}), in(g, {16}), Activation::gelu,
                                      f32({4, 16})));
       },
       "fused_matmul_bias_act : [4, 16] f32"},
      {"shared_matmul_pair",
       [](G& g) {
         return did(g, g.shared_matmul_pair(in(g, {4, 8}), in(g, {8, 16}), in(g, {8, 16})));
       },
       "matmul matmul : [4, 16] f32"},
      {"swiglu_ffn",
       [=](G& g) {
         const auto [x, up, gate, down] = ffn(g);
         return did(g, g.swiglu_ffn(x, up, gate, down));
       },
       "matmul matmul silu mul matmul : [4, 8] f32"},
      {"fused_swiglu_ffn",
       [=](G& g) {
         const auto [x, up, gate, down] = ffn(g);
         return did(g, g.fused_swiglu_ffn(x, up, gate, down, f32({4, 8})));
       },
       "concat matmul fused_swiglu matmul : [4, 8] f32"},
      {"conv2d",
       [](G& g) {
         return did(g, g.conv2d(in(g, {1, 4, 8, 8}), in(g, {8, 2, 3, 3}), {3, 3}, {1, 1}, {1, 1},
                                {1, 1}, 2));
       },
       "conv : [1, 8, 8, 8] f32"},
      {"conv_transpose2d",
       [](G& g) {
         return did(g, g.conv_transpose2d(in(g, {1, 4, 8, 8}), in(g, {4, 8, 2, 2}), {2, 2}, {2, 2},
                                          {0, 0}, {1, 1}, {0, 0}, 1));
       },
       "conv_transpose : [1, 8, 16, 16] f32"},
      {"binary",
       [](G& g) { return did(g, g.binary(BinaryOp::max, in(g, {4, 1}), in(g, {3}), f32({4, 3}))); },
       "maximum : [4, 3] f32"},
      {"activation",
       [](G& g) { return did(g, g.activation(Activation::atan, in(g, {3}), f32({3}))); },
       "atan : [3] f32"},
      {"quantize", [](G& g) { return did(g, g.quantize(in(g, {2, 3}), 0.5, 3)); },
       "quantize : [2, 3] i8"},
      {"quantize_per_channel",
       [](G& g) { return did(g, g.quantize_per_channel(in(g, {2, 3}), 0, {0.5, 1}, {0, 1})); },
       "quantize : [2, 3] i8"},
      {"dequantize", [](G& g) { return did(g, g.dequantize(in(g, {2, 3}, DType::I8), 0.5, 3)); },
       "dequantize : [2, 3] f32"},
      {"dequantize_per_channel",
       [](G& g) {
         return did(g, g.dequantize_per_channel(in(g, {2, 3}, DType::I8), -2, {0.5, 1}, {0, 1}));
       },
       "dequantize : [2, 3] f32"},
  };
}

Rows linear_algebra_rows() {
  return {
      {"matmul",
       [](G& g) { return did(g, g.matmul(in(g, {5, 4, 8}), in(g, {8, 3}), f32({5, 4, 3}))); },
       "matmul : [5, 4, 3] f32"},
      {"dense_solve",
       [](G& g) { return did(g, g.dense_solve(in(g, {3, 3}), in(g, {3, 2}), f32({3, 2}))); },
       "dense_solve : [3, 2] f32"},
      {"batched_dense_solve",
       [](G& g) {
         return did(g, g.batched_dense_solve(in(g, {5, 3, 3}), in(g, {5, 3}), f32({5, 3})));
       },
       "dense_solve : [5, 3] f32"},
      {"lora_matmul",
       [](G& g) {
         return did(g, g.lora_matmul(in(g, {4, 8}), in(g, {8, 16}), in(g, {8, 2}), in(g, {2, 16}),
                                     2, f32({4, 16})));
       },
       "lora_matmul : [4, 16] f32"},
      {"dequant_matmul",
       [](G& g) {
         return did(g, g.dequant_matmul(in(g, {4, 64}), in(g, {64, 16}, DType::I8), in(g, {2, 16}),
                                        in(g, {2, 16}), parse_scheme("int8/32"), f32({4, 16})));
       },
       "dequant_matmul : [4, 16] f32"},
      {"dequant_matmul_packed",
       [](G& g) {
         return did(g, g.dequant_matmul_packed(in(g, {4, 64}), in(g, {16, 68}, DType::U8),
                                               parse_scheme("gguf_q8_0"), f32({4, 16})));
       },
       "dequant_matmul : [4, 16] f32"},
      {"dequant_matmul_nvfp4",
       [](G& g) {
         return did(g, g.dequant_matmul_nvfp4(in(g, {4, 32}), in(g, {32, 8}, DType::U8),
                                              in(g, {2, 16}, DType::U8), in(g, {1}), f32({4, 16})));
       },
       "dequant_matmul : [4, 16] f32"},
      {"fused_matmul_bias_act",
       [](G& g) {
         return did(g, g.fused_matmul_bias_act(in(g, {4, 8}), in(g, {8, 16}), in(g, {16}), {},
                                               f32({4, 16})));
       },
       "fused_matmul_bias_act : [4, 16] f32"},
      {"q_matmul",
       [](G& g) {
         return did(g,
                    g.q_matmul(in(g, {4, 8}, DType::I8), in(g, {8, 16}, DType::I8),
                               in(g, {16}, DType::I32), 0, 0, 0, 0.01, Type{DType::I8, {4, 16}}));
       },
       "q_matmul : [4, 16] i8"},
      {"q_conv2d",
       [](G& g) {
         return did(g, g.q_conv2d(in(g, {1, 4, 8, 8}, DType::I8), in(g, {8, 2, 3, 3}, DType::I8),
                                  in(g, {8}, DType::I32), {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2, 0, 0,
                                  0, 0.01, Type{DType::I8, {1, 8, 8, 8}}));
       },
       "q_conv2d : [1, 8, 8, 8] i8"},
  };
}

Rows norm_and_shape_rows() {
  const Type t = f32({4, 8});
  return {
      {"layer_norm2d",
       [](G& g) {
         return did(g, g.layer_norm2d(in(g, {1, 4, 2, 2}), in(g, {4}), in(g, {4}), 1e-5));
       },
       "layer_norm2d : [1, 4, 2, 2] f32"},
      {"group_norm",
       [](G& g) {
         return did(g, g.group_norm(in(g, {1, 4, 2, 2}), in(g, {4}), in(g, {4}), 2, 1e-5));
       },
       "group_norm : [1, 4, 2, 2] f32"},
      {"layer_norm",
       [=](G& g) {
         return did(g, g.layer_norm(in(g, {4, 8}), in(g, {8}), in(g, {8}), -1, 1e-5, t));
       },
       "layer_norm : [4, 8] f32"},
      {"fused_residual_ln",
       [=](G& g) {
         return did(g, g.fused_residual_ln(in(g, {4, 8}), in(g, {4, 8}), in(g, {8}), in(g, {8}),
                                           in(g, {8}), 1e-5, t));
       },
       "fused_residual_ln : [4, 8] f32"},
      {"fused_residual_rms_norm",
       [=](G& g) {
         return did(g, g.fused_residual_rms_norm(in(g, {4, 8}), in(g, {4, 8}), {}, in(g, {8}),
                                                 in(g, {8}), 1e-5, t));
       },
       "fused_residual_rms_norm : [4, 8] f32"},
      {"reduce",
       [](G& g) { return did(g, g.reduce(in(g, {4, 8}), ReduceOp::prod, {0}, true, f32({1, 8}))); },
       "reduce_prod : [1, 8] f32"},
      {"reduce",  // an axis that is named twice counts once
       [](G& g) {
         return did(g, g.reduce(in(g, {4, 8}), ReduceOp::sum, {1, 0, 1}, false, f32({})));
       },
       "reduce_sum : [] f32"},
      {"softmax", [=](G& g) { return did(g, g.softmax(in(g, {4, 8}), 0, t)); },
       "softmax : [4, 8] f32"},
      {"cumsum", [=](G& g) { return did(g, g.cumsum(in(g, {4, 8}), 1, true, t)); },
       "cumsum : [4, 8] f32"},
      {"sample",
       [](G& g) { return did(g, g.sample(in(g, {2, 10}), 4, 0.9, 0.8, 7, Type{DType::I32, {2}})); },
       "sample : [2] i32"},
      {"reshape", [](G& g) { return did(g, g.reshape(in(g, {4, 8}), {2, -1}, f32({2, 16}))); },
       "reshape : [2, 16] f32"},
      {"gather",
       [](G& g) { return did(g, g.gather(in(g, {5, 7, 3}), in(g, {2, 4}), 1, f32({5, 2, 4, 3}))); },
       "gather : [5, 2, 4, 3] f32"},
      {"concat",
       [](G& g) { return did(g, g.concat({in(g, {2, 3}), in(g, {2, 1})}, 1, f32({2, 4}))); },
       "concat : [2, 4] f32"},
  };
}

// The derivative of adding(): every input gets the cotangent.
Graph adding_vjp(size_t inputs) {
  G g("vjp");
  for (size_t i = 0; i < inputs; ++i) g.input(fmt::format("x{}", i), f32({4}));
  const NodeId dy = g.input("d_output", f32({4}));
  g.set_outputs(Values(inputs, dy));
  return g.finish();
}

Rows loop_rows() {
  const Type c = f32({4});
  const auto gates = [](G& g) {
    return std::array{in(g, {1, 2, 1, 4}), in(g, {1, 2, 1, 4}), in(g, {1, 2, 1, 4}),
                      in(g, {1, 2, 1}), in(g, {1, 2, 1})};
  };
  return {
      {"selective_scan",
       [](G& g) {
         return did(g, g.selective_scan(in(g, {1, 2, 3}), in(g, {1, 2, 3}), in(g, {3, 4}),
                                        in(g, {1, 2, 4}), in(g, {1, 2, 4}), 4, f32({1, 2, 3})));
       },
       "selective_scan : [1, 2, 3] f32"},
      {"gated_delta_net",
       [=](G& g) {
         const auto [q, k, v, gate, beta] = gates(g);
         return did(g, g.gated_delta_net(q, k, v, gate, beta, 4, f32({1, 2, 1, 4})));
       },
       "gated_delta_net : [1, 2, 1, 4] f32"},
      {"gated_delta_net_carry",
       [=](G& g) {
         const auto [q, k, v, gate, beta] = gates(g);
         return did(g, g.gated_delta_net_carry(q, k, v, gate, beta, in(g, {1, 1, 4, 4}), 4));
       },
       "gated_delta_net : [1, 2, 1, 4] f32"},
      {"scan", [=](G& g) { return did(g, g.scan(in(g, {4}), adding({c}), 3)); }, "scan : [4] f32"},
      {"scan_checkpointed",
       [=](G& g) { return did(g, g.scan_checkpointed(in(g, {4}), adding({c}), 3, 2)); },
       "scan_checkpointed : [4] f32"},
      {"scan_with_bcasts_and_xs",
       [=](G& g) {
         return did(g, g.scan_with_bcasts_and_xs(in(g, {4}), {in(g, {1})}, {in(g, {3, 4})},
                                                 adding({c, f32({1}), c}), 3));
       },
       "scan : [4] f32"},
      {"scan_with_xs",
       [=](G& g) { return did(g, g.scan_with_xs(in(g, {4}), {in(g, {3, 4})}, adding({c, c}), 3)); },
       "scan : [4] f32"},
      {"scan_trajectory",
       [=](G& g) { return did(g, g.scan_trajectory(in(g, {4}), adding({c}), 3)); },
       "scan : [3, 4] f32"},
      {"scan_backward",
       [=](G& g) {
         return did(g, g.scan_backward(in(g, {4}), in(g, {3, 4}), in(g, {4}), {}, adding_vjp(1), 3,
                                       false, c));
       },
       "scan_backward : [4] f32"},
      {"scan_backward_with_checkpoints",
       [=](G& g) {
         return did(g,
                    g.scan_backward_with_checkpoints(in(g, {4}), in(g, {2, 4}), in(g, {3, 4}), {},
                                                     adding_vjp(1), 3, true, 2, adding({c}), c));
       },
       "scan_backward : [4] f32"},
      {"scan_backward_xs",
       [=](G& g) {
         return did(g, g.scan_backward_xs(in(g, {4}), in(g, {3, 4}), in(g, {4}), {in(g, {3, 4})},
                                          adding_vjp(2), 3, false, 0, f32({3, 4})));
       },
       "scan_backward_xs : [3, 4] f32"},
      {"scan_backward_xs_with_checkpoints",
       [=](G& g) {
         return did(g, g.scan_backward_xs_with_checkpoints(in(g, {4}), in(g, {2, 4}), in(g, {4}),
                                                           {in(g, {3, 4})}, adding_vjp(2), 3, false,
                                                           0, 2, adding({c, c}), f32({3, 4})));
       },
       "scan_backward_xs : [3, 4] f32"},
      {"custom_fn",
       [=](G& g) {
         return did(g, g.custom_fn({in(g, {4}), in(g, {4})}, adding({c, c}), adding_vjp(2)));
       },
       "custom_fn : [4] f32"},
      {"custom_fn_multi",
       [](G& g) {
         G body("body");
         const NodeId x = body.input("x", {DType::F64, {2, 3}});
         body.set_outputs({x, body.sum(x, {0, 1}, false), body.sum(x, {0}, false)});
         const MultiOutputHandle h = g.custom_fn_multi({in(g, {2, 3}, DType::F64)}, body.finish());
         EXPECT_EQ(h.n_outputs(), 3u);
         EXPECT_EQ(g.shape(h.source).to_string(), "[10] f64");
         EXPECT_EQ(g.shape(h.output(g, 1)).to_string(), "[] f64");
         EXPECT_EQ(g.shape(h.output(g, 2)).to_string(), "[3] f64");
         return did(g, h.output(g, 0));
       },
       "custom_fn slice reshape slice slice reshape : [2, 3] f64"},
  };
}

// A builder of one operand or two.
Row unary(std::string_view name, NodeId (G::*method)(NodeId), const std::string& op) {
  return {name, [method](G& g) { return did(g, (g.*method)(in(g, {2, 3}))); },
          op + " : [2, 3] f32"};
}
Row pairwise(std::string_view name, NodeId (G::*method)(NodeId, NodeId), const std::string& want) {
  return {name, [method](G& g) { return did(g, (g.*method)(in(g, {2, 1}), in(g, {3}))); },
          want + " : [2, 3] " + (want == "eq" || want == "lt" ? "bool" : "f32")};
}

Rows inferring_rows() {
  return {
      {"GraphExt::mm", [](G& g) { return did(g, g.mm(in(g, {4, 8}), in(g, {8, 3}))); },
       "matmul : [4, 3] f32"},
      pairwise("GraphExt::add", &G::add, "add"),
      pairwise("GraphExt::sub", &G::sub, "sub"),
      pairwise("GraphExt::mul", &G::mul, "mul"),
      pairwise("GraphExt::div", &G::div, "div"),
      unary("GraphExt::gelu", &G::gelu, "gelu"),
      unary("GraphExt::gelu_approx", &G::gelu_approx, "gelu_tanh"),
      unary("GraphExt::silu", &G::silu, "silu"),
      unary("GraphExt::relu", &G::relu, "relu"),
      unary("GraphExt::exp", &G::exp, "exp"),
      unary("GraphExt::sqrt", &G::sqrt, "sqrt"),
      unary("GraphExt::neg", &G::neg, "neg"),
      unary("GraphExt::tanh", &G::tanh, "tanh"),
      {"GraphExt::ln",
       [](G& g) { return did(g, g.ln(in(g, {4, 8}), in(g, {8}), in(g, {8}), 1e-5)); },
       "layer_norm : [4, 8] f32"},
      {"GraphExt::layer_norm2d",
       [](G& g) { return did(g, g.layer_norm2d(in(g, {2, 4, 3}), in(g, {4}), in(g, {4}), 1e-5)); },
       "layer_norm2d : [2, 4, 3] f32"},
      {"GraphExt::group_norm",
       [](G& g) { return did(g, g.group_norm(in(g, {2, 4, 3}), in(g, {4}), in(g, {4}), 2, 1e-5)); },
       "group_norm : [2, 4, 3] f32"},
      {"GraphExt::conv2d",
       [](G& g) {
         return did(g, g.conv2d(in(g, {1, 4, 9}), in(g, {8, 4, 3}), {3}, {2}, {0}, {1}, 1));
       },
       "conv : [1, 8, 4] f32"},
      {"GraphExt::conv_transpose2d",
       [](G& g) {
         return did(
             g, g.conv_transpose2d(in(g, {1, 4, 3}), in(g, {4, 8, 2}), {2}, {2}, {0}, {1}, {1}, 1));
       },
       "conv_transpose : [1, 8, 7] f32"},
      {"GraphExt::rms_norm",
       [](G& g) { return did(g, g.rms_norm(in(g, {4, 8}), in(g, {8}), in(g, {8}), 1e-5)); },
       "rms_norm : [4, 8] f32"},
      {"GraphExt::sum", [](G& g) { return did(g, g.sum(in(g, {4, 8}), {1}, false)); },
       "reduce_sum : [4] f32"},
      {"GraphExt::mean", [](G& g) { return did(g, g.mean(in(g, {4, 8}), {1}, true)); },
       "reduce_mean : [4, 1] f32"},
      {"GraphExt::sm", [](G& g) { return did(g, g.sm(in(g, {4, 8}), -1)); },
       "softmax : [4, 8] f32"},
      {"GraphExt::reshape_", [](G& g) { return did(g, g.reshape_(in(g, {4, 8}), {-1})); },
       "reshape : [32] f32"},
      {"GraphExt::transpose_", [](G& g) { return did(g, g.transpose_(in(g, {4, 8}), {1, 0})); },
       "transpose : [8, 4] f32"},
      {"GraphExt::narrow_", [](G& g) { return did(g, g.narrow_(in(g, {4, 8}), 1, 2, 3)); },
       "slice : [4, 3] f32"},
      {"GraphExt::concat_", [](G& g) { return did(g, g.concat_({in(g, {4}), in(g, {2})}, 0)); },
       "concat : [6] f32"},
      {"GraphExt::gather_", [](G& g) { return did(g, g.gather_(in(g, {4, 8}), in(g, {2}), 0)); },
       "gather : [2, 8] f32"},
      pairwise("GraphExt::eq", &G::eq, "eq"),
      pairwise("GraphExt::lt", &G::lt, "lt"),
      {"GraphExt::attention_",
       [](G& g) {
         const auto [q, k, v] = qkv(g);
         return did(g, g.attention_(q, k, v, in(g, {2, 6}), 2, 8));
       },
       "attention : [2, 4, 16] f32"},
      {"GraphExt::rope",
       [](G& g) { return did(g, g.rope(in(g, {2, 3, 8}), in(g, {3, 2}), in(g, {3, 2}), 4)); },
       "rope : [2, 3, 8] f32"},
      {"GraphExt::rope_n",
       [](G& g) { return did(g, g.rope_n(in(g, {2, 3, 8}), in(g, {3, 1}), in(g, {3, 1}), 4, 2)); },
       "rope : [2, 3, 8] f32"},
      {"GraphExt::cast", [](G& g) { return did(g, g.cast(in(g, {2}), DType::BF16)); },
       "cast : [2] bf16"},
  };
}

Rows all_rows() {
  Rows out;
  for (const Rows& part :
       {core_rows(), leaf_and_fft_rows(), attention_rows(), backward_rows(), block_rows(),
        linear_algebra_rows(), norm_and_shape_rows(), loop_rows(), splat_rows(), inferring_rows()})
    out.insert(out.end(), part.begin(), part.end());
  return out;
}

TEST(Builders, EmitWhatTheTableSays) {
  register_test_ops();
  for (const Row& row : all_rows()) {
    SCOPED_TRACE(row.name);
    G g("main");
    EXPECT_NO_THROW(EXPECT_EQ(row.run(g), row.want));
  }
}

TEST(Builders, AreAllThere) {
  std::set<std::string_view> names;
  for (const Row& row : all_rows()) names.insert(row.name);
  EXPECT_EQ(names.size(), 167u);
}

}  // namespace
}  // namespace rlx
