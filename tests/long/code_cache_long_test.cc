// 1,000 kills of processes that write to a cache of generated code.
#include "../support/cache_kills.h"
#include "../support/tool.h"

namespace rlx {
namespace {

class CodeCacheLong : public testing::ToolFolder {};

TEST_F(CodeCacheLong, AThousandKilledWriters) {
  testing::kill_cache_writers(folder / "cache", 1000);
  cpu::CodeCache(folder / "cache").store("last", "code");
  EXPECT_LE(files("cache"), 11u);
}

}  // namespace
}  // namespace rlx
