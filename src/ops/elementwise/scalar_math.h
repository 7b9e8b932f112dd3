// Functions of one element composed of the scalar vocabulary (ir/scalar.h), so that they are
// generated and fused; the polynomials were fitted for binary64 (Chebyshev interpolation, more terms
// than the last bit needs).
//
// The templates take T = Scalar (generated code) or double (reference values). in_double<F> is the
// scalar rule of an op that is computed in binary64 whatever its dtype: f32, f16 and bf16 results are
// then correctly rounded but for rare ties, and f64 results good to a few units in the last place.
//
//   .scalar = in_double<[](auto x) { return math::erfc(x); }>
#pragma once

#include <cmath>
#include <span>
#include <type_traits>
#include <vector>

#include "rlx/ir/op.h"

namespace rlx {

// Within 3 units in the last place over all arguments; log1p(-0) = -0, expm1(-inf) = -1.
Scalar log1p(Scalar x);
Scalar expm1(Scalar x);
Scalar atan(Scalar x);

namespace math {

using std::abs, std::sqrt, std::exp, std::log, std::log1p, std::expm1, std::pow, std::erf, std::sin,
    std::cos, std::tanh, std::atan, std::floor, std::trunc, std::rint, std::copysign;
inline double select(bool c, double a, double b) { return c ? a : b; }
inline double minimum(double a, double b) { return a != a || a < b ? a : b; }
inline double maximum(double a, double b) { return a != a || a > b ? a : b; }
inline double like(double, double v) { return v; }
inline Scalar like(Scalar x, double v) { return scalar_like(x, v); }

// c[0] + c[1] x + c[2] x^2 + ..
template <class T>
T polynomial(T x, std::span<const double> c) {
  T sum = like(x, c.back());
  for (size_t i = c.size() - 1; i-- > 0;) sum = sum * x + c[i];
  return sum;
}

template <class T>
T sinh(T x) {  // exp(|x|) - 1 keeps small arguments; the halves of large ones do not overflow
  T a = abs(x), e = expm1(a), h = exp(a * 0.5);
  return copysign(select(a < 22.0, 0.5 * (e + e / (e + 1.0)), h * (0.5 * h)), x);
}
template <class T>
T cosh(T x) {
  T h = exp(abs(x) * 0.5);
  return h * (0.5 * h) + 0.5 / (h * h);
}
template <class T>
T asinh(T x) {
  T a = abs(x), s = minimum(a, like(a, 1e8));
  T middle = log1p(s + s * s / (1.0 + sqrt(1.0 + s * s)));
  return copysign(select(a > 1e8, log(a) + M_LN2, middle), x);
}
template <class T>
T acosh(T x) {
  T t = minimum(x, like(x, 1e8)) - 1.0;  // below 0 the first root is NaN
  return select(x > 1e8, log(x) + M_LN2, log1p(t + sqrt(t) * sqrt(t + 2.0)));
}
template <class T>
T atanh(T x) {
  T a = abs(x);
  return copysign(0.5 * log1p(2.0 * a / (1.0 - a)), x);
}
template <class T>
T asin(T x) {
  return copysign(atan(abs(x) / sqrt((1.0 - x) * (1.0 + x))), x);
}
template <class T>
T acos(T x) {
  return 2.0 * atan(sqrt((1.0 - x) / (1.0 + x)));
}

// The angle of (x, y); signs of zeros and infinities as in C.
template <class T>
T atan2(T y, T x) {
  T one = like(x, 1.0), ax = abs(x), ay = abs(y);
  T slope = select((ax == INFINITY) && (ay == INFINITY), one, select(ay == 0.0, ay, ay / ax));
  T angle = atan(slope);
  T full = select(copysign(one, x) < 0.0, M_PI - angle, angle);
  return copysign(select(x != x, x, select(y != y, y, full)), y);
}

// The cube root: a power, corrected by one step of Newton's method. Tiny arguments are scaled so
// that their cubes are not denormal.
template <class T>
T cbrt(T x) {
  T a = abs(x);
  T b = select(a < 1e-250, a * 0x1p300, a);
  T y = pow(b, like(b, 1.0 / 3));
  y = y - (y * y * y - b) / (3.0 * (y * y));
  y = select(a < 1e-250, y * 0x1p-100, y);
  return select((a == 0.0) || (a == INFINITY), x, copysign(y, x));
}

// sqrt(x^2 + y^2) without overflow; infinite when either is, even beside NaN.
template <class T>
T hypot(T x, T y) {
  T a = abs(x), b = abs(y), big = maximum(a, b), small = minimum(a, b);
  T r = small / big;
  T h = select(big == 0.0, big, big * sqrt(1.0 + r * r));
  return select((a == INFINITY) || (b == INFINITY), like(h, INFINITY), h);
}

template <class T>
T logaddexp(T x, T y) {
  return select(x == y, x + M_LN2, maximum(x, y) + log1p(exp(-abs(x - y))));
}

// sin(pi x) and cos(pi x), exact at integers and halves.
template <class T>
T sin_pi(T x) {
  T n = rint(x), s = sin((x - n) * M_PI);
  return select(n - 2.0 * trunc(n * 0.5) == 0.0, s, -s);
}
template <class T>
T sinc(T x) {
  T a = abs(x), small = select(a == 0.0, like(a, 1.0), a);
  T y = select(a == INFINITY, like(a, 0.0), sin_pi(small) / (small * M_PI));
  return select(a == 0.0, like(a, 1.0), y);
}

// exp(-x^2) with the square as a sum of two numbers: an error of the exponent is one of the result.
template <class T>
T exp_of_minus_square(T x) {
  T high = trunc(x * 0x1p20) * 0x1p-20;  // at most 26 bits below 30, so that its square is exact
  return exp(-(high * high)) * exp(-((x - high) * (x + high)));
}

// 1 - erf(x), and for x > 0.4 exp(-x^2) / (1 + 2x) times a function of (x - 3.75) / (x + 3.75) that
// hardly varies.
template <class T>
T erfc(T x) {
  constexpr double kTail[] = {
      1.2240937799283556,     -0.12434547400330231,    0.018017898028080324,
      0.035366291280127055,   -0.047780710982166276,   0.03821012831518062,
      -0.022840076343714422,  0.010555158163893652,    -0.003618749615713496,
      0.0007638711397466076,  8.15879099123025e-06,    -7.148686685134812e-05,
      2.0712427637926993e-05, 1.8318545504043228e-06,  -2.660805933190983e-06,
      3.233394319992444e-07,  2.610300959889669e-07,   -7.7181707777701e-08,
      -2.415732818796683e-08, 1.2177345706894163e-08,  2.1520349841569324e-09,
      -1.559485328540012e-09, -1.3929877078600824e-10, 1.235416417205445e-10};
  T a = minimum(maximum(x, like(x, 0.4)), like(x, 30.0));
  T t = ((a - 3.75) / (a + 3.75) - 0.0963855421686747) * 1.1066666666666667;
  T tail = exp_of_minus_square(a) * (polynomial<T>(t, kTail) / (1.0 + 2.0 * a));
  return select(x > 0.4, tail, 1.0 - erf(x));
}

// Whether a formula is for binary64; f16, bf16 and f32 are computed in binary32.
inline bool is_wide(double) { return true; }
inline bool is_wide(Scalar x) { return x.dtype == DType::F64; }

// y exp(-a^2 / 2) for a >= 0, with a = h + l and h^2 exact: a relative error of a^2 / 2 would be that of the
// exponential times a^2 / 2. Beyond the limit the exponential is 0.
template <class T>
T times_gaussian(T y, T a) {
  constexpr double kSmallExponential[] = {1.0, 0.5, 1.0 / 6, 1.0 / 24};  // (exp(x) - 1) / x
  const double steps = is_wide(a) ? 0x1p20 : 0x1p8, limit = is_wide(a) ? 40 : 16;
  a = minimum(a, like(a, limit));
  T h = rint(a * steps) * (1 / steps), d = (a - h) * (a + h) * -0.5;
  return exp(h * h * -0.5) * (y + y * (d * polynomial<T>(d, kSmallExponential)));
}

// The density of the standard normal distribution, and the probability of lying below x. The latter is for x < 0
//   exp(-a^2 / 2) P(t) / (a + k) with a = |x| and t = (a - k) / (a + k),
// where P hardly varies (Chebyshev interpolation up to a = 14.5 in binary32, 39 in binary64).
template <class T>
T normal_pdf(T x) {
  return times_gaussian(like(x, 0.5 * M_2_SQRTPI * M_SQRT1_2), abs(x));
}
template <class T>
T normal_cdf(T x) {
  constexpr double kNarrow[] = {0.7552851438522339,     -0.607896625995636,   0.38713666796684265,
                                -0.18652300536632538,   0.06040646880865097,  -0.007527213077992201,
                                -0.0035235739778727293, 0.001569313695654273, 0.0001948018471011892,
                                -0.00012298315414227545};
  constexpr double kWide[] = {
      0.769193049750063,      -0.6653825028900567,    0.4953056159699764,
      -0.31353315667130455,   0.1650203661703847,     -0.06911863870631016,
      0.020795066799883178,   -0.0029933767705085422, -0.0007978693984660701,
      0.0005448990647731298,  -5.937572800991586e-05, -4.97628142705858e-05,
      1.6681213742042063e-05, 3.9809021578680414e-06, -2.76926709599743e-06,
      -3.366153681012471e-07, 4.331410356862585e-07,  4.2274993740065346e-08,
      -6.594221662477223e-08, -9.31356099432606e-09,  7.66307180076004e-09,
      1.753048401408232e-09,  -1.5877468827473365e-10};
  const double k = is_wide(x) ? 5 : 4;
  T a = abs(x), near = minimum(a, like(a, 40.0)), w = 1.0 / (near + k), t = (near - k) * w;
  T p = is_wide(x) ? polynomial<T>(t, kWide) : polynomial<T>(t, kNarrow);
  T below = times_gaussian(w * p, a);
  return select(x < 0.0, below, 1.0 - below);
}

// sigmoid(x) (1 - sigmoid(x)), the density of the logistic distribution.
template <class T>
T logistic_pdf(T x) {
  T e = exp(-abs(x)), d = 1.0 + e;
  return e / (d * d);
}

// x - tanh(x): below 3/2, where that cancels, x^3 times a polynomial in x^2 / 1.125 - 1.
template <class T>
T tanhshrink(T x) {
  constexpr double kNarrow[] = {
      0.23024970214677892,    -0.07085696980668987,   0.022137088457363164,
      -0.006929860208372801,  0.002170046542637252,   -0.0006805890240766519,
      0.00021313368749903145, -6.441240714627461e-05, 2.0171454631670886e-05,
      -8.649656713655329e-06, 2.708735334958843e-06};
  constexpr double kWide[] = {
      0.23024970214677892,    -0.07085696069441098,    0.022137085603752226,
      -0.006930041560310882,  0.002170103335010243,    -0.0006795862339985432,
      0.00021281965250368983, -6.664680702202095e-05,  2.087118341736924e-05,
      -6.536041099476421e-06, 2.0468247361707106e-06,  -6.409857261673526e-07,
      2.0075668456243813e-07, -6.286916851101088e-08,  1.9641582842812378e-08,
      -6.150978156778602e-09, 1.9821548704390937e-09,  -6.20733644991626e-10,
      1.527324443607195e-10,  -4.7829848368764685e-11, 3.2518291900687304e-11,
      -1.0183461525356913e-11};
  T near = copysign(minimum(abs(x), like(x, 1.5)), x), z = near * near, t = z * (1 / 1.125) - 1.0;
  T p = is_wide(x) ? polynomial<T>(t, kWide) : polynomial<T>(t, kNarrow);
  return select(abs(x) < 1.5, near * (z * p), x - tanh(x));
}

// The root of erf(w) = x: a start within 2e-3 (Winitzki), then two steps of Halley's method on erf
// below 1/2 and on erfc above, where 1 - |x| is exact.
template <class T>
T erfinv(T x) {
  constexpr double kA = 0.147;
  T a = abs(x), rest = 1.0 - a;
  T l = log(rest * (1.0 + a)), t = 2 / (M_PI * kA) + l * 0.5;
  T root = sqrt(t * t - l / kA);
  T w = sqrt(select(t > 0.0, (l / -kA) / (root + t), root - t));
  for (int step = 0; step < 2; ++step) {
    T f = select(a < 0.5, erf(w) - a, rest - erfc(w));
    T slope = exp_of_minus_square(w) * M_2_SQRTPI;
    w = w - f / (slope + w * f);
  }
  return copysign(select(a == 1.0, like(a, INFINITY), w), x);
}

// log |Gamma(x)|. For x >= -1/2: Stirling's series from 8 on; below, x is moved to 2 + t with |t| <= 1/2 by
// Gamma(x + 1) = x Gamma(x), and log Gamma(2 + t) is t times a polynomial, so that the zeros at 1 and 2
// are exact. Below: the reflection formula.
template <class T>
T lgamma_above(T x) {  // x >= -0.5
  constexpr double kSeries[] = {
      // of log Gamma(2 + t) / t
      0.42278433509846713,    0.32246703342411326,     -0.0673523010531981,
      0.02058080842778038,    -0.0073855510286719986,  0.002890510331034267,
      -0.0011927539118428156, 0.0005096695154115458,   -0.00022315475400520507,
      9.945767355819498e-05,  -4.49263133791557e-05,   2.0505590755833454e-05,
      -9.438715099211532e-06, 4.38470440459836e-06,    -2.0439048107029907e-06,
      9.200527894968101e-07,  -4.3252393445604814e-07, 2.78740805211359e-07,
      -1.3219945666117874e-07};
  constexpr double kStirling[] = {1.0 / 12,   -1.0 / 360,      1.0 / 1260, -1.0 / 1680,
                                  1.0 / 1188, -691.0 / 360360, 1.0 / 156,  -3617.0 / 122400};
  T z = minimum(x, like(x, 8.0)), product = like(x, 1.0);
  for (int step = 0; step < 6; ++step) {  // down to below 2.5
    auto above = z >= 2.5;
    z = select(above, z - 1.0, z);
    product = select(above, product * z, product);
  }
  T t = select(x < 0.5, x, select(x < 1.5, x - 1.0, z - 2.0));
  T base = t * polynomial<T>(t, kSeries);
  T factor = select(x < 0.5, abs(x * (x + 1.0)), select(x < 1.5, x, product));
  T shift = log(factor);
  T small = select(x < 1.5, base - shift, base + shift);
  T y = maximum(x, like(x, 8.0)), inverse = 1.0 / y;
  T stirling = (y - 0.5) * (log(y) - 1.0) + (0.5 * std::log(2 * M_PI) - 0.5) +
               inverse * polynomial<T>(inverse * inverse, kStirling);
  return select(x >= 8.0, select(x == INFINITY, x, stirling), small);
}
template <class T>
T lgamma(T x) {
  auto negative = x < -0.5;
  T value = lgamma_above(select(negative, 1.0 - x, x));
  T s = abs(sin_pi(x));
  T reflected = (std::log(M_PI) - log(s)) - value;
  T left = select((s == 0.0) || (x == -INFINITY), like(x, INFINITY), reflected);
  return select(negative, left, value);
}

// The n-th derivative of cot(pi x) is a polynomial of degree n + 1 in c = cot(pi x):
// P[0] = c, P[n + 1] = -pi (1 + c^2) P[n]'.
inline std::vector<double> cotangent_derivative(int64_t n) {
  std::vector<double> p{0, 1};
  for (int64_t k = 0; k < n; ++k) {
    std::vector<double> next(p.size() + 1, 0.0);
    for (size_t i = 1; i < p.size(); ++i) {
      const double slope = -M_PI * static_cast<double>(i) * p[i];
      next[i - 1] += slope, next[i + 1] += slope;
    }
    p = std::move(next);
  }
  return p;
}

// The n-th derivative of digamma, the logarithmic derivative of Gamma. For x > 0 the recurrence to y >= 10
// + n and the Euler-Maclaurin series there:
//   (-1)^(n+1) psi_n(x) = sum_{k < N} n! / (x + k)^(n+1) + (n-1)! / y^n + n! / (2 y^(n+1))
//                         + sum_j B_2j (2j + n - 1)! / ((2j)! y^(2j + n)),
// with -log y in the place of (n-1)! / y^n for n = 0. For x <= 0 the reflection formula.
template <class T>
T polygamma_positive(int64_t n, T x) {
  constexpr double kBernoulli[] = {1.0 / 6,       -1.0 / 30, 1.0 / 42,      -1.0 / 30,    5.0 / 66,
                                   -691.0 / 2730, 7.0 / 6,   -3617.0 / 510, 43867.0 / 798};
  const auto order = static_cast<double>(n);
  const double factorial = std::tgamma(order + 1);
  auto power = [n](T base, int64_t extra) {  // base^(n + extra)
    T r = base;
    for (int64_t i = 1; i < n + extra; ++i) r = r * base;
    return r;
  };
  T y = x, sum = like(x, 0.0);
  for (int64_t k = 0; k < 10 + n; ++k) {
    auto below = y < 10.0 + order;
    sum = select(below, sum + factorial / power(y, 1), sum);
    y = select(below, y + 1.0, y);
  }
  T inverse = 1.0 / y;
  T lead = n == 0 ? -log(y) : factorial / order * power(inverse, 0);
  std::vector<double> series;                   // in 1 / y^2, behind 1 / y^n
  double rising = factorial / 2 * (order + 1);  // (2j + n - 1)! / (2j)!, here j = 1
  for (int j = 1; j <= static_cast<int>(std::size(kBernoulli)); ++j) {
    series.push_back(kBernoulli[j - 1] * rising);
    rising *= (2 * j + order) * (2 * j + order + 1) / ((2.0 * j + 1) * (2.0 * j + 2));
  }
  T rest =
      power(inverse, 1) * (0.5 * factorial + inverse * polynomial<T>(inverse * inverse, series));
  T total = sum + (lead + rest);
  return n % 2 ? total : -total;
}
template <class T>
T polygamma(int64_t n, T x) {
  auto negative = x <= 0.0;
  T value = polygamma_positive(n, select(negative, 1.0 - x, x));
  T angle = select(x == 0.0, x, x - rint(x)) * M_PI;  // -0 is a side of the pole, too
  T reflection = polynomial<T>(cos(angle) / sin(angle), cotangent_derivative(n)) * M_PI;
  T left = (n % 2 ? -value : value) - reflection;
  T pole = like(x, n % 2 ? INFINITY : NAN);  // the sign of an even order depends on the side
  return select(negative, select((x < 0.0) && (rint(x) == x), pole, left), value);
}

}  // namespace math

// The scalar rule of F over operands in binary64, its result cast to the dtype of the first.
template <auto F>
Scalar in_double(const Node&, std::span<const Scalar> x) {
  auto wide = [&](size_t i) { return cast(x[i], DType::F64); };
  if constexpr (std::is_invocable_v<decltype(F), Scalar>)
    return cast(F(wide(0)), x[0].dtype);
  else
    return cast(F(wide(0), wide(1)), x[0].dtype);
}

}  // namespace rlx
