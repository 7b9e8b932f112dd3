// Files of tensors and graphs: round trips, and what broken bytes give.
#include <gtest/gtest.h>

#include <fstream>

#include "rlx/base/hash.h"
#include "rlx/formats/checkpoint.h"
#include "rlx/formats/graph_file.h"
#include "rlx/formats/npy.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/core.h"

namespace rlx {
namespace {

namespace fs = std::filesystem;

class Formats : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "rlx-formats-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { fs::remove_all(folder); }
  fs::path folder;
};

template <class F>
std::string code_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  }
  return "fine";
}

Tensor counting(DType dtype, Ints sizes) {
  Tensor t(dtype, std::move(sizes));
  for (int64_t i = 0; i < t.elements(); ++i)
    t.set_complex(i, Complex(static_cast<double>(i % 100), is_complex(dtype) ? 0.5 : 0));
  return t;
}

std::string npy(const std::string& dict, const std::string& data, char major = 1) {
  std::string out("\x93NUMPY", 6);
  out += major;
  out += '\0';
  out += static_cast<char>(dict.size() & 255);
  out += static_cast<char>(dict.size() >> 8);
  if (major > 1) out += std::string(2, '\0');
  return out + dict + data;
}

std::string bytes_of(std::initializer_list<float> values) {
  return std::string(reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float));
}

// ---- npy

TEST_F(Formats, NpyRoundTripOfEveryDtypeAndRank) {
  for (const DTypeInfo& d : kDTypes)
    for (const Ints& sizes :
         {Ints{}, Ints{5}, Ints{0}, Ints{2, 3}, Ints{2, 0, 3}, Ints{1, 2, 3, 4}}) {
      const Tensor t = counting(d.dtype, sizes);
      write_npy(folder / "t.npy", t);
      EXPECT_TRUE(read_npy(folder / "t.npy").same_bits(t)) << t.type().to_string();
    }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1) << "no temporary file is left";
}

TEST_F(Formats, NpyHeaderIsNumPys) {
  EXPECT_EQ(npy_header({DType::F32, {3, 4}}).size() % 64, 0u);
  const std::string h = npy_header({DType::Bool, {7}});
  EXPECT_NE(h.find("{'descr': '|b1', 'fortran_order': False, 'shape': (7,), }"), std::string::npos);
  EXPECT_NE(npy_header({DType::F32, {}}).find("'shape': (), }"), std::string::npos);
  EXPECT_NE(npy_header({DType::F32, {3, 4}}).find("'shape': (3, 4), }"), std::string::npos);
}

TEST_F(Formats, NpyFortranOrder) {
  const std::string data = bytes_of({1, 4, 2, 5, 3, 6});
  const Tensor t =
      parse_npy(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", data));
  EXPECT_TRUE(t.same_bits(Tensor::from<float>({2, 3}, {1, 2, 3, 4, 5, 6})));
}

TEST_F(Formats, NpyVersionsAndKeyOrder) {
  const std::string dict = "{'shape': (1,), 'fortran_order': False, 'descr': '<f4'}\n";
  for (char major : {1, 2, 3}) EXPECT_EQ(parse_npy(npy(dict, bytes_of({1}), major)).elements(), 1);
  EXPECT_EQ(code_of([&] { parse_npy(npy(dict, bytes_of({1}), 4)); }), "npy-version");
}

TEST_F(Formats, NpyBadHeaders) {
  const std::string rest = "'fortran_order': False, 'shape': (1,), }";
  const std::pair<std::string, std::string> cases[] = {
      {"{'descr': '>f4', " + rest, "npy-dtype"},
      {"{'descr': '<f3', " + rest, "npy-dtype"},
      {"{'descr': '|O', " + rest, "npy-dtype"},
      {"{'descr': [('a', '<f4')], " + rest, "npy-header"},
      {"{" + rest, "npy-header"},
      {"{'descr': '<f4', 'descr': '<f4', " + rest, "npy-header"},
      {"{'descr': '<f4', 'extra': 1, " + rest, "npy-header"},
      {"{'descr': '<f4', " + rest + " x", "npy-header"},
      {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", "npy-header"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1)}", "npy-header"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "npy-header"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "npy-header"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}",
       "tensor-size"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4611686018427387904, 4)}",
       "tensor-size"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}", "truncated"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "truncated"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}", "overlong"},
      {"{'descr': '|b1', 'fortran_order': False, 'shape': (4,)}", "bool"},
      {"", "npy-header"},
      {"{", "npy-header"},
      {"{'descr", "npy-header"},
  };
  for (const auto& [dict, code] : cases)
    EXPECT_EQ(code_of([&] { parse_npy(npy(dict, bytes_of({1.5f}))); }), code) << dict;
  EXPECT_EQ(code_of([] { parse_npy(""); }), "npy-magic");
  EXPECT_EQ(code_of([] { parse_npy("PK\x03\x04 and so on"); }), "npy-magic");
}

TEST_F(Formats, NpyTruncatedAnywhereIsAnError) {
  const std::string whole = npy_header({DType::F32, {2}}) + bytes_of({1, 2});
  EXPECT_EQ(code_of([&] { parse_npy(whole); }), "fine");
  for (size_t n = 0; n < whole.size(); ++n)
    EXPECT_NE(code_of([&] { parse_npy(std::string_view(whole).substr(0, n)); }), "fine") << n;
  try {
    parse_npy(std::string_view(whole).substr(0, 132));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.where(), "byte 128");
    EXPECT_EQ(e.kind(), ErrorKind::data);
  }
}

// ---- files

TEST_F(Formats, FilesThatCannotBeOpened) {
  EXPECT_EQ(code_of([&] { read_file(folder / "none"); }), "file-open");
  EXPECT_EQ(code_of([&] { read_file(folder); }), "file-open");
  EXPECT_EQ(code_of([&] { write_file(folder / "none" / "x", "y"); }), "file-open");
  EXPECT_EQ(code_of([&] { write_file(folder, "y"); }), "file-open");
}

TEST_F(Formats, AnUncommittedFileLeavesNothing) {
  write_file(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.write("new", 3);
  }
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
}

// ---- checkpoints

NamedTensors some_tensors() {
  NamedTensors out;
  for (const DTypeInfo& d : kDTypes)
    out.emplace(fmt::format("t.{}", d.name), counting(d.dtype, {2, 3}));
  out.emplace("scalar", Tensor::scalar(DType::I64, 7));
  out.emplace("empty", Tensor(DType::F32, {0, 4}));
  out.emplace("large", counting(DType::F64, {300000}));  // more than one chunk
  out.emplace("Größe", counting(DType::U8, {3}));
  return out;
}

bool same(const NamedTensors& a, const NamedTensors& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return x.first == y.first && x.second.same_bits(y.second);
         });
}

TEST_F(Formats, CheckpointRoundTrip) {
  save_checkpoint(folder / "c", some_tensors());
  EXPECT_TRUE(same(load_checkpoint(folder / "c"), some_tensors()));
  const std::string first = read_file(folder / "c");
  save_checkpoint(folder / "c", some_tensors());
  EXPECT_EQ(read_file(folder / "c"), first);
  save_checkpoint(folder / "none", {});
  EXPECT_TRUE(load_checkpoint(folder / "none").empty());
  EXPECT_EQ(code_of([&] { save_checkpoint(folder / "bad", {{"\xff", Tensor()}}); }),
            "checkpoint-name");
  EXPECT_EQ(code_of([&] { save_checkpoint(folder / "bad", {{"", Tensor()}}); }), "checkpoint-name");
  EXPECT_FALSE(fs::exists(folder / "bad"));
}

// A small checkpoint with its checksum made right again after `edit`.
std::string forged(const fs::path& folder, const std::function<void(std::string&)>& edit) {
  save_checkpoint(folder / "c",
                  {{"a", counting(DType::F32, {2})}, {"b", counting(DType::Bool, {1})}});
  std::string bytes = read_file(folder / "c");
  bytes.resize(bytes.size() - 8);
  edit(bytes);
  const uint64_t length = bytes.size() + 8;
  std::memcpy(bytes.data() + 16, &length, 8);
  const uint64_t sum = hash_bytes(bytes.data(), bytes.size(), 0x524c582d434b5054ull);
  return bytes.append(reinterpret_cast<const char*>(&sum), 8);
}

TEST_F(Formats, CheckpointEveryFlippedByteIsFound) {
  const std::string whole = forged(folder, [](std::string&) {});
  EXPECT_EQ(code_of([&] { parse_checkpoint(whole); }), "fine");
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bad = whole;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    EXPECT_NE(code_of([&] { parse_checkpoint(bad); }), "fine") << i;
    EXPECT_NE(code_of([&] { parse_checkpoint(whole.substr(0, i)); }), "fine") << i;
  }
  EXPECT_EQ(code_of([&] { parse_checkpoint(whole + "x"); }), "overlong");
  EXPECT_EQ(code_of([&] { parse_checkpoint(whole.substr(0, whole.size() - 1)); }), "truncated");
}

TEST_F(Formats, CheckpointHostileContentWithARightChecksum) {
  // header 24; record "a": 4+1 name, 1+3 dtype, 1 rank, 8 size, 8 data; record "b": 4+1, 1+4, 1, 8,
  // 1
  const size_t a = 24, b = a + 26;
  auto set = [](size_t at, unsigned char v) {
    return [=](std::string& s) { s[at] = static_cast<char>(v); };
  };
  const std::tuple<const char*, std::function<void(std::string&)>, const char*> cases[] = {
      {"version", set(8, 2), "checkpoint-version"},
      {"fewer tensors", set(12, 1), "overlong"},
      {"more tensors", set(12, 3), "truncated"},
      {"very many tensors", set(15, 255), "truncated"},
      {"long name", set(a + 3, 255), "truncated"},
      {"empty name", set(a, 0), "checkpoint-name"},
      {"not UTF-8", set(a + 4, 0xff), "checkpoint-name"},
      {"a zero in a name", set(a + 4, 0), "checkpoint-name"},
      {"out of order", set(a + 4, 'c'), "checkpoint-name"},
      {"twice", set(b + 4, 'a'), "checkpoint-name"},
      {"dtype", set(a + 6, 'g'), "checkpoint-dtype"},
      {"rank", set(a + 9, 200), "checkpoint-rank"},
      {"huge size", set(a + 10 + 7, 0x3f), "tensor-size"},
      {"negative size", set(a + 10 + 7, 0xff), "tensor-size"},
      {"large size", set(a + 10 + 3, 1), "truncated"},
      {"bool", set(b + 19, 2), "bool"},
  };
  for (const auto& [what, edit, code] : cases)
    EXPECT_EQ(code_of([&] { parse_checkpoint(forged(folder, edit)); }), code) << what;
}

TEST_F(Formats, CheckpointIsNotSomethingElse) {
  EXPECT_EQ(code_of([] { parse_checkpoint(""); }), "checkpoint-magic");
  EXPECT_EQ(code_of([] { parse_checkpoint("RLX-CKPT"); }), "truncated");
  EXPECT_EQ(code_of([] { parse_checkpoint(std::string(100, 'x')); }), "checkpoint-magic");
}

// ---- graphs

Graph graph_with_constant(int64_t size) {
  Builder b("g");
  Value x = b.input("x", {DType::F32, {size}});
  b.output(op::add(b, x, b.constant(counting(DType::F32, {size}))));
  return b.finish();
}

TEST_F(Formats, GraphFiles) {
  const fs::path file = folder / "g.rlx", side = folder / "g.rlx.consts";
  save_graph(file, graph_with_constant(1000));
  EXPECT_TRUE(fs::exists(side));
  EXPECT_TRUE(load_graph(file) == graph_with_constant(1000));
  save_graph(file, graph_with_constant(3));
  EXPECT_FALSE(fs::exists(side));
  EXPECT_TRUE(load_graph(file) == graph_with_constant(3));
}

TEST_F(Formats, GraphFilesThatAreBroken) {
  const fs::path file = folder / "g.rlx", side = folder / "g.rlx.consts";
  save_graph(file, graph_with_constant(1000));
  save_checkpoint(side, {{"0123456789abcdef", Tensor(DType::F32, {1000})}});
  EXPECT_EQ(code_of([&] { load_graph(file); }), "constant-hash");
  fs::remove(side);
  EXPECT_NE(code_of([&] { load_graph(file); }), "fine");
  write_file(file, "graph @g { %0 = nonsense() }");
  EXPECT_EQ(code_of([&] { load_graph(file); }), "parse");
}

}  // namespace
}  // namespace rlx
