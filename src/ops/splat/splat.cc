#include "rlx/ops/splat/splat.h"

#include <algorithm>

#include "rlx/base/checked.h"
#include "rlx/ops/control/control.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/rules.h"
#include "rlx/ops/splat/splat_bin.h"
#include "rlx/ops/splat/splat_rules.h"

namespace rlx {

namespace {

using namespace splat;  // NOLINT: the family's own helpers

constexpr DTypeSet kSplatFloats{DType::F32, DType::F64};
constexpr int64_t kMeta = 23, kTail = 11, kPerSplat = 15;

// ---- inference

void check_params(const InferArgs& a, const GaussianSplatRasterParams& p) {
  const auto in_range = [](int64_t v) { return v >= 1 && v <= 1 << 20; };
  if (!in_range(p.width) || !in_range(p.height) || !in_range(p.tile_size) ||
      p.max_list_entries < 1 || p.max_list_entries > INT32_MAX || p.max_splat_steps < 0 ||
      !(p.alpha_cutoff > 0 && p.alpha_cutoff <= 1) ||
      !(p.transmittance_threshold >= 0 && p.transmittance_threshold <= 1))
    bad_operands(a, "splat-attributes",
                 "width, height and tile_size must be 1 to 2^20, max_list_entries 1 to 2^31 - 1, "
                 "max_splat_steps not negative, alpha_cutoff in (0, 1] and transmittance_threshold "
                 "in [0, 1]");
}

void check_render_params(const InferArgs& a, const GaussianSplatRenderParams& p) {
  check_params(a, p);
  if (!(p.radius_scale > 0)) bad_operands(a, "splat-attributes", "radius_scale must be positive");
}

void require_sizes(const InferArgs& a, size_t operand, const Ints& sizes, std::string_view what) {
  if (!(a.in[operand].shape == Shape::of(sizes)))
    bad_operands(
        a, "splat-shape",
        fmt::format("{} must be {} = [{}]", a.name(operand), what, fmt::join(sizes, ", ")));
}

// The one dtype of the first `count` operands.
void require_float_operands(const InferArgs& a, size_t count) {
  require_same_dtype({a.op, a.attrs, a.in.first(count)});
}

int64_t static_size(const InferArgs& a, size_t operand, int64_t rank, std::string_view what) {
  const Shape& s = a.in[operand].shape;
  if (s.rank() != rank || !s[0].is_static())
    bad_operands(a, "splat-shape",
                 fmt::format("{} must be {}, of a static size", a.name(operand), what));
  return s[0].value();
}

// Checks positions, scales, rotations and opacities; returns N.
int64_t check_splats(const InferArgs& a, size_t opacities) {
  const int64_t n = static_size(a, opacities, 1, "the opacities [N]");
  require_sizes(a, 0, {3 * n}, "the positions [3 N]");
  require_sizes(a, 1, {3 * n}, "the scales [3 N]");
  require_sizes(a, 2, {4 * n}, "the rotations [4 N]");
  return n;
}

struct SceneSizes {
  int64_t splats, coefficients;  // N, K
};
SceneSizes check_scene(const InferArgs& a) {
  require_same_dtype(a);
  const int64_t n = check_splats(a, 3);
  require_sizes(a, 4, {3 * n}, "the colors [3 N]");
  const int64_t length = static_size(a, 5, 1, "the coefficients [N * K * 3]");
  if (n == 0 ? length != 0 : length % (3 * n) != 0)
    bad_operands(a, "splat-shape",
                 fmt::format("sh_coeffs must be the coefficients [N * K * 3] with N = {}", n));
  require_sizes(a, 6, {kMeta}, "the camera");
  return {n, n == 0 ? 1 : std::max<int64_t>(length / (3 * n), 1)};
}

Types infer_render(const InferArgs& a) {
  const auto& p = a.get<GaussianSplatRenderParams>();
  check_render_params(a, p);
  check_scene(a);
  return {{a.in[0].dtype, {4 * p.pixels()}}};
}

Types infer_prepare(const InferArgs& a) {
  const auto& p = a.get<GaussianSplatRenderParams>();
  check_render_params(a, p);
  return {{a.in[0].dtype, {gaussian_splat_prep_packed_len(check_scene(a).splats, p)}}};
}

// n = max(N, 1) of a prepared buffer.
int64_t prepared_splats(int64_t length, const GaussianSplatRasterParams& p) {
  return (length - gaussian_splat_prep_packed_len(0, p)) / kPerSplat + 1;
}

Types infer_rasterize(const InferArgs& a) {
  const auto& p = a.get<GaussianSplatRasterParams>();
  check_params(a, p);
  require_same_dtype(a);
  const int64_t length = static_size(a, 0, 1, "a prepared buffer [L]");
  if (length < gaussian_splat_prep_packed_len(0, p) ||
      gaussian_splat_prep_packed_len(prepared_splats(length, p), p) != length)
    bad_operands(a, "splat-shape",
                 fmt::format("no number of splats makes a prepared buffer of {} numbers with these "
                             "attributes",
                             length));
  require_sizes(a, 1, {kMeta}, "the camera");
  return {{a.in[0].dtype, {4 * p.pixels()}}};
}

Types infer_render_backward(const InferArgs& a) {
  const auto& p = a.get<GaussianSplatBackwardParams>();
  check_render_params(a, p);
  if (!(p.loss_grad_clip > 0) || p.sh_band < 0 || !(p.max_anisotropy >= 1))
    bad_operands(a, "splat-attributes",
                 "loss_grad_clip must be positive, sh_band not negative and max_anisotropy at "
                 "least 1");
  const SceneSizes s = check_scene(a);
  require_sizes(a, 7, {4 * p.pixels()}, "d_loss [H * W * 4]");
  return {{a.in[0].dtype, {gaussian_splat_packed_grad_len(s.splats, s.coefficients)}}};
}

Types infer_bin(const InferArgs& a) {
  const auto& p = a.get<GaussianSplatRenderParams>();
  check_render_params(a, p);
  require_same_dtype(a);
  const int64_t n = check_splats(a, 3);
  require_sizes(a, 4, {kMeta}, "the camera");
  return {{DType::Bool, {n}},
          {DType::I32, {p.max_list_entries}},
          {DType::I32, {gaussian_splat_tile_count(p), 2}}};
}

void check_raster(const InferArgs& a, const GaussianSplatRasterParams& p) {
  check_params(a, p);
  require_float_operands(a, 6);
  const int64_t n = static_size(a, 0, 2, "color_alpha [N, 4]");
  if (n == 0) bad_operands(a, "splat-shape", "there must be a splat");
  require_sizes(a, 0, {n, 4}, "color_alpha [N, 4]");
  require_sizes(a, 1, {n, 3}, "pos_local [N, 3]");
  require_sizes(a, 2, {n, 3}, "inv_scale [N, 3]");
  require_sizes(a, 3, {n, 4}, "quat [N, 4]");
  require_sizes(a, 4, {p.pixels(), 3}, "rays [P, 3]");
  require_sizes(a, 5, {3}, "the background");
  require_sizes(a, 6, {p.max_list_entries}, "ids [max_list_entries]");
  require_sizes(a, 7, {gaussian_splat_tile_count(p), 2}, "ranges [T, 2]");
  if (a.in[6].dtype != DType::I32 || a.in[7].dtype != DType::I32)
    bad_operands(a, "splat-dtype", "ids and ranges must be i32");
}

Types infer_raster(const InferArgs& a) {
  const auto& p = a.get<GaussianSplatRasterParams>();
  check_raster(a, p);
  return {{a.in[0].dtype, {p.pixels(), 4}}};
}

Types infer_raster_backward(const InferArgs& a) {
  const auto& p = a.get<GaussianSplatRasterBackwardParams>();
  check_raster(a, p);
  require_sizes(a, 8, {p.pixels(), 4}, "the cotangent [P, 4]");
  if (a.in[8].dtype != a.in[0].dtype)
    bad_operands(a, "dtype-mixed", "the cotangent must have the dtype of operand 0");
  if (p.alpha_grad_clip && !(*p.alpha_grad_clip > 0))
    bad_operands(a, "splat-attributes", "alpha_grad_clip must be positive");
  const DType dtype = a.in[0].dtype;
  return {{dtype, {p.max_list_entries, kEntryGradients}},
          {dtype, {p.pixels(), 3}},
          {dtype, {gaussian_splat_tile_count(p), 3}}};
}

// ---- lists

template <class T>
Tensors bin_tensors(const EvalArgs& e) {
  const auto& p = e.get<GaussianSplatRenderParams>();
  Tensor visible = e.make(0), ids = e.make(1), ranges = e.make(2);
  const int64_t n = visible.elements();
  std::vector<double> scratch(bin_scratch_bytes(n, p) / sizeof(double) + 1);
  bin<T>(
      n, p,
      {e.in[0].data<T>(), e.in[1].data<T>(), e.in[2].data<T>(), e.in[3].data<T>(),
       e.in[4].data<T>()},
      {visible.mutable_data<bool>(), ids.mutable_data<int32_t>(), ranges.mutable_data<int32_t>()},
      reinterpret_cast<std::byte*>(scratch.data()));
  return {visible, ids, ranges};
}

Tensors eval_bin(const EvalArgs& e) {
  return e.in[0].dtype() == DType::F64 ? bin_tensors<double>(e) : bin_tensors<float>(e);
}

struct Lists {
  Value visible, ids, ranges;
};
Lists bin_scene(Builder& b, Operands in, const GaussianSplatRenderParams& p) {
  const Values out =
      b.emit(op::gaussian_splat_bin.def, p, Values{in[0], in[1], in[2], in[3], in[6]});
  return {out[0], out[1], out[2]};
}

// ---- composites

// [P, 4] as it is shown.
Value display(Builder& b, Value image) {
  const Vector rgb = vector_at(b, image);
  const Value shown =
      stack(b, {to_display(rgb.x), to_display(rgb.y), to_display(rgb.z), component(b, image, 3)});
  return reshape_to(b, shown, {b.shape(shown).elements()});
}

Value background_of(Builder& b, Value meta) { return slice_rows(b, meta, 12, 15); }

Values decompose_render(Builder& b, const Node& n, Operands in) {
  const auto& p = n.get<GaussianSplatRenderParams>();
  if (n.type().shape.elements() == Dim(0) || b.shape(in[3])[0] == Dim(0))
    return {full(b, n.type(), 0)};
  const Camera camera = camera_of(b, in[6], p);
  const Scene scene = scene_of(b, in);
  Values operands = raster_operands(b, prepare(b, scene, camera, p.radius_scale), scene.rotation);
  const Lists lists = bin_scene(b, in, p);
  operands.insert(operands.end(),
                  {rays(b, camera, p), background_of(b, in[6]), lists.ids, lists.ranges});
  return {display(b, emit_one(b, op::gaussian_splat_raster.def,
                              static_cast<const GaussianSplatRasterParams&>(p), operands))};
}

Values decompose_prepare(Builder& b, const Node& n, Operands in) {
  const auto& p = n.get<GaussianSplatRenderParams>();
  const DType dtype = n.type().dtype;
  Values scene_in(in.begin(), in.end());
  if (b.shape(in[3])[0] == Dim(0)) {  // one splat that nobody sees
    const int64_t sizes[] = {3, 3, 4, 1, 3, 0};
    for (size_t i = 0; i < 6; ++i) scene_in[i] = full(b, {dtype, {sizes[i]}}, 0);
  }
  const Camera camera = camera_of(b, in[6], p);
  const Scene scene = scene_of(b, scene_in);
  const Lists lists = bin_scene(b, scene_in, p);
  Values sections = raster_operands(b, prepare(b, scene, camera, p.radius_scale), scene.rotation);
  sections.insert(sections.begin() + 1, cast_to(b, lists.visible, dtype));
  const Expr begin = component(b, lists.ranges, 0), end = component(b, lists.ranges, 1);
  const Expr start(b, cast_to(b, begin, dtype)), stop(b, cast_to(b, end, dtype));
  const Value empty = op::eq(b, begin, end);
  sections.push_back(cast_to(b, lists.ids, dtype));
  sections.push_back(stack(b, {{b, op::select(b, empty, start.like(kEmptyTile), start)}, stop}));
  sections.push_back(rays(b, camera, p));
  const auto number = [&](double v) { return start.like(v); };
  const Vector& sky = camera.background;
  sections.push_back(
      stack(b, {number(static_cast<double>(p.width)), number(static_cast<double>(p.height)),
                number(static_cast<double>(p.tile_size)),
                number(static_cast<double>(ceil_div(p.width, p.tile_size))), number(p.alpha_cutoff),
                number(p.transmittance_threshold), to_display(sky.x), to_display(sky.y),
                to_display(sky.z), number(static_cast<double>(p.max_splat_steps)), number(0)}));
  for (Value& v : sections) v = reshape_to(b, v, {b.shape(v).elements()});
  return {emit_one(b, op::concat.def, AxisAttrs{0}, sections)};
}

Values decompose_rasterize(Builder& b, const Node& node, Operands in) {
  const auto& p = node.get<GaussianSplatRasterParams>();
  const int64_t n = prepared_splats(b.shape(in[0])[0].value(), p),
                tiles = gaussian_splat_tile_count(p);
  int64_t at = 0;
  const auto section = [&](const Shape& shape) {
    const int64_t begin = at;
    at += shape.elements().value();
    return reshape_to(b, slice_rows(b, in[0], begin, at), shape);
  };
  const Value color_alpha = section({n, 4});
  section({n});  // visible: only such splats are in the lists
  const Value pos_local = section({n, 3}), inv_scale = section({n, 3}), quat = section({n, 4});
  const Value ids = cast_to(b, section({p.max_list_entries}), DType::I32);
  const Value stored = section({tiles, 2});
  const Value empty = op::eq(b, stored, b.constant_like(stored, kEmptyTile));
  const Value ranges =
      cast_to(b, op::select(b, empty, b.constant_like(stored, 0), stored), DType::I32);
  const Value directions = section({p.pixels(), 3});
  return {display(b, emit_one(b, op::gaussian_splat_raster.def, p,
                              Values{color_alpha, pos_local, inv_scale, quat, directions,
                                     background_of(b, in[1]), ids, ranges}))};
}

// The gradients of the splats [N, 14] from those of the entries.
Value sum_by_splat(Builder& b, Value d_entries, Value ids, const Dim& splats) {
  return op::scatter_add(b, d_entries, ids, {0, splats});
}

Value clip(Builder& b, Value x, double limit) {
  return op::clamp(b, x, b.constant_like(x, -limit), b.constant_like(x, limit));
}

Values decompose_render_backward(Builder& b, const Node& n, Operands in) {
  const auto& p = n.get<GaussianSplatBackwardParams>();
  const Dim splats = b.shape(in[3])[0];
  if (splats == Dim(0)) return {full(b, n.type(), 0)};
  const Camera camera = camera_of(b, in[6], p);
  const Scene scene = scene_of(b, in);
  Values operands = raster_operands(b, prepare(b, scene, camera, p.radius_scale), scene.rotation);
  const Lists lists = bin_scene(b, in, p);
  Value ranges = lists.ranges;
  if (p.max_splat_steps > 0) {
    const Expr begin = component(b, ranges, 0), end = component(b, ranges, 1);
    const Expr last = begin + static_cast<double>(p.max_splat_steps);
    ranges = stack(b, {begin, {b, op::minimum(b, end, last)}});
  }
  const Vector sky = camera.background,
               d = vector_at(b, clip(b, reshape_to(b, in[7], {p.pixels(), 4}), p.loss_grad_clip));
  const Expr no_alpha(b, full(b, d.x.type(), 0));
  operands.insert(
      operands.end(),
      {rays(b, camera, p), stack(b, {to_display(sky.x), to_display(sky.y), to_display(sky.z)}),
       lists.ids, ranges, stack(b, {d.x, d.y, d.z, no_alpha})});
  const GaussianSplatRasterBackwardParams raster{p, p.loss_grad_clip};
  const Value d_entries = emit_one(b, op::gaussian_splat_raster_backward.def, raster, operands);
  const Values parts = prepare_backward(b, scene, camera, p.radius_scale,
                                        sum_by_splat(b, d_entries, lists.ids, splats));
  return {emit_one(b, op::concat.def, AxisAttrs{0}, parts)};
}

// ---- the rasteriser's rules

Values vjp_raster(Builder& b, const VjpArgs& a) {
  const auto& p = a.node.get<GaussianSplatRasterParams>();
  Values operands(a.in.begin(), a.in.end());
  operands.push_back(a.cotangents[0]);
  const Values d = b.emit(op::gaussian_splat_raster_backward.def,
                          GaussianSplatRasterBackwardParams{p}, operands);
  const Value rows = sum_by_splat(b, d[0], a.in[6], b.shape(a.in[0])[0]);
  const auto columns = [&](int64_t begin, int64_t end) {
    return op::slice(b, rows,
                     {.start = {0, begin}, .limit = {b.shape(rows)[0], end}, .stride = {}});
  };
  return {columns(0, 4), columns(4, 7),          columns(7, 10), columns(10, 14),
          d[1],          sum_axes(b, d[2], {0}), kNone,          kNone};
}

// One element of the batch after the other.
Values vmap_by_scan(Builder& b, const VmapArgs& a) {
  Builder body{std::string(a.node.op->name)};
  Values inner(a.in.size(), kNone), operands;
  for (const bool batched : {true, false})
    for (size_t i = 0; i < a.in.size(); ++i) {
      if (a.batched[i] != batched) continue;
      Type type = b.type(a.in[i]);
      if (batched) type.shape.erase(type.shape.begin());
      inner[i] = body.input(fmt::format("x{}", i), type);
      operands.push_back(a.in[i]);
    }
  for (Value v : body.clone(a.node, inner)) body.output(v);
  return b.emit(op::scan.def,
                ScanAttrs{.body = body.finish(),
                          .length = a.size,
                          .num_xs = std::count(a.batched.begin(), a.batched.end(), true)},
                operands);
}

}  // namespace

namespace op {

constinit const Op<GaussianSplatRenderParams> gaussian_splat_render = OpDef{
    .name = "gaussian_splat_render",
    .doc =
        "The image [H * W * 4] of Gaussian splats: max(sum of T_i alpha_i color_i + T background, "
        "0) ^ 2.2 and 1 - T, front to back, with T the product of 1 - alpha; zeros without splats. "
        "Differentiable with the tiles' lists held fixed.",
    .reference = "GaussianSplatRender",
    .arity = 7,
    .operands = "positions, scales, rotations, opacities, colors, sh_coeffs, meta",
    .dtypes = kSplatFloats,
    .infer = infer_render,
    .decompose = decompose_render,
};

constinit const Op<GaussianSplatRenderParams> gaussian_splat_prepare = OpDef{
    .name = "gaussian_splat_prepare",
    .doc =
        "What gaussian_splat_rasterize reads, as one buffer: colors, local positions, scales, "
        "rotations, the tiles' lists and the rays.",
    .reference = "GaussianSplatPrepare",
    .arity = 7,
    .operands = "positions, scales, rotations, opacities, colors, sh_coeffs, meta",
    .dtypes = kSplatFloats,
    .infer = infer_prepare,
    .decompose = decompose_prepare,
};

constinit const Op<GaussianSplatRasterParams> gaussian_splat_rasterize = OpDef{
    .name = "gaussian_splat_rasterize",
    .doc =
        "The image of a buffer that gaussian_splat_prepare made with the same attributes; the "
        "background comes from meta.",
    .reference = "GaussianSplatRasterize",
    .arity = 2,
    .operands = "prepared, meta",
    .dtypes = kSplatFloats,
    .infer = infer_rasterize,
    .decompose = decompose_rasterize,
};

constinit const Op<GaussianSplatBackwardParams> gaussian_splat_render_backward = OpDef{
    .name = "gaussian_splat_render_backward",
    .doc =
        "Gradients for training, packed as positions, scales, rotations, opacities, colors, "
        "coefficients: of the image without the power 2.2 over background ^ 2.2, lists cut after "
        "max_splat_steps; d_loss (its alpha is not read) and every d alpha clipped to "
        "+-loss_grad_clip.",
    .reference = "GaussianSplatRenderBackward",
    .arity = 8,
    .operands = "positions, scales, rotations, opacities, colors, sh_coeffs, meta, d_loss",
    .dtypes = kSplatFloats,
    .infer = infer_render_backward,
    .decompose = decompose_render_backward,
};

constinit const Op<GaussianSplatRenderParams> gaussian_splat_bin = OpDef{
    .name = "gaussian_splat_bin",
    .doc =
        "Which splats are visible, and for each tile those whose outline meets it, nearest first "
        "(the first of equally distant ones before the others); decided in f64.",
    .kind = Kind::reduction,
    .arity = 5,
    .operands = "positions, scales, rotations, opacities, meta",
    .dtypes = kSplatFloats,
    .infer = infer_bin,
    .eval = eval_bin,
    .vmap = vmap_by_scan,
    .not_differentiable = "the results are lists",
};

constinit const Op<GaussianSplatRasterParams> gaussian_splat_raster = OpDef{
    .name = "gaussian_splat_raster",
    .doc =
        "Blends each pixel's list front to back: alpha = opacity exp(-9/2 |p|^2) at the point p of "
        "the ray nearest to the splat, left out below alpha_cutoff, behind the camera and once "
        "less than transmittance_threshold passes.",
    .arity = 8,
    .operands = "color_alpha, pos_local, inv_scale, quat, rays, background, ids, ranges",
    .dtypes = kSplatFloats,
    .infer = infer_raster,
    .decompose = decompose_raster,
    .vjp = vjp_raster,
    .vmap = vmap_by_scan,
};

constinit const Op<GaussianSplatRasterBackwardParams> gaussian_splat_raster_backward = OpDef{
    .name = "gaussian_splat_raster_backward",
    .doc =
        "The gradients of gaussian_splat_raster per list entry, per ray, and by the background per "
        "tile; with alpha_grad_clip the gradient of each alpha is clipped.",
    .arity = 9,
    .operands = "color_alpha, pos_local, inv_scale, quat, rays, background, ids, ranges, d_out",
    .dtypes = kSplatFloats,
    .infer = infer_raster_backward,
    .decompose = decompose_raster_backward,
    .vmap = vmap_by_scan,
};

}  // namespace op

// ---- builders

Value gaussian_splat_render(Builder& b, const GaussianSplatInputs& inputs,
                            const GaussianSplatRenderParams& params) {
  return emit_one(b, op::gaussian_splat_render.def, params, inputs.values());
}

Value gaussian_splat_render_meta(Builder& b, const std::array<double, 3>& position,
                                 const std::array<double, 3>& target,
                                 const std::array<double, 3>& up, double fov_y_degrees, double near,
                                 double far, const std::array<double, 3>& background,
                                 const GaussianSplatRenderParams& p) {
  std::vector<double> values;
  for (const auto& v : {position, target, up}) values.insert(values.end(), v.begin(), v.end());
  values.insert(values.end(), {fov_y_degrees, near, far});
  values.insert(values.end(), background.begin(), background.end());
  for (int64_t v : {p.width, p.height, p.tile_size}) values.push_back(static_cast<double>(v));
  values.insert(values.end(),
                {p.radius_scale, p.alpha_cutoff, static_cast<double>(p.max_splat_steps),
                 p.transmittance_threshold, static_cast<double>(p.max_list_entries)});
  return b.constant(Tensor::from<float>({kMeta}, std::vector<float>(values.begin(), values.end())));
}

Value gaussian_splat_prepare(Builder& b, const GaussianSplatInputs& inputs,
                             const GaussianSplatRenderParams& params) {
  return emit_one(b, op::gaussian_splat_prepare.def, params, inputs.values());
}

Value gaussian_splat_rasterize(Builder& b, Value prepared, Value meta,
                               const GaussianSplatRasterParams& params) {
  return op::gaussian_splat_rasterize(b, prepared, meta, params);
}

Value gaussian_splat_render_decomposed(Builder& b, const GaussianSplatInputs& inputs,
                                       const GaussianSplatRenderParams& params) {
  return gaussian_splat_rasterize(b, gaussian_splat_prepare(b, inputs, params), inputs.meta,
                                  params);
}

Value gaussian_splat_render_backward(Builder& b, const GaussianSplatInputs& inputs, Value d_loss,
                                     const GaussianSplatBackwardParams& params) {
  const auto scene = inputs.values();
  Values operands(scene.begin(), scene.end());
  operands.push_back(d_loss);
  return emit_one(b, op::gaussian_splat_render_backward.def, params, operands);
}

GaussianSplatInputs unpack_gaussian_splat_packed_grads(Builder& b, Value packed, int64_t splats,
                                                       int64_t coefficients) {
  int64_t at = 0;
  const auto next = [&](int64_t count) {
    at += count;
    return slice_rows(b, packed, at - count, at);
  };
  GaussianSplatInputs out;
  out.positions = next(3 * splats);
  out.scales = next(3 * splats);
  out.rotations = next(4 * splats);
  out.opacities = next(splats);
  out.colors = next(3 * splats);
  out.sh_coeffs = next(3 * splats * std::max<int64_t>(coefficients, 1));
  out.meta = packed;
  return out;
}

int64_t gaussian_splat_tile_count(const GaussianSplatRasterParams& p) {
  return ceil_div(p.width, p.tile_size) * ceil_div(p.height, p.tile_size);
}

int64_t gaussian_splat_prep_packed_len(int64_t splats, const GaussianSplatRasterParams& p) {
  return kPerSplat * std::max<int64_t>(splats, 1) + p.max_list_entries +
         2 * gaussian_splat_tile_count(p) + 3 * std::max<int64_t>(p.pixels(), 1) + kTail;
}

int64_t gaussian_splat_packed_grad_len(int64_t splats, int64_t coefficients) {
  return 14 * splats + 3 * splats * std::max<int64_t>(coefficients, 1);
}

namespace {
constexpr const OpDef* kSplatOps[] = {&op::gaussian_splat_render,
                                      &op::gaussian_splat_render_backward,
                                      &op::gaussian_splat_prepare,
                                      &op::gaussian_splat_rasterize,
                                      &op::gaussian_splat_bin,
                                      &op::gaussian_splat_raster,
                                      &op::gaussian_splat_raster_backward};
}  // namespace

constinit const Family kSplat{"splats", kSplatOps};

}  // namespace rlx
