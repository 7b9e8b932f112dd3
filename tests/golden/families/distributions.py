"""Keys derived from keys, further distributions and sampling: the specified algorithms once more, in Python.

That the numbers have the promised distributions is the business of tests/unit/distributions_test.cc.
"""

import math

import numpy as np

from .core import EXACT, FLOATS, NUMPY, REALS, narrow, random, rng_of, round_float, sample, ulps
from .randomness import bits_of, philox, uniform_of

KEYS = [(0, 0), (42, 7), (0xDEADBEEF, 0xFFFFFFFF)]
MASK = 0xFFFFFFFF


def key_array(key):
    return np.array(key, np.uint32)


def salted(key, salt):
    return ((key[0] + salt) & MASK, (key[1] + (~salt & MASK)) & MASK)


def fold_in(key, integer):
    first, second = (int(w) for w in bits_of(salted(key, 0x666F6C64), 2))
    return bits_of(((first + integer) & MASK, second), 2)


def split(key, n):
    return bits_of(salted(key, 0x73706C74), 2 * n).reshape(n, 2)


class Stream:
    """Uniform numbers in (0, 1) for one element: the top 52 bits of two words, plus a half."""

    def __init__(self, key, element):
        self.key, self.element, self.block, self.words = key, element, 0, []

    def uniform(self):
        if not self.words:
            self.words = list(
                philox((self.element & MASK, self.element >> 32, self.block, 1), self.key)
            )
            self.block += 1
        bits = self.words.pop(0) << 32 | self.words.pop(0)
        return ((bits >> 12) + 0.5) * 2.0**-52

    def normal(self):
        radius = math.sqrt(-2 * math.log(self.uniform()))
        return radius * math.cos(2 * math.pi * self.uniform())


def gamma(s, alpha, log):
    power = math.log(s.uniform()) / alpha if alpha < 1 else 0.0
    d = (alpha + 1 if alpha < 1 else alpha) - 1 / 3
    c = 1 / math.sqrt(9 * d)
    while True:
        z = s.normal()
        root, u = 1 + c * z, s.uniform()
        if root <= 0:
            continue
        v = root**3
        if math.log(u) < 0.5 * z * z + d * (1 - v + math.log(v)):
            return math.log(d * v) + power if log else d * v * math.exp(power)


def poisson(s, rate):
    if rate < 10:
        limit, count, product = math.exp(-rate), 0, s.uniform()
        while product > limit:
            count, product = count + 1, product * s.uniform()
        return count
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha, bound = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)
    while True:
        u = s.uniform() - 0.5
        v = s.uniform()
        left = 0.5 - abs(u)
        k = math.floor((2 * a / left + b) * u + rate + 0.43)
        if left >= 0.07 and v <= bound:
            return k
        if k < 0 or (left < 0.013 and v > left):
            continue
        if math.log(v * inverse_alpha / (a / left**2 + b)) <= k * math.log(
            rate
        ) - rate - math.lgamma(k + 1):
            return k


def truncated_normal(s, lower, upper):
    """By SciPy's quantile function of the normal distribution."""
    from scipy.special import ndtr, ndtri

    u = s.uniform()
    if lower > 0:
        return -ndtri(ndtr(-upper) + u * (ndtr(-lower) - ndtr(-upper)))
    p = ndtr(lower) + u * (ndtr(upper) - ndtr(lower))
    return ndtri(p) if p <= 0.5 else -ndtri(1 - p)


def bound(x):
    """JSON has no infinity."""
    return x if math.isfinite(x) else str(x)


def permutation(key, n):
    s, out = Stream(key, 0), list(range(n))
    for i in range(n - 1, 0, -1):
        j = int(s.uniform() * (i + 1))
        out[i], out[j] = out[j], out[i]
    return np.array(out, np.int64)


def open_unit(key, count, dtype):
    bits = bits_of(key, count)
    if dtype == "f64":
        return (bits.astype(np.float64) + 0.5) * 2.0**-32
    return ((bits >> 9).astype(np.float64) + 0.5) * 2.0**-23


def keys():
    for k, key in enumerate(KEYS):
        for n in (0, 1, 5):
            yield sample(
                f"random_split/u32/key-{k}-{n}",
                [key_array(key)],
                split(key, n),
                EXACT,
                f"key {key}",
                n=n,
            )
            yield sample(
                f"random_permutation/i64/key-{k}-{n}",
                [key_array(key)],
                permutation(key, n),
                EXACT,
                f"key {key}",
                n=n,
            )
        yield sample(
            f"random_permutation/i64/key-{k}-40",
            [key_array(key)],
            permutation(key, 40),
            EXACT,
            f"key {key}",
            n=40,
        )
        for integers in (
            np.int32(-1),
            np.array([0, 1, 2, 2**31], np.int64),
            np.array([[7], [8]], np.uint8),
        ):
            flat = np.ravel(integers)
            y = np.array([fold_in(key, int(i) & MASK) for i in flat], np.uint32).reshape(
                np.shape(integers) + (2,)
            )
            name = f"random_fold_in/u32/key-{k}-{integers.dtype}"
            yield sample(name, [key_array(key), integers], y, EXACT, f"key {key}")


def more_keys():
    integers = np.array([0, 3, 2**32 - 1], np.uint32)
    y = np.array([fold_in(KEYS[1], int(i)) for i in integers], np.uint32)
    yield sample("random_fold_in/u32/uint32", [key_array(KEYS[1]), integers], y, EXACT, "every word")
    words = bits_of(KEYS[2], 12).astype(object).reshape(6, 2)
    drawn = [-300 + ((int(a) << 32 | int(b)) * 700 >> 64) for a, b in words]
    attrs = {"dtype": "i16", "shape": (2, 3), "low": -300, "high": 400}
    y = np.array(drawn, np.int16).reshape(2, 3)
    yield sample("random_randint/i16/matrix", [key_array(KEYS[2])], y, EXACT, "a matrix", **attrs)


def standard():
    functions = {
        "random_exponential": lambda u: -np.log(u),
        "random_gumbel": lambda u: -np.log(-np.log(u)),
        "random_laplace": lambda u: -np.sign(u - 0.5) * np.log1p(-2 * np.abs(u - 0.5)),
    }
    for k, key in enumerate(KEYS):
        for name, function in functions.items():
            for dtype in FLOATS:
                for shape in [(25,), (), (2, 3)]:
                    count = int(np.prod(shape, dtype=np.int64))
                    y = narrow(
                        dtype, function(open_unit(key, count, dtype).astype(np.longdouble))
                    ).reshape(shape)
                    case = f"{name}/{dtype}/key-{k}-{len(shape)}"
                    # Near u = 1 the Gumbel numbers are large and their inner logarithm small: both are accurate.
                    yield sample(
                        case,
                        [key_array(key)],
                        y,
                        ulps(dtype, 8, 4e-7 if dtype != "f64" else 1e-15),
                        f"key {key}",
                        dtype=dtype,
                        shape=shape,
                    )
        for dtype, low, high in [
            ("i32", -5, 20),
            ("i64", -(10**9), 10**9),
            ("u8", 0, 256),
            ("i8", -128, -127),
            ("u32", 2**31, 2**32),
        ]:
            words = bits_of(key, 2 * 30).astype(object).reshape(30, 2)
            drawn = [low + ((int(a) << 32 | int(b)) * (high - low) >> 64) for a, b in words]
            y = np.array(drawn).astype(
                {"i32": np.int32, "i64": np.int64, "u8": np.uint8, "i8": np.int8, "u32": np.uint32}[
                    dtype
                ]
            )
            yield sample(
                f"random_randint/{dtype}/key-{k}",
                [key_array(key)],
                y,
                EXACT,
                f"key {key}",
                dtype=dtype,
                shape=(30,),
                low=low,
                high=high,
            )


def drawn(key, shape, draw):
    count = int(np.prod(shape, dtype=np.int64))
    return np.array([draw(Stream(key, i), i) for i in range(count)], np.float64).reshape(shape)


def rejection():
    for k, key in enumerate(KEYS):
        for dtype in FLOATS:
            # Drawn in f64 and rounded once; the last digits depend on the C library.
            tol = {"rel": 1e-13, "abs": 1e-300} if dtype == "f64" else ulps(dtype, 1)
            alphas = round_float(dtype, np.array([0.05, 0.5, 1.0, 2.25, 20.0]))
            for log in (False, True):
                y = drawn(key, (4, 5), lambda s, i: gamma(s, float(alphas[i % 5]), log))
                yield sample(
                    f"random_gamma/{dtype}/key-{k}-{log}",
                    [key_array(key), alphas],
                    narrow(dtype, y),
                    tol,
                    f"key {key}",
                    shape=(4, 5),
                    log=log,
                )
            rates = round_float(dtype, np.array([0.0, 0.5, 5.0, 9.5, 10.0, 33.0, 1000.0]))
            y = drawn(key, (3, 7), lambda s, i: poisson(s, float(rates[i % 7])))
            yield sample(
                f"random_poisson/{dtype}/key-{k}",
                [key_array(key), rates],
                narrow(dtype, y),
                EXACT,
                f"key {key}",
                shape=(3, 7),
            )
            for lower, upper in [(-2.0, 2.0), (0.5, 3.0), (-math.inf, -1.0), (2.0, math.inf)]:
                y = drawn(key, (12,), lambda s, i: truncated_normal(s, lower, upper))
                yield sample(
                    f"random_truncated_normal/{dtype}/key-{k}-{lower}",
                    [key_array(key)],
                    narrow(dtype, y),
                    {"rel": 1e-12, "abs": 1e-13} if dtype == "f64" else tol,
                    f"key {key}; SciPy's ndtri",
                    dtype=dtype,
                    shape=(12,),
                    lower=bound(lower),
                    upper=bound(upper),
                )


def gamma_derivatives():
    """The implicit derivative by mpmath: -(dP/dalpha) / (dP/dx)."""
    import mpmath

    alphas = np.array([0.05, 0.3, 0.3, 1.0, 1.0, 2.5, 2.5, 2.5, 30.0, 30.0, 400.0])
    x = np.array([1e-4, 0.01, 2.0, 0.2, 3.0, 0.5, 2.0, 9.0, 22.0, 41.0, 415.0])

    def derivative(a, v):
        below = lambda s: mpmath.gammainc(s, 0, mpmath.mpf(v), regularized=True)
        density = (
            mpmath.mpf(v) ** (mpmath.mpf(a) - 1)
            * mpmath.exp(-mpmath.mpf(v))
            / mpmath.gamma(mpmath.mpf(a))
        )
        return float(-mpmath.diff(below, mpmath.mpf(a), h=mpmath.mpf(2) ** -50) / density)

    for dtype in FLOATS:
        a, v = round_float(dtype, alphas), round_float(dtype, x)
        y = np.array([derivative(float(p), float(q)) for p, q in zip(a, v)])
        tol = {"rel": 1e-10, "abs": 1e-300} if dtype == "f64" else ulps(dtype, 1)
        yield sample(f"random_gamma_grad/{dtype}/basic", [a, v], narrow(dtype, y), tol, "mpmath")
        logs = round_float(dtype, np.log(v.astype(np.float64)))
        w = np.exp(logs.astype(np.float64))
        y = np.array([derivative(float(p), float(q)) / float(q) for p, q in zip(a, w)])
        yield sample(
            f"random_gamma_grad/{dtype}/log", [a, logs], narrow(dtype, y), tol, "mpmath", log=True
        )


def special_parameters():
    key = KEYS[1]
    alphas = np.array([0, -1, np.nan, np.inf], np.float32)
    y = np.array([0, np.nan, np.nan, np.inf], np.float32)
    yield sample(
        "random_gamma/f32/special", [key_array(key), alphas], y, EXACT, "edges", shape=(4,)
    )
    y = np.array([-np.inf, np.nan, np.nan, np.inf], np.float32)
    yield sample(
        "random_gamma/f32/special-log",
        [key_array(key), alphas],
        y,
        EXACT,
        "edges",
        shape=(4,),
        log=True,
    )
    y = np.array([0, np.nan, np.nan, np.nan], np.float32)
    yield sample(
        "random_poisson/f32/special", [key_array(key), alphas], y, EXACT, "edges", shape=(4,)
    )


def composed():
    for k, key in enumerate(KEYS):
        for dtype in ("f32", "f64", "bf16"):
            tol = {"rel": 1e-12, "abs": 1e-13} if dtype == "f64" else ulps(dtype, 16, 2e-6)
            a, b = round_float(dtype, np.array([0.5, 2.0, 7.0])), round_float(dtype, np.array(1.5))
            x_key, y_key = (tuple(int(w) for w in row) for row in split(key, 2))
            x = drawn(x_key, (4, 3), lambda s, i: gamma(s, float(a[i % 3]), True))
            y = drawn(y_key, (4, 3), lambda s, i: gamma(s, float(b), True))
            beta = 1 / (1 + np.exp(y - x))
            yield sample(
                f"random_beta/{dtype}/key-{k}",
                [key_array(key), a, b],
                narrow(dtype, beta),
                tol,
                f"key {key}",
                shape=(4, 3),
            )
            g = drawn(key, (4, 3), lambda s, i: gamma(s, float(a[i % 3]), False))
            yield sample(
                f"random_dirichlet/{dtype}/key-{k}",
                [key_array(key), a],
                narrow(dtype, g / g.sum(-1, keepdims=True)),
                tol,
                f"key {key}",
                shape=(4, 3),
            )
        p = np.array([0.0, 0.2, 0.5, 0.9, 1.0], np.float32)
        u = (bits_of(key, 20) >> 8).astype(np.float64).reshape(4, 5) / 2**24
        yield sample(
            f"random_bernoulli/bool/key-{k}",
            [key_array(key), p],
            u < p,
            EXACT,
            f"key {key}",
            shape=(4, 5),
        )
        logits = random(rng_of(f"categorical/{k}"), "f32", (6,))
        noise = -np.log(-np.log(open_unit(key, 60, "f32")))
        tokens = np.argmax(noise.reshape(10, 6) + logits, -1)
        yield sample(
            f"random_categorical/i64/key-{k}",
            [key_array(key), logits],
            tokens,
            EXACT,
            f"key {key}",
            shape=(10,),
        )


def wide_dtype(dtype):
    return "f64" if dtype == "f64" else "f32"


def every_parameter():
    """Parameters of every dtype; f16 and bf16 are compared and added in f32."""
    key = KEYS[1]
    for dtype in FLOATS:
        p = round_float(dtype, np.array([0.1, 0.5, 0.8]))
        u = uniform_of(key, 6, wide_dtype(dtype)).reshape(2, 3)
        y = u.astype(np.float64) < p.astype(np.float64)
        name = f"random_bernoulli/bool/of-{dtype}"
        yield sample(name, [key_array(key), p], y, EXACT, f"p of {dtype}", shape=(2, 3))
        logits = random(rng_of(f"categorical/of-{dtype}"), dtype, (5,))
        noise = -np.log(-np.log(open_unit(key, 30, wide_dtype(dtype)))).reshape(2, 3, 5)
        total = np.sort(noise + logits.astype(np.float64), -1)
        assert (total[..., -1] - total[..., -2]).min() > 1e-5, "too close for f32"
        tokens = np.argmax(noise + logits.astype(np.float64), -1)
        name = f"random_categorical/i64/of-{dtype}"
        yield sample(name, [key_array(key), logits], tokens, EXACT, f"logits of {dtype}", shape=(2, 3))
        tol = {"rel": 1e-12, "abs": 1e-13} if dtype == "f64" else ulps(dtype, 16, 2e-6)
        a, b = round_float(dtype, np.array([0.5, 3.0])), round_float(dtype, np.array([2.0, 0.75]))
        x_key, y_key = (tuple(int(w) for w in row) for row in split(key, 2))
        x = drawn(x_key, (2,), lambda s, i: gamma(s, float(a[i]), True))
        y = drawn(y_key, (2,), lambda s, i: gamma(s, float(b[i]), True))
        name, beta = f"random_beta/{dtype}/line", narrow(dtype, 1 / (1 + np.exp(y - x)))
        yield sample(name, [key_array(key), a, b], beta, tol, "a line", shape=(2,))
        g = drawn(key, (2,), lambda s, i: gamma(s, float(a[i]), False))
        name, row = f"random_dirichlet/{dtype}/line", narrow(dtype, g / g.sum())
        yield sample(name, [key_array(key), a], row, tol, "a line", shape=(2,))
        y = drawn(key, (2, 3), lambda s, i: truncated_normal(s, -1.0, 0.5))
        attrs = {"dtype": dtype, "shape": (2, 3), "lower": -1.0, "upper": 0.5}
        tol = {"rel": 1e-12, "abs": 1e-13} if dtype == "f64" else ulps(dtype, 1)
        name = f"random_truncated_normal/{dtype}/matrix"
        yield sample(name, [key_array(key)], narrow(dtype, y), tol, "SciPy's ndtri", **attrs)


def token_types():
    """Tokens as every dtype, of logits of every dtype."""
    for dtype in FLOATS:
        logits = random(rng_of(f"sample/types/{dtype}"), dtype, (3, 6))
        tokens = tokens_of(logits, 4, 0.95, 1.25, 19)
        for to in REALS:
            out = tokens.astype(NUMPY[to])
            attrs = {"top_k": 4, "top_p": 0.95, "temperature": 1.25, "seed": 19, "dtype": to}
            yield sample(f"sample/{dtype}/to-{to}", [logits], out, EXACT, f"tokens of {to}", **attrs)
        x = random(rng_of(f"filters/{dtype}"), dtype, (2, 5))
        out = np.where(keep_top_k(x.astype(np.float64), 2), x, np.asarray(0.5, x.dtype))
        yield sample(f"top_k_filter/{dtype}/fill", [x], out, EXACT, "0.5 elsewhere", k=2, fill=0.5)
        out = np.where(keep_top_p(x, 0.6), x, np.asarray(-np.inf, x.dtype))
        yield sample(f"top_p_filter/{dtype}/default", [x], out, EXACT, "-inf elsewhere", p=0.6)


def keep_top_k(x, k):
    if k <= 0 or k >= x.shape[-1]:
        return np.ones(x.shape, bool)
    return x >= np.sort(x, -1)[..., [-k]]


def keep_top_p(x, p):
    x = x.astype(np.float64)
    if p >= 1:
        return np.ones(x.shape, bool)
    softmax = np.exp(x - x.max(-1, keepdims=True))
    softmax /= softmax.sum(-1, keepdims=True)
    order = np.argsort(-softmax, -1, kind="stable")
    ordered = np.take_along_axis(softmax, order, -1)
    before = np.cumsum(ordered, -1) - ordered
    keep = np.empty(x.shape, bool)
    np.put_along_axis(keep, order, before < p, -1)
    return keep


def tokens_of(logits, top_k, top_p, temperature, seed):
    """The specification's steps, in f64."""
    x = logits.astype(np.float64) / max(temperature, 1e-6)
    x = np.where(keep_top_k(x, top_k), x, -np.inf)
    p = np.where(keep_top_p(x, top_p), np.exp(x - x.max(-1, keepdims=True)), 0)
    cumulative = np.cumsum(p / p.sum(-1, keepdims=True), -1)
    rows = int(np.prod(logits.shape[:-1], dtype=np.int64))
    r = (bits_of((seed & MASK, seed >> 32), rows) >> 8).astype(np.float64).reshape(
        logits.shape[:-1] + (1,)
    ) / 2**24
    assert np.abs(cumulative - r).min() > 1e-5, "too close to a boundary for f32"
    return np.argmax(r <= cumulative, -1)


def sampling():
    for dtype in FLOATS:
        for name, shape in [("rows", (4, 9)), ("row", (7,)), ("rank3", (2, 3, 5))]:
            x = random(rng_of(f"mask/{dtype}/{name}"), dtype, shape)
            for k in (0, 1, 3, 9):
                keep = keep_top_k(x.astype(np.float64), k)
                yield sample(
                    f"top_k_mask/{dtype}/{name}-{k}",
                    [x],
                    keep,
                    EXACT,
                    "not below the k-th largest",
                    k=k,
                )
                filtered = np.where(keep, x, np.asarray(-np.inf, x.dtype))
                yield sample(
                    f"top_k_filter/{dtype}/{name}-{k}", [x], filtered, EXACT, "-inf elsewhere", k=k
                )
            for p in (0.1, 0.5, 0.9, 1.0):
                keep = keep_top_p(x, p)
                yield sample(
                    f"top_p_mask/{dtype}/{name}-{p}",
                    [x],
                    keep,
                    EXACT,
                    "the likeliest that reach p",
                    p=p,
                )
                filtered = np.where(keep, x, np.asarray(-3.0, x.dtype))
                yield sample(
                    f"top_p_filter/{dtype}/{name}-{p}",
                    [x],
                    filtered,
                    EXACT,
                    "-3 elsewhere",
                    p=p,
                    fill=-3.0,
                )
    ties = np.array([[1, 2, 2, 0], [3, 3, 3, 3]], np.float32)
    yield sample(
        "top_k_mask/f32/ties",
        [ties],
        keep_top_k(ties, 2),
        EXACT,
        "ties at the boundary all stay",
        k=2,
    )
    yield sample(
        "top_p_mask/f32/ties",
        [ties],
        keep_top_p(ties, 0.4),
        EXACT,
        "of equal ones the first",
        p=0.4,
    )
    for n, (top_k, top_p, temperature) in enumerate(
        [(0, 1.0, 1.0), (3, 1.0, 0.8), (0, 0.7, 1.0), (5, 0.9, 1.5), (0, 1.0, 0.0), (100, 0.2, 1.0)]
    ):
        for dtype, shape in [("f32", (6, 8)), ("f32", (9,)), ("f64", (2, 3, 4)), ("f32", (1, 5))]:
            logits = random(rng_of(f"sample/{n}/{dtype}/{shape}"), dtype, shape)
            seed = 11 + n + (n << 33)
            tokens = tokens_of(logits, top_k, top_p, temperature, seed)
            attrs = {"top_k": top_k, "top_p": top_p, "temperature": temperature}
            case = f"{n}-{'x'.join(map(str, shape))}"
            yield sample(
                f"sample/{dtype}/{case}",
                [logits],
                tokens.astype(np.float32),
                EXACT,
                "seeded",
                seed=seed,
                **attrs,
            )
            key = key_array((seed & MASK, seed >> 32))
            yield sample(
                f"sample/{dtype}/{case}-key",
                [logits, key],
                tokens.astype(np.int32),
                EXACT,
                "keyed",
                dtype="i32",
                **attrs,
            )


def samples():
    yield from keys()
    yield from standard()
    yield from rejection()
    yield from gamma_derivatives()
    yield from special_parameters()
    yield from composed()
    yield from sampling()
    yield from more_keys()
    yield from every_parameter()
    yield from token_types()
