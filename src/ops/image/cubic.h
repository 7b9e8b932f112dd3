// The cubic of Keys, by which resize and grid_sample weigh four elements. Written as products: so near its zeros it keeps its
// digits, which a polynomial in t loses.
#pragma once

namespace rlx {

// Of an element at distance t, 0 <= t <= 1, with s = 1 - t.
template <class X>
X inner_cubic_weight(const X& t, const X& s, double a) {
  return s * (t + 1.0 - t * t * (a + 2));
}

// Of an element at distance 1 + t.
template <class X>
X outer_cubic_weight(const X& t, const X& s, double a) {
  return t * s * s * a;
}

}  // namespace rlx
