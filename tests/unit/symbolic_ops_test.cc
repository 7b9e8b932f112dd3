// Programs for all sizes: every row of the sample table with symbols for sizes goes through derivatives, vmap and passes
// once and gives, bound to sizes, what it gives with sizes from the start; the same for random programs and whole models.
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "../support/random_graph.h"
#include "../support/symbolic.h"
#include "../support/symbolic_bits.h"
#include "rlx/models/gpt.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/image/pool.h"
#include "rlx/ops/nn/losses.h"
#include "rlx/ops/nn/norms.h"
#include "rlx/ops/sequence/sequence.h"
#include "rlx/passes/passes.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {
namespace {

// ---- the sample table

// tests/symbolic_needs.txt: op, code of the error, "some" or "all" of its forms, why.
struct Need {
  std::string op, code, forms, why;
};
std::vector<Need> needs() {
  std::vector<Need> out;
  std::ifstream file(RLX_SOURCE_DIR "/tests/symbolic_needs.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    Need n;
    std::istringstream words(line);
    words >> n.op >> n.code >> n.forms;
    std::getline(words >> std::ws, n.why);
    out.push_back(n);
  }
  return out;
}

TEST(SymbolicOps, RowsForAllSizes) {
  SymbolicSurvey survey;
  for (const Sample& s : samples()) {
    try {
      survey.add(s);
    } catch (const std::exception& e) {
      ADD_FAILURE() << s.where << " " << s.op << ": " << e.what();
    }
  }
  SymbolicSurvey::Refusals open = survey.refusals();
  for (const Need& n : needs()) {
    EXPECT_TRUE(n.forms == "some" || n.forms == "all") << n.op;
    EXPECT_FALSE(n.why.empty()) << n.op;
    if (!is_wanted(n.op)) continue;
    EXPECT_EQ(open.erase({n.op, n.code}), 1u)
        << n.op << " " << n.code << ": no longer refused; remove the row of symbolic_needs.txt";
    EXPECT_EQ(n.forms == "all", survey.counts().at(n.op).works == 0) << n.op;
  }
  for (const auto& [key, message] : open)
    ADD_FAILURE() << key.first << " " << key.second
                  << " has no row in symbolic_needs.txt: " << message;
  int64_t works = 0, refused = 0, guarded = 0, never = 0;
  for (const auto& [op, c] : survey.counts()) {
    works += c.works, refused += c.refused, guarded += c.guarded, never += c.works == 0;
    if (is_filtered())
      fmt::print("{}: {} right, {} refused, {} refused at some sizes\n", op, c.works, c.refused,
                 c.guarded);
  }
  fmt::print(
      "{} ops: {} programs at some sizes are right, {} programs refused, {} refused at some "
      "sizes; {} ops always\n",
      survey.counts().size(), works, refused, guarded, never);
}

// A row of each op (all rows of those in RLX_OPS) at sizes beside those of vectors and tiles. All rows, forms and sizes are
// in the long test.
TEST(SymbolicOps, RowsOnTheCpu) {
  SymbolicBits bits(
      {.forms = {Symbols::all_apart}, .values_alone = false, .rounds = {4, 7}, .elements = 4000});
  std::set<std::string> seen;
  for (const Sample& s : samples())
    if (seen.insert(s.op).second || is_filtered()) bits.add(s);
  fmt::print("{}\n", bits.count().to_string());
  EXPECT_GE(bits.count().compared, is_filtered() ? 0 : 400);
}

// ---- programs

// Noise, and integers below `limit`.
NamedTensors some_leaves(const Graph& g, int64_t limit) {
  NamedTensors out;
  for (const Node& n : g.nodes) {
    if (n.op != &op::input && n.op != &op::param) continue;
    const auto& leaf = n.get<LeafAttrs>();
    const OperandSpec o{"T", leaf.shape.sizes(), is_int(leaf.dtype) ? "index" : "unit", limit};
    out[leaf.name] = make_operand(o, leaf.dtype, hash_text(leaf.name));
  }
  return out;
}

// The program, optimised without sizes and bound, against itself.
void expect_right(const Graph& g, const std::vector<DimBinding>& bindings, int64_t limit = 2,
                  double tolerance = 1e-9) {
  for (bool decomposed : {true, false}) {
    const Graph program = optimised_symbolically(g, decomposed);
    for (const DimBinding& sizes : bindings) {
      const Graph wanted = bind_checked(g, sizes), got = bind_checked(program, sizes);
      ASSERT_EQ(got.output_types(), wanted.output_types());
      const NamedTensors leaves = some_leaves(wanted, limit);
      const Evaluated a = evaluate(wanted, leaves), b = evaluate(got, some_leaves(got, limit));
      for (size_t i = 0; i < a.outputs.size(); ++i)
        EXPECT_LE(distance(a.outputs[i], b.outputs[i]), tolerance) << "output " << i;
      ASSERT_EQ(a.updates.size(), b.updates.size());
      for (const auto& [name, value] : a.updates)
        EXPECT_LE(distance(value, b.updates.at(name)), tolerance) << name;
    }
  }
}

std::vector<std::string> float_params(const Graph& g) {
  std::vector<std::string> out;
  for (Value v : g.params())
    if (is_float(g.type(v).dtype)) out.push_back(g.node(v).get<LeafAttrs>().name);
  return out;
}

// Names for all sizes of leaves, or for one of them.
std::vector<std::map<int64_t, std::string>> names_for(const Graph& g) {
  std::map<int64_t, std::string> all;
  for (const Node& n : g.nodes)
    if (n.op == &op::input || n.op == &op::param)
      for (const Dim& d : n.type().shape)
        if (d.value() > 1) all[d.value()] = fmt::format("s{}", d);
  std::vector<std::map<int64_t, std::string>> out{all};
  for (const auto& one : all) out.push_back({one});
  return out;
}

struct SymbolicProgram {
  Graph graph, optimised;
  DimBinding sizes;
};
std::optional<SymbolicProgram> symbolic_program(const Graph& g) {
  for (const auto& names : names_for(g)) {
    SymbolicProgram out;
    for (const auto& [size, symbol] : names) out.sizes[symbol] = size;
    try {
      out.graph = with_named_sizes(g, names);
      bind_checked(out.graph, out.sizes);
      out.optimised = optimised_symbolically(out.graph);
      return out;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::user) << e.what();
    }
  }
  return std::nullopt;
}

TEST(SymbolicPrograms, RandomProgramsForAllSizes) {
  int tried = 0, refused = 0, guarded = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const RandomProgram p = seed % 4 ? random_program(seed) : random_square_program(seed);
    const auto s = symbolic_program(p.graph);
    if (!s) {
      ++refused;
      continue;
    }
    ++tried;
    const Graph &g = s->graph, &program = s->optimised;
    for (int64_t size : {-1, 0, 1, 2, 3}) {
      DimBinding sizes = s->sizes;
      if (size >= 0)
        for (auto& [symbol, value] : sizes) value = size;
      Graph wanted, got;
      try {
        wanted = bind_checked(g, sizes);
      } catch (const Error& e) {
        EXPECT_TRUE(size >= 0) << "seed " << seed << ": " << e.what();
        continue;
      }
      try {
        got = bind_checked(program, sizes);
      } catch (const Error& e) {
        EXPECT_TRUE(size >= 0 && e.code() == "dim-guard") << "seed " << seed << ": " << e.what();
        ++guarded;
        continue;
      }
      Evaluated a, b;
      try {
        a = size < 0 ? evaluate(wanted, p.leaves) : evaluate(wanted, some_leaves(wanted, 1));
      } catch (const Error&) {
        continue;  // an index out of range, say
      }
      NamedTensors left = size < 0 ? p.leaves : some_leaves(got, 1);
      std::erase_if(left, [&](const auto& leaf) { return !got.find_leaf(leaf.first).valid(); });
      b = evaluate(got, left);
      for (size_t i = 0; i < a.outputs.size(); ++i)
        EXPECT_LE(distance(a.outputs[i], b.outputs[i]), 1e-3)
            << "seed " << seed << " sizes " << size << " output " << i;
    }
  }
  fmt::print("{} random programs, {} refused, {} refused at some sizes\n", tried, refused, guarded);
  EXPECT_GE(tried, 150);
}

// Code for all sizes on the CPU gives the bits of code for these; where a size is 1, the values.
TEST(SymbolicPrograms, RandomProgramsOnTheCpu) {
  int compared = 0, per_size = 0;
  // What is made of constants alone is folded, in double, where its sizes are known: a solution with a slice as long as a symbol.
  const std::set<uint64_t> rounds_otherwise{321};
  for (uint64_t seed = 300; seed < 350; ++seed) {
    const RandomProgram p = seed % 2 ? random_program(seed) : random_square_program(seed);
    const auto s = symbolic_program(p.graph);
    if (!s) continue;
    CompiledGraph f = Session("cpu").compile(s->graph);
    per_size += !f.info().per_size.empty();
    for (int64_t more : {0, 1, 5, 0}) {
      DimBinding sizes = s->sizes;
      for (auto& [symbol, value] : sizes) value += more;
      Graph bound;
      try {
        bound = bind_checked(s->graph, sizes);
      } catch (const Error&) {
        continue;  // a product of sizes in a reshape, say
      }
      const NamedTensors leaves = more ? some_leaves(bound, 1) : p.leaves;
      const auto run = [&](CompiledGraph& h) {
        NamedTensors inputs, params;
        for (const auto& [name, value] : leaves)
          (bound.node(bound.find_leaf(name)).op == &op::param ? params : inputs)
              .emplace(name, value);
        h.set_params(params);
        return h.run(inputs);
      };
      CompiledGraph fixed = Session("cpu").compile(bound);
      std::vector<Tensor> want, got;
      std::string refused;
      try {
        want = run(fixed);
      } catch (const Error& e) {
        refused = e.code();
      }
      try {
        got = run(f);
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), refused) << "seed " << seed << ": " << e.what();
        continue;
      }
      EXPECT_EQ(refused, "") << "seed " << seed;
      ++compared;
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(got[i].type(), want[i].type()) << "seed " << seed;
        const bool same = std::memcmp(got[i].raw(), want[i].raw(), want[i].bytes()) == 0;
        EXPECT_TRUE(same || (rounds_otherwise.contains(seed) && distance(got[i], want[i]) < 1e-6))
            << "seed " << seed << " +" << more << " output " << i << ": "
            << distance(got[i], want[i]);
      }
    }
  }
  fmt::print("{} runs compared, {} programs compiled for each size\n", compared, per_size);
  EXPECT_GE(compared, 100);
}

// Which axes are repeated must be known of all that are summed: ?m may be 1, and ?n more.
TEST(SymbolicPrograms, ASymbolMayBeOne) {
  const Graph g = parse(R"(graph @g {
  %0 = input() {name="x", dtype=i64, shape=[?m, 1]} : [?m, 1] i64
  %1 = broadcast(%0) {shape=[?n, 4]} : [?n, 4] i64
  %2 = reduce_sum(%1) {axes=[0, 1]} : [] i64
  return %2
})");
  expect_right(g, {{{"m", 1}, {"n", 5}}, {{"m", 5}, {"n", 5}}, {{"m", 0}, {"n", 0}}}, 9);
}

// Rules that swap operands, or drop one, where the symbols are two.
TEST(SymbolicPrograms, RulesKeepTheType) {
  const Graph g = parse(R"(graph @g {
  %0 = input() {name="x", dtype=f64, shape=[?n]} : [?n] f64
  %1 = input() {name="y", dtype=f64, shape=[?m]} : [?m] f64
  %2 = neg(%0) : [?n] f64
  %3 = add(%2, %1) : [?n] f64
  %4 = constant() {value=f64[]{1}} : [] f64
  %5 = broadcast(%4) {shape=[?n]} : [?n] f64
  %6 = mul(%5, %1) : [?n] f64
  %7 = exp(%6) : [?n] f64
  return %3, %7
})");
  expect_right(g, {{{"m", 1}, {"n", 5}}, {{"m", 5}, {"n", 5}}, {{"m", 1}, {"n", 1}}});
}

// ---- models

Graph train_step_of(Graph loss) {
  Builder b("step");
  b.mutable_graph().nodes = std::move(loss.nodes);
  b.mutable_graph().outputs = loss.outputs;
  append_train_step(b, loss.outputs[0], {.clip_norm = 1});
  return b.finish();
}

TEST(SymbolicModels, CharacterGpt) {
  const GptConfig config{.vocab = 11,
                         .width = 8,
                         .layers = 2,
                         .heads = 2,
                         .block = 5,
                         .batch = 3,
                         .dtype = DType::F64};
  const Graph loss = with_named_sizes(gpt_loss(config), {{3, "batch"}, {5, "length"}});
  ASSERT_EQ(loss.symbols(), (std::vector<std::string>{"length", "batch"}));
  const std::vector<DimBinding> sizes{
      {{"batch", 3}, {"length", 5}}, {{"batch", 1}, {"length", 1}}, {{"batch", 2}, {"length", 2}}};
  expect_right(loss, sizes, 11);
  expect_right(value_and_grad(loss, float_params(loss)), sizes, 11);
  expect_right(train_step_of(with_named_sizes(gpt_loss(config), {{3, "batch"}})),
               {{{"batch", 3}}, {{"batch", 1}}, {{"batch", 4}}}, 11, 1e-6);
}

// Strides of 2 halve height and width, whatever they are.
Graph conv_net() {
  Builder b("conv_net");
  const Dim n = Dim::symbol("n"), h = Dim::symbol("h"), w = Dim::symbol("w");
  const DType d = DType::F64;
  Value x = b.input("x", {d, {n, 3, h, w}});
  const Value labels = b.input("labels", {DType::I32, {n}});
  const ConvAttrs half{.stride = {2, 2}, .low = {1, 1}, .high = {1, 1}};
  x = op::conv(b, x, b.param("w1", {d, {4, 3, 3, 3}}), half);
  x = b.emit(op::batch_norm_training.def, ChannelNormAttrs{},
             Values{x, b.param("g", {d, {4}}), b.param("b", {d, {4}})})[0];
  x = op::relu(b, x);
  x = op::pool(
      b, x,
      {.kind = PoolKind::max, .kernel = {3, 3}, .stride = {2, 2}, .low = {1, 1}, .high = {1, 1}});
  const Value skip = op::conv(b, x, b.param("w2", {d, {4, 4, 1, 1}}), {.stride = {2, 2}});
  x = op::add(b, skip, op::conv(b, x, b.param("w3", {d, {4, 4, 3, 3}}), half));
  x = op::pool(b, x,
               {.kind = PoolKind::mean, .kernel = {2, 2}, .stride = {2, 2}, .ceil_mode = true});
  x = op::adaptive_avg_pool(b, x, {{2, 1}});
  x = op::reshape(b, x, {{n, 8}});
  const Value logits = op::matmul(b, x, b.param("head", {d, {8, 5}}));
  const Value each = op::cross_entropy(b, logits, labels);
  b.output(b.type(each).rank() ? op::reduce_mean(b, each, {{0}}) : each);
  return b.finish();
}

TEST(SymbolicModels, ConvNet) {
  const Graph g = conv_net();
  const std::vector<DimBinding> sizes{{{"n", 2}, {"h", 16}, {"w", 13}},
                                      {{"n", 1}, {"h", 9}, {"w", 9}},
                                      {{"n", 3}, {"h", 9}, {"w", 20}}};
  expect_right(g, sizes, 5);
  expect_right(value_and_grad(g, float_params(g)), sizes, 5, 1e-8);
  expect_right(train_step_of(g), sizes, 5, 1e-6);
}

Graph recurrent_net() {
  Builder b("recurrent");
  const Dim s = Dim::symbol("steps"), n = Dim::symbol("n");
  const DType d = DType::F64;
  const Value x = b.input("x", {d, {s, n, 2}});
  const Value y = b.emit(op::lstm.def, LstmAttrs{},
                         Values{x, b.param("w", {d, {1, 12, 2}}), b.param("r", {d, {1, 12, 3}}),
                                b.param("bias", {d, {1, 24}}), b.input("h0", {d, {1, n, 3}}),
                                b.input("c0", {d, {1, n, 3}})})[0];
  const Value sums = op::cumsum(b, y, {.axis = 0});
  const Value p = op::softmax(b, op::mul(b, sums, sums), {.axis = 0});
  b.output(op::reduce_mean(b, op::mul(b, p, y), {{0, 1, 2, 3}}));
  return b.finish();
}

TEST(SymbolicModels, RecurrentNet) {
  const Graph g = recurrent_net();
  const std::vector<DimBinding> sizes{
      {{"steps", 4}, {"n", 2}}, {{"steps", 1}, {"n", 1}}, {{"steps", 3}, {"n", 3}}};
  expect_right(g, sizes);
  expect_right(value_and_grad(g, float_params(g)), sizes);
}

}  // namespace
}  // namespace rlx::testing
