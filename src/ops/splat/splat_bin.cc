#include "rlx/ops/splat/splat_bin.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "rlx/ops/splat/splat_math.h"

namespace rlx::splat {

namespace {

using V3 = Vec3<double>;

V3 unit(const V3& v) {
  const double length = std::sqrt(dot(v, v));
  return length < 1e-8 ? V3{0, 0, 1} : scaled(v, 1 / length);
}

struct Point {
  double x, y;
};

struct View {
  V3 position, right, up, forward;
  double focal, far, width, height;

  V3 to_camera(const V3& world) const {
    const V3 v = world - position;
    return {dot(right, v), dot(up, v), dot(forward, v)};
  }
  std::optional<Point> project(const V3& world) const {
    const V3 c = to_camera(world);
    if (!(c.z > 1e-12)) return std::nullopt;
    return Point{focal * c.x / c.z + width / 2, focal * c.y / c.z + height / 2};
  }
  bool meets(const V3& centre, double radius) const {
    const V3 c = to_camera(centre);
    const double tx = width / 2 / focal, ty = height / 2 / focal;
    return std::abs(c.x) <= c.z * tx + radius * std::sqrt(1 + tx * tx) &&
           std::abs(c.y) <= c.z * ty + radius * std::sqrt(1 + ty * ty) && c.z + radius > 1e-4 &&
           c.z - radius < far;
  }
};

template <class T>
V3 triple(const T* p) {
  return {static_cast<double>(p[0]), static_cast<double>(p[1]), static_cast<double>(p[2])};
}

template <class T>
View view_of(const T* meta, const GaussianSplatRasterParams& p) {
  const V3 position = triple(meta), forward = unit(triple(meta + 3) - position),
           right = unit(cross(triple(meta + 6), forward));
  const auto height = static_cast<double>(p.height);
  return {position,
          right,
          unit(cross(forward, right)),
          forward,
          0.5 * height / std::tan(static_cast<double>(meta[9]) * std::numbers::pi / 360),
          static_cast<double>(meta[11]),
          static_cast<double>(p.width),
          height};
}

// The points with a dx^2 + 2 b dx dy + c dy^2 = 1 around the centre, in pixels.
struct Ellipse {
  Point centre;
  double a, b, c, radius;

  double det() const { return a * c - b * b; }
  double at(double dx, double dy) const { return a * dx * dx + 2 * b * dx * dy + c * dy * dy; }
  // The least value over a box.
  double least(double x0, double x1, double y0, double y1) const {
    x0 -= centre.x, x1 -= centre.x, y0 -= centre.y, y1 -= centre.y;
    if (x0 <= 0 && x1 >= 0 && y0 <= 0 && y1 >= 0) return 0;
    const auto across = [&](double x) { return at(x, std::clamp(-b * x / c, y0, y1)); };
    const auto along = [&](double y) { return at(std::clamp(-b * y / a, x0, x1), y); };
    return std::min({across(x0), across(x1), along(y0), along(y1)});
  }
};

struct Eigenvalues {
  double least, most;
};
Eigenvalues eigenvalues(double a, double b, double c) {
  const double mean = (a + c) / 2, spread = std::hypot((a - c) / 2, b);
  return {mean - spread, mean + spread};
}

Ellipse whole_screen(const View& v) {
  const double radius = std::max({v.width, v.height, 1.0});
  return {{v.width / 2, v.height / 2}, 1 / (radius * radius), 0, 1 / (radius * radius), radius};
}

// Solves the 5 x 5 system [m | right side] by elimination with pivots; false when it is singular.
bool solve(double (&m)[5][6], double (&x)[5]) {
  for (int k = 0; k < 5; ++k) {
    int pivot = k;
    for (int i = k + 1; i < 5; ++i)
      if (std::abs(m[i][k]) > std::abs(m[pivot][k])) pivot = i;
    if (!(std::abs(m[pivot][k]) > 1e-12)) return false;
    std::swap(m[k], m[pivot]);
    for (int i = k + 1; i < 5; ++i)
      for (int j = 5; j >= k; --j) m[i][j] -= m[i][k] / m[k][k] * m[k][j];
  }
  for (int k = 4; k >= 0; --k) {
    x[k] = m[k][5];
    for (int j = k + 1; j < 5; ++j) x[k] -= m[k][j] * x[j];
    x[k] /= m[k][k];
  }
  return true;
}

// The ellipse through five points, in coordinates where their box has the corners (-1, -1), (1, 1).
std::optional<Ellipse> fit(const Point (&points)[5], Point low, Point high) {
  constexpr double kLeast = 1e-6;
  const Point middle{(low.x + high.x) / 2, (low.y + high.y) / 2};
  const double hx = std::max((high.x - low.x) / 2, kLeast),
               hy = std::max((high.y - low.y) / 2, kLeast);
  double m[5][6], s[5];
  for (int i = 0; i < 5; ++i) {
    const double x = (points[i].x - middle.x) / hx, y = (points[i].y - middle.y) / hy;
    const double row[] = {x * x, 2 * x * y, y * y, x, y, 1};
    std::copy(std::begin(row), std::end(row), m[i]);
  }
  if (!solve(m, s)) return std::nullopt;
  const double det = s[0] * s[2] - s[1] * s[1];
  if (!(det > kLeast)) return std::nullopt;
  const double cx = 0.5 * (s[1] * s[4] - s[2] * s[3]) / det,
               cy = 0.5 * (s[1] * s[3] - s[0] * s[4]) / det,
               k = 1 + s[0] * cx * cx + 2 * s[1] * cx * cy + s[2] * cy * cy;
  if (!(k > kLeast)) return std::nullopt;
  const double qa = s[0] / k, qb = s[1] / k, qc = s[2] / k;
  if (!(qa * qc - qb * qb > kLeast) || !(qa > kLeast) || !(qc > kLeast)) return std::nullopt;
  const Eigenvalues e = eigenvalues(qa, qb, qc);
  const double radius = std::max(hx / std::sqrt(e.most), hy / std::sqrt(e.least)) + 1;
  return Ellipse{{middle.x + cx * hx, middle.y + cy * hy},
                 qa / (hx * hx),
                 qb / (hx * hy),
                 qc / (hy * hy),
                 std::max(radius, 1.0)};
}

struct Splat {
  V3 position, axes;  // semi-axes of the outline
  Quat<double> q;
};

std::optional<Ellipse> outline(const View& v, const Splat& s) {
  const V3 inverse{1 / s.axes.x, 1 / s.axes.y, 1 / s.axes.z};
  const V3 eye = rotate(v.position - s.position, s.q) * inverse;
  const double distance = std::sqrt(dot(eye, eye));
  const double bound = std::max({s.axes.x, s.axes.y, s.axes.z});
  const auto fallback = [&]() -> std::optional<Ellipse> {
    if (!v.meets(s.position, bound)) return std::nullopt;
    return whole_screen(v);
  };
  if (!(distance > 1 + 1e-6)) return fallback();
  const V3 towards = scaled(eye, 1 / distance);
  const V3 side = unit(cross(std::abs(towards.z) < 0.999 ? V3{0, 0, 1} : V3{0, 1, 0}, towards));
  const V3 other = cross(towards, side);
  const double radius = std::sqrt(1 - 1 / (distance * distance));
  const Quat<double> back{s.q.w, scaled(s.q.v, -1.0)};
  Point points[5];
  const std::optional<Point> centre = v.project(s.position);
  if (!centre) return fallback();
  Point low = *centre, high = *centre;
  for (int i = 0; i < 5; ++i) {
    const double angle = 2 * std::numbers::pi * i / 5;
    const V3 on_sphere = scaled(towards, 1 / distance) + scaled(side, radius * std::cos(angle)) +
                         scaled(other, radius * std::sin(angle));
    const auto point = v.project(s.position + rotate(on_sphere * s.axes, back));
    if (!point) return fallback();
    points[i] = *point;
    low = {std::min(low.x, point->x), std::min(low.y, point->y)};
    high = {std::max(high.x, point->x), std::max(high.y, point->y)};
  }
  if (!(high.x >= 0 && high.y >= 0 && low.x <= v.width && low.y <= v.height)) return std::nullopt;
  return fit(points, low, high);
}

std::optional<Ellipse> visible_outline(const View& v, const Splat& s) {
  const std::optional<Ellipse> e = outline(v, s);
  if (!e || !(v.to_camera(s.position).z > 1e-4)) return std::nullopt;
  const bool touches = e->centre.x + e->radius >= 0 && e->centre.x - e->radius <= v.width &&
                       e->centre.y + e->radius >= 0 && e->centre.y - e->radius <= v.height;
  return touches ? e : std::nullopt;
}

struct ListEntry {
  int32_t tile, splat;
};

// Enters splats into tiles in the order in which they come, until the list is full.
struct Binner {
  int64_t tiles_x, tiles_y;
  double size;
  ListEntry* entries;
  int64_t capacity, count = 0;

  void add(int64_t tx, int64_t ty, int32_t splat) {
    if (count < capacity) entries[count++] = {static_cast<int32_t>(ty * tiles_x + tx), splat};
  }
  bool meets(const Ellipse& e, int64_t tx, int64_t ty) const {
    const double x = static_cast<double>(tx) * size, y = static_cast<double>(ty) * size;
    return e.least(x, x + size, y, y + size) <= 1 + 1e-6;
  }
  int64_t tile_at(double pixel, int64_t tiles) const {
    return std::clamp<int64_t>(
        static_cast<int64_t>(std::clamp(std::floor(pixel / size), -1.0, 1e9)), 0, tiles - 1);
  }
  void enter(const Ellipse& e, int32_t splat) {
    if (!(e.a > 1e-10 && e.c > 1e-10 && e.det() > 1e-12)) return;
    const Eigenvalues lambda = eigenvalues(e.a, e.b, e.c);
    const double longest = 1 / std::sqrt(lambda.least), shortest = 1 / std::sqrt(lambda.most);
    if (!(longest <= 2 * std::max(e.radius, 1.0) + size / 2) || !(shortest >= 0.125)) return;
    const double ex = std::sqrt(e.c / e.det()), ey = std::sqrt(e.a / e.det());
    const double wx = ex + size / 2, wy = ey + size / 2;
    const int64_t x0 = tile_at(e.centre.x - wx, tiles_x), x1 = tile_at(e.centre.x + wx, tiles_x),
                  y0 = tile_at(e.centre.y - wy, tiles_y), y1 = tile_at(e.centre.y + wy, tiles_y);
    const bool rows = ex >= ey;  // lines run along the longer extent
    const int64_t first = rows ? x0 : y0, last = rows ? x1 : y1;
    for (int64_t line = rows ? y0 : x0; line <= (rows ? y1 : x1); ++line) {
      const auto meets_at = [&](int64_t i) { return rows ? meets(e, i, line) : meets(e, line, i); };
      int64_t from = first, to = last;
      while (from <= last && !meets_at(from)) ++from;
      while (to > from && !meets_at(to)) --to;
      for (int64_t i = from; i <= to; ++i) rows ? add(i, line, splat) : add(line, i, splat);
    }
  }
};

// The lists of the tiles one behind the other, each in the order of the entries.
void write_lists(const Binner& binner, int64_t tiles, int32_t* cursor, const BinLists& out) {
  std::fill(cursor, cursor + tiles + 1, 0);
  for (int64_t i = 0; i < binner.count; ++i) ++cursor[binner.entries[i].tile + 1];
  for (int64_t t = 0; t < tiles; ++t) cursor[t + 1] += cursor[t];
  for (int64_t t = 0; t < tiles; ++t) {
    const bool empty = cursor[t] == cursor[t + 1];
    out.ranges[2 * t] = empty ? 0 : cursor[t];
    out.ranges[2 * t + 1] = empty ? 0 : cursor[t + 1];
  }
  for (int64_t i = 0; i < binner.count; ++i)
    out.ids[cursor[binner.entries[i].tile]++] = binner.entries[i].splat;
  std::fill(out.ids + binner.count, out.ids + binner.capacity, 0);
}

struct Candidate {
  Ellipse ellipse;
  double distance;
  int32_t splat;
};

}  // namespace

size_t bin_scratch_bytes(int64_t splats, const GaussianSplatRenderParams& p) {
  return static_cast<size_t>(splats) * sizeof(Candidate) +
         static_cast<size_t>(p.max_list_entries) * sizeof(ListEntry) +
         static_cast<size_t>(gaussian_splat_tile_count(p) + 1) * sizeof(int32_t);
}

template <class T>
void bin(int64_t splats, const GaussianSplatRenderParams& p, const BinInputs<T>& in,
         const BinLists& out, std::byte* scratch) {
  auto* const candidates = reinterpret_cast<Candidate*>(scratch);
  auto* const entries = reinterpret_cast<ListEntry*>(candidates + splats);
  auto* const cursor = reinterpret_cast<int32_t*>(entries + p.max_list_entries);
  const View view = view_of(in.meta, p);
  Candidate* end = candidates;
  for (int64_t i = 0; i < splats; ++i) {
    out.visible[i] = false;
    const double opacity = std::clamp(static_cast<double>(in.opacities[i]), 0.0, 1.0);
    if (!(opacity >= p.alpha_cutoff)) continue;
    const double support = std::sqrt(std::max(0.0, -2 * std::log(p.alpha_cutoff / opacity)));
    const V3 scales = triple(in.scales + 3 * i), position = triple(in.positions + 3 * i);
    const auto axis = [&](double log_sigma) {
      return std::max(std::exp(log_sigma) * p.radius_scale * support, 1e-6);
    };
    const T* const q = in.rotations + 4 * i;
    const auto ellipse = visible_outline(view, {position,
                                                {axis(scales.x), axis(scales.y), axis(scales.z)},
                                                {static_cast<double>(q[0]), triple(q + 1)}});
    if (!ellipse) continue;
    out.visible[i] = true;
    const V3 from_camera = position - view.position;
    *end++ = {*ellipse, std::sqrt(dot(from_camera, from_camera)), static_cast<int32_t>(i)};
  }
  std::sort(candidates, end, [](const Candidate& a, const Candidate& b) {
    return a.distance != b.distance ? a.distance < b.distance : a.splat < b.splat;
  });
  const int64_t tiles_x = (p.width + p.tile_size - 1) / p.tile_size,
                tiles_y = (p.height + p.tile_size - 1) / p.tile_size;
  Binner binner{tiles_x, tiles_y, static_cast<double>(p.tile_size), entries, p.max_list_entries};
  for (const Candidate* c = candidates; c != end; ++c) binner.enter(c->ellipse, c->splat);
  write_lists(binner, tiles_x * tiles_y, cursor, out);
}

template void bin<float>(int64_t, const GaussianSplatRenderParams&, const BinInputs<float>&,
                         const BinLists&, std::byte*);
template void bin<double>(int64_t, const GaussianSplatRenderParams&, const BinInputs<double>&,
                          const BinLists&, std::byte*);

}  // namespace rlx::splat
