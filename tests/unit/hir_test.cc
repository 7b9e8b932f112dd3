// Blocks as ops of the table: files of older builds, dumps, text, both definitions of a block, the stages that take them,
// and drawings.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "../support/op_checks.h"
#include "rlx/build.h"
#include "rlx/compile/compile.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/ops.h"
#include "rlx/passes/passes.h"
#include "rlx/runtime/runtime.h"
#include "rlx/stages/layers.h"
#include "rlx/stages/svg.h"

namespace rlx::testing {
namespace {

Type f32(Shape shape) { return {DType::F32, std::move(shape)}; }

std::string code_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  }
  return "no error";
}

size_t count(const std::string& text, std::string_view part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++n;
  return n;
}

std::string read_format(const std::string& name) {
  std::ifstream file(RLX_SOURCE_DIR "/tests/formats/" + name, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

constexpr std::string_view kLayer = R"(graph @"layer" {
  %0 = input() {name="x", shape=[2, 4, 8]} : [2, 4, 8] f32
  %1 = param() {name="g<&>", shape=[8]} : [8] f32
  %2 = param() {name="b", shape=[8]} : [8] f32
  %3 = hir_rms_norm(%0, %1, %2) : [2, 4, 8] f32 @ "norm \"1\""
  %4 = param() {name="w", shape=[8, 8]} : [8, 8] f32
  %5 = hir_linear(%3, %4) {activation=gelu} : [2, 4, 8] f32 @ "proj"
  %6 = hir_linear(%3, %4) : [2, 4, 8] f32
  %7 = hir_attention(%5, %6, %0) {num_heads=2, head_dim=4, mask=causal} : [2, 4, 8] f32
  %8 = param() {name="up", shape=[8, 6]} : [8, 6] f32
  %9 = param() {name="gate", shape=[8, 6]} : [8, 6] f32
  %10 = param() {name="down", shape=[6, 8]} : [6, 8] f32
  %11 = hir_swiglu_ffn(%7, %8, %9, %10) : [2, 4, 8] f32
  %12 = constant() {value=f32[]{2}} : [] f32
  %13 = mul(%11, %12) : [2, 4, 8] f32
  %14 = add(%13, %0) : [2, 4, 8] f32
  return %14, %7
}
)";

// ---- files and dumps

// Every block, written by a build in which HIR was a container of its own.
TEST(HirFiles, OfOlderBuildsComeBackToTheLetter) {
  const std::string text = read_format("hir_blocks.json");
  const HirModule m = hir_from_json(text);
  EXPECT_EQ(hir_to_json(m), text);
  EXPECT_EQ(m.inspect(), read_format("hir_blocks.txt"));
  EXPECT_EQ(parse(print(m.graph())), m.graph());
  EXPECT_EQ(from_bytes(to_bytes(m.graph())), m.graph());
  std::map<std::string, int> kinds;
  for (const HirNode& n : m.nodes()) ++kinds[std::string(kind_of(n))];
  for (const auto& [op, family] : op_table().entries())
    EXPECT_TRUE(!op->block || kinds.contains(std::string(op->block->kind))) << op->name;
}

TEST(HirFiles, WordsOfEveryBlockAreFilledIn) {
  int blocks = 0;
  for (const auto& [op, family] : op_table().entries()) {
    EXPECT_EQ(op->stage() == Stage::hir, family == "hir") << op->name;
    if (op->stage() != Stage::hir) continue;
    ++blocks;
    EXPECT_EQ(op->kind, Kind::composite) << op->name;
    const Attrs attrs(op->attr_type, op->attr_type->make());
    for (const std::string& words : {block_text(*op, attrs), block_label(*op, attrs)})
      EXPECT_TRUE(!words.empty() && words.find_first_of("{}?*") == words.npos) << words;
  }
  EXPECT_EQ(blocks, 13);
}

TEST(HirFiles, MasksAreReadExactly) {
  const auto read = [](const std::string& mask) {
    return code_of([&] {
      parse(
          "graph @g {\n %0 = input() {name=\"x\", shape=[3, 2]} : [3, 2] f32\n %1 = "
          "hir_attention(%0, "
          "%0, %0) {num_heads=1, head_dim=2, mask=" +
          mask + "} : [3, 2] f32\n return %1\n}\n");
    });
  };
  for (const char* good : {"none", "causal", "sw=0", "sw=128"}) EXPECT_EQ(read(good), "no error");
  for (const char* bad : {"sw", "sw=-1", "sw=x", "causally", "1"})
    EXPECT_EQ(read(bad), "parse") << bad;
  EXPECT_EQ(AttentionMask::parse("sw=3"), AttentionMask::sliding_window(3));
  EXPECT_EQ(code_of([] { AttentionMask::parse("sw=3 4"); }), "parse");
}

// ---- definitions

// A block in fused ops has the value of its definition in primitives.
TEST(HirDefinitions, FusedOnesAgree) {
  int compared = 0;
  for_each_case(samples(), {DType::F64, DType::F32}, [&](const Case& c) {
    const Node& n = c.node();
    if (!n.op->block || !n.op->block->fused) return;
    Builder b("fused");
    Values in;
    for (const Tensor& t : c.operands) in.push_back(b.input(std::to_string(in.size()), t.type()));
    for (Value v : expand_block(b, n, in, FusionPolicy::direct)) b.output(v);
    const Tensors fused = evaluate(b.finish(), c.operands), parts = evaluate(c.graph, c.operands);
    ASSERT_EQ(fused.size(), parts.size());
    for (size_t k = 0; k < fused.size(); ++k) {
      ASSERT_EQ(fused[k].type(), parts[k].type());
      EXPECT_LE(distance(fused[k], parts[k]), c.dtype == DType::F64 ? 1e-12 : 1e-5) << row(c);
    }
    ++compared;
  });
  EXPECT_GE(compared, 10);
}

TEST(HirDefinitions, AModuleRefusesWhatItsPolicyWouldNotTake) {
  const auto linear = [](FusionPolicy policy) {
    return code_of([&] {
      HirModule m("m");
      m.with_fusion_policy(policy);
      const HirNodeId x = m.input("x", f32({2, 3})), w = m.param("w", f32({3, 4})),
                      b = m.param("b", f32({1, 4}));
      m.set_outputs({m.linear(x, w, b)});
      m.lower_to_mir();
    });
  };
  EXPECT_EQ(linear(FusionPolicy::direct), "fused-shape");
  EXPECT_EQ(linear(FusionPolicy::fusable), "no error");
}

TEST(HirDefinitions, StatesAreSecondResults) {
  HirModule m("net");
  const HirNodeId q = m.input("q", f32({1, 3, 2, 4})), g = m.input("g", f32({1, 3, 2})),
                  state = m.param("state", f32({1, 2, 4, 4}));
  const HirNodeId y = m.gated_delta_net_carry(q, q, q, g, g, state, 4);
  m.set_outputs({y});
  m.update("state", {y.index, 1});
  const Graph lowered = hir_to_graph(m);
  ASSERT_EQ(lowered.updates.size(), 1u);
  EXPECT_EQ(lowered.type(lowered.updates[0].value), f32({1, 2, 4, 4}));
  EXPECT_EQ(hir_from_json(hir_to_json(m)), m);
  EXPECT_EQ(code_of([&] { m.set_outputs({{y.index, 2}}); }), "hir-node");
}

// ---- stages

TEST(HirStages, AGraphWithBlocksIsHir) {
  GraphModule m = parse(kLayer);
  EXPECT_EQ(m.stage(), GraphStage::hir);
  EXPECT_EQ(m.fusion_policy(), FusionPolicy::fusable);
  m = std::move(m).lower();
  EXPECT_EQ(m.stage(), GraphStage::mir);
  EXPECT_FALSE(has_blocks(*m.as_graph()));
  const std::string text = print(*m.as_graph());
  for (std::string_view part :
       {"@ \"proj\" from \"hir:h5\"", "@ \"linear\" from \"hir:h6\"", "@ \"mir\" from \"hir:h13\"",
        "@ \"norm \\\"1\\\"\" from \"hir:h3\""})
    EXPECT_NE(text.find(part), text.npos) << part << "\n" << text;
  EXPECT_NE(inspect_graph(parse(kLayer)).find("SwiGLU=1"), std::string::npos);
}

TEST(HirStages, BodiesCount) {
  const GraphModule m = parse(R"(graph @"loop" {
  %0 = input() {name="x", shape=[2, 2]} : [2, 2] f32
  %1 = scan(%0) {length=3, num_carries=1, body=graph @"body" {
    %0 = input() {name="carry", shape=[2, 2]} : [2, 2] f32
    %1 = hir_linear(%0, %0) : [2, 2] f32
    return %1
  }} : [2, 2] f32
  return %1
}
)");
  EXPECT_EQ(m.stage(), GraphStage::hir);
  EXPECT_FALSE(has_blocks(Graph(m)));
}

TEST(HirStages, MirTakesNoBlocks) {
  const auto backend = backend_for(default_device());
  const GraphModule wrong = MirModule(parse(kLayer));
  EXPECT_EQ(wrong.stage(), GraphStage::mir);
  for (CompileStage to : {CompileStage::optimised, CompileStage::lir})
    EXPECT_EQ(code_of([&] { lower_to(to, wrong, *backend); }), "stage");
  EXPECT_EQ(code_of([&] { compile(wrong, backend); }), "stage");
  EXPECT_EQ(code_of([&] { lower_to(CompileStage::mir, parse(kLayer), *backend); }), "no error");
}

TEST(HirStages, BlocksRunEverywhere) {
  const Graph g = parse(kLayer);
  NamedTensors at;
  for (const Values& leaves : {g.inputs(), g.params()})
    for (Value v : leaves) {
      Tensor t(g.type(v).dtype, g.type(v).shape.sizes());
      for (int64_t i = 0; i < t.elements(); ++i)
        t.set_float(i, std::sin(0.7 * static_cast<double>(i) + v.node));
      at[g.node(v).get<LeafAttrs>().name] = t;
    }
  const Tensors want = evaluate(g, at).outputs;
  for (const Device& d : {Device("reference"), Device("cpu")}) {
    if (!is_available(d)) continue;
    CompiledGraph f = Session(d).compile(g);
    NamedTensors inputs{{"x", at.at("x")}};
    for (Value v : g.params())
      f.set_param(g.node(v).get<LeafAttrs>().name, at.at(g.node(v).get<LeafAttrs>().name));
    const Tensors got = f.run(inputs);
    ASSERT_EQ(got.size(), want.size());
    for (size_t k = 0; k < got.size(); ++k) EXPECT_LE(distance(got[k], want[k]), 1e-5);
  }
}

TEST(HirStages, ThePassSaysWhatItTakes) {
  EXPECT_EQ(
      code_of([] { run_passes(parse(kLayer), parse_pipeline("lower_blocks(fusion=later)")); }),
      "pass-option");
}

// ---- drawings

struct Rectangle {
  std::string kind;
  double x, y, width, height;
  bool overlaps(const Rectangle& o) const {
    return x < o.x + o.width && o.x < x + width && y < o.y + o.height && o.y < y + height;
  }
  bool holds(const Rectangle& o) const {
    return x <= o.x && y <= o.y && o.x + o.width <= x + width && o.y + o.height <= y + height;
  }
};

// Tags that open and close in pairs, quoted attributes, no bare & or <; the rectangles of the drawing by their class.
std::vector<Rectangle> read_svg(const std::string& text) {
  std::vector<std::string> open;
  std::vector<Rectangle> out;
  std::string kind;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find('<', at);
    const std::string words = text.substr(at, begin - at);
    for (size_t amp = 0; (amp = words.find('&', amp)) != words.npos; ++amp)
      EXPECT_TRUE(std::regex_search(words.substr(amp, 6), std::regex("^&(amp|lt|gt);"))) << words;
    if (begin == text.npos) break;
    const size_t end = text.find('>', begin);
    const std::string tag = text.substr(begin + 1, end - begin - 1);
    static const std::regex form(R"((/\w+)|(\w+)((?: [\w:-]+="[^"<&]*")*)\s*(/?))");
    std::smatch m;
    EXPECT_TRUE(std::regex_match(tag, m, form)) << tag;
    if (m[1].matched) {
      EXPECT_FALSE(open.empty());
      EXPECT_EQ("/" + open.back(), m[1].str());
      open.pop_back();
    } else if (m[4].str().empty()) {
      open.push_back(m[2].str());
    }
    std::smatch part;
    if (m[2].str() == "g" && std::regex_search(tag, part, std::regex("class=\"(\\w+)\"")))
      kind = part[1].str();
    static const std::regex box(
        "^rect x=\"([-0-9.]+)\" y=\"([-0-9.]+)\" width=\"([0-9.]+)\" height=\"([0-9.]+)\"");
    if (std::regex_search(tag, part, box))
      out.push_back(
          {kind, std::stod(part[1]), std::stod(part[2]), std::stod(part[3]), std::stod(part[4])});
    at = end + 1;
  }
  EXPECT_TRUE(open.empty());
  return out;
}

size_t of_kind(const std::vector<Rectangle>& all, std::string_view kind) {
  return static_cast<size_t>(
      std::count_if(all.begin(), all.end(), [&](const Rectangle& r) { return r.kind == kind; }));
}

void expect_apart(const std::vector<Rectangle>& all) {
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t k = i + 1; k < all.size(); ++k)
      EXPECT_TRUE(!all[i].overlaps(all[k]) || (all[i].kind == "group" && all[i].holds(all[k])))
          << all[i].kind << " " << i << " and " << all[k].kind << " " << k;
}

TEST(Drawings, ABoxForEachBlock) {
  const std::string svg = to_svg(parse(kLayer));
  const auto boxes = read_svg(svg);
  EXPECT_EQ(of_kind(boxes, "block"), 5u);
  EXPECT_EQ(of_kind(boxes, "op"), 2u);
  EXPECT_EQ(of_kind(boxes, "input"), 1u);
  EXPECT_EQ(of_kind(boxes, "output"), 2u);
  EXPECT_EQ(of_kind(boxes, "param"),
            1u);  // w, which two blocks read; the others are lines of their readers
  EXPECT_EQ(boxes.size(), 11u);
  expect_apart(boxes);
  for (std::string_view part :
       {"<g class=\"block\" id=\"n5\">", ">proj<", ">linear+gelu<", "g&lt;&amp;&gt;: [8] f32",
        ">attention(heads=2, dim=4, mask=causal)<", ">2: [] f32<", ">output 1<"})
    EXPECT_EQ(count(svg, part), 1u) << part << "\n" << svg;
}

TEST(Drawings, LoweredBlocksAreOutlined) {
  const std::string svg = to_svg(hir_to_graph(HirModule::from_graph(parse(kLayer))));
  const auto boxes = read_svg(svg);
  EXPECT_EQ(of_kind(boxes, "block"), 0u);
  EXPECT_EQ(of_kind(boxes, "group"), 5u);
  EXPECT_EQ(of_kind(boxes, "op"), 12u);
  expect_apart(boxes);
  for (std::string_view part : {">proj · h5<", ">swiglu_ffn · h11<", ">linear · h6<"})
    EXPECT_EQ(count(svg, part), 1u) << part << "\n" << svg;
}

TEST(Drawings, OfEverySample) {
  for_each_case(samples(), {DType::F32},
                [&](const Case& c) { expect_apart(read_svg(to_svg(c.graph))); });
  EXPECT_EQ(read_svg(to_svg(Graph())).size(), 0u);
}

TEST(Drawings, RowsLeadDownwards) {
  Layers l;
  const size_t a = l.box(40, 20), b = l.box(60, 30), c = l.box(50, 20), d = l.box(30, 20);
  l.line(a, b, 0), l.line(b, c, 1);
  l.line(a, d, 0);
  l.line(c, d, 2);
  l.place();
  EXPECT_EQ(l.boxes[d].row, 3u);
  EXPECT_EQ(l.trunks[0].size(), 2u);  // around b and c
  for (double x : l.trunks[0]) EXPECT_GE(std::abs(x - l.boxes[b].x), 25);
  for (const Layers::Line& e : l.lines)
    EXPECT_GE(l.boxes[e.to].y, l.boxes[e.from].y + l.boxes[e.from].height);
}

}  // namespace
}  // namespace rlx::testing
