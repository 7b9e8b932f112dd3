#include "rlx/ops/elementwise/scalar_math.h"

namespace rlx {

// tan(3 pi / 8) splits the range; a rational approximation of degree 5/5 does the rest (Cephes'
// coefficients).
Scalar atan(Scalar x0) {
  constexpr double p[] = {-8.750608600031904122785e-1, -1.615753718733365076637e1,
                          -7.500855792314704667340e1, -1.228866684490136173410e2,
                          -6.485021904942025371773e1};
  constexpr double q[] = {2.485846490142306297962e1, 1.650270098316988542046e2,
                          4.328810604912902668951e2, 4.853903996359136964868e2,
                          1.945506571482613964425e2};
  Scalar a = abs(x0);
  Scalar big = a > 2.41421356237309504880, middle = a > 0.66;
  Scalar x = select(big, -1.0 / a, select(middle, (a - 1.0) / (a + 1.0), a));
  Scalar base = select(big, scalar_like(a, M_PI_2), select(middle, scalar_like(a, M_PI_4), 0.0));
  Scalar z = x * x, top = scalar_like(x, p[0]), bottom = z + q[0];
  for (int i = 1; i < 5; ++i) top = top * z + p[i];
  for (int i = 1; i < 5; ++i) bottom = bottom * z + q[i];
  Scalar r = base + (x + x * (z * top / bottom));
  return select(x0 < 0.0, -r, select(x0 == 0.0, x0, r));
}

Scalar log1p(Scalar x) {
  Scalar u = 1.0 + x;
  Scalar r = log(u) * (x / (u - 1.0));
  return select(u == 1.0, x, select(u == INFINITY, u, r));
}

Scalar expm1(Scalar x) {
  Scalar u = exp(x), d = u - 1.0;
  Scalar r = d * (x / log(u));
  return select(u == 1.0, x, select(d == -1.0, d, select(u == INFINITY, u, r)));
}

}  // namespace rlx
