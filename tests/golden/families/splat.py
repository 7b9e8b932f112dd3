"""Gaussian splats: projection and lists by NumPy, images and their gradients by PyTorch's autograd over fixed lists, all in f64."""

import numpy as np
import torch

from .core import EXACT, array, rng_of, sample

C0, C1 = 0.28209479, 0.48860251
DEFAULTS = dict(
    width=12,
    height=10,
    tile_size=4,
    radius_scale=1.6,
    alpha_cutoff=1 / 255,
    max_splat_steps=32,
    transmittance_threshold=0.01,
    max_list_entries=576,
)


# ---- projection and lists


def unit(v):
    length = np.linalg.norm(v)
    return v / length if length >= 1e-8 else np.array([0.0, 0.0, 1.0])


def rotation(q):
    """The matrix of v -> v + 2 ((v x q + w v) x q)."""
    w, x, y, z = q
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)],
            [2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)],
            [2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


class View:
    def __init__(self, meta, a):
        self.eye, target, up = meta[0:3], meta[3:6], meta[6:9]
        forward = unit(target - self.eye)
        right = unit(np.cross(up, forward))
        self.axes = np.stack([right, unit(np.cross(forward, right)), forward])
        self.size = np.array([a["width"], a["height"]], float)
        self.focal = 0.5 * a["height"] / np.tan(np.radians(meta[9]) / 2)
        self.far = meta[11]

    def project(self, world):
        x, y, z = self.axes @ (world - self.eye)
        return None if z <= 1e-12 else self.focal * np.array([x, y]) / z + self.size / 2

    def meets(self, centre, radius):
        x, y, z = self.axes @ (centre - self.eye)
        tangents = self.size / 2 / self.focal
        sides = np.abs([x, y]) <= z * tangents + radius * np.sqrt(1 + tangents**2)
        return bool(sides.all() and z + radius > 1e-4 and z - radius < self.far)


def ellipse(view, position, axes, q):
    """Centre, conic matrix and radius in pixels, or None."""

    def fallback():
        if not view.meets(position, axes.max()):
            return None
        r = max(*view.size, 1.0)
        return view.size / 2, np.eye(2) / r**2, r

    turn = rotation(q)
    eye = turn @ (view.eye - position) / axes
    d = np.linalg.norm(eye)
    if d <= 1 + 1e-6:
        return fallback()
    e = eye / d
    side = unit(np.cross([0, 0, 1.0] if abs(e[2]) < 0.999 else [0, 1.0, 0], e))
    other = np.cross(e, side)
    angles = 2 * np.pi * np.arange(5) / 5
    circle = e / d + np.sqrt(1 - 1 / d**2) * (
        np.outer(np.cos(angles), side) + np.outer(np.sin(angles), other)
    )
    points = [view.project(position + turn.T @ (c * axes)) for c in circle]
    centre = view.project(position)
    if centre is None or any(p is None for p in points):
        return fallback()
    points = np.array(points)
    low = np.minimum(points.min(0), centre)
    high = np.maximum(points.max(0), centre)
    if (high < 0).any() or (low > view.size).any():
        return None
    middle, half = (low + high) / 2, np.maximum((high - low) / 2, 1e-6)
    x, y = ((points - middle) / half).T
    a, b, c, dd, ee = np.linalg.solve(np.stack([x * x, 2 * x * y, y * y, x, y], 1), np.ones(5))
    m = np.array([[a, b], [b, c]])
    if np.linalg.det(m) <= 1e-6:
        return None
    at = np.linalg.solve(m, [-dd / 2, -ee / 2])
    k = 1 + at @ m @ at
    if k <= 1e-6:
        return None
    q2 = m / k
    if np.linalg.det(q2) <= 1e-6 or q2[0, 0] <= 1e-6 or q2[1, 1] <= 1e-6:
        return None
    least, most = np.linalg.eigvalsh(q2)
    radius = max(half[0] / np.sqrt(most), half[1] / np.sqrt(least)) + 1
    return middle + at * half, q2 / np.outer(half, half), max(radius, 1.0)


def least_over_box(conic, centre, low, high):
    """The least of (p - centre)^T conic (p - centre) over a box, by looking at the centre and the four sides."""
    if (centre >= low).all() and (centre <= high).all():
        return 0.0
    values = []
    for axis in range(2):
        for bound in (low[axis], high[axis]):
            fixed, free = bound - centre[axis], 1 - axis
            best = -conic[0, 1] * fixed / conic[free, free]
            best = np.clip(best, low[free] - centre[free], high[free] - centre[free])
            p = np.empty(2)
            p[axis], p[free] = fixed, best
            values.append(p @ conic @ p)
    return min(values)


def tiles_of(a):
    return -(-a["width"] // a["tile_size"]), -(-a["height"] // a["tile_size"])


def covered(found, a):
    """The tiles that a splat is entered into, in order."""
    centre, conic, radius = found
    size = a["tile_size"]
    det = np.linalg.det(conic)
    if conic[0, 0] <= 1e-10 or conic[1, 1] <= 1e-10 or det <= 1e-12:
        return []
    longest, shortest = 1 / np.sqrt(np.linalg.eigvalsh(conic))
    if longest > 2 * max(radius, 1) + size / 2 or shortest < 0.125:
        return []
    extent = np.sqrt(np.array([conic[1, 1], conic[0, 0]]) / det)
    counts = np.array(tiles_of(a))
    first, last = [
        np.clip(np.floor((centre + s * (extent + size / 2)) / size), 0, counts - 1).astype(int)
        for s in (-1, 1)
    ]
    along = 0 if extent[0] >= extent[1] else 1
    out = []
    for line in range(first[1 - along], last[1 - along] + 1):
        cells = []
        for i in range(first[along], last[along] + 1):
            tile = np.array([i, line] if along == 0 else [line, i])
            if least_over_box(conic, centre, tile * size, (tile + 1) * size) <= 1 + 1e-6:
                cells.append(i)
        for i in range(cells[0], cells[-1] + 1) if cells else []:
            tx, ty = (i, line) if along == 0 else (line, i)
            out.append(ty * counts[0] + tx)
    return out


def lists(scene, a):
    """visible [N], one list of splats per tile."""
    view = View(scene["meta"], a)
    found = {}
    for i, o in enumerate(np.clip(scene["opacities"], 0, 1)):
        if o < a["alpha_cutoff"]:
            continue
        support = np.sqrt(max(0.0, -2 * np.log(a["alpha_cutoff"] / o)))
        axes = np.maximum(np.exp(scene["scales"][i]) * a["radius_scale"] * support, 1e-6)
        p = scene["positions"][i]
        e = ellipse(view, p, axes, scene["rotations"][i])
        if e is None or (view.axes @ (p - view.eye))[2] <= 1e-4:
            continue
        if (e[0] + e[2] < 0).any() or (e[0] - e[2] > view.size).any():
            continue
        found[i] = e
    order = sorted(found, key=lambda i: np.linalg.norm(scene["positions"][i] - view.eye))
    entries = [(tile, i) for i in order for tile in covered(found[i], a)]
    tiles = [[] for _ in range(np.prod(tiles_of(a)))]
    for tile, i in entries[: a["max_list_entries"]]:
        tiles[tile].append(i)
    return np.isin(np.arange(len(scene["opacities"])), list(found)), tiles


def packed_lists(tiles, a):
    ids = np.zeros(a["max_list_entries"], np.int32)
    ranges = np.zeros((len(tiles), 2), np.int32)
    at = 0
    for t, members in enumerate(tiles):
        ids[at : at + len(members)] = members
        if members:
            ranges[t] = at, at + len(members)
        at += len(members)
    return ids, ranges


# ---- images


def normalise(v):
    return v / torch.linalg.vector_norm(v, dim=-1, keepdim=True)


def turn_all(v, q):
    w, u = q[..., :1], q[..., 1:]
    u, v = torch.broadcast_tensors(u, v)
    c = torch.linalg.cross(torch.linalg.cross(v, u) + w * v, u)
    return v + 2 * c


def prepared(scene, a):
    """color, opacity, pos_local, inv_scale, quat, rays, background."""
    meta = scene["meta"]
    eye, target, up = meta[0:3], meta[3:6], meta[6:9]
    forward = normalise(target - eye)
    right = normalise(torch.linalg.cross(up, forward))
    upward = torch.linalg.cross(forward, right)
    focal = 0.5 * a["height"] / torch.tan(torch.deg2rad(meta[9]) / 2)
    y, x = torch.meshgrid(
        torch.arange(a["height"], dtype=torch.float64) + 0.5 - a["height"] / 2,
        torch.arange(a["width"], dtype=torch.float64) + 0.5 - a["width"] / 2,
        indexing="ij",
    )
    rays = normalise(
        (x / focal).reshape(-1, 1) * right + (y / focal).reshape(-1, 1) * upward + forward
    )
    v = eye - scene["positions"]
    inv = 1 / torch.clamp(torch.exp(scene["scales"]) * a["radius_scale"] * 3, min=1e-6)
    n, sh = len(scene["opacities"]), scene["sh"]
    sh = torch.cat([sh, torch.zeros(n, 16 - sh.shape[1], 3, dtype=torch.float64)], 1)
    plain = (scene["sh"].shape[1] < 16) & (sh[:, :1].abs() <= 1e-8).all(2)
    dc = torch.where(plain, (torch.clamp(scene["colors"], 0, 1) - 0.5) / C0, sh[:, 0])
    d = normalise(v)
    color = 0.5 + C0 * dc
    color = color - C1 * d[:, 1:2] * sh[:, 1] + C1 * d[:, 2:3] * sh[:, 2] - C1 * d[:, 0:1] * sh[:, 3]
    opacity = torch.clamp(scene["opacities"], 0, 1)
    q = scene["rotations"]
    return color, opacity, turn_all(v, q) * inv, inv, q, rays, meta[12:15]


def raster(parts, tiles, a, steps=0, clip=None):
    """[P, 4], before any power. Refuses scenes in which a rounding could change who is hit."""
    color, opacity, local, inv, q, rays, background = parts
    columns, _ = tiles_of(a)
    pixels = np.arange(a["height"] * a["width"])
    tile = pixels // a["width"] // a["tile_size"] * columns + pixels % a["width"] // a["tile_size"]
    out = torch.zeros(len(pixels), 4, dtype=torch.float64)
    for t, members in enumerate(tiles):
        mine = np.flatnonzero(tile == t)
        light = torch.ones(len(mine), dtype=torch.float64)
        total = torch.zeros(len(mine), 3, dtype=torch.float64)
        for i in members[: steps or None]:
            support = torch.sqrt(-2 * torch.log(a["alpha_cutoff"] / opacity[i])).detach()
            ro = local[i] * 3 / support
            rd = turn_all(rays[mine], q[i]) * inv[i] * 3 / support
            time = -(rd @ ro) / (rd * rd).sum(1)
            p = ro + time[:, None] * rd
            alpha = opacity[i] * torch.exp(-0.5 * support**2 * (p * p).sum(1))
            live = light >= a["transmittance_threshold"]
            near = [alpha / a["alpha_cutoff"] - 1, light - a["transmittance_threshold"], time]
            assert all((v.abs() > 1e-4).all() for v in near), "a choice is too close"
            hit = live & (time > 0) & (alpha >= a["alpha_cutoff"])
            alpha = torch.where(hit, alpha, torch.zeros(()).double())
            if clip and alpha.requires_grad:
                alpha.register_hook(lambda g: g.clamp(-clip, clip))
            total = total + (light * alpha)[:, None] * color[i]
            light = light * (1 - alpha)
        rgb = total + light[:, None] * background
        out = out.index_put((torch.as_tensor(mine),), torch.cat([rgb, 1 - light[:, None]], 1))
    return out


def power(x):
    return torch.clamp(x, min=0) ** 2.2


def shown(image):
    return torch.cat([power(image[:, :3]), image[:, 3:]], 1)


# ---- scenes


def make_scene(rng, n, k, a, where="outside"):
    """Splats around the origin. The camera stands 4 away, or among them."""
    eye = rng.uniform(-0.3, 0.3, 3) + [0, 0, -4.0 if where == "outside" else 0.0]
    rotations = rng.normal(size=(n, 4))
    meta = np.concatenate(
        [eye, rng.uniform(-0.2, 0.2, 3) + [0, 0, 0.8], [0.05, 1, 0.1], [45, 0.1, 20]]
        + [rng.uniform(0.1, 0.9, 3)]
        + [[a[key] for key in ("width", "height", "tile_size", "radius_scale", "alpha_cutoff")]]
        + [[a["max_splat_steps"], a["transmittance_threshold"], a["max_list_entries"]]]
    )
    sh = rng.normal(size=(n, k, 3)) * 0.5
    if k < 16:
        sh[::3, :1] = 0  # these take `colors`
    return {
        "positions": rng.uniform(-1, 1, (n, 3)),
        "scales": rng.uniform(-2.5, -1.0, (n, 3)),
        "rotations": rotations / np.linalg.norm(rotations, axis=1, keepdims=True),
        "opacities": rng.uniform(0.2, 1.0, n),
        "colors": rng.uniform(-0.2, 1.2, (n, 3)),
        "sh": sh,
        "meta": meta,
    }


KEYS = ["positions", "scales", "rotations", "opacities", "colors", "sh", "meta"]


def rounded(scene, dtype):
    """The scene as the file holds it, in f64."""
    return {k: array(dtype, v).astype(np.float64) for k, v in scene.items()}


def tensors(scene, gradients=False):
    return {k: torch.tensor(scene[k], requires_grad=gradients and k != "meta") for k in KEYS}


def operands(scene, dtype):
    return [array(dtype, scene[k]).reshape(-1) for k in KEYS]


def scene_for(identifier, dtype, n, k, a, where="outside"):
    """The first scene of a series drawn from the id in which no choice is close."""
    rng = rng_of(identifier)
    while True:
        scene = rounded(make_scene(rng, n, k, a, where), dtype)
        if where == "outside":
            scene["positions"][-1:] += [0, 0, -9]  # one is behind the camera
        try:
            _, tiles = lists(scene, a)
            image = raster(prepared(tensors(scene), a), tiles, a)
        except AssertionError:
            continue
        if float(image[:, 3].max()) > 0.3:
            return scene


# A relative error of one unit in a local position of about 10 changes the exponent 9/2 |p|^2 by some 10 units; a pixel adds
# tens of such terms, and gradients are divided by sigmas of about 0.1.
UNIT = {"f32": 2.0**-23, "f64": 2.0**-52}


def image_tolerance(dtype):
    return {"rel": 0, "abs": 200 * UNIT[dtype]}


def gradient_tolerance(dtype, golden):
    return {"rel": 0, "abs": 2000 * UNIT[dtype] * max(1.0, float(np.abs(golden).max()))}


CASES = [
    ("dc", 8, 1, {}, "outside"),
    ("linear", 12, 4, {"tile_size": 5}, "outside"),
    ("no-coefficients", 5, 0, {"radius_scale": 1.0}, "outside"),
    ("all-bands", 4, 16, {"width": 7, "height": 9}, "outside"),
    ("inside", 10, 4, {}, "inside"),
    ("full-lists", 20, 1, {"max_list_entries": 20}, "outside"),
    ("dense", 20, 1, {"transmittance_threshold": 0.4, "alpha_cutoff": 0.02}, "outside"),
    ("steps", 4, 1, {"max_splat_steps": 1, "width": 5, "height": 4}, "outside"),  # an image looks at all
]
SMALL = {
    "width": 5,
    "height": 7,
    "tile_size": 3,
    "alpha_cutoff": 0.02,
    "max_splat_steps": 1,
    "transmittance_threshold": 0.4,
    "max_list_entries": 24,
}


def attributes(extra, *without):
    a = DEFAULTS | extra
    return a, {k: v for k, v in a.items() if k not in without}


def forward_samples(dtype):
    for name, n, k, extra, where in CASES:
        a, attrs = attributes(extra)
        identifier = f"gaussian_splat_render/{dtype}/{name}"
        scene = scene_for(identifier, dtype, n, k, a, where)
        visible, tiles = lists(scene, a)
        ids, ranges = packed_lists(tiles, a)
        parts = prepared(tensors(scene), a)
        image = shown(raster(parts, tiles, a)).numpy().reshape(-1)
        note = f"{n} splats, {k} coefficients, camera {where}"
        yield sample(
            identifier,
            operands(scene, dtype),
            array(dtype, image),
            image_tolerance(dtype),
            note,
            **attrs,
        )
        bin_in = operands(scene, dtype)
        bin_in = bin_in[:4] + bin_in[6:]
        yield sample(
            f"gaussian_splat_bin/{dtype}/{name}",
            bin_in,
            [visible, ids, ranges],
            EXACT,
            note,
            **attrs,
        )
        yield from stage_samples(dtype, name, scene, a, parts, visible, ids, ranges, image)


def stage_samples(dtype, name, scene, a, parts, visible, ids, ranges, image):
    color, opacity, local, inv, q, rays, background = [p.numpy() for p in parts]
    empty = ranges[:, :1] == ranges[:, 1:]
    stored = np.where(empty, [2.0**32, 0.0], ranges)
    tail = [a["width"], a["height"], a["tile_size"], tiles_of(a)[0], a["alpha_cutoff"]]
    tail += [a["transmittance_threshold"], *np.maximum(background, 0) ** 2.2]
    tail += [a["max_splat_steps"], 0]
    look = np.concatenate([color, opacity[:, None]], 1)
    sections = [look, visible, local, inv, q, ids, stored, rays, tail]
    buffer = np.concatenate([np.asarray(s, np.float64).reshape(-1) for s in sections])
    size = max(1.0, float(np.abs(np.concatenate([local, inv])).max()))
    yield sample(
        f"gaussian_splat_prepare/{dtype}/{name}",
        operands(scene, dtype),
        array(dtype, buffer),
        {"rel": 0, "abs": 16 * UNIT[dtype] * size},
        "all sections",
        **a,
    )
    attrs = {k: v for k, v in a.items() if k != "radius_scale"}
    yield sample(
        f"gaussian_splat_rasterize/{dtype}/{name}",
        [array(dtype, buffer), array(dtype, scene["meta"])],
        array(dtype, image),
        image_tolerance(dtype),
        "what prepare made",
        **attrs,
    )


def gradient_samples(dtype):
    backward = [
        ("default", {}, {}),
        ("no-clip", {"max_splat_steps": 0}, {"loss_grad_clip": 1e6}),
        ("two-steps", {"max_splat_steps": 2}, {"loss_grad_clip": 0.3}),
    ]
    dense = SMALL | {"max_splat_steps": 3}
    optimiser = {"sh_band": 1, "max_anisotropy": 4.0}  # these do not change the gradients
    scenes = [(*case, backward) for case in CASES[:5]]
    scenes.append(("small", 6, 4, dense, "outside", [("optimiser", {}, optimiser)]))
    for name, n, k, extra, where, forms in scenes:
        for what, more, clips in forms:
            a, attrs = attributes(extra | more)
            identifier = f"gaussian_splat_render_backward/{dtype}/{name}-{what}"
            scene = scene_for(identifier, dtype, n, k, a, where)
            rng = rng_of(identifier + "/loss")
            d = array(dtype, rng.normal(size=a["width"] * a["height"] * 4))
            clip = clips.get("loss_grad_clip", 1.0)
            leaves = tensors(scene, gradients=True)
            parts = list(prepared(leaves, a))
            parts[6] = power(parts[6])
            _, tiles = lists(scene, a)
            image = raster(parts, tiles, a, a["max_splat_steps"], clip)
            weights = torch.tensor(d.astype(np.float64)).reshape(-1, 4)[:, :3].clamp(-clip, clip)
            (image[:, :3] * weights).sum().backward()
            grads = [leaves[key].grad.reshape(-1).numpy() for key in KEYS[:5]]
            grads.append(leaves["sh"].grad.reshape(-1).numpy() if k else np.zeros(3 * n))
            packed = np.concatenate(grads)
            yield sample(
                identifier,
                operands(scene, dtype) + [d],
                array(dtype, packed),
                gradient_tolerance(dtype, packed),
                f"{n} splats, {k} coefficients, camera {where}",
                **attrs,
                **clips,
            )


def raster_samples(dtype):
    first = {"max_list_entries": 40}
    cases = [("plain", None, first), ("clipped", 0.2, first), ("small", None, SMALL), ("small-clipped", 0.05, SMALL)]
    for name, clip, extra in cases:
        a, _ = attributes(extra)
        identifier = f"gaussian_splat_raster_backward/{dtype}/{name}"
        scene = scene_for(identifier, dtype, 9, 4, a)
        _, tiles = lists(scene, a)
        ids, ranges = packed_lists(tiles, a)
        parts = [array(dtype, p.numpy()) for p in prepared(tensors(scene), a)]
        look = np.concatenate([parts[0], parts[1][:, None]], 1)
        inputs = [look, *parts[2:7], ids, ranges]
        leaves = [torch.tensor(p.astype(np.float64), requires_grad=True) for p in parts]
        image = raster(leaves, tiles, a, clip=clip)
        attrs = {k: v for k, v in a.items() if k != "radius_scale"}
        if clip is None:
            yield sample(
                f"gaussian_splat_raster/{dtype}/{name}",
                inputs,
                array(dtype, image.detach().numpy()),
                image_tolerance(dtype),
                "linear light",
                **attrs,
            )
        d = array(dtype, rng_of(identifier + "/d").normal(size=image.shape))
        yield sample(
            identifier,
            inputs + [d],
            *per_entry(leaves, parts, tiles, a, d, clip, ids, dtype),
            "gradients of every entry, ray and tile",
            **attrs,
            **({"alpha_grad_clip": clip} if clip else {}),
        )


def per_entry(leaves, parts, tiles, a, d, clip, ids, dtype):
    """Every entry as a splat of its own, so that autograd gives its gradient; and a background per tile."""
    counts = [len(m) for m in tiles]
    used = sum(counts)
    own = [
        torch.tensor(p.astype(np.float64)[ids[:used]], requires_grad=True) for p in parts[:5]
    ]
    rays = torch.tensor(parts[5].astype(np.float64), requires_grad=True)
    weights = torch.tensor(d.astype(np.float64))
    starts = np.cumsum([0] + counts)
    pixels = np.arange(a["height"] * a["width"])
    tile = pixels // a["width"] // a["tile_size"] * tiles_of(a)[0]
    tile = tile + pixels % a["width"] // a["tile_size"]
    d_background = []
    for t in range(len(tiles)):
        members = [list(range(starts[i], starts[i + 1])) if i == t else [] for i in range(len(tiles))]
        sky = torch.tensor(parts[6].astype(np.float64), requires_grad=True)
        image = raster([*own, rays, sky], members, a, clip=clip)
        (image * weights)[tile == t].sum().backward()
        d_background.append(sky.grad.numpy())
    color, opacity, local, inv, q = [p.grad.numpy() for p in own]
    entries = np.zeros((len(ids), 14))
    entries[:used] = np.concatenate([color, opacity[:, None], local, inv, q], 1)
    golden = [entries, rays.grad.numpy(), np.array(d_background)]
    return [array(dtype, g) for g in golden], [gradient_tolerance(dtype, g) for g in golden]


def samples():
    for dtype in ("f32", "f64"):
        yield from forward_samples(dtype)
        yield from gradient_samples(dtype)
        yield from raster_samples(dtype)
    for name in ("render", "render_backward"):
        a = {"width": 2, "height": 3}
        scene = [np.zeros(0, np.float32)] * 6 + [array("f32", np.arange(23.0))]
        more = [np.ones(24, np.float32)] if name == "render_backward" else []
        out = np.zeros(0 if more else 24, np.float32)
        yield sample(f"gaussian_splat_{name}/f32/empty", scene + more, out, EXACT, "no splats", **a)
