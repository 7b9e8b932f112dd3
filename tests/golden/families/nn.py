"""Neural-network composites. f16 and bf16 are computed in f32 and rounded once, so one unit in the last place is allowed."""

import numpy as np

from .core import FLOATS, Real, array, narrow, random, rng_of, sample, ulps, unit, wide
from .elementwise import erf

SQRT_2_OVER_PI = np.sqrt(Real(2) / Real("3.14159265358979323846264338327950288"))

# name -> function, absolute tolerance in units of 1: gelu's 1 + erf cancels for negative x
ACTIVATIONS = {
    "gelu": (lambda x: x / 2 * (1 + erf_over_root2(x)), 4),
    "gelu_tanh": (
        lambda x: x / 2 * (1 + np.tanh(SQRT_2_OVER_PI * (x + Real("0.044715") * x**3))),
        4,
    ),
    "silu": (lambda x: x / (1 + np.exp(-x)), 0),
}


def erf_over_root2(x):
    """erf(x / sqrt 2); the quotient is not binary64, so erf is corrected by its slope for the part that is lost."""
    z = x / np.sqrt(Real(2))
    high = z.astype(np.float64).astype(Real)
    slope = 2 / np.sqrt(Real("3.14159265358979323846264338327950288")) * np.exp(-high * high)
    return erf(high) + np.where(np.isfinite(z), (z - high) * slope, 0)


def activations():
    for name, (function, cancel) in ACTIVATIONS.items():
        for dtype in FLOATS:
            tol = ulps(dtype, 8, cancel * unit(dtype))
            cases = [
                ("basic", (5, 7), "ordinary values"),
                ("rank0", (), "rank 0"),
                ("empty", (2, 0), "no elements"),
                ("long", (131,), "several vectors and a tail"),
            ]
            for case, shape, note in cases:
                x = random(rng_of(f"{name}/{dtype}/{case}"), dtype, shape, -5, 5)
                yield sample(
                    f"{name}/{dtype}/{case}", [x], narrow(dtype, function(wide(x))), tol, note
                )
            x = array(dtype, [0.0, np.nan, 20.0, -20.0, 1e-3, -1e-3, 60.0, np.inf])
            with np.errstate(all="ignore"):
                yield sample(
                    f"{name}/{dtype}/special",
                    [x],
                    narrow(dtype, function(wide(x))),
                    tol,
                    "NaN, zero, saturation, +inf",
                )


def log_softmax(x, axis):
    shifted = x - x.max(axis, keepdims=True) if x.size else x
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)) if x.size else x


def softmaxes():
    shapes = [
        ((3, 5), -1),
        ((3, 5), 0),
        ((2, 3, 4), 1),
        ((2, 67), 1),
        ((4, 1), -1),
        ((0, 4), -1),
        ((6,), 0),
    ]
    nan, inf = np.nan, np.inf
    rows = [[1, nan, 2], [-inf, -inf, -inf], [-inf, 1, 2], [inf, 1, 2], [0, 0, 0]]
    for dtype in FLOATS:
        tols = {"softmax": ulps(dtype, 16), "log_softmax": ulps(dtype, 8, 16 * unit(dtype))}
        for name, function in (
            ("softmax", lambda x, a: np.exp(log_softmax(x, a))),
            ("log_softmax", log_softmax),
        ):
            for n, (shape, axis) in enumerate(shapes):
                identifier = f"{name}/{dtype}/case-{n}"
                x = random(rng_of(identifier), dtype, shape, -8, 8)
                yield sample(
                    identifier,
                    [x],
                    narrow(dtype, function(wide(x), axis)),
                    tols[name],
                    f"shape {shape}",
                    axis=axis,
                )
            with np.errstate(all="ignore"):
                x = array(dtype, rows)
                yield sample(
                    f"{name}/{dtype}/special",
                    [x],
                    narrow(dtype, function(wide(x), 1)),
                    tols[name],
                    "NaN spreads over its row; a row of -inf is NaN, and so is one with +inf",
                    axis=1,
                )
            big = 3e4 if dtype == "f16" else 1e30
            x = array(dtype, [[big, big], [-big, big], [big, 0]])
            with np.errstate(over="ignore", under="ignore"):
                yield sample(
                    f"{name}/{dtype}/extreme",
                    [x],
                    narrow(dtype, function(wide(x), 1)),
                    tols[name],
                    "no overflow",
                    axis=1,
                )


def norm(x, gamma, beta, axis, eps, centre):
    lined_up = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
    x = x - x.mean(axis, keepdims=True) if centre else x
    scale = np.sqrt((x * x).mean(axis, keepdims=True) + Real(eps))
    return x / scale * gamma.reshape(lined_up) + beta.reshape(lined_up)


def norms():
    cases = [
        ((3, 8), -1, 1e-5, "last axis"),
        ((2, 3, 8), 2, 1e-5, "rank 3"),
        ((4, 3), 0, 1e-2, "first axis, large eps"),
        ((2, 5, 3), 1, 1e-6, "middle axis"),
        ((2, 70), -1, 1e-5, "several vectors and a tail"),
        ((3, 1), -1, 1e-5, "one element: layer_norm gives beta"),
        ((0, 4), -1, 1e-5, "no rows"),
    ]
    for name, centre in (("layer_norm", True), ("rms_norm", False)):
        for dtype in FLOATS:
            for n, (shape, axis, eps, note) in enumerate(cases):
                identifier = f"{name}/{dtype}/case-{n}"
                rng = rng_of(identifier)
                size = shape[axis]
                x, gamma, beta = (
                    random(rng, dtype, shape),
                    random(rng, dtype, (size,), 0.5, 1.5),
                    random(rng, dtype, (size,), -1, 1),
                )
                out = narrow(dtype, norm(wide(x), wide(gamma), wide(beta), axis, eps, centre))
                yield sample(
                    identifier,
                    [x, gamma, beta],
                    out,
                    ulps(dtype, 8, 32 * unit(dtype)),
                    note,
                    axis=axis,
                    eps=eps,
                )
            if dtype not in ("f32", "f64"):
                continue
            rng = rng_of(f"{name}/{dtype}/shifted")
            x, gamma, beta = (
                random(rng, dtype, (3, 64), 999, 1001),
                array(dtype, np.ones(64)),
                array(dtype, np.zeros(64)),
            )
            out = narrow(dtype, norm(wide(x), wide(gamma), wide(beta), -1, 1e-5, centre))
            yield sample(
                f"{name}/{dtype}/shifted",
                [x, gamma, beta],
                out,
                ulps(dtype, 8, 2048 * unit(dtype)),
                "mean 1000, spread 1: E[x^2] - mean^2 would lose everything; the mean's own rounding costs 1000 units",
                axis=-1,
                eps=1e-5,
            )


def losses():
    cases = [
        ((4, 7), "i64", "matrix"),
        ((4, 7), "i32", "i32 labels"),
        ((4, 7), "f32", "f32-encoded labels"),
        ((2, 3, 5), "i64", "rank 3"),
        ((5,), "i64", "one row, label of rank 0"),
        ((3, 1), "i64", "one class: loss 0"),
        ((0, 4), "i64", "no rows"),
        ((3, 97), "u8", "u8 labels"),
        ((4, 7), "f64", "f64-encoded labels"),
    ]
    for dtype in FLOATS:
        for n, (shape, label_dtype, note) in enumerate(cases):
            identifier = f"softmax_cross_entropy/{dtype}/case-{n}"
            rng = rng_of(identifier)
            x, labels = random(rng, dtype, shape, -6, 6), rng.integers(0, shape[-1], shape[:-1])
            out = np.take_along_axis(-log_softmax(wide(x), -1), np.asarray(labels)[..., None], -1)[
                ..., 0
            ]
            yield sample(
                identifier,
                [x, array(label_dtype, labels)],
                narrow(dtype, out),
                ulps(dtype, 8, 16 * unit(dtype)),
                note,
            )


def rotate(x, cos, sin, head_dim, n_rot):
    heads = x.reshape(*x.shape[:-1], x.shape[-1] // head_dim, head_dim)
    half, rows = n_rot // 2, x.shape[-2]
    c, s = cos[:rows, None, :half], sin[:rows, None, :half]
    first, second = heads[..., :half], heads[..., half:n_rot]
    return np.concatenate(
        [first * c - second * s, second * c + first * s, heads[..., n_rot:]], -1
    ).reshape(x.shape)


def ropes():
    cases = [
        ((3, 8), 8, 8, (3, 4), "rank 2, one head"),
        ((2, 3, 8), 4, 4, (3, 2), "rank 3, two heads"),
        ((2, 2, 3, 6), 6, 4, (5, 3), "rank 4, partial, longer tables"),
        ((1, 4, 16), 8, 2, (4, 4), "one pair"),
        ((2, 1, 8), 4, 4, (2, 2), "one position"),
        ((2, 0, 8), 4, 4, (2, 2), "no positions"),
    ]
    for dtype in FLOATS:
        for n, (shape, head_dim, n_rot, table, note) in enumerate(cases):
            for table_dtype in dict.fromkeys([dtype, "f32"]):
                if table_dtype != dtype and dtype == "f64":
                    continue
                identifier = f"rope/{dtype}/case-{n}" + (
                    "" if table_dtype == dtype else "-f32-tables"
                )
                rng = rng_of(identifier)
                x, angle = random(rng, dtype, shape), rng.uniform(0, 6.28, table)
                cos, sin = array(table_dtype, np.cos(angle)), array(table_dtype, np.sin(angle))
                out = narrow(dtype, rotate(wide(x), wide(cos), wide(sin), head_dim, n_rot))
                yield sample(
                    identifier,
                    [x, cos, sin],
                    out,
                    ulps(dtype, 2, 16 * unit(dtype)),
                    note,
                    head_dim=head_dim,
                    n_rot=n_rot,
                )


def attention(q, k, v, scale, causal):
    """Operands [B, H, S, D], kv heads already repeated; masked scores are -1e9. Returns the result and log sum exp."""
    scores = np.matmul(q, k.swapaxes(-1, -2)) * scale
    if causal:
        queries, keys = scores.shape[-2:]
        visible = np.arange(keys)[None, :] <= np.arange(queries)[:, None] + max(keys - queries, 0)
        scores = np.where(visible, scores, Real(-1e9))
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - top)
    total = powers.sum(-1, keepdims=True)
    return np.matmul(powers / total, v), (top + np.log(total))[..., 0]


# layout by rank, batch, heads, kv_heads, queries, keys, head_dim, causal, scale, note
ATTENTIONS = [
    (3, 2, 2, 2, 5, 5, 4, False, None, "no mask"),
    (3, 2, 2, 2, 5, 5, 4, True, None, "causal"),
    (4, 2, 3, 3, 4, 4, 5, True, None, "head-major"),
    (2, 1, 2, 2, 6, 6, 3, True, None, "rank 2"),
    (3, 1, 4, 2, 4, 4, 4, True, None, "grouped: two query heads share a kv head"),
    (4, 1, 4, 1, 3, 5, 4, False, None, "one kv head for all"),
    (3, 1, 2, 2, 2, 7, 4, True, None, "fewer queries than keys: offset 5"),
    (3, 1, 2, 2, 5, 3, 4, True, None, "more queries than keys: no offset"),
    (4, 1, 2, 2, 4, 4, 4, False, 0.25, "explicit scale"),
    (4, 1, 2, 2, 37, 37, 16, True, None, "several vectors and a tail"),
    (3, 1, 1, 1, 1, 1, 2, True, None, "one key"),
]


def merged(t, rank):
    """[B, H, S, D] as the layout of the rank."""
    if rank == 4:
        return t
    batch, heads, rows, size = t.shape
    t = t.transpose(0, 2, 1, 3).reshape(batch, rows, heads * size)
    return t if rank == 3 else t[0]


def attentions():
    for dtype in FLOATS:
        for n, (
            rank,
            batch,
            heads,
            kv_heads,
            queries,
            keys,
            size,
            causal,
            scale,
            note,
        ) in enumerate(ATTENTIONS):
            identifier = f"attention/{dtype}/case-{n}"
            rng = rng_of(identifier)
            q = random(rng, dtype, (batch, heads, queries, size), -2, 2)
            k, v = (random(rng, dtype, (batch, kv_heads, keys, size), -2, 2) for _ in range(2))
            repeated = [np.repeat(wide(t), heads // kv_heads, axis=1) for t in (k, v)]
            out, lse = attention(
                wide(q),
                *repeated,
                1 / np.sqrt(Real(size)) if scale is None else Real(scale),
                causal,
            )
            attrs = {
                "num_heads": heads,
                "num_kv_heads": kv_heads,
                "mask": "causal" if causal else "none",
            }
            if scale is not None:
                attrs["scale"] = scale
            lse_dtype = "f64" if dtype == "f64" else "f32"
            # f16 and bf16 kernels may hold probabilities in the operand type: two more roundings of values up to 2.
            held = 0.0 if dtype in ("f32", "f64") else 4 * 2.0 ** -(11 if dtype == "f16" else 8)
            tol = [
                ulps(dtype, 8, max(64 * unit(dtype), held)),
                ulps(lse_dtype, 8, 64 * unit(dtype)),
            ]
            inputs = [merged(t, rank) for t in (q, k, v)]
            outputs = [merged(narrow(dtype, out), rank), narrow(lse_dtype, lse)]
            yield sample(identifier, inputs, outputs, tol, note, **attrs)


def samples():
    for group in (activations, softmaxes, norms, losses, ropes, attentions):
        yield from group()
