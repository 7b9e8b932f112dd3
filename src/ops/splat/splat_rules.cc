#include "rlx/ops/splat/splat_rules.h"

#include <algorithm>
#include <numbers>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/rules.h"
#include "rlx/ops/sequence/sequence_rules.h"

namespace rlx::splat {

namespace {

// Real spherical harmonics of degree 0 and 1.
constexpr double kC0 = 0.28209479, kC1 = 0.48860251;
constexpr double kNoCoefficient = 1e-8;   // a splat whose constant terms are below has its `color`
constexpr int64_t kAllCoefficients = 16;  // unless it has that many
constexpr double kLeastScale = 1e-6, kLeastLength = 1e-8;
// pos_local and inv_scale measure in 3 sigma: alpha = opacity exp(-9/2 |p|^2).
constexpr double kFalloff = 4.5;

Expr where(Value condition, Expr a, Expr b) {
  return a.make(op::select(a.builder(), condition, a, b));
}
Expr where(Value condition, Expr a, double b) { return where(condition, a, a.like(b)); }
Value below(Expr a, double b) { return op::lt(a.builder(), a, a.like(b)); }
Value at_least(Expr a, double b) { return op::ge(a.builder(), a, a.like(b)); }
Value above(Expr a, double b) { return op::gt(a.builder(), a, a.like(b)); }
Expr clamp01(Expr x) { return x.make(op::clamp(x.builder(), x, x.like(0), x.like(1))); }

Vector where(Value condition, const Vector& a, double b) {
  return {where(condition, a.x, b), where(condition, a.y, b), where(condition, a.z, b)};
}
template <class F>
Vector each(const Vector& v, F&& f) {
  return {f(v.x), f(v.y), f(v.z)};
}

// v / |v|, and (0, 0, 1) for a v that is shorter than kLeastLength.
struct Unit {
  Vector direction;
  Expr inverse_length;
  Value too_short;
};
Unit unit(const Vector& v) {
  const Expr square = dot(v, v);
  const Value too_short = below(square, kLeastLength * kLeastLength);
  const Expr inverse = op::rsqrt(where(too_short, square.like(1), square));
  const Vector u = scaled(v, inverse);
  return {{where(too_short, u.x.like(0), u.x), where(too_short, u.y.like(0), u.y),
           where(too_short, u.z.like(1), u.z)},
          inverse,
          too_short};
}

}  // namespace

Expr component(Builder& b, Value x, int64_t i) {
  Shape start(b.shape(x).size(), 0), limit = b.shape(x);
  start.back() = i, limit.back() = i + 1;
  Shape rest(limit.begin(), limit.end() - 1);
  return {b, reshape_to(b, op::slice(b, x, {.start = start, .limit = limit}), rest)};
}

Vector vector_at(Builder& b, Value x, int64_t first) {
  return {component(b, x, first), component(b, x, first + 1), component(b, x, first + 2)};
}

Value stack(Builder& b, const std::vector<Expr>& columns) {
  Values parts;
  for (Expr c : columns) parts.push_back(with_axis(c, -1));
  return emit_one(b, op::concat.def, AxisAttrs{b.type(parts[0]).rank() - 1}, parts);
}

Value slice_rows(Builder& b, Value x, int64_t begin, int64_t end) {
  Shape start(b.shape(x).size(), 0), limit = b.shape(x);
  start[0] = begin, limit[0] = end;
  return op::slice(b, x, {.start = start, .limit = limit});
}

Expr to_display(Expr x) {
  Builder& b = x.builder();
  return {b, op::pow(b, op::maximum(b, x, x.like(0)), x.like(kGamma))};
}

// ---- camera

Camera camera_of(Builder& b, Value meta, const GaussianSplatRasterParams& p) {
  const Vector position = vector_at(b, meta), target = vector_at(b, meta, 3),
               above_it = vector_at(b, meta, 6);
  const Vector forward = unit(target - position).direction,
               right = unit(cross(above_it, forward)).direction,
               up = unit(cross(forward, right)).direction;
  const Expr half_angle = component(b, meta, 9) * (std::numbers::pi / 360);
  return {position,
          right,
          up,
          forward,
          0.5 * static_cast<double>(p.height) / op::tan(half_angle),
          vector_at(b, meta, 12)};
}

Value rays(Builder& b, const Camera& c, const GaussianSplatRasterParams& p) {
  const auto offset = [&](int64_t axis, int64_t size) {
    const Value places = op::iota(b, {}, {c.focal.dtype(), {p.height, p.width}, axis});
    const Expr centre(b, reshape_to(b, places, {p.pixels()}));
    return (centre + (0.5 - static_cast<double>(size) / 2)) / c.focal;
  };
  const Vector v =
      scaled(c.right, offset(1, p.width)) + scaled(c.up, offset(0, p.height)) + c.forward;
  const Vector u = unit(v).direction;
  return stack(b, {u.x, u.y, u.z});
}

// ---- what the rasteriser reads of a splat

Scene scene_of(Builder& b, Operands in) {
  const int64_t n = b.shape(in[3])[0].value(), length = b.shape(in[5])[0].value();
  const auto rows = [&](Value x, int64_t width) { return reshape_to(b, x, {n, width}); };
  const Value q = rows(in[2], 4);
  return {.position = vector_at(b, rows(in[0], 3)),
          .log_sigma = vector_at(b, rows(in[1], 3)),
          .rotation = {component(b, q, 0), vector_at(b, q, 1)},
          .opacity = {b, in[3]},
          .color = vector_at(b, rows(in[4], 3)),
          .sh = rows(in[5], length / n),
          .coefficients = length / (3 * n)};
}

namespace {

// Coefficient k of the three colours; k < K.
Vector coefficient(Builder& b, const Scene& s, int64_t k) { return vector_at(b, s.sh, 3 * k); }

// Which splats take their colour from `color`; kNone when none does.
Value takes_color(Builder& b, const Scene& s) {
  if (s.coefficients >= kAllCoefficients) return kNone;
  if (s.coefficients == 0) return b.constant(Tensor::scalar(DType::Bool, 1));
  const Vector dc = coefficient(b, s, 0);
  const auto small = [&](Expr x) { return op::le(b, op::abs(x), x.like(kNoCoefficient)); };
  return op::logical_and(b, op::logical_and(b, small(dc.x), small(dc.y)), small(dc.z));
}

Vector color_of(Builder& b, const Scene& s, const Vector& direction) {
  const Value fallback = takes_color(b, s);
  Vector out = each(s.color, [](Expr c) { return clamp01(c); });
  if (s.coefficients > 0) {
    const Vector dc = each(coefficient(b, s, 0), [](Expr x) { return x * kC0 + 0.5; });
    const auto choose = [&](Expr color, Expr sh) {
      return fallback.valid() ? where(fallback, color, sh) : sh;
    };
    out = {choose(out.x, dc.x), choose(out.y, dc.y), choose(out.z, dc.z)};
  }
  const Expr basis[] = {direction.y * -kC1, direction.z * kC1, direction.x * -kC1};
  for (int64_t k = 1; k < std::min<int64_t>(s.coefficients, 4); ++k)
    out = out + scaled(coefficient(b, s, k), basis[k - 1]);
  return out;
}

Vector sigma_of(const Scene& s, double radius_scale) {  // 3 sigma, before the least is applied
  return each(s.log_sigma, [&](Expr x) { return op::exp(x) * (3 * radius_scale); });
}

}  // namespace

Prepared prepare(Builder& b, const Scene& s, const Camera& camera, double radius_scale) {
  const Vector inverse = each(sigma_of(s, radius_scale), [&](Expr x) {
    return 1.0 / Expr(b, op::maximum(b, x, x.like(kLeastScale)));
  });
  const Vector to_camera = camera.position - s.position;
  return {color_of(b, s, unit(to_camera).direction), clamp01(s.opacity),
          rotate(to_camera, s.rotation) * inverse, inverse};
}

Values raster_operands(Builder& b, const Prepared& p, const Rotation& q) {
  return {stack(b, {p.color.x, p.color.y, p.color.z, p.opacity}),
          stack(b, {p.pos_local.x, p.pos_local.y, p.pos_local.z}),
          stack(b, {p.inv_scale.x, p.inv_scale.y, p.inv_scale.z}),
          stack(b, {q.w, q.v.x, q.v.y, q.v.z})};
}

namespace {

// The gradients of color_of by the coefficients ([N, 3 K]), `color` and the direction.
struct ColorGradients {
  Value sh;
  Vector color, direction;
};
ColorGradients color_backward(Builder& b, const Scene& s, const Vector& direction,
                              const Vector& d) {
  const Value fallback = takes_color(b, s);
  const Expr zero(b, full(b, d.x.type(), 0));
  Vector d_color{zero, zero, zero}, d_direction = d_color;
  if (fallback.valid()) {
    const auto inside = [&](Expr c, Expr g) {
      return where(fallback, where(at_least(c, 0), where(above(c, 1), c.like(0), g), 0.0), 0.0);
    };
    d_color = {inside(s.color.x, d.x), inside(s.color.y, d.y), inside(s.color.z, d.z)};
  }
  const Vector d_dc = each(
      d, [&](Expr g) { return fallback.valid() ? where(fallback, g.like(0), g * kC0) : g * kC0; });
  std::vector<Expr> columns{d_dc.x, d_dc.y, d_dc.z};
  const Expr basis[] = {direction.y * -kC1, direction.z * kC1, direction.x * -kC1};
  Expr* const parts[] = {&d_direction.y, &d_direction.z, &d_direction.x};
  const double signs[] = {-kC1, kC1, -kC1};
  for (int64_t k = 1; k < s.coefficients; ++k) {
    const bool read = k < 4;
    const Vector g = read ? scaled(d, basis[k - 1]) : Vector{zero, zero, zero};
    columns.insert(columns.end(), {g.x, g.y, g.z});
    if (read) *parts[k - 1] = dot(coefficient(b, s, k), d) * signs[k - 1];
  }
  return {stack(b, columns), d_color, d_direction};
}

}  // namespace

Values prepare_backward(Builder& b, const Scene& s, const Camera& camera, double radius_scale,
                        Value d_rows) {
  const Vector d_color = vector_at(b, d_rows, 0), d_pos = vector_at(b, d_rows, 4);
  const Expr d_opacity = component(b, d_rows, 3);
  const Vector to_camera = camera.position - s.position;
  const Vector size = sigma_of(s, radius_scale);
  const Vector inverse = prepare(b, s, camera, radius_scale).inv_scale;

  const Unit u = unit(to_camera);
  const ColorGradients color = color_backward(b, s, u.direction, d_color);
  const Vector along = scaled(u.direction, dot(u.direction, color.direction));
  const Vector by_direction = where(op::logical_not(b, u.too_short),
                                    scaled(color.direction - along, u.inverse_length), 0.0);

  const RotateGradients<Expr> turned = rotate_backward(to_camera, s.rotation, d_pos * inverse);
  const Vector d_inverse = vector_at(b, d_rows, 7) + d_pos * rotate(to_camera, s.rotation);
  const auto d_scale = [&](Expr raw, Expr inv, Expr d) {
    return where(above(raw, kLeastScale), -(d * inv), 0.0);
  };
  const Vector d_position = each(turned.v + by_direction, [](Expr x) { return -x; });
  const Vector dq = vector_at(b, d_rows, 11) + turned.q.v;
  const Expr inside =
      where(at_least(s.opacity, 0), where(above(s.opacity, 1), s.opacity.like(0), d_opacity), 0.0);
  Values out = {
      stack(b, {d_position.x, d_position.y, d_position.z}),
      stack(b, {d_scale(size.x, inverse.x, d_inverse.x), d_scale(size.y, inverse.y, d_inverse.y),
                d_scale(size.z, inverse.z, d_inverse.z)}),
      stack(b, {component(b, d_rows, 10) + turned.q.w, dq.x, dq.y, dq.z}),
      inside,
      stack(b, {color.color.x, color.color.y, color.color.z}),
      color.sh};
  for (Value& v : out) v = reshape_to(b, v, {b.shape(v).elements()});
  return out;
}

// ---- the rasteriser

namespace {

Value tile_of_pixel(Builder& b, const GaussianSplatRasterParams& p) {  // [P]
  const int64_t tiles_x = (p.width + p.tile_size - 1) / p.tile_size;
  const auto tile = [&](int64_t axis) {
    const Expr place(b, op::iota(b, {}, {DType::I32, {p.height, p.width}, axis}));
    return place / static_cast<double>(p.tile_size);
  };
  return reshape_to(b, tile(0) * static_cast<double>(tiles_x) + tile(1), {p.pixels()});
}

// All pairs of a pixel and an entry of its list, [L, P] each: alpha is 0 where there is no hit.
struct Hits {
  Value entry;                           // the place in ids
  Vector color, inv_scale, ray, turned;  // turned = rotate(ray, q)
  Rotation q;
  Vector nearest;  // the point of the ray nearest to the centre, at time t
  Expr time, falloff, alpha;
};

Hits find_hits(Builder& b, const GaussianSplatRasterParams& p, Operands in) {
  const int64_t longest = std::min(p.max_list_entries, b.shape(in[0])[0].value());
  const Value tile = tile_of_pixel(b, p);
  const Value range = op::gather(b, in[7], tile);  // [P, 2]
  const Expr begin = component(b, range, 0), end = component(b, range, 1);
  const Expr step(b, op::iota(b, {}, {DType::I32, {longest, 1}, 0}));
  const Value listed = op::lt(b, step, end - begin);
  const Value entry = where(listed, begin + step, 0.0);
  const Value id = op::gather(b, in[6], entry);
  const Value look = op::gather(b, in[0], id), centre = op::gather(b, in[1], id),
              inverse = op::gather(b, in[2], id), rotation = op::gather(b, in[3], id);
  const Expr opacity = component(b, look, 3);
  const Vector ray = vector_at(b, in[4]), inv_scale = vector_at(b, inverse),
               origin = vector_at(b, centre);
  const Rotation q{component(b, rotation, 0), vector_at(b, rotation, 1)};
  const Vector turned = rotate(ray, q), direction = turned * inv_scale;
  const Expr square = dot(direction, direction);
  // |3 direction / support|^2 > 1e-10, where support^2 = 2 log(opacity / cutoff).
  const Expr support = op::log(opacity / p.alpha_cutoff) * 2.0;
  const Value wide =
      op::gt(b, square * 9.0, Expr(b, op::maximum(b, support, support.like(0))) * 1e-10);
  const Value usable = op::logical_and(b, wide, listed);
  const Expr time = -dot(direction, origin) / where(usable, square, 1.0);
  const Vector nearest = origin + scaled(direction, time);
  const Expr falloff = op::exp(dot(nearest, nearest) * -kFalloff), alpha = opacity * falloff;
  const Value hit = op::logical_and(b, op::logical_and(b, usable, above(time, 0)),
                                    at_least(alpha, p.alpha_cutoff));
  return {entry,   vector_at(b, look),    inv_scale, ray, turned, q, nearest, time,
          falloff, where(hit, alpha, 0.0)};
}

// Front to back: what passes all splats, [P]; what passes those before each, and its alpha unless
// the pixel is done before it, [L, P].
struct Blend {
  Expr passing, before, alpha;
};
Blend blend(Builder& b, const GaussianSplatRasterParams& p, const Hits& h) {
  const Value all = full(b, {h.alpha.dtype(), {p.pixels()}}, 1);
  const Values out = recurrence(b, "front_to_back", {all}, {h.alpha}, {}, h.alpha.shape()[0], false,
                                [&](const std::vector<Expr>& light, const std::vector<Expr>& alpha,
                                    const std::vector<Expr>&) {
                                  const Expr a = where(
                                      at_least(light[0], p.transmittance_threshold), alpha[0], 0.0);
                                  return std::vector<Expr>{light[0] - light[0] * a, light[0], a};
                                });
  return {{b, out[0]}, {b, out[1]}, {b, out[2]}};
}

Expr sum_entries(Expr x) { return {x.builder(), sum_axes(x.builder(), x, {0})}; }

}  // namespace

Values decompose_raster(Builder& b, const Node& n, Operands in) {
  const auto& p = n.get<GaussianSplatRasterParams>();
  const Hits h = find_hits(b, p, in);
  const Blend light = blend(b, p, h);
  const Expr weight = light.before * light.alpha;
  const Value hit = above(light.alpha, 0);  // a splat that is not hit may hold anything
  const Vector background = vector_at(b, in[5]);
  const auto color = [&](Expr of_splat, Expr behind) {
    return sum_entries(where(hit, weight * of_splat, 0.0)) + light.passing * behind;
  };
  return {stack(b, {color(h.color.x, background.x), color(h.color.y, background.y),
                    color(h.color.z, background.z), 1.0 - light.passing})};
}

Values decompose_raster_backward(Builder& b, const Node& n, Operands in) {
  const auto& p = n.get<GaussianSplatRasterBackwardParams>();
  const Hits h = find_hits(b, p, in);
  const Blend light = blend(b, p, h);
  const Vector d = vector_at(b, in[8]);
  const Expr d_passing = dot(d, vector_at(b, in[5])) - component(b, in[8], 3);
  // Back to front: G = the change of the loss with the light that reaches the entries behind.
  const Values d_alphas = recurrence(
      b, "back_to_front", {d_passing}, {light.before, light.alpha, dot(d, h.color)}, {},
      h.alpha.shape()[0], true,
      [](const std::vector<Expr>& behind, const std::vector<Expr>& x, const std::vector<Expr>&) {
        const Expr gain = x[2] - behind[0];
        return std::vector<Expr>{behind[0] + x[1] * gain, x[0] * gain};
      });
  const Value hit = above(light.alpha, 0);
  Expr d_alpha = where(hit, Expr(b, d_alphas[1]), 0.0);
  if (p.alpha_grad_clip)
    d_alpha = {b, op::clamp(b, d_alpha, d_alpha.like(-*p.alpha_grad_clip),
                            d_alpha.like(*p.alpha_grad_clip))};

  // The nearest point moves only across the ray, so its time counts as fixed.
  const Expr weight = light.before * light.alpha, pull = d_alpha * light.alpha * (-2 * kFalloff);
  const Vector d_color = scaled(d, weight), d_origin = scaled(h.nearest, pull),
               d_direction = scaled(d_origin, h.time), d_inverse = d_direction * h.turned;
  const RotateGradients<Expr> turn = rotate_backward(h.ray, h.q, d_direction * h.inv_scale);
  const Expr d_opacity = d_alpha * where(hit, h.falloff, 0.0);
  std::vector<Expr> columns = {d_color.x,  d_color.y,  d_color.z,   d_opacity,   d_origin.x,
                               d_origin.y, d_origin.z, d_inverse.x, d_inverse.y, d_inverse.z,
                               turn.q.w,   turn.q.v.x, turn.q.v.y,  turn.q.v.z};
  for (Expr& column : columns) column = where(hit, column, 0.0);
  const Value entries = stack(b, columns);
  const Vector d_ray = each(turn.v, [&](Expr g) { return sum_entries(where(hit, g, 0.0)); });
  const Vector d_background = scaled(d, light.passing);
  return {op::scatter_add(b, entries, h.entry, {0, p.max_list_entries}),
          stack(b, {d_ray.x, d_ray.y, d_ray.z}),
          op::scatter_add(b, stack(b, {d_background.x, d_background.y, d_background.z}),
                          tile_of_pixel(b, p), {0, gaussian_splat_tile_count(p)})};
}

}  // namespace rlx::splat
