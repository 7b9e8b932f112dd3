// Generated code on disk: right or not there, whatever happens to the files and whoever writes at the same time.
#include "rlx/backend/cpu/code_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <thread>

#include "../support/cache_kills.h"
#include "../support/tool.h"
#include "kernel_examples.h"
#include "rlx/backend/cpu/jit.h"
#include "rlx/base/file.h"
#include "rlx/base/function_ref.h"

namespace rlx::cpu {
namespace {

namespace fs = std::filesystem;
using codegen::examples::softmax;

class CodeCacheTest : public testing::ToolFolder {
 protected:
  fs::path place() const { return folder / "cache"; }
  std::vector<fs::path> entries() const {
    std::vector<fs::path> out;
    for (const std::string& name : names_in(place())) out.push_back(place() / name);
    return out;
  }
};

// What is said on stderr from here on.
class Said {
 public:
  Said() { ::testing::internal::CaptureStderr(); }
  std::string text() { return ::testing::internal::GetCapturedStderr(); }
};

auto lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

std::string key_of(int i) { return testing::cache_key(i); }
std::string code_of(int i) { return testing::cache_code(i); }

TEST_F(CodeCacheTest, GivesBackWhatWasStored) {
  {
    CodeCache cache(place());
    EXPECT_EQ(cache.load(key_of(1)), std::nullopt);
    for (int i = 0; i < 5; ++i) cache.store(key_of(i), code_of(i));
    cache.store("", "");
    cache.store(key_of(2), code_of(7));  // the last one counts
  }
  CodeCache cache(place());
  EXPECT_EQ(cache.load(key_of(1)), code_of(1));
  EXPECT_EQ(cache.load(key_of(2)), code_of(7));
  EXPECT_EQ(cache.load(""), "");
  EXPECT_EQ(cache.load(key_of(9)), std::nullopt);
  struct stat info{};
  ASSERT_EQ(::stat(place().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

// Two keys of one name are told apart by what they say.
TEST_F(CodeCacheTest, TheWholeKeyCounts) {
  CodeCache cache(place());
  cache.store(key_of(1), code_of(1));
  const fs::path one = entries().at(0);
  cache.store(key_of(2), code_of(2));
  for (const fs::path& other : entries())
    if (other != one) fs::copy_file(one, other, fs::copy_options::overwrite_existing);
  Said said;
  EXPECT_EQ(cache.load(key_of(2)), std::nullopt);
  EXPECT_EQ(cache.load(key_of(1)), code_of(1));
  said.text();
}

TEST_F(CodeCacheTest, BrokenEntriesCountAsNone) {
  CodeCache(place()).store(key_of(1), code_of(1));
  const fs::path file = entries().at(0);
  const std::string whole = read_file(file);
  Said said;
  CodeCache cache(place());
  auto look = [&](const std::string& content) {
    std::ofstream(file, std::ios::binary) << content;
    return cache.load(key_of(1));
  };
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    EXPECT_EQ(look(flipped), std::nullopt) << "byte " << at;
  }
  for (size_t n = 0; n < whole.size(); n += 7) EXPECT_EQ(look(whole.substr(0, n)), std::nullopt);
  EXPECT_EQ(look(whole + "x"), std::nullopt);
  std::string large = whole;  // a header that promises the world
  std::fill(large.begin() + 8, large.begin() + 24, static_cast<char>(0xff));
  EXPECT_EQ(look(large), std::nullopt);
  EXPECT_EQ(look(whole), code_of(1));
  const std::string text = said.text();
  EXPECT_EQ(lines(text), 1) << text;
  EXPECT_NE(text.find("broken"), std::string::npos) << text;
}

TEST_F(CodeCacheTest, FoldersThatOthersMayChangeAreNotUsed) {
  auto unused = [&](std::string_view why) {
    Said said;
    CodeCache cache(place());
    cache.store(key_of(1), code_of(1));
    EXPECT_EQ(cache.load(key_of(1)), std::nullopt);
    const std::string text = said.text();
    EXPECT_NE(text.find(why), std::string::npos) << text;
    EXPECT_EQ(lines(text), 1) << text;
  };
  for (mode_t mode : {0755, 0770, 0701}) {
    fs::create_directory(place());
    ::chmod(place().c_str(), mode);
    unused("0700");
    EXPECT_TRUE(entries().empty());
    fs::remove_all(place());
  }
  std::ofstream(place()) << "a file";
  unused("no folder");
  fs::remove(place());
  if (::geteuid() == 0) {  // only root can give a folder away
    fs::create_directory(place());
    ::chmod(place().c_str(), 0700);
    ASSERT_EQ(::chown(place().c_str(), 12345, 12345), 0);
    unused("another user");
  }
}

TEST_F(CodeCacheTest, EntriesAreFilesOfThisUser) {
  CodeCache(place()).store(key_of(1), code_of(1));
  const fs::path file = entries().at(0), elsewhere = folder / "elsewhere";
  fs::rename(file, elsewhere);
  fs::create_symlink(elsewhere, file);
  Said said;
  CodeCache cache(place());
  EXPECT_EQ(cache.load(key_of(1)), std::nullopt);
  EXPECT_NE(said.text().find("no file of this user"), std::string::npos);
}

TEST_F(CodeCacheTest, FullDisksAreSaidOnce) {
  CodeCache(place()).store(key_of(1), code_of(1));
  for (int error : {ENOSPC, EROFS, EIO})
    for (int at = 0; at < 8; ++at) {
      Said said;
      CodeCache cache(place());
      {
        testing::FileFaults faults({.at = at, .error = error, .lasting = true});
        cache.store(key_of(2), code_of(2));
        cache.store(key_of(3), code_of(3));
      }
      EXPECT_EQ(cache.load(key_of(1)), code_of(1));
      for (int i : {2, 3}) EXPECT_EQ(cache.load(key_of(i)).value_or(code_of(i)), code_of(i));
      const std::string text = said.text();
      EXPECT_LE(lines(text), 1) << text;
    }
}

TEST_F(CodeCacheTest, TheLeastRecentlyUsedGoFirst) {
  const int64_t each = 32 + static_cast<int64_t>(key_of(1).size() + code_of(1).size());
  CodeCache cache(place(), 8 * each);
  for (int i = 0; i < 7; ++i) {
    cache.store(key_of(i), code_of(1));
    for (const fs::path& e : entries())  // all that is there gets older
      fs::last_write_time(e, fs::last_write_time(e) - std::chrono::hours(1));
  }
  EXPECT_TRUE(cache.load(key_of(0)));  // used now
  for (int i = 7; i < 9; ++i) cache.store(key_of(i), code_of(1));
  EXPECT_TRUE(cache.load(key_of(0)));
  EXPECT_FALSE(cache.load(key_of(1)));
  EXPECT_TRUE(cache.load(key_of(8)));
  EXPECT_LE(entries().size(), 8u);
  cache.store(key_of(50), std::string(static_cast<size_t>(9 * each), 'x'));  // never fits
  EXPECT_FALSE(cache.load(key_of(50)));
  EXPECT_TRUE(cache.load(key_of(8)));
}

TEST_F(CodeCacheTest, FilesAreBoundedInNumber) {
  for (int i = 0; i < 30; ++i) CodeCache(place(), CodeCache::kMaxBytes, 8).store(key_of(i), "code");
  EXPECT_LE(entries().size(), 8u);
  CodeCache cache(place(), CodeCache::kMaxBytes, 8);
  for (int i = 30; i < 60; ++i) {
    cache.store(key_of(i), "code");
    EXPECT_LE(entries().size(), 8u);
    EXPECT_TRUE(cache.load(key_of(i)));
  }
}

TEST_F(CodeCacheTest, ManyWritersAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0, found = 0;
  CodeCache shared(place(), 20000);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      CodeCache own(place(), 20000);
      CodeCache& cache = t % 2 ? own : shared;
      std::mt19937 random(static_cast<uint32_t>(t));
      for (int n = 0; n < 200; ++n) {
        const int i = static_cast<int>(random() % 30);
        if (random() % 2) {
          cache.store(key_of(i), code_of(i));
        } else if (const auto code = cache.load(key_of(i))) {
          ++found;
          wrong += *code != code_of(i);
        }
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(found, 0);
}

TEST_F(CodeCacheTest, KilledWritersLeaveNothingWrong) {
  testing::kill_cache_writers(place(), 20);
  CodeCache(place()).store(key_of(1), code_of(1));  // sweeps what the dead have left
  EXPECT_LE(entries().size(), 10u);
}

// ---- code

std::vector<float> run_softmax(CpuJit& jit, int64_t n) {
  const codegen::Kernel k = softmax(n);
  const codegen::Kernel* list[] = {&k};
  const KernelFn f = jit.compile(list)[0];
  std::vector<float> x(static_cast<size_t>(2 * n)), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 11) * 0.3f;
  void* buffers[] = {x.data(), y.data()};
  const int64_t sizes[] = {2};
  f(buffers, sizes, 0, 2);
  return y;
}

TEST_F(CodeCacheTest, TheSecondCompilationGeneratesNothing) {
  CodeCache cache(place());
  std::vector<float> first;
  {
    CpuJit jit({.cache = &cache});
    first = run_softmax(jit, 37);
    EXPECT_EQ(jit.generated(), 1);
  }
  CpuJit jit({.cache = &cache});
  EXPECT_EQ(run_softmax(jit, 37), first);
  EXPECT_EQ(jit.generated(), 0);
  // Another kernel, other vectors, and somebody who wants to see the code.
  CpuJit other({.cache = &cache});
  run_softmax(other, 36);
  EXPECT_EQ(other.generated(), 1);
  if (host_vector_bits() == 512) {
    CpuJit narrow({.vector_bits = 256, .cache = &cache});
    run_softmax(narrow, 37);
    EXPECT_EQ(narrow.generated(), 1);
  }
  CpuJit shown({.dump_directory = at("dump"), .cache = &cache});
  EXPECT_EQ(run_softmax(shown, 37), first);
  EXPECT_EQ(shown.generated(), 1);
}

// Kernels that differ anywhere have other bytes.
TEST(StructureBytes, AreThoseOfTheStructure) {
  using codegen::Instr;
  const codegen::Kernel k = softmax(37);
  const std::string bytes = structure_bytes(k);
  codegen::Kernel named = k;
  named.name = "other";
  EXPECT_EQ(structure_bytes(named), bytes);
  int changes = 0;
  auto expect_other = [&](FunctionRef<void(codegen::Kernel&)> change) {
    codegen::Kernel other = k;
    change(other);
    EXPECT_FALSE(same_structure(k, other)) << changes;
    EXPECT_NE(structure_bytes(other), bytes) << changes;
    EXPECT_NE(structural_hash(other), structural_hash(k)) << changes;
    ++changes;
  };
  expect_other([](auto& o) { ++o.parameters; });
  expect_other([](auto& o) { ++o.sizes; });
  expect_other([](auto& o) { o.buffers.pop_back(); });
  expect_other([](auto& o) { o.body.pop_back(); });
  expect_other([](auto& o) { o.buffers[0].dtype = DType::BF16; });
  expect_other([](auto& o) { o.buffers[0].access = codegen::Access::ReadWrite; });
  expect_other([](auto& o) { ++o.buffers[0].length; });
  expect_other([](auto& o) { ++o.buffers[0].slot; });
  void (*const edits[])(Instr&) = {
      [](Instr& i) {
        i.op = i.op == codegen::KernelOp::Add ? codegen::KernelOp::Sub : codegen::KernelOp::Add;
      },
      [](Instr& i) { i.dtype = DType::U8; },
      [](Instr& i) { i.memory = DType::BF16; },
      [](Instr& i) {
        i.kind = i.kind == codegen::LoopKind::Block ? codegen::LoopKind::Serial
                                                    : codegen::LoopKind::Block;
      },
      [](Instr& i) {
        i.combine =
            i.combine == codegen::Combine::Or ? codegen::Combine::And : codegen::Combine::Or;
      },
      [](Instr& i) { i.bits ^= 1; },
      [](Instr& i) { i.free = !i.free; },
      [](Instr& i) { ++i.args[2].id; },
      [](Instr& i) { ++i.buffer.id; },
      [](Instr& i) { ++i.extent.total.scale; },
      [](Instr& i) { ++i.extent.total.argument; },
      [](Instr& i) { ++i.extent.tile.scale; },
      [](Instr& i) { ++i.extent.tile.argument; },
      [](Instr& i) { ++i.extent.outer.id; },
      [](Instr& i) { i.address.push_back(codegen::Term(codegen::Size(1))); },
  };
  for (size_t at = 0; at < k.body.size(); ++at)
    for (const auto edit : edits) expect_other([&](auto& o) { edit(o.body[at]); });
  EXPECT_GT(changes, 100);
}

// ---- the tool: a second process generates nothing, unless the cache is off

TEST_F(CodeCacheTest, ProcessesShareTheFolder) {
  std::ofstream(at("f.rlx")) << "graph @\"f\" {\n"
                                "  %0 = input() {name=\"x\", shape=[7]} : [7] f32\n"
                                "  %1 = tanh(%0) : [7] f32\n  return %1\n}\n";
  std::ofstream(at("x.npy"), std::ios::binary)
      << std::string("\x93NUMPY\x01\x00\x76\x00", 10)
      << fmt::format("{:<117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }")
      << std::string(28, '\0');
  // Whether its one kernel was there.
  auto run = [&](const std::map<std::string, std::string>& variables) {
    const testing::ToolResult r =
        testing::start_tool({"run", at("f.rlx"), "--input", "x=" + at("x.npy"), "--explain"}, [&] {
          for (const char* name : {"RLX_CACHE", "RLX_CACHE_DIR", "XDG_CACHE_HOME", "HOME"})
            ::unsetenv(name);
          for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
        });
    EXPECT_EQ(r.status, 0) << r.err;
    const bool earlier = r.out.find("1 generated, 1 of them earlier") != std::string::npos;
    EXPECT_TRUE(earlier || r.out.find("1 generated, 0 of them earlier") != std::string::npos)
        << r.out;
    return earlier;
  };
  const std::string home = at("home"), xdg = at("xdg"), own = at("own");
  EXPECT_FALSE(run({{"RLX_CACHE_DIR", own}}));
  EXPECT_TRUE(run({{"RLX_CACHE_DIR", own}}));
  EXPECT_FALSE(run({{"RLX_CACHE_DIR", own}, {"RLX_CACHE", "0"}}));
  EXPECT_FALSE(run({{"XDG_CACHE_HOME", xdg}, {"HOME", home}}));
  EXPECT_TRUE(run({{"XDG_CACHE_HOME", xdg}}));
  EXPECT_TRUE(fs::is_directory(folder / "xdg" / "rlx"));
  EXPECT_FALSE(run({{"HOME", home}}));
  EXPECT_TRUE(run({{"HOME", home}}));
  EXPECT_TRUE(fs::is_directory(folder / "home" / ".cache" / "rlx"));
  EXPECT_FALSE(run({}));
}

}  // namespace
}  // namespace rlx::cpu
