// The rasteriser of splats for one instruction set. Included only by the splat_<isa>.cc files.
#pragma once

#include "rlx/backend/cpu/kernels/simd_math.h"
#include "rlx/backend/cpu/kernels/splat/splat.h"
#include "rlx/ops/splat/splat_math.h"

namespace rlx::cpu {

template <class T, int W>
struct SplatImpl {
  using V = Vec<T, W>;
  using V3 = splat::Vec3<V>;
  using Q = splat::Quat<V>;
  static constexpr int L = kLanes<T, W>;
  static constexpr T kFalloff = 4.5, kLog2e = 1.4426950408889634074;

  // Columns of a tile's list. kLeast: the least |direction|^2 that counts.
  enum Column { kRed, kGreen, kBlue, kOpacity, kPosition, kInverse = 7, kQuat = 10, kLeast = 14 };
  // Behind them, in the backward pass: gradients in the order of the entries, then three columns
  // for one pixel.
  enum { kGradients = kSplatColumns, kAlpha = kGradients + 14, kBefore, kDAlpha };

  struct Pixel {
    V3 ray;
    int64_t at;
  };
  struct Tile {
    const SplatProblem* p;
    T* columns;
    int64_t stride, first, count;  // the list is ids[first, first + count)
    int64_t x0, x1, y0, y1;

    T* column(int c) const { return columns + c * stride; }
    V get(int c, int64_t j) const { return load<T, W>(column(c) + j); }
    V3 get3(int c, int64_t j) const { return {get(c, j), get(c + 1, j), get(c + 2, j)}; }
    Q quat(int64_t j) const { return {get(kQuat, j), get3(kQuat + 1, j)}; }
    void add(int c, int64_t j, V v) const {
      T* const place = column(c) + j;
      store<T, W>(place, load<T, W>(place) + v);
    }
  };

  static const T* numbers(const void* p) { return static_cast<const T*>(p); }

  // Copies the list of a tile into columns, zeros behind it; false when it is not one.
  static bool open(const SplatProblem& p, const SplatBuffers& b, int64_t index, void* scratch,
                   Tile& t) {
    const int64_t begin = b.ranges[2 * index], end = b.ranges[2 * index + 1];
    const int64_t row = index / p.tiles_x(), column = index % p.tiles_x();
    const auto limit = [](int64_t a, int64_t most) { return a < most ? a : most; };
    t = {&p,
         static_cast<T*>(scratch),
         splat_column(p),
         begin,
         end > begin ? limit(end - begin, p.longest()) : 0,
         column * p.tile_size,
         limit((column + 1) * p.tile_size, p.width),
         row * p.tile_size,
         limit((row + 1) * p.tile_size, p.height)};
    if (t.count > 0 && (begin < 0 || begin + t.count > p.entries)) return false;
    const int64_t padded = (t.count + L - 1) / L * L;
    for (int64_t j = 0; j < padded; ++j) {
      if (j >= t.count) {
        for (int c = 0; c < kSplatColumns; ++c) t.column(c)[j] = 0;
        continue;
      }
      const int64_t id = b.ids[begin + j];
      if (id < 0 || id >= p.splats) return false;
      for (int c = 0; c < 4; ++c) {
        t.column(kRed + c)[j] = numbers(b.color_alpha)[4 * id + c];
        t.column(kQuat + c)[j] = numbers(b.quat)[4 * id + c];
      }
      for (int c = 0; c < 3; ++c) {
        t.column(kPosition + c)[j] = numbers(b.pos_local)[3 * id + c];
        t.column(kInverse + c)[j] = numbers(b.inv_scale)[3 * id + c];
      }
      const double support = 2 * __builtin_log(t.column(kOpacity)[j] / p.alpha_cutoff);
      t.column(kLeast)[j] = static_cast<T>((support > 0 ? support : 0) * (1e-10 / 9));
    }
    return true;
  }

  static Pixel pixel(const Tile& t, const SplatBuffers& b, int64_t x, int64_t y) {
    const int64_t at = y * t.p->width + x;
    const T* const ray = numbers(b.rays) + 3 * at;
    return {{splat<T, W>(ray[0]), splat<T, W>(ray[1]), splat<T, W>(ray[2])}, at};
  }

  // Where the ray of a pixel passes L entries of the list.
  struct Pass {
    V3 turned, nearest;
    V time, alpha;  // 0 where there is no hit
  };
  [[gnu::always_inline]] static Pass pass(const Tile& t, const Pixel& px, int64_t j) {
    const V3 turned = splat::rotate(px.ray, t.quat(j)), direction = turned * t.get3(kInverse, j),
             origin = t.get3(kPosition, j);
    const V square = splat::dot(direction, direction);
    const auto wide = square > t.get(kLeast, j);
    const V time = -splat::dot(direction, origin) / (wide ? square : splat<T, W>(1));
    const V3 nearest = origin + splat::scaled(direction, time);
    const V alpha =
        t.get(kOpacity, j) * exp2<T, W>(splat::dot(nearest, nearest) * (-kFalloff * kLog2e));
    const auto hit = wide & (time > T{0}) & (alpha >= static_cast<T>(t.p->alpha_cutoff));
    return {turned, nearest, time, hit ? alpha : V{}};
  }

  // Calls hit(j, alpha, light before it) front to back until the pixel is done; returns the light
  // that passes.
  template <class Hit>
  [[gnu::always_inline]] static T blend(const Tile& t, const Pixel& px, Hit&& hit) {
    T light = 1;
    const T least = static_cast<T>(t.p->transmittance_threshold);
    for (int64_t j = 0; j < t.count; j += L) {
      const V alphas = pass(t, px, j).alpha;
      for (int i = 0; i < L; ++i) {
        const T alpha = alphas[i];
        if (!(alpha > 0)) continue;
        hit(j + i, alpha, light);
        light -= light * alpha;
        if (light < least) return light;
      }
    }
    return light;
  }

  template <class F>
  [[gnu::always_inline]] static void for_each_pixel(const Tile& t, const SplatBuffers& b, F&& f) {
    for (int64_t y = t.y0; y < t.y1; ++y)
      for (int64_t x = t.x0; x < t.x1; ++x) f(pixel(t, b, x, y));
  }

  static bool raster(const SplatProblem& p, const SplatBuffers& b, void* out, int64_t begin,
                     int64_t end, void* scratch) {
    const T* const sky = numbers(b.background);
    Tile t;
    for (int64_t index = begin; index < end; ++index) {
      if (!open(p, b, index, scratch, t)) return false;
      for_each_pixel(t, b, [&](const Pixel& px) {
        T color[3] = {};
        const T light = blend(t, px, [&](int64_t j, T alpha, T before) {
          for (int c = 0; c < 3; ++c) color[c] += before * alpha * t.column(kRed + c)[j];
        });
        T* const rgba = static_cast<T*>(out) + 4 * px.at;
        for (int c = 0; c < 3; ++c) rgba[c] = color[c] + light * sky[c];
        rgba[3] = 1 - light;
      });
    }
    return true;
  }

  // Fills the pixel's columns of alphas and of their gradients; returns how many entries were
  // looked at, in whole vectors.
  static int64_t backward_alphas(const Tile& t, const Pixel& px, const T* d, const T* sky,
                                 T* d_sky) {
    T *const alphas = t.column(kAlpha), *const before = t.column(kBefore),
             *const d_alphas = t.column(kDAlpha);
    const int64_t padded = (t.count + L - 1) / L * L;
    for (int64_t j = 0; j < padded; ++j) alphas[j] = before[j] = d_alphas[j] = 0;
    int64_t used = 0;
    const T light = blend(t, px, [&](int64_t j, T alpha, T passing) {
      alphas[j] = alpha, before[j] = passing, used = j + 1;
    });
    T behind = d[0] * sky[0] + d[1] * sky[1] + d[2] * sky[2] - d[3];
    for (int c = 0; c < 3; ++c) d_sky[c] += light * d[c];
    const T clip = static_cast<T>(t.p->alpha_grad_clip);
    for (int64_t j = used - 1; j >= 0; --j) {
      if (!(alphas[j] > 0)) continue;
      const T gain = d[0] * t.column(kRed)[j] + d[1] * t.column(kGreen)[j] +
                     d[2] * t.column(kBlue)[j] - behind;
      T change = before[j] * gain;
      if (clip > 0) change = change > clip ? clip : change < -clip ? -clip : change;
      d_alphas[j] = change;
      behind += alphas[j] * gain;
    }
    return (used + L - 1) / L * L;
  }

  // Adds what a pixel gives to L entries; returns the gradient by its ray.
  [[gnu::always_inline]] static V3 backward_entries(const Tile& t, const Pixel& px, const T* d,
                                                    int64_t j) {
    const Pass s = pass(t, px, j);
    const V alpha = t.get(kAlpha, j), d_alpha = t.get(kDAlpha, j),
            pull = d_alpha * alpha * (-2 * kFalloff), weight = alpha * t.get(kBefore, j),
            opacity = t.get(kOpacity, j);
    const V3 d_origin = splat::scaled(s.nearest, pull),
             d_direction = splat::scaled(d_origin, s.time);
    const auto turn = splat::rotate_backward(px.ray, t.quat(j), d_direction * t.get3(kInverse, j));
    for (int c = 0; c < 3; ++c) t.add(kGradients + c, j, weight * d[c]);
    t.add(kGradients + 3, j, d_alpha * (alpha / (opacity > T{0} ? opacity : splat<T, W>(1))));
    add3(t, kGradients + 4, j, d_origin);
    add3(t, kGradients + 7, j, d_direction * s.turned);
    t.add(kGradients + 10, j, turn.q.w);
    add3(t, kGradients + 11, j, turn.q.v);
    return turn.v;
  }
  [[gnu::always_inline]] static void add3(const Tile& t, int c, int64_t j, const V3& v) {
    t.add(c, j, v.x), t.add(c + 1, j, v.y), t.add(c + 2, j, v.z);
  }

  // Zeroes the gradients of the entries from `from` to the list of the first tile at or behind
  // `index` that has one (or to the end); false when that list begins before.
  static bool clear_gap(const SplatProblem& p, const SplatBuffers& b, int64_t from, int64_t index,
                        T* entries) {
    while (index < p.tiles() && b.ranges[2 * index + 1] <= b.ranges[2 * index]) ++index;
    const int64_t to = index < p.tiles() ? b.ranges[2 * index] : p.entries;
    if (to < from || to > p.entries) return false;
    for (int64_t i = from * 14; i < to * 14; ++i) entries[i] = 0;
    return true;
  }

  static bool backward(const SplatProblem& p, const SplatBuffers& b, const SplatGradients& g,
                       int64_t begin, int64_t end, void* scratch) {
    Tile t;
    for (int64_t index = begin; index < end; ++index) {
      if (!open(p, b, index, scratch, t)) return false;
      for (int c = 0; c < 14; ++c)
        for (int64_t j = 0; j < t.count + L && j < t.stride; ++j) t.column(kGradients + c)[j] = 0;
      T* const entries = static_cast<T*>(g.d_entries);
      if (index == 0 && !clear_gap(p, b, 0, 0, entries)) return false;
      if (t.count > 0 && !clear_gap(p, b, t.first + t.count, index + 1, entries)) return false;
      T d_sky[3] = {};
      for_each_pixel(t, b, [&](const Pixel& px) {
        const T* const d = numbers(g.d) + 4 * px.at;
        const int64_t used = backward_alphas(t, px, d, numbers(b.background), d_sky);
        V3 d_ray{};
        for (int64_t j = 0; j < used; j += L) d_ray = d_ray + backward_entries(t, px, d, j);
        T* const out = static_cast<T*>(g.d_rays) + 3 * px.at;
        out[0] = reduce<Sum, T, W>(d_ray.x);
        out[1] = reduce<Sum, T, W>(d_ray.y);
        out[2] = reduce<Sum, T, W>(d_ray.z);
      });
      for (int64_t j = 0; j < t.count; ++j)
        for (int c = 0; c < 14; ++c) entries[(t.first + j) * 14 + c] = t.column(kGradients + c)[j];
      for (int c = 0; c < 3; ++c) static_cast<T*>(g.d_background)[3 * index + c] = d_sky[c];
    }
    return true;
  }
};

template <class T, int W>
SplatFns splat_fns() {
  return {SplatImpl<T, W>::raster, SplatImpl<T, W>::backward};
}

template SplatFns splat_fns<float, kVectorBytes>();
template SplatFns splat_fns<double, kVectorBytes>();

}  // namespace rlx::cpu
