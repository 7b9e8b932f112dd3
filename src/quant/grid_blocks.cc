// Blocks of 256 elements made of vectors from a codebook: IQ1, IQ2, IQ3.
//
// A vector of 8 (IQ3: 4) elements is the index of a codeword; groups of vectors share an integer scale under the
// block's f16 scale. IQ2 and IQ3 keep signs apart, eight per byte, or in seven bits: then the eighth makes their
// number even. IQ1 words are ternary and shifted by +-1/8 instead.
#include <algorithm>
#include <bit>
#include <cmath>

#include "rlx/quant/blocks.h"
#include "rlx/quant/grids.h"

namespace rlx::quant {
namespace {

constexpr int kVectors = kBlock / 8;
constexpr float kShift = 0.125f;

uint8_t even_signs(uint32_t seven) {
  seven &= 127;
  return static_cast<uint8_t>(seven | static_cast<uint32_t>(std::popcount(seven) % 2) << 7);
}

template <size_t kElements>
void put_signed(const std::array<int8_t, kElements>& word, float scale, int signs, float* out) {
  for (size_t i = 0; i < kElements; ++i) {
    const float v = scale * static_cast<float>(word[i]);
    out[i] = signs >> i & 1 ? -v : v;
  }
}
void put_shifted(const std::array<int8_t, 8>& word, float scale, bool minus, float* out) {
  for (size_t i = 0; i < 8; ++i)
    out[i] = scale * (static_cast<float>(word[i]) + (minus ? -kShift : kShift));
}

// ---- the search -----------------------------------------------------------------------------------------

struct Layout {
  const int8_t* words;
  int count, size;  // of the codebook: words and elements of a word
  int largest;      // its largest element
  int group;        // elements that share a scale
  int scales;       // a group's scale is d * (first + step * code), code < scales
  float first, step;
  bool even;  // signs are an even number of minuses
  int shift_group;  // elements that share the direction of the shift; 0 when words are signed, not shifted
};

template <size_t kElements, size_t kWords>
constexpr Layout layout(const std::array<std::array<int8_t, kElements>, kWords>& grid, int largest,
                        int group, int scales, float first, float step, bool even,
                        int shift_group = 0) {
  return {grid[0].data(),
          static_cast<int>(kWords),
          static_cast<int>(kElements),
          largest,
          group,
          scales,
          first,
          step,
          even,
          shift_group};
}

struct Choice {
  float d = 0;
  uint8_t scale[kBlock / 16] = {};
  uint16_t word[kBlock / 4] = {};
  uint8_t signs[kVectors] =
      {};  // bits of eight elements; for shifted words 1 where the shift is down
};

// Nearest codewords under every candidate for d and every scale code; the best wins. |x - s w|^2 is |x|^2 plus
// s^2 |w|^2 - 2 s <x, w>, and the products <x, w> are formed once for all scales.
class Search {
 public:
  explicit Search(const Layout& l) : l_(l) {
    for (int w = 0; w < l.count; ++w)
      for (int side = 0; side < sides(); ++side)
        for (int i = 0; i < l.size; ++i) {
          const float v = value(w, i, side);
          norm_[side][w] += v * v;
        }
  }

  Choice run(const float* x) {
    Choice out;
    float most = 0;
    for (int i = 0; i < kBlock; ++i) most = std::max(most, std::fabs(x[i]));
    if (l_.shift_group)
      std::copy(x, x + kBlock, x_);
    else
      split_signs(x, out.signs);
    const float top = (l_.first + l_.step * static_cast<float>(l_.scales - 1)) *
                      (static_cast<float>(l_.largest) + (l_.shift_group ? kShift : 0));
    for (int c = 0; c < kCandidates; ++c)
      d_[c] = f16_to_float(float_to_f16(most / top * (1 - 0.15f * static_cast<float>(c))));
    for (int unit = 0; unit < kBlock; unit += unit_size()) add_errors(unit);
    choose_scales(out);
    for (int unit = 0; unit < kBlock; unit += unit_size()) choose_words(unit, out);
    return out;
  }

 private:
  static constexpr int kCandidates = 4, kMaxScales = 16, kMaxWords = 2048;

  int sides() const { return l_.shift_group ? 2 : 1; }
  int unit_size() const { return l_.shift_group ? l_.shift_group : l_.size; }
  float value(int w, int i, int side) const {
    return static_cast<float>(l_.words[w * l_.size + i]) + (!l_.shift_group ? 0
                                                            : side          ? -kShift
                                                                            : kShift);
  }
  float scale(float d, int code) const {
    return d * (l_.first + l_.step * static_cast<float>(code));
  }

  // x_ = |x|; where the minuses must be even, the smallest element may take the wrong sign.
  void split_signs(const float* x, uint8_t* signs) {
    for (int v = 0; v < kVectors; ++v) {
      int smallest = 8 * v, bits = 0;
      for (int i = 8 * v; i < 8 * v + 8; ++i) {
        x_[i] = std::fabs(x[i]);
        if (std::signbit(x[i])) bits |= 1 << i % 8;
        if (x_[i] < x_[smallest]) smallest = i;
      }
      if (l_.even && std::popcount(static_cast<uint32_t>(bits)) % 2) {
        bits ^= 1 << smallest % 8;
        x_[smallest] = -x_[smallest];
      }
      signs[v] = static_cast<uint8_t>(bits);
    }
  }

  void products(const float* x, int side) {
    for (int w = 0; w < l_.count; ++w) {
      float sum = 0;
      for (int i = 0; i < l_.size; ++i) sum += x[i] * value(w, i, side);
      product_[w] = sum;
    }
  }

  float least_error(float s, int side) const {
    constexpr int kLanes = 8;  // codebooks are multiples of it
    float best[kLanes];
    std::fill(best, best + kLanes, INFINITY);
    for (int w = 0; w < l_.count; w += kLanes)
      for (int k = 0; k < kLanes; ++k) {
        const float e = s * (s * norm_[side][w + k] - 2 * product_[w + k]);
        best[k] = e < best[k] ? e : best[k];
      }
    return *std::min_element(best, best + kLanes);
  }

  void add_errors(int unit) {
    float error[2][kCandidates][kMaxScales] = {};
    for (int side = 0; side < sides(); ++side)
      for (int at = unit; at < unit + unit_size(); at += l_.size) {
        products(x_ + at, side);
        for (int c = 0; c < kCandidates; ++c)
          for (int s = 0; s < l_.scales; ++s)
            error[side][c][s] += least_error(scale(d_[c], s), side);
      }
    for (int c = 0; c < kCandidates; ++c)
      for (int s = 0; s < l_.scales; ++s)
        error_[c][unit / l_.group][s] +=
            sides() == 1 ? error[0][c][s] : std::min(error[0][c][s], error[1][c][s]);
  }

  void choose_scales(Choice& out) const {
    double least = INFINITY;
    for (int c = 0; c < kCandidates; ++c) {
      double total = 0;
      uint8_t codes[kBlock / 16];
      for (int g = 0; g < kBlock / l_.group; ++g) {
        const float* e = error_[c][g];
        codes[g] = static_cast<uint8_t>(std::min_element(e, e + l_.scales) - e);
        total += e[codes[g]];
      }
      if (total >= least) continue;
      least = total, out.d = d_[c];
      std::copy(codes, codes + kBlock / l_.group, out.scale);
    }
  }

  void choose_words(int unit, Choice& out) {
    const float s = scale(out.d, out.scale[unit / l_.group]);
    double least = INFINITY;
    for (int side = 0; side < sides(); ++side) {
      uint16_t words[8];
      double total = 0;
      for (int at = unit; at < unit + unit_size(); at += l_.size) {
        products(x_ + at, side);
        auto error = [&](int w) { return s * (s * norm_[side][w] - 2 * product_[w]); };
        int best = 0;
        for (int w = 1; w < l_.count; ++w)
          if (error(w) < error(best)) best = w;
        words[(at - unit) / l_.size] = static_cast<uint16_t>(best);
        total += error(best);
      }
      if (total >= least) continue;
      least = total;
      std::copy(words, words + unit_size() / l_.size, out.word + unit / l_.size);
      if (l_.shift_group)
        std::fill_n(out.signs + unit / 8, unit_size() / 8, static_cast<uint8_t>(side));
    }
  }

  const Layout& l_;
  float x_[kBlock];
  float d_[kCandidates];
  float norm_[2][kMaxWords] = {}, product_[kMaxWords];
  float error_[kCandidates][kBlock / 16][kMaxScales] = {};
};

constexpr Layout kIq1sLayout = layout(kIq1, 1, 32, 8, 1, 2, false, 32),
                 kIq1mLayout = layout(kIq1, 1, 16, 8, 1, 2, false, 8),
                 kIq2xxsLayout = layout(kIq2xxs, 43, 32, 16, 0.125f, 0.25f, true),
                 kIq2xsLayout = layout(kIq2xs, 43, 16, 16, 0.125f, 0.25f, true),
                 kIq2sLayout = layout(kIq2s, 43, 16, 16, 0.125f, 0.25f, false),
                 kIq3xxsLayout = layout(kIq3xxs, 62, 32, 16, 0.25f, 0.5f, true),
                 kIq3sLayout = layout(kIq3s, 15, 32, 16, 1, 2, false);

// Four seven-bit sign groups and a scale code on top.
uint32_t signs_and_scale(const Choice& c, int group) {
  uint32_t out = static_cast<uint32_t>(c.scale[group]) << 28;
  for (int v = 0; v < 4; ++v) out |= static_cast<uint32_t>(c.signs[4 * group + v] & 127) << 7 * v;
  return out;
}

// Two scale codes to a byte.
void store_nibbles(const uint8_t* codes, int count, uint8_t* b) {
  for (int i = 0; i < count; i += 2) b[i / 2] = static_cast<uint8_t>(codes[i] | codes[i + 1] << 4);
}
int nibble(const uint8_t* b, int i) { return b[i / 2] >> i % 2 * 4 & 15; }

}  // namespace

void decode_iq2_xxs(const uint8_t* b, float* out) {
  const float d = load_half(b);
  for (int g = 0; g < 8; ++g) {
    const uint8_t* words = b + 2 + 8 * g;
    const uint32_t rest = load32(words + 4);
    const float scale = d * (0.5f + static_cast<float>(rest >> 28)) * 0.25f;
    for (int v = 0; v < 4; ++v)
      put_signed(kIq2xxs[words[v]], scale, even_signs(rest >> 7 * v), out + 32 * g + 8 * v);
  }
}
void encode_iq2_xxs(const float* x, uint8_t* b) {
  const Choice c = Search(kIq2xxsLayout).run(x);
  store_half(b, c.d);
  for (int g = 0; g < 8; ++g) {
    for (int v = 0; v < 4; ++v) b[2 + 8 * g + v] = static_cast<uint8_t>(c.word[4 * g + v]);
    store32(b + 2 + 8 * g + 4, signs_and_scale(c, g));
  }
}

void decode_iq2_xs(const uint8_t* b, float* out) {
  const float d = load_half(b);
  for (int v = 0; v < kVectors; ++v) {
    const uint32_t q = load16(b + 2 + 2 * v);
    const float scale = d * (0.5f + static_cast<float>(nibble(b + 66, v / 2))) * 0.25f;
    put_signed(kIq2xs[q & 511], scale, even_signs(q >> 9), out + 8 * v);
  }
}
void encode_iq2_xs(const float* x, uint8_t* b) {
  const Choice c = Search(kIq2xsLayout).run(x);
  store_half(b, c.d);
  for (int v = 0; v < kVectors; ++v)
    store16(b + 2 + 2 * v, c.word[v] | static_cast<uint32_t>(c.signs[v] & 127) << 9);
  store_nibbles(c.scale, 16, b + 66);
}

void decode_iq2_s(const uint8_t* b, float* out) {
  const float d = load_half(b);
  for (int v = 0; v < kVectors; ++v) {
    const int word = b[2 + v] | (b[66 + v / 4] >> v % 4 * 2 & 3) << 8;
    const float scale = d * (0.5f + static_cast<float>(nibble(b + 74, v / 2))) * 0.25f;
    put_signed(kIq2s[static_cast<size_t>(word)], scale, b[34 + v], out + 8 * v);
  }
}
void encode_iq2_s(const float* x, uint8_t* b) {
  const Choice c = Search(kIq2sLayout).run(x);
  store_half(b, c.d);
  std::memset(b + 66, 0, 8);
  for (int v = 0; v < kVectors; ++v) {
    b[2 + v] = static_cast<uint8_t>(c.word[v]);
    b[34 + v] = c.signs[v];
    b[66 + v / 4] |= static_cast<uint8_t>(c.word[v] >> 8 << v % 4 * 2);
  }
  store_nibbles(c.scale, 16, b + 74);
}

void decode_iq3_xxs(const uint8_t* b, float* out) {
  const float d = load_half(b);
  for (int v = 0; v < kVectors; ++v) {
    const uint32_t rest = load32(b + 66 + v / 4 * 4);
    const float scale = d * (0.5f + static_cast<float>(rest >> 28)) * 0.5f;
    const int signs = even_signs(rest >> v % 4 * 7);
    put_signed(kIq3xxs[b[2 + 2 * v]], scale, signs, out + 8 * v);
    put_signed(kIq3xxs[b[3 + 2 * v]], scale, signs >> 4, out + 8 * v + 4);
  }
}
void encode_iq3_xxs(const float* x, uint8_t* b) {
  const Choice c = Search(kIq3xxsLayout).run(x);
  store_half(b, c.d);
  for (int w = 0; w < kBlock / 4; ++w) b[2 + w] = static_cast<uint8_t>(c.word[w]);
  for (int g = 0; g < 8; ++g) store32(b + 66 + 4 * g, signs_and_scale(c, g));
}

void decode_iq3_s(const uint8_t* b, float* out) {
  const float d = load_half(b);
  for (int w = 0; w < kBlock / 4; ++w) {
    const int word = b[2 + w] | (b[66 + w / 8] >> w % 8 & 1) << 8;
    const float scale = d * static_cast<float>(1 + 2 * nibble(b + 106, w / 8));
    put_signed(kIq3s[static_cast<size_t>(word)], scale, b[74 + w / 2] >> w % 2 * 4, out + 4 * w);
  }
}
void encode_iq3_s(const float* x, uint8_t* b) {
  const Choice c = Search(kIq3sLayout).run(x);
  store_half(b, c.d);
  std::memset(b + 66, 0, 8);
  for (int w = 0; w < kBlock / 4; ++w) {
    b[2 + w] = static_cast<uint8_t>(c.word[w]);
    b[66 + w / 8] |= static_cast<uint8_t>(c.word[w] >> 8 << w % 8);
  }
  std::copy(c.signs, c.signs + kVectors, b + 74);
  store_nibbles(c.scale, 8, b + 106);
}

void decode_iq1_s(const uint8_t* b, float* out) {
  const float d = load_half(b);
  for (int v = 0; v < kVectors; ++v) {
    const int high = load16(b + 34 + v / 4 * 2);
    const int word = b[2 + v] | (high >> v % 4 * 3 & 7) << 8;
    const float scale = d * static_cast<float>(2 * (high >> 12 & 7) + 1);
    put_shifted(kIq1[static_cast<size_t>(word)], scale, high >> 15, out + 8 * v);
  }
}
void encode_iq1_s(const float* x, uint8_t* b) {
  const Choice c = Search(kIq1sLayout).run(x);
  store_half(b, c.d);
  for (int g = 0; g < 8; ++g) {
    uint32_t high = static_cast<uint32_t>(c.scale[g]) << 12 | static_cast<uint32_t>(c.signs[4 * g])
                                                                  << 15;
    for (int v = 0; v < 4; ++v) {
      b[2 + 4 * g + v] = static_cast<uint8_t>(c.word[4 * g + v]);
      high |= static_cast<uint32_t>(c.word[4 * g + v] >> 8) << 3 * v;
    }
    store16(b + 34 + 2 * g, high);
  }
}

// The block's scale is spread over the top nibbles of the four u16 that hold the groups' scales.
void decode_iq1_m(const uint8_t* b, float* out) {
  uint32_t bits = 0;
  for (int k = 0; k < 4; ++k) bits |= static_cast<uint32_t>(load16(b + 48 + 2 * k) >> 12) << 4 * k;
  const float d = f16_to_float(static_cast<uint16_t>(bits));
  for (int v = 0; v < kVectors; ++v) {
    const int high = nibble(b + 32, v), group = v / 2;
    const int code = load16(b + 48 + group / 4 * 2) >> group % 4 * 3 & 7;
    const int word = b[v] | (high & 7) << 8;
    put_shifted(kIq1[static_cast<size_t>(word)], d * static_cast<float>(2 * code + 1), high >> 3,
                out + 8 * v);
  }
}
void encode_iq1_m(const float* x, uint8_t* b) {
  const Choice c = Search(kIq1mLayout).run(x);
  uint8_t high[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    b[v] = static_cast<uint8_t>(c.word[v]);
    high[v] = static_cast<uint8_t>(c.word[v] >> 8 | c.signs[v] << 3);
  }
  store_nibbles(high, kVectors, b + 32);
  const uint16_t d = float_to_f16(c.d);
  for (int k = 0; k < 4; ++k) {
    uint32_t codes = static_cast<uint32_t>(d >> 4 * k & 15) << 12;
    for (int g = 0; g < 4; ++g) codes |= static_cast<uint32_t>(c.scale[4 * k + g]) << 3 * g;
    store16(b + 48 + 2 * k, codes);
  }
}

}  // namespace rlx::quant
