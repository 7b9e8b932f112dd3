// Release builds are hardened: the ELF headers of the tool and of this program say so.
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "../support/tool.h"
#include "rlx/base/file.h"

namespace rlx {
namespace {

namespace fs = std::filesystem;

// The parts of a 64-bit ELF file that say how it is loaded.
class Elf {
 public:
  explicit Elf(const fs::path& path) : bytes_(read_file(path)) {
    header_ = read<Elf64_Ehdr>(0);
    for (unsigned i = 0; i < header_.e_phnum; ++i)
      segments_.push_back(read<Elf64_Phdr>(header_.e_phoff + i * sizeof(Elf64_Phdr)));
    for (const Elf64_Phdr& p : segments_)
      if (p.p_type == PT_DYNAMIC)
        for (size_t at = p.p_offset; at < p.p_offset + p.p_filesz; at += sizeof(Elf64_Dyn))
          dynamic_.push_back(read<Elf64_Dyn>(at));
    for (unsigned i = 0; i < header_.e_shnum; ++i) {
      const auto section = read<Elf64_Shdr>(header_.e_shoff + i * sizeof(Elf64_Shdr));
      if (section.sh_type != SHT_DYNSYM) continue;
      const auto names = read<Elf64_Shdr>(header_.e_shoff + section.sh_link * sizeof(Elf64_Shdr));
      for (size_t at = 0; at < section.sh_size; at += sizeof(Elf64_Sym))
        symbols_.insert(bytes_.c_str() + names.sh_offset +
                        read<Elf64_Sym>(section.sh_offset + at).st_name);
    }
  }
  bool has_segment(uint32_t type) const { return segment(type) != nullptr; }
  const Elf64_Phdr* segment(uint32_t type) const {
    for (const Elf64_Phdr& p : segments_)
      if (p.p_type == type) return &p;
    return nullptr;
  }
  bool has_flag(int64_t tag, uint64_t flag) const {
    for (const Elf64_Dyn& d : dynamic_)
      if (d.d_tag == tag && (d.d_un.d_val & flag)) return true;
    return false;
  }
  uint16_t type() const { return header_.e_type; }
  // Unwind entries in all, and those of no instruction: they hide the entry of what follows them.
  std::pair<int, int> unwind_entries() const {
    const auto names = read<Elf64_Shdr>(header_.e_shoff + header_.e_shstrndx * sizeof(Elf64_Shdr));
    int all = 0, empty = 0;
    for (unsigned i = 0; i < header_.e_shnum; ++i) {
      const auto section = read<Elf64_Shdr>(header_.e_shoff + i * sizeof(Elf64_Shdr));
      if (std::string(bytes_.c_str() + names.sh_offset + section.sh_name) != ".eh_frame") continue;
      // length, distance to the common part (0: is one), begin (relative, 4 bytes), length of the code
      for (size_t at = section.sh_offset; at + 16 <= section.sh_offset + section.sh_size;) {
        const auto length = read<uint32_t>(at);
        if (length == 0) break;
        if (read<uint32_t>(at + 4) != 0) ++all, empty += read<uint32_t>(at + 12) == 0;
        at += 4 + length;
      }
    }
    return {all, empty};
  }
  const std::set<std::string>& symbols() const { return symbols_; }

 private:
  template <class T>
  T read(size_t at) const {
    T out{};
    EXPECT_LE(at + sizeof(T), bytes_.size());
    if (at + sizeof(T) <= bytes_.size()) std::memcpy(&out, bytes_.data() + at, sizeof(T));
    return out;
  }
  std::string bytes_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Phdr> segments_;
  std::vector<Elf64_Dyn> dynamic_;
  std::set<std::string> symbols_;
};

std::vector<fs::path> programs() {
  std::vector<fs::path> out{fs::read_symlink("/proc/self/exe")};
  if (fs::exists(testing::tool_path())) out.push_back(testing::tool_path());
  return out;
}

// An exception that passes a function without its unwind entry ends the program.
TEST(Unwinding, EveryEntryCoversCode) {
  for (const fs::path& path : programs()) {
    const auto [all, empty] = Elf(path).unwind_entries();
    EXPECT_GT(all, 1000) << path;
    EXPECT_EQ(empty, 0) << path;
  }
}

TEST(Hardening, IsInTheHeaders) {
#ifndef RLX_HARDENED
  GTEST_SKIP() << "release builds are hardened, this is another one";
#else
  for (const fs::path& path : programs()) {
    SCOPED_TRACE(path);
    const Elf elf(path);
    EXPECT_EQ(elf.type(), ET_DYN) << "position-independent";
    EXPECT_TRUE(elf.has_flag(DT_FLAGS_1, DF_1_PIE)) << "a program, not a library";
    EXPECT_TRUE(elf.has_segment(PT_GNU_RELRO));
    EXPECT_TRUE(elf.has_flag(DT_FLAGS, DF_BIND_NOW) || elf.has_flag(DT_FLAGS_1, DF_1_NOW))
        << "with -z now what is relocated is read-only from the start";
    ASSERT_TRUE(elf.has_segment(PT_GNU_STACK));
    EXPECT_FALSE(elf.segment(PT_GNU_STACK)->p_flags & PF_X) << "the stack is not executable";
    EXPECT_TRUE(elf.symbols().contains("__stack_chk_fail")) << "stack protector";
  }
  // Which functions of the C library can be checked depends on what the compiler knows of their
  // arguments; this one can.
  char room[8] = {};
  volatile size_t size = 3;
  std::memcpy(room, "abc", size);
  EXPECT_EQ(room[2], 'c');
  EXPECT_TRUE(Elf(programs()[0]).symbols().contains("__memcpy_chk")) << "_FORTIFY_SOURCE";
#endif
}

}  // namespace
}  // namespace rlx
