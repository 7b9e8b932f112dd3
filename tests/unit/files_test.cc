// Writing files: nothing that stands there is destroyed, and whatever fails or dies on the way, the
// old content or the new one can be loaded.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <thread>

#include "../support/file_faults.h"
#include "rlx/base/error.h"
#include "rlx/base/printable.h"
#include "rlx/formats/checkpoint.h"
#include "rlx/formats/graph_file.h"
#include "rlx/formats/npy.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/core.h"

namespace rlx {
namespace {

namespace fs = std::filesystem;
using testing::FileFault;
using testing::FileFaults;

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "rlx-files-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
    file_calls().fsync = [](int) { return 0; };  // counted below, but this disk may be slow
  }
  void TearDown() override {
    file_calls() = real;
    fs::remove_all(folder);
  }
  const FileCalls real = file_calls();
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& e : fs::directory_iterator(folder))
      out.push_back(e.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  }
  fs::path folder;
};

template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code() + ": " + e.message();
  }
  return "fine";
}

mode_t mode_of(const fs::path& path) {
  struct stat info{};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info.st_mode;
}

Graph graph_of(int version) {
  Builder b("g");
  const Value x = b.input("x", {DType::F32, {600}});
  b.output(op::add(b, x, b.constant(Tensor::full(DType::F32, {600}, version))));
  return b.finish();
}

// ---- what stands there

TEST_F(Files, APipeIsWrittenInto) {
  const fs::path pipe = folder / "pipe", link = folder / "link";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink("pipe", link);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  const Tensor t = Tensor::full(DType::F32, {3}, 2);
  std::string bytes(4096, ' ');
  for (const fs::path& out : {pipe, link}) {
    write_npy(out, t);
    const ssize_t n = ::read(reader, bytes.data(), bytes.size());
    ASSERT_GT(n, 0);
    EXPECT_TRUE(parse_npy(std::string_view(bytes).substr(0, static_cast<size_t>(n))).same_bits(t));
  }
  // A text goes into a pipe whole: nothing could stand beside it.
  save_graph(pipe, graph_of(1));
  std::string text;
  for (ssize_t n; (n = ::read(reader, bytes.data(), bytes.size())) > 0;)
    text.append(bytes.data(), static_cast<size_t>(n));
  EXPECT_TRUE(parse(text) == graph_of(1));
  ::close(reader);
  EXPECT_TRUE(S_ISFIFO(mode_of(pipe)));
  EXPECT_TRUE(S_ISLNK(mode_of(link)));
  EXPECT_EQ(names(), (std::vector<std::string>{"link", "pipe"}));
  require_writable(pipe);  // and does not wait for a reader
}

TEST_F(Files, ADeviceIsWrittenInto) {
  const fs::path null = folder / "null", full = folder / "full";
  if (::mknod(null.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0 ||
      ::mknod(full.c_str(), S_IFCHR | 0600, makedev(1, 7)) != 0 ||
      ::close(::open(null.c_str(), O_WRONLY)) != 0)
    GTEST_SKIP() << "device nodes need rights";
  write_file(null, "gone");
  EXPECT_TRUE(refusal([&] { write_file(full, "no"); }).starts_with("file-write: writing "));
  EXPECT_TRUE(S_ISCHR(mode_of(null)) && S_ISCHR(mode_of(full)));
  EXPECT_EQ(names(), (std::vector<std::string>{"full", "null"}));
}

TEST_F(Files, LinksAreFollowed) {
  fs::create_directory(folder / "far");
  write_file(folder / "far" / "file", "old");
  fs::create_symlink("far/file", folder / "link");
  fs::create_symlink("link", folder / "second");
  fs::create_symlink("far/none", folder / "dangling");
  fs::create_symlink("loop", folder / "loop");
  write_file(folder / "second", "new");
  write_file(folder / "dangling", "made");
  EXPECT_TRUE(S_ISLNK(mode_of(folder / "link")) && S_ISLNK(mode_of(folder / "second")));
  EXPECT_TRUE(S_ISLNK(mode_of(folder / "dangling")));
  EXPECT_EQ(read_file(folder / "far" / "file"), "new");
  EXPECT_EQ(read_file(folder / "far" / "none"), "made");
  EXPECT_TRUE(refusal([&] { write_file(folder / "loop", "x"); }).starts_with("file-open: "));
}

// A file whose group its owner is not in: what replaces it is the owner's, but not that group's.
TEST_F(Files, AnotherGroupGetsNoMoreThanEverybody) {
  constexpr uid_t kUser = 65534, kGroup = 65533;
  if (::geteuid() != 0) GTEST_SKIP() << "needs the right to become another user";
  fs::permissions(folder, fs::perms::all);
  const auto replaced = [&](mode_t mode, bool is_member) -> mode_t {
    const fs::path file = folder / "f";
    write_file(file, "old");
    EXPECT_EQ(::chown(file.c_str(), kUser, kGroup), 0);
    EXPECT_EQ(::chmod(file.c_str(), mode), 0);
    const pid_t child = fork();
    if (child == 0) {
      const gid_t groups[] = {kGroup};
      if (::setgroups(is_member ? 1 : 0, groups) != 0 || ::setgid(kUser) != 0 ||
          ::setuid(kUser) != 0)
        _exit(1);
      _exit(refusal([&] { write_file(file, "new"); }) == "fine" ? 0 : 2);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(read_file(file), "new");
    struct stat info{};
    EXPECT_EQ(::stat(file.c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, kUser);
    EXPECT_EQ(info.st_gid, is_member ? kGroup : kUser);
    fs::remove(file);
    return info.st_mode & 07777;
  };
  EXPECT_EQ(replaced(0660, true), 0660u);
  EXPECT_EQ(replaced(0660, false), 0600u);
  EXPECT_EQ(replaced(0674, false), 0644u);
  EXPECT_EQ(replaced(02755, false), 0755u);
}

TEST_F(Files, NamesTooLongForASideFile) {
  const std::string text = print(graph_of(1));
  const fs::path hostile = folder / "hostile.rlx", longest = folder / std::string(250, 'a');
  write_file(hostile, "constants " + quote(std::string(300, 'b') + ".consts") + "\n" + text);
  EXPECT_TRUE(refusal([&] { load_graph(hostile); }).starts_with("constant-file: "));
  write_file(longest, text);  // whose old side file would have a name of 257 bytes
  EXPECT_TRUE(load_graph(longest) == graph_of(1));
}

TEST_F(Files, APipeWithTheNameOfAnOldSideFileIsLeftAlone) {
  const fs::path pipe = folder / "g.rlx.0123456789abcdef.consts";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  save_graph(folder / "g.rlx", graph_of(1));  // and nobody waits for who reads it
  EXPECT_TRUE(load_graph(folder / "g.rlx") == graph_of(1));
  EXPECT_TRUE(S_ISFIFO(mode_of(pipe)));
}

TEST_F(Files, AGraphBehindALinkKeepsItsConstantsBesideIt) {
  fs::create_directory(folder / "far");
  fs::create_symlink("far/g.rlx", folder / "link.rlx");
  save_graph(folder / "link.rlx", graph_of(1));
  EXPECT_EQ(names(), (std::vector<std::string>{"far", "link.rlx"}));
  EXPECT_TRUE(load_graph(folder / "link.rlx") == graph_of(1));
  EXPECT_TRUE(load_graph(folder / "far" / "g.rlx") == graph_of(1));
  // A folder of links to files that lie elsewhere under other names.
  const std::string side = constants_file(read_file(folder / "far" / "g.rlx"));
  fs::rename(folder / "far" / side, folder / "far" / "blob");
  fs::create_symlink("far/blob", folder / side);
  EXPECT_TRUE(load_graph(folder / "link.rlx") == graph_of(1));
}

TEST_F(Files, TheModeIsKept) {
  const fs::path file = folder / "file";
  for (mode_t mode : {0600, 0640, 0755, 0200}) {
    write_file(file, "old");
    ASSERT_EQ(::chmod(file.c_str(), mode), 0);
    write_file(file, "new");
    EXPECT_EQ(mode_of(file) & 07777, mode);
  }
  const mode_t mask = ::umask(027);
  write_file(folder / "fresh", "x");
  ::umask(mask);
  EXPECT_EQ(mode_of(folder / "fresh") & 07777, 0640u);
}

TEST_F(Files, WhatReplacesAPrivateFileIsPrivateWhileItIsWritten) {
  write_file(folder / "secret", "old");
  ASSERT_EQ(::chmod((folder / "secret").c_str(), 0600), 0);
  AtomicFile file(folder / "secret");
  for (const std::string& name : names()) EXPECT_EQ(mode_of(folder / name) & 077, 0u) << name;
}

TEST_F(Files, AReadOnlyFileIsRefused) {
  const fs::path file = folder / "file";
  write_file(file, "precious");
  ASSERT_EQ(::chmod(file.c_str(), 0444), 0);
  fs::create_symlink("file", folder / "link");
  const std::function<void()> writers[] = {
      [&] { write_file(file, "x"); },
      [&] { write_file(folder / "link", "x"); },
      [&] { write_npy(file, Tensor(DType::F32, {1})); },
      [&] { save_checkpoint(file, {}); },
      [&] { save_graph(file, graph_of(1)); },
      [&] { require_writable(file); },
  };
  for (const auto& write : writers)
    EXPECT_TRUE(refusal(write).ends_with("it is read-only")) << refusal(write);
  EXPECT_EQ(read_file(file), "precious");
  EXPECT_EQ(names(), (std::vector<std::string>{"file", "link"}));
}

TEST_F(Files, AskingWhetherAFileCanBeWrittenLeavesNothing) {
  require_writable(folder / "new");
  EXPECT_TRUE(names().empty());
  write_file(folder / "old", "content");
  require_writable(folder / "old");
  EXPECT_EQ(read_file(folder / "old"), "content");
  EXPECT_EQ(names().size(), 1u);
  EXPECT_TRUE(refusal([&] { require_writable(folder / "none" / "x"); }).starts_with("file-open: "));
  EXPECT_TRUE(refusal([&] {
                make_folder(folder / "old" / "x");
              }).starts_with("file-open: cannot make the folder"));
  EXPECT_TRUE(refusal([&] {
                make_folder(folder / "old");
              }).starts_with("file-open: cannot make the folder"));
}

TEST_F(Files, PipesAndDevicesAreNotRead) {
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);  // opening it would wait for ever
  fs::create_symlink("/dev/null", folder / "null");
  for (const char* name : {"pipe", "null"}) {
    const fs::path file = folder / name;
    EXPECT_TRUE(refusal([&] { read_file(file); }).starts_with("file-open: cannot read")) << name;
    EXPECT_TRUE(refusal([&] { load_graph(file); }).starts_with("file-open: ")) << name;
    EXPECT_TRUE(refusal([&] { read_npy(file); }).starts_with("file-open: ")) << name;
    EXPECT_TRUE(refusal([&] { load_checkpoint(file); }).starts_with("file-open: ")) << name;
  }
}

TEST_F(Files, NamesMayBeLong) {
  const fs::path file = folder / std::string(255, 'n');
  write_file(file, "old");
  write_file(file, "new");
  EXPECT_EQ(read_file(file), "new");
  EXPECT_EQ(names().size(), 1u);
}

// Whoever changes the file system does so in base/file.cc.
TEST(FileWriters, AreOne) {
  const std::set<std::pair<std::string, std::string>> allowed{
      {"src/cli/process_memory.cc", "ofstream"},  // a switch of the kernel's
      {"src/cli/output.cc", "O_WRONLY"},          // /dev/null
  };
  const fs::path root = RLX_SOURCE_DIR;
  for (const auto& entry : fs::recursive_directory_iterator(root / "src")) {
    const std::string name = entry.path().lexically_relative(root).string();
    if (!entry.is_regular_file() || name == "src/base/file.cc") continue;
    const std::string text = read_file(entry.path());
    for (const char* word :
         {"ofstream", "fopen(", "O_WRONLY", "O_RDWR", "O_CREAT", "raw_fd_ostream", "::rename(",
          "create_director", "::remove(", "::unlink("})
      EXPECT_TRUE(text.find(word) == std::string::npos || allowed.contains({name, word}))
          << name << " has " << word;
  }
}

// ---- temporary files

// A child that does this and dies without cleaning up.
void in_child_that_dies(const std::function<void()>& f) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      f();
    } catch (...) {
    }
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST_F(Files, WhatDeadProcessesLeftIsSwept) {
  for (int i = 0; i < 3; ++i)
    in_child_that_dies([&] {
      static AtomicFile file(folder / "a");
      file.write("half");
    });
  in_child_that_dies([&] {
    static AtomicFile other(folder / "a.b");
    other.write("half");
  });
  EXPECT_EQ(names().size(), 2u) << "each of a's swept the one before";
  AtomicFile alive(folder / "a");  // sweeps, and stays through the next sweep
  EXPECT_EQ(names().size(), 2u);
  alive.write("alive");
  write_file(folder / "a", "first");
  EXPECT_EQ(names().size(), 3u) << "a, its living temporary file and the dead one of a.b";
  alive.commit();
  EXPECT_EQ(read_file(folder / "a"), "alive");
  write_file(folder / "a.b", "x");
  EXPECT_EQ(names(), (std::vector<std::string>{"a", "a.b"}));
}

// Names are random, all 64 bits of them: process ids are not unique (of two containers both are often 1), so a name made of one
// may be taken by a file that is in use, or that died and is locked by nobody.
TEST_F(Files, NamesOfTemporaryFilesAreRandom) {
  uint64_t ones = 0, zeros = 0;
  std::set<std::string> seen;
  for (int i = 0; i < 128; ++i) {
    const FileFaults watch({});
    write_file(folder / "a", "x");
    for (const testing::FileCall& call : watch.log())
      if (const size_t at = call.path.find(".tmp-");
          call.kind == testing::FileCall::Kind::open && at != std::string::npos) {
        const std::string digits = call.path.substr(at + 5);
        EXPECT_TRUE(seen.insert(digits).second) << digits;
        const uint64_t bits = std::stoull(digits, nullptr, 16);
        ones |= bits, zeros |= ~bits;
      }
  }
  EXPECT_EQ(seen.size(), 128u);
  EXPECT_EQ(~ones, 0u) << "bits that are never 1";
  EXPECT_EQ(~zeros, 0u) << "bits that are never 0";
}

TEST_F(Files, FilesThatOnlyLookTemporaryStay) {
  for (const char* name : {".a.tmp-notes", ".a.tmp-0123456789abcdeg", ".a.tmp-0123456789abcdef0"})
    std::ofstream(folder / name) << "mine";
  write_file(folder / "a", "x");
  EXPECT_EQ(names().size(), 4u);
}

// ---- faults

// How to save and load version 1 or 2 of something. load() raises, or tells the version.
struct Saver {
  std::string name;
  std::function<void(const fs::path&, int)> save;
  std::function<int(const fs::path&)> load;
};

std::vector<Saver> savers() {
  auto tensor = [](int version) { return Tensor::full(DType::F32, {5}, version); };
  // More than a chunk of the writer's.
  auto large = [](int version) { return Tensor::full(DType::F32, {300000}, version); };
  auto version_of = [](const Graph& g) {
    for (int v : {1, 2})
      if (g == graph_of(v)) return v;
    return -1;
  };
  return {
      {"file", [](const fs::path& p, int v) { write_file(p, std::string(100, "012"[v])); },
       [](const fs::path& p) {
         const std::string text = read_file(p);
         return text == std::string(100, '1') ? 1 : text == std::string(100, '2') ? 2 : -1;
       }},
      {"t.npy", [=](const fs::path& p, int v) { write_npy(p, tensor(v)); },
       [=](const fs::path& p) { return static_cast<int>(read_npy(p).get_float(4)); }},
      {"c.ckpt", [=](const fs::path& p, int v) { save_checkpoint(p, {{"w", large(v)}}); },
       [=](const fs::path& p) {
         return static_cast<int>(load_checkpoint(p).at("w").get_float(299999));
       }},
      {"g.rlx", [](const fs::path& p, int v) { save_graph(p, graph_of(v)); },
       [=](const fs::path& p) { return version_of(load_graph(p)); }},
      {"g.rlxb", [](const fs::path& p, int v) { save_graph(p, graph_of(v)); },
       [=](const fs::path& p) { return version_of(load_graph(p)); }},
  };
}

// Version 1 is there, saving version 2 meets the fault: then one of them is there, version 2 if the
// save said so, and after one more save nothing else. False once the fault lies behind the last call.
bool survives(const Saver& s, const fs::path& folder, FileFault fault, bool must_succeed) {
  const fs::path file = folder / s.name;
  fs::remove_all(folder);
  fs::create_directory(folder);
  s.save(file, 1);
  const auto count = [&] { return std::distance(fs::directory_iterator(folder), {}); };
  const auto clean = count();
  bool saved = true;
  int calls = 0;
  {
    FileFaults faults(fault);
    try {
      s.save(file, 2);
    } catch (const Error& e) {
      saved = false;
      EXPECT_TRUE(e.code() == "file-write" || e.code() == "file-open") << e.what();
    }
    calls = faults.calls();
  }
  const int found = s.load(file);
  EXPECT_TRUE(found == 2 || (found == 1 && !saved)) << "version " << found;
  EXPECT_TRUE(saved || !must_succeed);
  s.save(file, 1);
  EXPECT_EQ(s.load(file), 1);
  EXPECT_EQ(count(), clean) << "something is left behind";
  return calls > fault.at;
}

TEST_F(Files, EachCallOfEachSaverFailsOnce) {
  for (const Saver& s : savers())
    for (const bool lasting : {false, true})
      for (const int error : {EIO, ENOSPC, EINTR}) {
        if (lasting && error == EINTR) continue;  // would be retried for ever
        for (int at = 0;; ++at) {
          SCOPED_TRACE(fmt::format("{}: call {} fails with {}{}", s.name, at, strerror(error),
                                   lasting ? " from then on" : ""));
          const FileFault fault{.at = at, .error = error, .lasting = lasting};
          if (!survives(s, folder / "f", fault, error == EINTR)) break;
          ASSERT_LT(at, 100);
        }
      }
}

TEST_F(Files, WritesMayBeShort) {
  for (const Saver& s : savers())
    for (int at = 0;; ++at) {
      SCOPED_TRACE(fmt::format("{}: call {}", s.name, at));
      if (!survives(s, folder / "f", {.at = at, .short_write = true}, true)) break;
    }
}

TEST_F(Files, EachCallOfEachSaverIsTheLastBeforeAKill) {
  for (const Saver& s : savers()) {
    const fs::path in = folder / s.name / s.name;
    fs::create_directory(in.parent_path());
    s.save(in, 1);
    const auto count = [&] { return std::distance(fs::directory_iterator(in.parent_path()), {}); };
    const auto clean = count();
    int old = 0, fresh = 0, calls = 0;
    {
      const FileFaults none({});
      s.save(in, 2);
      calls = none.calls();
    }
    ASSERT_GT(calls, 4);
    for (int at = 0; at < calls; ++at) {
      SCOPED_TRACE(fmt::format("{}: killed after call {}", s.name, at));
      s.save(in, 1);
      in_child_that_dies([&] {
        static FileFaults faults({.at = at, .kill = true});
        s.save(in, 2);
      });
      const int found = s.load(in);
      EXPECT_TRUE(found == 1 || found == 2) << found;
      (found == 1 ? old : fresh) += 1;
      s.save(in, 1);
      EXPECT_EQ(count(), clean) << "something is left behind";
    }
    EXPECT_GT(old, 0) << s.name;
    EXPECT_GT(fresh, 0) << s.name << ": the kills do not get far enough";
  }
}

TEST_F(Files, WhatIsRenamedIsOnTheDisk) {
  for (const Saver& s : savers()) {
    const FileFaults none({});
    s.save(folder / s.name, 1);
    EXPECT_EQ(testing::missing_fsync(none.log()), "") << s.name;
    EXPECT_TRUE(std::any_of(none.log().begin(), none.log().end(), [](const testing::FileCall& c) {
      return c.kind == testing::FileCall::Kind::rename;
    })) << s.name;
  }
}

// What was read may have been replaced, and be back, by the time its side file is looked for.
TEST_F(Files, WhoLoadsWaitsForWhoSaves) {
  const fs::path file = folder / "g.rlx";
  save_graph(file, graph_of(1));
  const std::vector<std::string> now = names();
  const fs::path side = folder / *std::find_if(now.begin(), now.end(), [](const std::string& n) {
                          return n.ends_with(".consts");
                        });
  std::atomic<bool> done{false};
  std::string said;
  auto saver = std::make_unique<FolderLock>(folder);
  fs::rename(side, folder / "away");
  std::thread loader([&] {
    said = refusal([&] { EXPECT_TRUE(load_graph(file) == graph_of(1)); });
    done = true;
  });
  for (int i = 0; i < 50 && !done; ++i) ::usleep(1000);  // one that does not wait is done by then
  EXPECT_FALSE(done);
  fs::rename(folder / "away", side);
  saver.reset();
  loader.join();
  EXPECT_EQ(said, "fine");
}

TEST_F(Files, AGraphThatIsBeingSavedCanBeLoaded) {
  const fs::path file = folder / "g.rlx";
  save_graph(file, graph_of(1));
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int i = 0; i < 100; ++i) save_graph(file, graph_of(1 + i % 2));
    done = true;
  });
  int loads = 0;
  while (!done || loads == 0) {
    EXPECT_EQ(refusal([&] { load_graph(file); }), "fine");
    ++loads;
  }
  writer.join();
}

}  // namespace
}  // namespace rlx
