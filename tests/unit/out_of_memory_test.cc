// Memory that runs out. While programs are compiled and run a sample of the allocations fails, tests/long fails every
// one; while they are read, written and transformed every one does here.
#include "../support/out_of_memory.h"

#include <filesystem>

#include "rlx/base/file.h"
#include "rlx/formats/checkpoint.h"
#include "rlx/formats/graph_file.h"
#include "rlx/formats/npy.h"
#include "rlx/ir/graph_bytes.h"
#include "rlx/ir/verify.h"
#include "rlx/passes/passes.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {
namespace {

TEST(OutOfMemory, ASampleOfAllocationsFails) {
  for (const OutOfMemoryCase& c : out_of_memory_cases())
    EXPECT_GT(walk_compiling(c, /*first=*/1, /*stride=*/251), 30) << c.name;
}

// ---- all allocations of what needs no compiler

Graph some_program(double scale) {
  Tensor large(DType::F32, {4, 300});  // too large for text
  for (int64_t i = 0; i < large.elements(); ++i) large.set_float(i, scale * static_cast<double>(i));
  Builder b("some program with a name too long to be held in place");
  const Value x = b.input("x", {DType::F32, {4, 300}}), w = b.param("w", {DType::F32, {4, 300}});
  const Value y = op::tanh(b, op::add(b, op::mul(b, x, w), b.constant(large)));
  b.output(op::reduce_sum(b, y, {.axes = {0, 1}}));
  b.update("w", op::sub(b, w, y));
  return b.finish();
}

template <class Attempt>
void fails_everywhere(const char* name, Attempt&& attempt, long least) {
  EXPECT_GE(walk_allocations(name, attempt, 1, 1), least) << name;
}

TEST(OutOfMemory, InTextBytesAndTransforms) {
  const Graph g = some_program(0.5);
  TextStore store;
  const std::string text = print(g, &store), bytes = to_bytes(g);
  fails_everywhere("print", [&] { return print(g); }, 10);
  fails_everywhere("to_bytes", [&] { return to_bytes(g); }, 10);
  fails_everywhere("parse", [&] { return parse(text, &store); }, 50);
  fails_everywhere("from_bytes", [&] { return from_bytes(bytes); }, 50);
  fails_everywhere("verify", [&] { return verify(g), true; }, 5);
  const std::vector<std::string> wrt{"w"};
  fails_everywhere("grad", [&] { return grad(g, wrt); }, 50);
  fails_everywhere(
      "passes",
      [&] {
        Graph mine;
        {
          const Unfailing tests_own;
          mine = g;
        }
        return run_passes(std::move(mine), default_pipeline());
      },
      50);
}

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              fmt::format("rlx_out_of_memory_{}", ::getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    fsync_ = std::exchange(file_calls().fsync, [](int) { return 0; });  // many files, none to keep
  }
  void TearDown() override {
    file_calls().fsync = fsync_;
    std::filesystem::remove_all(folder_);
  }

  // Saves the old value, then the new one with an allocation failing. Whatever happens, one of them is there, whole,
  // with `files` files in the folder (one more where the failure came before the old one's were removed).
  template <class Value>
  void saver(const char* name, const Value& old_value, const Value& new_value, size_t files,
             FunctionRef<void(const std::filesystem::path&, const Value&)> save,
             FunctionRef<Value(const std::filesystem::path&)> load) {
    const std::filesystem::path path = folder_ / name;
    auto attempt = [&] {
      {
        const Unfailing tests_own;
        save(path, old_value);
      }
      struct Check {
        FunctionRef<void()> f;
        ~Check() { f(); }
      };
      auto look = [&] {
        const Unfailing tests_own;
        const Value now = load(path);
        EXPECT_TRUE(now == old_value || now == new_value) << name;
        const auto found = static_cast<size_t>(std::distance(
            std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()));
        EXPECT_LE(found, files + (files > 1)) << name << ": files are left behind";
      };
      {
        const Check check{look};
        save(path, new_value);
      }
      const Unfailing tests_own;
      return load(path) == new_value;
    };
    fails_everywhere(name, attempt, 5);
    fails_everywhere(name, [&] { return load(path); }, 5);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

 private:
  std::filesystem::path folder_;
  decltype(FileCalls::fsync) fsync_ = nullptr;
};

TEST_F(Files, AreOldOrNew) {
  for (const auto& [name, files] : {std::pair("program.rlx", 2), std::pair("program.rlxb", 1)})
    saver<Graph>(
        name, some_program(0.25), some_program(0.5), static_cast<size_t>(files),
        [](const auto& p, const Graph& g) { save_graph(p, g); },
        [](const auto& p) { return load_graph(p); });
  auto tensor = [](double v) {
    Tensor t(DType::F32, {5, 7});
    t.set_float(3, v);
    return t;
  };
  struct Bits {
    Tensor tensor;
    bool operator==(const Bits& other) const { return tensor.same_bits(other.tensor); }
  };
  saver<Bits>(
      "t.npy", {tensor(1)}, {tensor(2)}, 1,
      [](const auto& p, const Bits& b) { write_npy(p, b.tensor); },
      [](const auto& p) { return Bits{read_npy(p)}; });
  using Named = std::map<std::string, Bits>;
  saver<Named>(
      "t.ckpt", {{"a", {tensor(1)}}},
      {{"a", {tensor(2)}}, {"a name too long to be held", {tensor(3)}}}, 1,
      [](const auto& p, const Named& values) {
        NamedTensors tensors;
        {
          const Unfailing tests_own;
          for (const auto& [name, b] : values) tensors.emplace(name, b.tensor);
        }
        save_checkpoint(p, tensors);
      },
      [](const auto& p) {
        const NamedTensors tensors = load_checkpoint(p);
        const Unfailing tests_own;
        Named out;
        for (const auto& [name, t] : tensors) out.emplace(name, Bits{t});
        return out;
      });
}

// Strings, containers and tensors of the user's own numbers, beyond all memory.
TEST(OutOfMemory, IsAResourceErrorEverywhere) {
  auto kind_of = [](FunctionRef<void()> f) {
    try {
      f();
    } catch (const Error& e) {
      return e.code();
    }
    return std::string("none");
  };
  EXPECT_EQ(kind_of([] { Tensor(DType::F32, {int64_t{1} << 44}); }), "out-of-memory");
  EXPECT_EQ(kind_of([] { within_memory([] { std::vector<int>(size_t{1} << 62); }); }),
            "out-of-memory");
  EXPECT_EQ(kind_of([] { within_memory([]() -> int { throw std::bad_alloc(); }); }),
            "out-of-memory");
  // The error itself needs no memory.
  EXPECT_EQ(kind_of([] {
              const FailingAllocation failure(1);
              within_memory([]() -> int { throw std::bad_alloc(); });
            }),
            "out-of-memory");
}

}  // namespace
}  // namespace rlx::testing
