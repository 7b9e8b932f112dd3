// Mutated binary graphs: the reader answers with a graph that survives the round trip, compiles and
// runs, or with an Error. Most mutations get a right length and checksum, so that they reach what lies behind.
#include "../support/random_graph.h"
#include "../support/samples.h"
#include "fuzz.h"
#include "rlx/ir/verify.h"
#include "run_program.h"

namespace rlx::fuzz {
namespace {

constexpr size_t kHeader = 20, kChecksum = 8;

std::string payload_of(const std::string& s) {
  return s.size() < kHeader + kChecksum ? std::string()
                                        : s.substr(kHeader, s.size() - kHeader - kChecksum);
}

// A varint of a number at which sizes go wrong, in the place of a byte.
std::string mutate_number(Random& r, std::string s) {
  if (s.empty()) return s;
  ByteWriter w;
  const uint64_t bits = pick(r, 64);
  w.varint((uint64_t{1} << bits) - pick(r, 3) + 1);
  return s.replace(pick(r, s.size()), 1, w.out);
}

// The middle of another graph in the middle of this one.
std::string splice(Random& r, const std::string& s, const std::string& other) {
  if (s.empty() || other.empty()) return s;
  const size_t from = pick(r, other.size()), length = 1 + pick(r, 40);
  std::string out = s;
  return out.replace(pick(r, s.size()), pick(r, 40), other.substr(from, length));
}

std::string mutate(Random& r, const std::string& s, const std::vector<std::string>& seeds) {
  const size_t dice = pick(r, 20);
  if (dice < 3) return mutate_bytes(r, s);
  const std::string payload = payload_of(s);
  if (dice < 10) return frame_graph_bytes(mutate_bytes(r, payload));
  if (dice < 15) return frame_graph_bytes(mutate_number(r, payload));
  return frame_graph_bytes(splice(r, payload, payload_of(seeds[pick(r, seeds.size())])));
}

void target(const std::string& bytes) {
  const Graph g = from_bytes(bytes);
  verify(g);
  const std::string again = to_bytes(g);
  if (!(from_bytes(again) == g))
    fail(ErrorKind::internal, "round-trip", "from_bytes(to_bytes(g)) differs from g");
  compile_and_run_some(g);
}

std::vector<std::string> seeds() {
  std::vector<std::string> out;
  for (const testing::Sample& s : testing::samples())
    for (const DTypeInfo& d : kDTypes)
      if (auto c = testing::make_case(s, d.dtype)) {
        out.push_back(to_bytes(c->graph));
        break;
      }
  for (uint64_t i = 0; i < 40; ++i) {
    std::string bytes = to_bytes(testing::random_program(i).graph);
    if (bytes.size() < 20000) out.push_back(std::move(bytes));
  }
  return out;
}

}  // namespace
}  // namespace rlx::fuzz

int main(int argc, char** argv) {
  return rlx::fuzz::run({rlx::fuzz::seeds(), rlx::fuzz::mutate, rlx::fuzz::target}, argc, argv);
}
