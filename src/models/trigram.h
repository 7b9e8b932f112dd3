// A smoothed trigram model of tokens: the yardstick for what context of two characters can do.
//
//   Trigram m = Trigram::fit(train, vocab);
//   double bits = m.bits_per_token(validation);
//
// Interpolated Kneser-Ney (Ney, Essen, Kneser 1994; Chen and Goodman 1999): counts discounted by d3
// for trigrams, and continuation counts discounted by d2 and d1 below, down to the uniform
// distribution. The three discounts are tuned by search on a held-out tenth of the training tokens;
// the counts are then those of all of them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace rlx {

class Trigram {
 public:
  using Discounts = std::array<double, 3>;  // of unigrams, bigrams, trigrams

  static Trigram fit(std::span<const int32_t> train, int64_t vocab);
  Trigram(std::span<const int32_t> tokens, int64_t vocab, Discounts discounts);

  double probability(int32_t a, int32_t b, int32_t c) const;  // of c after a, b
  // Mean of -log2 p over all tokens but the first two.
  double bits_per_token(std::span<const int32_t> tokens) const;
  const Discounts& discounts() const { return discounts_; }

 private:
  // Counts of one order: of each event, of each context, and how many different events a context
  // has.
  struct Order {
    std::vector<uint32_t> events, totals, kinds;
    void close(size_t vocab);  // totals and kinds from events
    double blend(size_t context, size_t event, double discount, double below) const;
  };
  size_t vocab_;
  Discounts discounts_;
  std::array<Order, 3> orders_;
};

}  // namespace rlx
