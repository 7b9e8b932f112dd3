// Errors that no row of tests/errors reaches: those of builders, sizes, bytes, passes, transforms, training, kernels and
// files. What an op's checks raise has a row there.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>

#include "rlx/backend/cpu/kernels/attention/attention.h"
#include "rlx/base/file.h"
#include "rlx/formats/checkpoint.h"
#include "rlx/ops/core.h"
#include "rlx/ops/image/pool.h"
#include "rlx/passes/passes.h"
#include "rlx/quant/format.h"
#include "rlx/runtime/extend.h"
#include "rlx/runtime/runtime.h"
#include "rlx/train/functions.h"
#include "rlx/train/train_step.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

namespace fs = std::filesystem;

// f raises this kind and code, and the message has `part`.
template <class F>
void expect_error(ErrorKind kind, std::string_view code, std::string_view part, F&& f) {
  try {
    f();
    ADD_FAILURE() << "no error; expected " << code;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_EQ(e.kind(), kind) << e.what();
    EXPECT_NE(e.message().find(part), std::string::npos) << e.what();
  }
}

template <class F>
void expect_user_error(std::string_view code, std::string_view part, F&& f) {
  expect_error(ErrorKind::user, code, part, f);
}
template <class F>
void expect_data_error(std::string_view code, std::string_view part, F&& f) {
  expect_error(ErrorKind::data, code, part, f);
}

const Type kPair{DType::F32, {2}};

// ---- graphs and sizes

TEST(RaisedErrors, Builders) {
  Builder b("g");
  const Value x = b.input("x", kPair), w = b.param("w", kPair);
  expect_user_error("operand-value", "neg: operand %7", [&] { op::neg(b, Value{7, 0}); });
  expect_user_error("operand-value", "graph \"g\"", [&] { b.type({0, 1}); });
  expect_user_error("attributes", "neg: attributes of another op",
                    [&] { b.emit(op::neg.def, AxisAttrs{}, Values{x}); });
  expect_user_error("update-target", "no parameter \"x\"", [&] { b.update("x", x); });
  expect_user_error("update-type", "[2] f32, the new value is [] f32",
                    [&] { b.update("w", op::reduce_sum(b, w, {.axes = {0}})); });
  b.update("w", x);
  expect_user_error("update-twice", "\"w\" is updated twice", [&] { b.update("w", w); });
  b.output(x);
  const Graph g = b.finish();
  expect_user_error("bind-size", "?n cannot be -1", [&] { bind(g, {{"n", -1}}); });
  expect_user_error("dim-unknown", "\"g\" has no dim ?n; it has none",
                    [&] { bind(g, {{"n", 1}}); });
}

// A body need not have all the symbols, and an attribute may be the only place of one.
TEST(RaisedErrors, BindKnowsAllSymbols) {
  const Graph g = parse(R"(graph @"g" {
  %0 = input() {name="x", shape=[?n, 2]} : [?n, 2] f32
  %1 = broadcast(%0) {shape=[?m, ?n, 2]} : [?m, ?n, 2] f32
  return %1
})");
  EXPECT_EQ(g.symbols(), (std::vector<std::string>{"n", "m"}));
  EXPECT_TRUE(bind(g, {{"n", 3}, {"m", 2}}).symbols().empty());
  expect_user_error("dim-unknown", "has no dim ?k; it has ?n, ?m", [&] { bind(g, {{"k", 1}}); });
}

TEST(RaisedErrors, ElementsOfTensors) {
  const Tensor t = Tensor::from<float>({2}, {1, 2});
  Tensor c(DType::C64, {1});
  expect_user_error("tensor-dtype", "a tensor of f32 is read as i32", [&] { t.data<int32_t>(); });
  expect_user_error("tensor-dtype", "of c64 is written as f64", [&] { c.mutable_data<double>(); });
  expect_user_error("tensor-dtype", "[1] c64 is read as a real", [&] { c.get_float(0); });
  expect_user_error("tensor-dtype", "[1] c64 is read as a real", [&] { c.get_int(0); });
  for (int64_t i : {int64_t{-1}, int64_t{2}, int64_t{1} << 62}) {
    expect_user_error("tensor-index", "[2] f32 has no element", [&] { t.get_float(i); });
    expect_user_error("tensor-index", "there are 2", [&] { t.get_int(i); });
    expect_user_error("tensor-index", "", [&] { t.get_complex(i); });
    expect_user_error("tensor-index", "", [&] { c.get_complex(i); });
    expect_user_error("tensor-index", "", [&] { c.set_complex(i, 1); });
    expect_user_error("tensor-index", "", [&] { c.set_float(i, 1); });
    expect_user_error("tensor-index", "", [&] { c.set_int(i, 1); });
  }
}

TEST(RaisedErrors, ArityNamesWhatIsTaken) {
  Builder b("g");
  const Value x = b.input("x", kPair);
  expect_user_error("arity", "add: takes 2 operands, got 1",
                    [&] { b.emit(op::add.def, NoAttrs{}, Values{x}); });
  expect_user_error("arity", "concat: takes at least 1 operands, got 0",
                    [&] { b.emit(op::concat.def, AxisAttrs{}, {}); });
  expect_user_error("arity", "apply() needs an operand", [] { apply(op::neg.def, NoAttrs{}, {}); });
  expect_user_error("arity", "stack: needs a tensor", [] { stack({}); });
}

TEST(RaisedErrors, Sizes) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  expect_user_error("symbol-name", "needs a name", [] { Dim::symbol(""); });
  expect_user_error("size-overflow", "does not fit in 64 bits", [] { Dim(kHuge) * Dim(kHuge); });
  expect_user_error("size-overflow", "does not fit in 64 bits",
                    [] { Tensor(DType::F32, {kHuge, kHuge}); });
  expect_user_error("tensor-too-large", "too large",
                    [] { Tensor(DType::F64, {kHuge, kHuge >> 20}); });
  expect_user_error("data-size", "needs 8 bytes, 3 were given",
                    [] { Tensor::from_bytes(DType::F32, {2}, "abc", 3); });
  Builder b("large");
  const Value x = op::broadcast(b, b.input("x", {DType::F32, {}}), {{kHuge << 8}});
  b.output(op::slice(b, op::cumsum(b, x), {{0}, {1}, {1}}));
  expect_user_error("program-too-large", "bytes at once",
                    [&] { Session("cpu").compile(b.finish()); });
}

TEST(RaisedErrors, TracedTensors) {
  trace("g", [](Tracer& t) {
    const TracedTensor x = t.input("x", {4, 4}), i = t.arange(2);
    expect_user_error("index-tensors", "use gather", [&] { x.index({i, i}); });
    return x;
  });
}

TEST(RaisedErrors, Transforms) {
  Builder b("g");
  const Value x = b.input("x", kPair), t = b.input("t", {DType::F64, {2}}), y = op::neg(b, x);
  expect_user_error("tangent-type", "is [2] f64, it must be [2] f32",
                    [&] { forward(b, Values{y}, Values{x}, Values{t}); });
}

// ---- bytes

// What `load` raises about the bytes that `write` makes.
template <class T>
void expect_load_error(std::string_view code, std::string_view part, void (*write)(ByteWriter&)) {
  ByteWriter w;
  write(w);
  expect_data_error(code, part, [&] {
    ByteReader r(w.out, "bytes");
    T value{};
    Codec<T>::load(r, value);
  });
}

TEST(RaisedErrors, Attributes) {
  expect_load_error<PoolKind>("enum", "99 is not the number of any of",
                              [](ByteWriter& w) { w.varint(99); });
  expect_load_error<bool>("bool", "0 or 1, not 7", [](ByteWriter& w) { w.u8(7); });
  expect_load_error<Dim>("dim", "expected a sum of products", [](ByteWriter& w) {
    w.u8(1);
    w.text("3");
  });
  expect_load_error<QuantScheme>("scheme", "is not how gguf_q4_0 is written",
                                 [](ByteWriter& w) { w.text("gguf_q4_0 "); });
  for (const std::string& bytes : {std::string("\x80\0", 2), std::string(10, '\xff')})
    expect_data_error("varint", "shortest form", [&] { ByteReader(bytes, "bytes").varint(); });
}

// A graph of one node `full` with its result declared as `dtype`, under the given label; `behind` follows it.
std::string graph_bytes(DType dtype, uint64_t label, std::string_view behind = "") {
  ByteWriter w;
  w.text("g");
  w.varint(1), w.text("full"), w.varint(0);  // one op, no attributes
  w.varint(0);                               // labels
  w.varint(1);                               // nodes:
  w.varint(0), w.varint(0), w.varint(0);     // op 0, no operands, attributes as they are
  w.varint(1);                               // types
  Codec<DType>::write(w, dtype), Codec<Shape>::write(w, Shape());
  w.varint(label), w.varint(0);
  w.varint(0), w.varint(0);  // outputs, updates
  w.raw(behind.data(), behind.size());
  return frame_graph_bytes(w.out);
}

TEST(RaisedErrors, GraphBytes) {
  EXPECT_EQ(from_bytes(graph_bytes(DType::F32, 0)).size(), 1);
  expect_data_error("graph-type", "full is declared as [] f64, inferred is [] f32",
                    [] { from_bytes(graph_bytes(DType::F64, 0)); });
  expect_data_error("graph-label", "there is no label 3, the last is 0",
                    [] { from_bytes(graph_bytes(DType::F32, 3)); });
  expect_data_error("graph-length", "1 bytes are left over",
                    [] { from_bytes(graph_bytes(DType::F32, 0, "x")); });
}

// ---- passes

TEST(RaisedErrors, Pipelines) {
  auto refuse = [](std::string_view code, std::string_view part, std::string_view text) {
    SCOPED_TRACE(text);
    expect_user_error(code, part, [&] { parse_pipeline(text); });
  };
  refuse("pipeline", "expected the name of a pass", "simplify,,cse");
  refuse("pipeline", "expected ')'", "grad(wrt=w");
  refuse("pipeline", "expected option=value", "grad(w)");
  refuse("pass-unknown", "there is no pass nosuch; passes are", "nosuch");
  refuse("pass-unknown", "; did you mean simplify?", "simplfy");
  refuse("pass-option", "; did you mean wrt?", "grad(wtr=w)");
  refuse("pass-option", "has no option of; allowed: ", "grad(of=w)");
  refuse("pass-option", "is given twice", "grad(wrt=w,wrt=x)");
}

TEST(RaisedErrors, PassOptions) {
  Builder b("g");
  b.output(op::reduce_sum(b, b.input("x", kPair), {.axes = {0}}));
  const Graph g = b.finish();
  auto refuse = [&](std::string_view part, std::string_view text) {
    SCOPED_TRACE(text);
    expect_user_error("pass-option", part, [&] { run_passes(g, parse_pipeline(text)); });
  };
  refuse("\"g\" has no parameters; say wrt=", "grad");
  refuse("expected an integer, got \"one\"", "grad(wrt=x,output=one)");
  refuse("expected true or false, got \"maybe\"", "grad(wrt=x,zero_missing=maybe)");
  refuse("say over=", "vmap(size=2)");
  refuse("say size=", "vmap(over=x)");
}

// ---- training

TEST(RaisedErrors, Training) {
  trace("g", [](Tracer& t) {
    const TracedTensor x = t.input("x", {2}), logits = t.input("logits", {2, 3});
    const TracedTensor labels = t.input("labels", {2}, DType::I64);
    const TracedTensor key = t.input("key", {2}, DType::U32);
    expect_user_error("huber-delta", "positive, got 0", [&] { huber(x, x, 0); });
    expect_user_error("label-smoothing", "[0, 1], got 2",
                      [&] { cross_entropy(logits, labels, 2); });
    expect_user_error("fold-in", "integer of rank 0, got [2] f32", [&] { fold_in(key, x); });
    expect_user_error("clip-norm", "positive, got -1", [&] { clip_factor({x}, -1); });
    expect_user_error("clip-norm", "no gradients", [&] { clip_factor({}, 1); });
    return x;
  });
}

TEST(RaisedErrors, TrainSteps) {
  auto loss = [](const Shape& shape) {
    return trace("loss", [&](Tracer& t) { return t.param("w", shape).square().sum(); });
  };
  TrainOptions report;
  report.report_norm = true;
  expect_user_error("clip-norm", "report_norm needs clip_norm",
                    [&] { train_step(loss({2}), {{"w", Tensor(DType::F32, {2})}}, report); });
  Builder b("symbolic");
  const Value w = b.param("w", {DType::F32, {Dim::symbol("n")}});
  const Value sum = op::reduce_sum(b, w, {.axes = {0}});
  expect_user_error("state-size", "\"w\" has the symbolic type [?n] f32",
                    [&] { append_train_step(b, sum, {}); });
}

// ---- kernels

TEST(RaisedErrors, Kernels) {
  expect_user_error("kernel", "neg: an empty function",
                    [] { register_cpu_kernel(op::neg.def, {}); });
  cpu::AttentionProblem p{.dtype = DType::I32};
  auto refuse = [&](std::string_view part) {
    expect_user_error("attention-problem", part, [&] { cpu::attention_check(p); });
  };
  refuse("i32 is not a float");
  p = {.dtype = DType::F32, .q_len = -1};
  refuse("a size is negative");
  p = {.dtype = DType::F32, .heads = 3, .kv_heads = 2};
  refuse("3 query heads cannot share 2");
  p = {.dtype = DType::F32, .window = -1};
  refuse("window (-1)");
}

// ---- files

class RaisedErrorsInFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "rlx-errors-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { fs::remove_all(folder); }
  fs::path folder;
};

TEST_F(RaisedErrorsInFiles, Reading) {
  // Page 0 of a process cannot be read.
  expect_error(ErrorKind::resource, "file-read", "reading /proc/self/mem",
               [] { read_file("/proc/self/mem"); });
}

TEST_F(RaisedErrorsInFiles, Writing) {
  struct rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const struct rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  expect_error(ErrorKind::resource, "file-write", "writing",
               [&] { write_file(folder / "x", "y"); });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(RaisedErrorsInFiles, Checkpoints) {
  save_checkpoint(folder / "c", {{"w", Tensor(DType::F32, {2})}});
  std::string bytes = read_file(folder / "c");
  bytes[bytes.size() - 12] ^= 1;
  expect_data_error("checksum", "does not fit the content", [&] { parse_checkpoint(bytes); });
}

TEST_F(RaisedErrorsInFiles, DumpDirectories) {
  write_file(folder / "file", "x");
  Builder b("g");
  b.output(op::tanh(b, b.input("x", {DType::F32, {64}})));
  const Graph g = b.finish();
  expect_user_error("file-open", "cannot make the folder", [&] {
    Session("cpu").compile(g, {.dump_dir = (folder / "file" / "sub").string()});
  });
}

}  // namespace
}  // namespace rlx
