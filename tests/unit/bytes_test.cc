// Graphs as bytes: what is refused and where, and files.
#include <gtest/gtest.h>

#include <filesystem>

#include "rlx/formats/graph_file.h"
#include "rlx/ops/core.h"

namespace rlx {
namespace {

Graph example() {
  Builder b("example");
  const Dim n = Dim::symbol("n");
  const Value x = b.input("x", {DType::F32, {n, 3}});
  const Value w = b.param("w", {DType::F32, {3}});
  b.set_origin({"layer", "pass"});
  const Value y = op::add(b, op::mul(b, x, w), b.constant(Tensor::scalar(DType::F32, 0.5)));
  b.output(y);
  b.update("w", op::reduce_sum(b, y, {.axes = {0}}));
  return b.finish();
}

// The code of the error that the bytes raise, and the byte it names.
std::pair<std::string, std::string> refusal(const std::string& bytes) {
  try {
    from_bytes(bytes);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::data) << e.what();
    return {e.code(), e.where()};
  }
  return {};
}

TEST(Bytes, RoundTripKeepsEverything) {
  const Graph g = example();
  EXPECT_EQ(from_bytes(to_bytes(g)), g);
  EXPECT_EQ(to_bytes(from_bytes(to_bytes(g))), to_bytes(g));
}

TEST(Bytes, EveryTruncationIsRefused) {
  const std::string bytes = to_bytes(example());
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(refusal(bytes.substr(0, n)).first.empty()) << n;
  EXPECT_EQ(refusal(bytes + "x").first, "graph-length");
}

TEST(Bytes, EveryFlippedBitIsNoticed) {
  const std::string bytes = to_bytes(example());
  for (size_t i = 0; i < 8 * bytes.size(); ++i) {
    std::string broken = bytes;
    broken[i / 8] = static_cast<char>(broken[i / 8] ^ (1 << i % 8));
    EXPECT_FALSE(refusal(broken).first.empty()) << i;
  }
}

TEST(Bytes, RefusalsSayWhatAndWhere) {
  const std::string bytes = to_bytes(example());
  std::string other = bytes;
  other[0] = 'X';
  EXPECT_EQ(refusal(other).first, "graph-magic");
  other = bytes;
  other[8] = 9;
  EXPECT_EQ(refusal(other).first, "graph-version");
  other = bytes;
  other[12] = static_cast<char>(other[12] + 1);
  EXPECT_EQ(refusal(other).first, "graph-length");
  other = bytes;
  other[30] = static_cast<char>(other[30] ^ 1);
  EXPECT_EQ(refusal(other).first, "graph-checksum");

  // Payloads: name, ops, labels, nodes.
  auto framed = [](auto&&... parts) {
    ByteWriter w;
    (parts(w), ...);
    return frame_graph_bytes(w.out);
  };
  auto text = [](std::string_view s) {
    return [s](ByteWriter& w) { w.varint(s.size()), w.raw(s.data(), s.size()); };
  };
  auto number = [](uint64_t n) { return [n](ByteWriter& w) { w.varint(n); }; };
  const std::pair<std::string, std::string> unknown_op{"graph-op", "byte 23"};
  EXPECT_EQ(refusal(framed(text("g"), number(1), text("nosuchop"))), unknown_op);
  for (const std::string& s : {std::string("\xff"), std::string("a\0b", 3)}) {
    EXPECT_EQ(refusal(framed(text(s))).first, "utf8");
    ByteWriter w;
    EXPECT_THROW(w.text(s), Error) << "what is written can be read";
  }
  EXPECT_EQ(refusal(framed(text("g"), number(1), text("neg"), number(1), text("axis"))).first,
            "graph-attribute");
  EXPECT_EQ(refusal(framed(text("g"), number(uint64_t{1} << 60))).first, "truncated");
  // One node `neg` whose operand would be itself.
  EXPECT_EQ(refusal(framed(text("g"), number(1), text("neg"), number(0), number(0), number(1),
                           number(0), number(1), number(0), number(0)))
                .first,
            "graph-operand");
}

TEST(Bytes, NestedTooDeep) {
  // Bodies in bodies: 63 are read, more are refused.
  auto nested = [](int depth) {
    Builder b("leaf");
    b.output(op::neg(b, b.input("x", {DType::F32, {}})));
    Graph g = b.finish();
    for (int i = 0; i < depth; ++i) {
      Builder outer("outer");
      const Value x = outer.input("x", {DType::F32, {}});
      outer.output(outer.emit(op::scan.def,
                              ScanAttrs{.body = std::move(g), .length = 1, .num_carries = 1},
                              Values{x})[0]);
      g = outer.finish();
    }
    return g;
  };
  const Graph fits = nested(60);
  EXPECT_EQ(from_bytes(to_bytes(fits)), fits);
  EXPECT_EQ(refusal(to_bytes(nested(64))).first, "graph-depth");
}

TEST(Bytes, Files) {
  const std::string path = ::testing::TempDir() + "bytes_test.rlxb";
  save_graph(path, example());
  EXPECT_EQ(load_graph(path), example());
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace rlx
