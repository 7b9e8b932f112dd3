// What the stages after the passes make of programs, as text: small cases that anyone can read
// (tests/text/{fuse,lower,plan,kernel}), and whole programs of the kinds that people run (tests/replay). RLX_UPDATE_TEXT=1
// writes the texts instead of comparing; review the diff.
#include <gtest/gtest.h>

#include "../support/lowered.h"
#include "../support/replay.h"
#include "rlx/passes/passes.h"
#include "text_cases.h"

namespace rlx::testing {
namespace {

Stage stage_named(std::string_view name) {
  const auto at = std::find(kStages.begin(), kStages.end(), name);
  check(at != kStages.end(), "there is no stage {}", name);
  return static_cast<Stage>(at - kStages.begin());
}

TEST(StageText, CasesComeOutAsWritten) {
  int cases = 0;
  for (std::string_view folder : kStages)
    for (text_cases::File& file : text_cases::all_of(text_cases::root() / folder)) {
      for (text_cases::Case& c : file.cases) {
        SCOPED_TRACE(fmt::format("{}: {}", file.path.string(), c.title));
        Graph g = parse(c.input);
        if (!c.passes.empty()) g = run_passes(g, parse_pipeline(c.passes), {});
        const std::string now = stage_text(g, stage_named(c.to));
        if (text_cases::updating())
          c.expected = now;
        else
          EXPECT_EQ(now, c.expected);
        ++cases;
      }
      if (text_cases::updating()) text_cases::write(file);
    }
  EXPECT_GE(cases, 20);
}

// The first line that differs, with those around it.
std::string difference(const std::string& now, const std::string& then) {
  std::istringstream a(now), b(then);
  std::string x, y, before;
  for (int line = 1;; ++line) {
    const bool more = static_cast<bool>(std::getline(a, x)),
               rest = static_cast<bool>(std::getline(b, y));
    if (!more && !rest) return {};
    if (more != rest || x != y)
      return fmt::format("line {}, after: {}\n  was: {}\n  now: {}", line, before,
                         rest ? y : "(the end)", more ? x : "(the end)");
    before = x;
  }
}

TEST(Replay, KernelsAndPlansAreThoseKept) {
  const std::filesystem::path folder = std::filesystem::path(RLX_SOURCE_DIR) / "tests" / "replay";
  size_t programs = 0;
  for (const ReplayProgram& p : replay_programs()) {
    const Lowered l = lower_for_cpu(p.graph, 256);
    EXPECT_EQ(plan_faults(l.program), "") << p.name;
    std::string now = fmt::format("# {}: {}\n", p.name, p.about);
    for (Stage stage : {Stage::lower, Stage::plan, Stage::kernel})
      now += fmt::format("\n=== {}\n{}", kStages[static_cast<size_t>(stage)], stage_text(l, stage));
    const std::filesystem::path path = folder / (p.name + ".txt");
    if (text_cases::updating()) {
      std::filesystem::create_directories(folder);
      std::ofstream(path) << now;
      continue;
    }
    std::ifstream in(path);
    const std::string then{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(difference(now, then), "") << path << "\nRLX_UPDATE_TEXT=1 writes it anew";
    ++programs;
  }
  if (text_cases::updating()) return;
  EXPECT_EQ(programs,
            static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {})))
      << "a text of no program";
}

// The checker that random programs go through (random_checks.cc) sees what the planner must not do.
TEST(Plans, OverlapsAreSeen) {
  const ReplayProgram p = replay_programs().front();
  const Program good = lower_for_cpu(p.graph, 256).program;
  ASSERT_EQ(plan_faults(good), "");
  int seen = 0, moved = 0;
  for (size_t b = 0; b < good.buffers.size(); ++b) {
    const Buffer& buffer = good.buffers[b];
    if (buffer.place != Place::arena || buffer.first < 0 || buffer.shares >= 0 ||
        buffer.offset == 0)
      continue;
    Program bad = good;
    bad.buffers[b].offset -= 64;
    ++moved;
    seen += !plan_faults(bad).empty();
  }
  EXPECT_GT(moved, 20);
  EXPECT_GT(seen, moved / 2);  // the others had room below them
}

}  // namespace
}  // namespace rlx::testing
