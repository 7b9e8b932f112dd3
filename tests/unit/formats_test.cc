// Files of tensors and graphs: round trips, and what broken bytes give.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

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
  EXPECT_NE(npy_header({DType::F8E4M3FN, {2}}).find("'|V1'"), std::string::npos);
  EXPECT_NE(npy_header({DType::F8E5M2, {2}}).find("'|f1'"), std::string::npos);
  EXPECT_NE(npy_header({DType::F32, {3, 4}}).find("'shape': (3, 4), }"), std::string::npos);
}

TEST_F(Formats, NpyFortranOrder) {
  const std::string data = bytes_of({1, 4, 2, 5, 3, 6});
  const Tensor t =
      parse_npy(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", data));
  EXPECT_TRUE(t.same_bits(Tensor::from<float>({2, 3}, {1, 2, 3, 4, 5, 6})));
}

TEST_F(Formats, NpyFortranOrderOfEveryRank) {
  for (const Ints& sizes : {Ints{}, Ints{4}, Ints{2, 3, 4}, Ints{2, 3, 1, 5}, Ints{0, 2, 3}}) {
    const Tensor t = counting(DType::I32, sizes);
    std::string data(t.bytes(), ' '), shape;
    int64_t at = 0;  // in t, while index runs with the last axis fastest
    for_each_index(sizes, [&](const Ints& index) {
      int64_t to = 0, stride = 1;
      for (size_t a = 0; a < sizes.size(); ++a) {
        to += index[a] * stride;
        stride *= sizes[a];
      }
      std::memcpy(data.data() + 4 * to, t.raw() + 4 * at++, 4);
    });
    for (int64_t s : sizes) shape += fmt::format("{},", s);
    const std::string dict =
        fmt::format("{{'descr': '<i4', 'fortran_order': True, 'shape': ({}), }}\n", shape);
    EXPECT_TRUE(parse_npy(npy(dict, data)).same_bits(t)) << dict;
  }
}

// What ml_dtypes makes NumPy write.
TEST_F(Formats, NpyOfEightBitFloats) {
  for (auto [descr, dtype] : {std::pair{"<V1", DType::F8E4M3FN}, {"<f1", DType::F8E5M2}}) {
    const std::string dict =
        fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': (2,), }}\n", descr);
    const Tensor t = parse_npy(npy(dict, "\x38\x7f"));
    EXPECT_EQ(t.type(), (Type{dtype, {2}}));
    EXPECT_EQ(t.get_float(0), dtype == DType::F8E5M2 ? 0.5 : 1);
    EXPECT_TRUE(std::isnan(t.get_float(1)));
  }
}

TEST_F(Formats, NpyOfTheOtherByteOrder) {
  for (const DTypeInfo& d : kDTypes) {
    if (d.npy[0] == 'V') continue;  // a record to NumPy, which has no byte order
    const Tensor t = counting(d.dtype, {3, 2});
    std::string file = npy_header(t.type()),
                data(reinterpret_cast<const char*>(t.raw()), t.bytes());
    const size_t order = file.find("'descr': '") + 10;
    const size_t number = is_complex(d.dtype) ? 4 : static_cast<size_t>(size_of(d.dtype));
    for (size_t at = 0; at < data.size(); at += number)
      std::reverse(data.begin() + static_cast<int64_t>(at),
                   data.begin() + static_cast<int64_t>(at + number));
    file[order] = '>';
    EXPECT_TRUE(parse_npy(file + data).same_bits(t)) << d.name;
  }
  const std::string dict = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 2), }\n";
  EXPECT_EQ(parse_npy(npy(dict, std::string("\1\0\1\1\1\2\1\3", 8))).get_int(1), 258);
}

TEST_F(Formats, NpyVersionsAndKeyOrder) {
  const std::string dict = "{'shape': (1,), 'fortran_order': False, 'descr': '<f4'}\n";
  for (char major : {1, 2, 3}) EXPECT_EQ(parse_npy(npy(dict, bytes_of({1}), major)).elements(), 1);
  EXPECT_EQ(code_of([&] { parse_npy(npy(dict, bytes_of({1}), 4)); }), "npy-version");
}

std::string ones(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += "1, ";
  return out;
}

TEST_F(Formats, NpyBadHeaders) {
  const std::string rest = "'fortran_order': False, 'shape': (1,), }";
  const std::pair<std::string, std::string> cases[] = {
      {"{'descr': '|f4', " + rest, "npy-dtype"},
      {"{'descr': '\x1b[2J', " + rest, "npy-dtype"},
      {"{'descr': '', " + rest, "npy-dtype"},
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
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (" + ones(65) + ")}", "npy-header"},
      {"", "npy-header"},
      {"{", "npy-header"},
      {"{'descr", "npy-header"},
  };
  for (const auto& [dict, code] : cases)
    EXPECT_EQ(code_of([&] { parse_npy(npy(dict, bytes_of({1.5f}))); }), code) << dict;
  const std::string most = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + ones(64) + ")}";
  EXPECT_EQ(parse_npy(npy(most, bytes_of({1.5f}))).rank(), 64);
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
  return seal_checkpoint(std::move(bytes));
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

// The checksum goes chunk by chunk: no chunk may be left out.
TEST_F(Formats, CheckpointFlippedBytesAreFoundInEveryChunk) {
  constexpr size_t kMib = size_t{1} << 20;
  save_checkpoint(folder / "c", {{"w", counting(DType::F32, {900000})}});
  const std::string whole = read_file(folder / "c");
  ASSERT_GT(whole.size(), 3 * kMib);
  for (size_t chunk = 0; chunk < whole.size(); chunk += kMib)
    for (size_t at : {chunk + 64, chunk + kMib / 2, chunk + kMib - 1}) {
      if (at >= whole.size()) continue;
      std::string bad = whole;
      bad[at] = static_cast<char>(bad[at] ^ 1);
      EXPECT_EQ(code_of([&] { parse_checkpoint(bad); }), "checksum") << at;
    }
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
      {"an axis too many", set(a + 9, 65), "checkpoint-rank"},
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

// The side file that the text names.
fs::path side_of(const fs::path& file) {
  return file.parent_path() / constants_file(read_file(file));
}

TEST_F(Formats, GraphFiles) {
  const fs::path file = folder / "g.rlx";
  save_graph(file, graph_with_constant(1000));
  const fs::path side = side_of(file);
  EXPECT_TRUE(fs::exists(side));
  EXPECT_TRUE(side.filename().string().starts_with("g.rlx."));
  EXPECT_TRUE(load_graph(file) == graph_with_constant(1000));
  save_graph(file, graph_with_constant(2000));
  EXPECT_NE(side_of(file), side);
  EXPECT_FALSE(fs::exists(side));
  EXPECT_TRUE(load_graph(file) == graph_with_constant(2000));
  save_graph(file, graph_with_constant(3));
  EXPECT_TRUE(load_graph(file) == graph_with_constant(3));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
}

// Copies of a text, also under another name, have their constants as long as they name them.
TEST_F(Formats, CopiesOfGraphFiles) {
  const fs::path file = folder / "g.rlx", renamed = folder / "v1.rlx", copy = folder / "back.rlx";
  save_graph(file, graph_with_constant(1000));
  fs::rename(file, renamed);
  save_graph(file, graph_with_constant(2000));
  fs::copy_file(file, copy);
  save_graph(file, graph_with_constant(3000));
  EXPECT_TRUE(load_graph(renamed) == graph_with_constant(1000));
  EXPECT_TRUE(load_graph(copy) == graph_with_constant(2000));
  EXPECT_TRUE(load_graph(file) == graph_with_constant(3000));
  fs::remove(renamed), fs::remove(copy);
  save_graph(file, graph_with_constant(4000));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2) << "nobody names the others";
}

// The bytes of a constant are the same, not what it is.
TEST_F(Formats, ConstantsOfTheSameBytes) {
  const fs::path file = folder / "g.rlx";
  Builder b("g");
  b.output(b.constant(Tensor(DType::F32, {600})));
  b.output(b.constant(Tensor(DType::I32, {600})));
  b.output(b.constant(Tensor(DType::F32, {20, 30})));
  b.output(b.constant(Tensor(DType::F32, {30, 20})));
  b.output(b.constant(Tensor(DType::F64, {300})));
  const Graph g = b.finish();
  std::set<uint64_t> hashes;
  for (Value v : g.outputs) hashes.insert(g.node(v).get<ConstantAttrs>().value.hash());
  EXPECT_EQ(hashes.size(), 5u);
  save_graph(file, g);
  EXPECT_TRUE(load_graph(file) == g);
}

// Each constant decides about the side file's name, so that no save writes over a file that another text names.
TEST_F(Formats, SideFilesAreNamedByAllConstants) {
  std::set<fs::path> names;
  for (float first : {1.0f, 2.0f})
    for (float second : {3.0f, 4.0f}) {
      Builder b("g");
      b.output(b.constant(Tensor::full(DType::F32, {600}, first)));
      b.output(b.constant(Tensor::full(DType::F32, {600}, second)));
      const fs::path file = folder / fmt::format("g{}{}.rlx", first, second);
      save_graph(file, b.finish());
      names.insert(side_of(file).filename().string().substr(file.filename().string().size()));
    }
  EXPECT_EQ(names.size(), 4u);
}

// Before texts named their side file it had a fixed name.
TEST_F(Formats, OldGraphFiles) {
  const fs::path file = folder / "g.rlx", side = folder / "g.rlx.consts";
  const Graph g = graph_with_constant(1000);
  TextStore store;
  write_file(file, print(g, &store));
  const auto& [hash, tensor] = *store.constants.begin();
  save_checkpoint(side, {{fmt::format("{:016x}", hash), tensor}});
  EXPECT_TRUE(load_graph(file) == g);
  save_graph(file, g);
  EXPECT_FALSE(fs::exists(side)) << "the new text has another";
  EXPECT_TRUE(load_graph(file) == g);
  write_file(side, "something else of this name");
  save_graph(file, g);
  EXPECT_TRUE(fs::exists(side));
}

TEST_F(Formats, GraphFilesThatAreBroken) {
  const fs::path file = folder / "g.rlx";
  save_graph(file, graph_with_constant(1000));
  const fs::path side = side_of(file);
  save_checkpoint(side, {{"0123456789abcdef", Tensor(DType::F32, {1000})}});
  EXPECT_EQ(code_of([&] { load_graph(file); }), "constant-hash");
  save_checkpoint(side, {});
  EXPECT_EQ(code_of([&] { load_graph(file); }), "parse");
  fs::remove(side);
  EXPECT_EQ(code_of([&] { load_graph(file); }), "constant-file");
  try {
    load_graph(file);
  } catch (const Error& e) {
    EXPECT_NE(e.message().find(side.string() + ", which is not there"), std::string::npos);
  }
  write_file(file, "graph @g { %0 = nonsense() }");
  EXPECT_EQ(code_of([&] { load_graph(file); }), "parse");
  for (const char* name :
       {"../g.consts", "/etc/passwd", "sub/g.consts", "g.txt", "a\\x00.consts"}) {
    write_file(file, fmt::format("constants \"{}\" graph @g {{}}", name));
    EXPECT_EQ(code_of([&] { load_graph(file); }), "constant-file") << name;
  }
}

}  // namespace
}  // namespace rlx
