// ONNX's recurrent layers, each a scan of one cell per direction. The products with x are taken for
// all steps at once.
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/indexing/index_rules.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/sequence/sequence.h"
#include "rlx/ops/sequence/sequence_rules.h"

namespace rlx {
namespace {

using Exprs = std::vector<Expr>;

// What the cells share: `gates` slabs of rows in the weights and `states` initial states.
struct Cell {
  int64_t gates, states;
};

Types infer_recurrent(const InferArgs& a, Cell cell, Direction direction) {
  const size_t states = static_cast<size_t>(cell.states);
  require_same_dtype({a.op, a.attrs, a.in.first(4 + states)});
  const int64_t directions = direction == Direction::bidirectional ? 2 : 1;
  require_rank(a, 0, 3, "x [S, B, I]");
  require_rank(a, 2, 3, "r [D, G H, H]");
  const Shape& x = a.in[0].shape;
  const Dim hidden = a.in[2].shape[2], rows = hidden * cell.gates;
  require_shape(a, 1, {directions, rows, x[2]},
                fmt::format("w [{}, {} * H, I]", directions, cell.gates));
  require_shape(a, 2, {directions, rows, hidden},
                fmt::format("r [{}, {} * H, H]", directions, cell.gates));
  require_shape(a, 3, {directions, rows * 2},
                fmt::format("bias [{}, {} * H]", directions, 2 * cell.gates));
  for (size_t i = 4; i < 4 + states; ++i)
    require_shape(a, i, {directions, x[1], hidden}, "an initial state [D, B, H]");
  if (a.in.size() > 4 + states) {
    require_shape(a, 4 + states, {x[1]}, "lengths [B]");
    require_indices(a, 4 + states);
  }
  const DType dtype = a.in[0].dtype;
  Types out{{dtype, {x[0], directions, x[1], hidden}}};
  for (size_t i = 0; i < states; ++i) out.push_back({dtype, {directions, x[1], hidden}});
  return out;
}

// Columns [gate * H, (gate + 1) * H) of the last axis.
Expr gate_of(Expr x, const Dim& hidden, int64_t first, int64_t count = 1) {
  Shape start(x.shape().size(), Dim(0)), limit = x.shape();
  start.back() = hidden * first;
  limit.back() = hidden * (first + count);
  return op::slice(x, {start, limit, {}});
}

// One direction's matrices: r [G H, H], its bias [G H], and x w^T + bias of w, [S, B, G H].
struct Weights {
  Expr x, r, r_bias;
};

using CellStep = FunctionRef<Exprs(const Exprs& state, const Weights& w)>;

Values decompose_recurrent(Builder& b, const Node& n, Operands in, Cell cell, Direction direction,
                           CellStep step) {
  const auto states = static_cast<size_t>(cell.states);
  const bool has_lengths = in.size() > 4 + states;
  const Dim hidden = b.shape(in[2])[2], length = b.shape(in[0])[0];
  const auto of_direction = [&](Value v, int64_t d) -> Expr {
    Expr x = widen(b, v);
    Shape start(x.shape().size(), Dim(0)), limit = x.shape(), rest(limit.begin() + 1, limit.end());
    start[0] = d, limit[0] = d + 1;
    return {b, reshape_to(b, op::slice(x, {start, limit, {}}), rest)};
  };
  std::vector<Values> results(1 + states);  // per result, of each direction
  const int64_t directions = n.out[1].shape[0].value();
  for (int64_t d = 0; d < directions; ++d) {
    Expr bias = of_direction(in[3], d);
    Expr products = op::matmul(widen(b, in[0]), of_direction(in[1], d), {.transpose_b = true}) +
                    gate_of(bias, hidden, 0, cell.gates);
    Values stacked{products}, initial,
        constants{of_direction(in[2], d), gate_of(bias, hidden, cell.gates, cell.gates)};
    for (size_t i = 0; i < states; ++i) initial.push_back(of_direction(in[4 + i], d));
    if (has_lengths) {
      stacked.push_back(op::iota(b, {}, {DType::I64, {length}, 0}));
      constants.push_back(reshape_to(b, cast_to(b, in.back(), DType::I64), {b.shape(in[0])[1], 1}));
    }
    const bool reverse = direction == Direction::reverse || d == 1;
    const Values out =
        recurrence(b, n.op->name, initial, stacked, constants, length, reverse,
                   [&](const Exprs& state, const Exprs& slices, const Exprs& fixed) -> Exprs {
                     Exprs next = step(state, {slices[0], fixed[0], fixed[1]});
                     Expr y = next[0];
                     if (has_lengths) {
                       Expr active = op::lt(slices[1], fixed[2]);
                       for (size_t i = 0; i < next.size(); ++i)
                         next[i] = y.make(op::select(y.builder(), active, next[i], state[i]));
                       y = y.make(op::select(y.builder(), active, y, y.like(0)));
                     }
                     next.push_back(y);
                     return next;
                   });
    results[0].push_back(with_axis({b, out[states]}, 1));
    for (size_t i = 0; i < states; ++i) results[i + 1].push_back(with_axis({b, out[i]}, 0));
  }
  Values joined;
  for (size_t i = 0; i < results.size(); ++i)
    joined.push_back(cast_to(b, b.emit(op::concat.def, AxisAttrs{i == 0 ? 1 : 0}, results[i])[0],
                             n.out[i].dtype));
  return joined;
}

Expr recurrent_product(Expr h, const Weights& w) {
  return op::matmul(h, w.r, {.transpose_b = true}) + w.r_bias;
}

Expr apply(RnnActivation activation, Expr x) {
  switch (activation) {
    case RnnActivation::relu:
      return op::relu(x);
    case RnnActivation::sigmoid:
      return op::sigmoid(x);
    case RnnActivation::tanh:
      break;
  }
  return op::tanh(x);
}

constexpr Cell kRnn{1, 1}, kGru{3, 1}, kLstm{4, 2};

Values decompose_rnn(Builder& b, const Node& n, Operands in) {
  const auto& a = n.get<RnnAttrs>();
  return decompose_recurrent(b, n, in, kRnn, a.direction,
                             [&](const Exprs& state, const Weights& w) -> Exprs {
                               return {apply(a.activation, w.x + recurrent_product(state[0], w))};
                             });
}

Values decompose_gru(Builder& b, const Node& n, Operands in) {
  const auto& a = n.get<GruAttrs>();
  const Dim hidden = b.shape(in[2])[2];
  const auto step = [&](const Exprs& state, const Weights& w) -> Exprs {
    Expr h = state[0], product = recurrent_product(h, w);
    const auto gate = [&](int64_t g) {
      return gate_of(w.x, hidden, g) + gate_of(product, hidden, g);
    };
    Expr update = op::sigmoid(gate(0)), renew = op::sigmoid(-gate(0));  // 1 - update
    Expr reset = op::sigmoid(gate(1)), inner = gate_of(product, hidden, 2) * reset;
    if (!a.linear_before_reset) {
      Expr rows = op::slice(w.r, {{hidden * 2, 0}, {hidden * 3, hidden}, {}});
      inner = op::matmul(reset * h, rows, {.transpose_b = true}) + gate_of(w.r_bias, hidden, 2);
    }
    Expr candidate = op::tanh(gate_of(w.x, hidden, 2) + inner);
    return {renew * candidate + update * h};
  };
  return decompose_recurrent(b, n, in, kGru, a.direction, step);
}

Values decompose_lstm(Builder& b, const Node& n, Operands in) {
  const Dim hidden = b.shape(in[2])[2];
  const auto step = [&](const Exprs& state, const Weights& w) -> Exprs {
    Expr gates = w.x + recurrent_product(state[0], w);
    const auto gate = [&](int64_t g) { return gate_of(gates, hidden, g); };
    Expr c = op::sigmoid(gate(2)) * state[1] + op::sigmoid(gate(0)) * op::tanh(gate(3));
    return {op::sigmoid(gate(1)) * op::tanh(c), c};
  };
  return decompose_recurrent(b, n, in, kLstm, n.get<LstmAttrs>().direction, step);
}

}  // namespace

namespace op {

constinit const Op<RnnAttrs> rnn = OpDef{
    .name = "rnn",
    .doc =
        "h = act(x w^T + h r^T + both biases) at each step; operands x, w, r, bias, h0, [lengths]; "
        "results: all h [S, D, B, H] and the last. From step lengths[b] on h stays and y is 0.",
    .numerics = Numerics::reduction,
    .arity = 6,
    .min_arity = 5,
    .operands = "x, w, r, bias, h0, lengths?",
    .dtypes = kFloats,
    .infer = [](const InferArgs& a) -> Types {
      return infer_recurrent(a, kRnn, a.get<RnnAttrs>().direction);
    },
    .decompose = decompose_rnn,
};

constinit const Op<GruAttrs> gru = OpDef{
    .name = "gru",
    .doc =
        "A gated recurrent unit, gates z, r, h: h = (1 - z) tanh(x_h + (r h) r_h^T) + z h, or with "
        "linear_before_reset tanh(x_h + r (h r_h^T + bias)); operands and results as rnn.",
    .numerics = Numerics::reduction,
    .arity = 6,
    .min_arity = 5,
    .operands = "x, w, r, bias, h0, lengths?",
    .dtypes = kFloats,
    .infer = [](const InferArgs& a) -> Types {
      return infer_recurrent(a, kGru, a.get<GruAttrs>().direction);
    },
    .decompose = decompose_gru,
};

constinit const Op<LstmAttrs> lstm = OpDef{
    .name = "lstm",
    .doc =
        "Long short-term memory, gates i, o, f, c: c = f c + i tanh(c gate), h = o tanh(c); "
        "operands x, w, r, bias, h0, c0, [lengths]; results: all h [S, D, B, H], the last h and c.",
    .numerics = Numerics::reduction,
    .arity = 7,
    .min_arity = 6,
    .operands = "x, w, r, bias, h0, c0, lengths?",
    .dtypes = kFloats,
    .infer = [](const InferArgs& a) -> Types {
      return infer_recurrent(a, kLstm, a.get<LstmAttrs>().direction);
    },
    .decompose = decompose_lstm,
};

}  // namespace op

}  // namespace rlx
