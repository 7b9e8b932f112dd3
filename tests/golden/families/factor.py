"""Factorisations and solvers, by mpmath with 40 digits; what they leave free is fixed as src/ops/linalg/factor.h says.

Tolerances: the methods are backward stable, so a result is off by about n times the rounding step times the condition of the problem
(of the matrix, or its norm over the smallest gap between eigenvalues or singular values); a factor of 8 is room for the constant.
"""

import mpmath
import numpy as np

from .core import EXACT, NUMPY, array, narrow, random, rng_of, sample, unit

TYPES = ["f32", "f64", "c64"]


# ---- mpmath and NumPy


def exact(a):
    return mpmath.matrix([[mpmath.mpmathify(complex(x)) for x in row] for row in a])


def plain(m):
    return np.array([[complex(m[i, j]) for j in range(m.cols)] for i in range(m.rows)]).reshape(
        m.rows, m.cols
    )


def over_batch(function, count, *operands):
    """function on each matrix (the last two axes); a list of `count` stacked results."""
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in operands))
    operands = [np.broadcast_to(x, batch + x.shape[-2:]) for x in operands]
    parts = [function(*(x[at] for x in operands)) for at in np.ndindex(*batch)]
    parts = [p if isinstance(p, tuple) else (p,) for p in parts]
    return [
        np.stack([p[k] for p in parts]).reshape(batch + np.shape(parts[0][k])) for k in range(count)
    ]


def phases(v):
    """Factors that make the first component of each column that is at least 0.9 of its largest real and positive."""
    size = np.abs(v)
    at = np.argmax(size >= 0.9 * size.max(0, keepdims=True), 0)
    chosen = v[at, np.arange(v.shape[1])]
    return np.conj(chosen) / np.abs(chosen)


def shaped(rng, dtype, kind, shape):
    """Like the kinds of tests/support/samples.cc."""
    a = random(rng, dtype, shape, -0.25, 0.25)
    m, n = shape[-2:]
    for i in range(min(m, n)):
        if kind == "dominant":
            a[..., i, i] += -2 if i % 2 else 1.5
        if kind == "spd":
            a[..., i, i] += 2 + 0.5 * i
        if kind == "symmetric":
            a[..., i, i] += 1.5 * (i if i % 2 else -i) + 1
        if kind == "invertible":
            a[..., i, (i + 1) % n] += 2 + 0.3 * i
        if kind == "spectrum":
            a[..., i, i] += 1.5 * (i + 1)
    if kind == "spectrum" and min(m, n) > 1:
        a[..., 0, 1] += 1.2
        a[..., 1, 0] -= 1.2
    return a


def hermitian(a):
    a = a.astype(np.complex128)
    return (a + np.conj(a.swapaxes(-1, -2))) / 2


def tolerance(dtype, out, growth, n):
    """`growth` is the condition of the problem."""
    scale = np.max(np.abs(out), initial=1e-30)
    return {"rel": 0.0, "abs": float(8 * max(n, 1) * unit(dtype) * growth * scale)}


def condition(a):
    return float(np.max(np.linalg.cond(a.astype(np.complex128)), initial=1)) if a.size else 1


def result(dtype, x, real=False):
    return narrow("f32" if real and dtype == "c64" else dtype, x if dtype == "c64" and not real else np.real(x))


# ---- the functions


def solve_exact(a, b):
    columns = [mpmath.lu_solve(a, b[:, j]) for j in range(b.cols)]
    return mpmath.matrix([[c[i] for c in columns] for i in range(b.rows)])


def solve(a, b):
    return plain(solve_exact(exact(a), exact(b))) if a.size else np.zeros(b.shape)


def cholesky(a):
    try:
        return plain(mpmath.cholesky(exact(hermitian(a))))
    except ValueError:
        return np.full(a.shape, np.nan)


def triangular(a, b, left, lower, transpose, unit_diagonal):
    a = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        np.fill_diagonal(a, 1)
    a = a.T if transpose else a
    return solve(a, b) if left else solve(a.T, b.T).T


def lu(a):
    """Gauss' elimination in 40 digits, pivots by |re| + |im|."""
    m, n = a.shape
    x, pivots, order = exact(a), [], list(range(m))
    for k in range(min(m, n)):
        size = [abs(x[i, k].real) + abs(x[i, k].imag) for i in range(k, m)]
        p = k + size.index(max(size))
        pivots.append(p)
        order[k], order[p] = order[p], order[k]
        for j in range(n):
            x[k, j], x[p, j] = x[p, j], x[k, j]
        for i in range(k + 1, m) if x[k, k] != 0 else []:
            x[i, k] /= x[k, k]
            for j in range(k + 1, n):
                x[i, j] -= x[i, k] * x[k, j]
    return plain(x), np.array(pivots, "<i4"), np.array(order, "<i4")


def qr(a):
    """By Gram and Schmidt on the first k columns."""
    m, n = a.shape
    k = min(m, n)
    x = exact(a)
    q = mpmath.matrix(m, k)
    for j in range(k):
        v = x[:, j]
        for i in range(j):
            v -= q[:, i] * (q[:, i].H * x[:, j])[0]
        q[:, j] = v / mpmath.norm(v)
    return plain(q), plain(q.H * x)


def eigh(a):
    w, v = mpmath.eighe(exact(hermitian(a)))
    v = plain(v)
    return np.array([float(x) for x in w]), v * phases(v)


def eig(a):
    w, v = mpmath.eig(exact(a))
    w, v = np.array([complex(x) for x in w]), plain(v)
    order = np.argsort(w.real + w.imag / 4)
    w, v = w[order], v[:, order] / np.linalg.norm(v[:, order], axis=0)
    return w, v * phases(v)


def svd(a):
    u, s, vh = mpmath.svd_c(exact(a))
    u, vh = plain(u), plain(vh)
    turn = phases(u)
    return u * turn, np.array([float(x) for x in s]), vh * np.conj(turn)[:, None]


# ---- samples


def solves(dtype):
    for n, (a, b, note) in enumerate(
        [
            ((4, 4), (4,), "a vector"),
            ((4, 4), (4, 3), "columns"),
            ((2, 3, 3), (2, 3), "a vector for each matrix"),
            ((2, 3, 3), (2, 3, 2), "columns for each matrix"),
            ((3, 3), (2, 3, 2), "one matrix, two right sides"),
            ((2, 1, 2, 2), (1, 3, 2, 1), "batches broadcast"),
            ((2, 1, 2, 2), (1, 3, 2), "batches broadcast, vectors"),
            ((1, 1), (1,), "1 x 1"),
            ((0, 0), (0, 2), "0 x 0"),
            ((0, 2, 2), (0, 2), "no matrices"),
            ((19, 19), (19, 5), "odd size"),
        ]
    ):
        name = f"dense_solve/{dtype}/case-{n}"
        rng = rng_of(name)
        x, y = shaped(rng, dtype, "invertible", a), random(rng, dtype, b, -1, 1)
        vector = len(b) == len(a) - 1
        columns = y[..., None] if vector else y
        out = over_batch(solve, 1, x, columns)[0] if 0 not in a[:-2] else np.zeros(b)
        out = result(dtype, out[..., 0] if vector and 0 not in a[:-2] else out)
        yield sample(name, [x, y], out, tolerance(dtype, out, condition(x), a[-1]), note)
    name = f"dense_solve/{dtype}/permutation"
    x = array(dtype, [[0, 2, 0], [0, 0, 4], [1, 0, 0]])
    y = array(dtype, [2, 4, 8])
    yield sample(name, [x, y], array(dtype, [8, 1, 1]), EXACT, "zeros on the diagonal")


def choleskies(dtype):
    for n, (shape, note) in enumerate(
        [((4, 4), "plain"), ((2, 3, 3), "batched"), ((1, 1), "1 x 1"), ((17, 17), "odd size")]
    ):
        for lower in (True, False):
            name = f"cholesky/{dtype}/case-{n}-{'lower' if lower else 'upper'}"
            a = shaped(rng_of(name), dtype, "spd", shape)
            (out,) = over_batch(cholesky, 1, a)
            out = result(dtype, out if lower else np.conj(out.swapaxes(-1, -2)))
            yield sample(name, [a], out, tolerance(dtype, out, condition(hermitian(a)), shape[-1]), note, lower=lower)
    nan = np.full((2, 2), complex(np.nan, np.nan) if dtype == "c64" else np.nan).astype(NUMPY[dtype])
    for case, values in {"indefinite": [[1, 2], [2, 1]], "singular": [[0, 0], [0, 1]], "nan": [[np.nan, 0], [0, 1]]}.items():
        yield sample(f"cholesky/{dtype}/{case}", [array(dtype, values)], nan, EXACT, "not positive definite: NaN")
    name = f"cholesky_solve/{dtype}/"
    for lower in (True, False):
        for b in [(4,), (4, 3)]:
            identifier = f"{name}{'lower' if lower else 'upper'}-{len(b)}"
            rng = rng_of(identifier)
            f, y = shaped(rng, dtype, "dominant", (4, 4)), random(rng, dtype, b, -1, 1)
            t = np.tril(f) if lower else np.triu(f)
            a = exact(t) * exact(t).H if lower else exact(t).H * exact(t)
            out = plain(solve_exact(a, exact(y.reshape(4, -1)))).reshape(b)
            out = result(dtype, out)
            yield sample(identifier, [f, y], out, tolerance(dtype, out, condition(t) ** 2, 4), "by the triangle named", lower=lower)


def triangulars(dtype):
    for bits in range(16):
        left, lower, transpose, unit_diagonal = (bool(bits >> k & 1) for k in range(4))
        name = f"triangular_solve/{dtype}/flags-{bits}"
        rng = rng_of(name)
        a = shaped(rng, dtype, "dominant", (2, 4, 4))
        b = random(rng, dtype, (2, 4, 3) if left else (3, 4), -1, 1)
        (out,) = over_batch(lambda x, y: triangular(x, y, left, lower, transpose, unit_diagonal), 1, a, b)
        out = result(dtype, out)
        attrs = {"left": left, "lower": lower, "transpose": transpose, "unit_diagonal": unit_diagonal}
        yield sample(name, [a, b], out, tolerance(dtype, out, condition(a), 4), "the other triangle is not read", **attrs)


def lus(dtype):
    for n, (shape, kind, note) in enumerate(
        [
            ((4, 4), "invertible", "square"),
            ((2, 3, 3), "invertible", "batched"),
            ((5, 3), "spectrum", "tall"),
            ((3, 5), "spectrum", "wide"),
            ((1, 1), "dominant", "1 x 1"),
        ]
    ):
        name = f"lu/{dtype}/case-{n}"
        a = shaped(rng_of(name), dtype, kind, shape)
        packed, pivots, order = over_batch(lu, 3, a)
        packed = result(dtype, packed)
        yield sample(name, [a], [packed, pivots, order], [tolerance(dtype, packed, 4, max(shape)), EXACT, EXACT], note)
    singular = array(dtype, [[1, 2], [2, 4]])
    outs = [array(dtype, [[2, 4], [0.5, 0]]), np.array([1, 1], "<i4"), np.array([1, 0], "<i4")]
    yield sample(f"lu/{dtype}/singular", [singular], outs, EXACT, "a pivot of 0; swapped rows")
    ties = array(dtype, [[1, 0], [1, 1]])
    outs = [array(dtype, [[1, 0], [1, 1]]), np.array([0, 1], "<i4"), np.array([0, 1], "<i4")]
    yield sample(f"lu/{dtype}/ties", [ties], outs, EXACT, "of equal pivots the first")


def orthogonal(dtype):
    for n, (shape, kind, note) in enumerate(
        [
            ((4, 4), "invertible", "square"),
            ((5, 3), "spectrum", "tall"),
            ((3, 5), "spectrum", "wide"),
            ((2, 4, 2), "spectrum", "batched"),
            ((1, 1), "dominant", "1 x 1"),
        ]
    ):
        for complete in [False] if shape[-2] > shape[-1] else [False, True]:
            name = f"qr/{dtype}/case-{n}{'-complete' if complete else ''}"
            a = shaped(rng_of(name), dtype, kind, shape)
            out = [result(dtype, x) for x in over_batch(qr, 2, a)]
            tol = [tolerance(dtype, x, condition(a), max(shape)) for x in out]
            yield sample(name, [a], out, tol, note, complete=complete)
        name = f"svd/{dtype}/case-{n}"
        a = shaped(rng_of(name), dtype, "spectrum", shape)
        u, s, vh = over_batch(svd, 3, a)
        out = [result(dtype, u), result(dtype, s, True), result(dtype, vh)]
        gap = np.min(np.abs(np.diff(s, axis=-1)), initial=1)
        tol = [tolerance(dtype, x, np.max(s) / min(gap, np.min(s)), max(shape)) for x in out]
        yield sample(name, [a], out, tol, note)
        if shape[-2] == shape[-1]:
            yield sample(f"{name}-full", [a], out, tol, note, full_matrices=True)


def eigens(dtype):
    for n, (shape, note) in enumerate(
        [((4, 4), "plain"), ((2, 3, 3), "batched"), ((1, 1), "1 x 1"), ((2, 2), "2 x 2")]
    ):
        name = f"eigh/{dtype}/case-{n}"
        a = shaped(rng_of(name), dtype, "symmetric", shape)
        w, v = over_batch(eigh, 2, a)
        out = [result(dtype, w, True), result(dtype, v)]
        growth = np.max(np.abs(w)) / np.min(np.abs(np.diff(w, axis=-1)), initial=1)
        yield sample(name, [a], out, [tolerance(dtype, x, max(growth, 1), shape[-1]) for x in out], note)
        if dtype == "f64":
            continue
        name = f"eig/{dtype}/case-{n}"
        a = shaped(rng_of(name), dtype, "spectrum", shape)
        w, v = over_batch(eig, 2, a)
        out = [narrow("c64", w), narrow("c64", v)]
        growth = condition(v) * max(np.max(np.abs(w)) / np.min(np.abs(np.diff(w, axis=-1)), initial=1), 1)
        yield sample(name, [a], out, [tolerance("c64", x, growth, shape[-1]) for x in out], note)
    nan = complex(np.nan, np.nan) if dtype == "c64" else np.nan
    bad = array(dtype, [[1, 0], [np.inf, 1]])
    real = NUMPY["f64" if dtype == "f64" else "f32"]
    line, square = np.full(2, np.nan).astype(real), np.full((2, 2), nan).astype(NUMPY[dtype])
    yield sample(f"eigh/{dtype}/special", [bad], [line, square], EXACT, "infinity: NaN")
    yield sample(f"svd/{dtype}/special", [bad], [square, line, square], EXACT, "infinity: NaN")


def samples():
    for dtype in TYPES:
        for family in (solves, choleskies, triangulars, lus, orthogonal, eigens):
            yield from family(dtype)
