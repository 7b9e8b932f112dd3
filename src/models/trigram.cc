#include "rlx/models/trigram.h"

#include <algorithm>
#include <cmath>

namespace rlx {

void Trigram::Order::close(size_t vocab) {
  totals.assign(events.size() / vocab, 0);
  kinds.assign(events.size() / vocab, 0);
  for (size_t i = 0; i < events.size(); ++i) {
    totals[i / vocab] += events[i];
    kinds[i / vocab] += events[i] > 0;
  }
}

double Trigram::Order::blend(size_t context, size_t event, double discount, double below) const {
  if (totals[context] == 0) return below;
  const double total = totals[context];
  return (std::max(events[event] - discount, 0.0) + discount * kinds[context] * below) / total;
}

Trigram::Trigram(std::span<const int32_t> tokens, int64_t vocab, Discounts discounts)
    : vocab_(static_cast<size_t>(vocab)), discounts_(discounts) {
  auto& [one, two, three] = orders_;
  three.events.assign(vocab_ * vocab_ * vocab_, 0);
  two.events.assign(vocab_ * vocab_, 0);
  one.events.assign(vocab_, 0);
  for (size_t i = 2; i < tokens.size(); ++i) {
    const auto a = static_cast<size_t>(tokens[i - 2]), b = static_cast<size_t>(tokens[i - 1]),
               c = static_cast<size_t>(tokens[i]);
    const bool fresh = three.events[(a * vocab_ + b) * vocab_ + c]++ == 0;
    if (fresh && two.events[b * vocab_ + c]++ == 0)
      ++one.events[c];  // in how many different contexts
  }
  for (Order& o : orders_) o.close(vocab_);
}

double Trigram::probability(int32_t a, int32_t b, int32_t c) const {
  const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b), k = static_cast<size_t>(c);
  const double uniform = 1.0 / static_cast<double>(vocab_);
  const double p1 = orders_[0].blend(0, k, discounts_[0], uniform);
  const double p2 = orders_[1].blend(j, j * vocab_ + k, discounts_[1], p1);
  const size_t context = i * vocab_ + j;
  return orders_[2].blend(context, context * vocab_ + k, discounts_[2], p2);
}

double Trigram::bits_per_token(std::span<const int32_t> tokens) const {
  double bits = 0;
  for (size_t i = 2; i < tokens.size(); ++i)
    bits -= std::log2(probability(tokens[i - 2], tokens[i - 1], tokens[i]));
  return tokens.size() > 2 ? bits / static_cast<double>(tokens.size() - 2) : 0;
}

Trigram Trigram::fit(std::span<const int32_t> train, int64_t vocab) {
  const size_t cut = train.size() - train.size() / 10;
  Trigram m(train.subspan(0, cut), vocab, {0.5, 0.5, 0.5});
  const auto held_out = train.subspan(cut);
  double best = m.bits_per_token(held_out);
  for (double step : {0.25, 0.1, 0.05, 0.02})
    for (bool better = true; better;) {
      better = false;
      for (double& d : m.discounts_)
        for (double delta : {step, -step}) {
          const double kept = d;
          d = std::clamp(d + delta, 0.01, 0.99);
          const double bits = m.bits_per_token(held_out);
          if (bits < best - 1e-9)
            best = bits, better = true;
          else
            d = kept;
        }
    }
  return Trigram(train, vocab, m.discounts_);
}

}  // namespace rlx
