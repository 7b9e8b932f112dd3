// Vectors and quaternions of the splat ops, for any kind of number: double in the binning, vectors
// of lanes in the kernels, values of a graph (Expr) in the rules. Includes nothing and is always
// inlined, because kernels are compiled for several instruction sets.
//
// rotate(v, q) = v + 2 ((v x q.v + q.w v) x q.v) turns v by the transpose of the rotation of q when
// q has length 1; the splat ops use it for any q.
#pragma once

namespace rlx::splat {

template <class S>
struct Vec3 {
  S x, y, z;
};
template <class S>
struct Quat {
  S w;
  Vec3<S> v;
};

template <class S>
[[gnu::always_inline]] inline Vec3<S> operator+(const Vec3<S>& a, const Vec3<S>& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z};
}
template <class S>
[[gnu::always_inline]] inline Vec3<S> operator-(const Vec3<S>& a, const Vec3<S>& b) {
  return {a.x - b.x, a.y - b.y, a.z - b.z};
}
template <class S>
[[gnu::always_inline]] inline Vec3<S> operator*(const Vec3<S>& a, const Vec3<S>& b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z};
}
template <class S>
[[gnu::always_inline]] inline Vec3<S> scaled(const Vec3<S>& a, const S& s) {
  return {a.x * s, a.y * s, a.z * s};
}
template <class S>
[[gnu::always_inline]] inline S dot(const Vec3<S>& a, const Vec3<S>& b) {
  return a.x * b.x + a.y * b.y + a.z * b.z;
}
template <class S>
[[gnu::always_inline]] inline Vec3<S> cross(const Vec3<S>& a, const Vec3<S>& b) {
  return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

template <class S>
[[gnu::always_inline]] inline Vec3<S> rotate(const Vec3<S>& v, const Quat<S>& q) {
  const Vec3<S> c = cross(cross(v, q.v) + scaled(v, q.w), q.v);
  return v + c + c;
}

// The gradients of dot(rotate(v, q), g).
template <class S>
struct RotateGradients {
  Vec3<S> v;
  Quat<S> q;
};
template <class S>
[[gnu::always_inline]] inline RotateGradients<S> rotate_backward(const Vec3<S>& v, const Quat<S>& q,
                                                                 const Vec3<S>& g) {
  const Vec3<S> a = cross(v, q.v) + scaled(v, q.w), half = cross(q.v, g), da = half + half,
                dq = cross(g, a);
  return {g + scaled(da, q.w) + cross(q.v, da), {dot(da, v), dq + dq + cross(da, v)}};
}

}  // namespace rlx::splat
