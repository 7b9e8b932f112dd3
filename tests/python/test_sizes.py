"""jit on sizes that change: how often it compiles, what it says about it, and that results are those of numbers."""

import gc
import operator
import os
import threading
import time

import numpy as np
import pytest

import rlx
from rlx import _core


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def leaves(tree):
    return [np.asarray(x) for x in rlx.tree_flatten(tree)[0]]


def expect_bits(f, *args, **kwargs):
    """jit(f) on these arguments, and f compiled for them alone, give the same bits; or the same error."""
    raw = f.__wrapped__
    try:
        wanted = leaves(rlx.jit(raw)(*args, **kwargs))
    except Exception as e:
        with pytest.raises(type(e)) as got:
            f(*args, **kwargs)
        assert str(got.value) == str(e)
        return
    got = leaves(f(*args, **kwargs))
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), (a, b)


def resident():
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def compilations(f):
    return f.cache_info().compilations


# ---- how often it compiles


def test_one_program_for_all_sizes():
    f = rlx.jit(lambda x: rlx.tanh(x).sum(0) / x.shape[0])
    for n in range(2, 60):
        x = random(n, 3, seed=n)
        np.testing.assert_allclose(f(x), np.tanh(x).mean(0), rtol=1e-4, atol=1e-6)
    assert compilations(f) == 2 and f.cache_info() == (56, 2, 2)
    assert f(random(1, 3)).shape == f(random(0, 3)).shape == (3,) and compilations(f) == 4  # 0 and 1 are numbers
    f(random(0, 3)), f(random(1, 3)), f(random(70, 3))
    assert compilations(f) == 4


def test_each_axis_becomes_a_symbol_when_it_changes():
    f = rlx.jit(lambda x, y: (x @ y).sum())
    for n, k, m in [(3, 4, 5), (6, 4, 5), (7, 4, 5), (7, 4, 9), (2, 4, 3), (8, 4, 2)]:
        x, y = random(n, k), random(k, m)
        np.testing.assert_allclose(f(x, y), (x @ y).sum(), rtol=1e-4)
    texts = [c["types"] for c in f.explain(as_dict=True)]
    assert texts == [
        "x0 [3, 4] f32, x1 [4, 5] f32",
        "x0 [?n0, 4] f32, x1 [4, 5] f32",
        "x0 [?n0, 4] f32, x1 [4, ?n1] f32",
    ]


def test_training_over_many_batch_lengths():
    x, true = random(64, 5), random(5, seed=1)

    @rlx.jit
    def step(w, m, x, y):
        loss, g = rlx.value_and_grad(lambda w: ((rlx.tanh(x @ w) - y) ** 2).mean())(w)
        m = 0.9 * m + g
        return w - 0.1 * m, m, loss

    w, m = rlx.zeros(5), rlx.zeros(5)
    for i in range(50):
        rows = x[: 64 - i]
        w, m, loss = step(w, m, rows, np.tanh(rows @ true))
    assert compilations(step) == 2 and loss.item() < 0.05
    expect_bits(step, w, m, x[:17], x[:17, 0])


def test_training_with_a_mask_and_a_scan_over_time():
    """Of sequences of many lengths in batches of many sizes; the mask has both axes, too."""

    def loss(p, x, mask):
        def cell(h, at):
            row, keep = at
            h = rlx.where(keep[:, None], rlx.tanh(row @ p["w"] + h @ p["u"]), h)
            return h, (h**2).sum(-1) * keep

        _, costs = rlx.scan(cell, rlx.zeros((x.shape[0], 4)), (x.transpose(1, 0, 2), mask.T))
        return costs.sum() / mask.sum()

    @rlx.jit
    def step(p, x, mask):
        value, g = rlx.value_and_grad(loss)(p, x, mask)
        return {k: p[k] - 0.1 * g[k] for k in p}, value

    rng = np.random.default_rng(0)
    p = {"w": random(3, 4), "u": random(4, 4)}
    for i in range(50):
        b, t = {0: (6, 9), 1: (5, 7)}.get(i) or (int(rng.integers(2, 7)), int(rng.integers(2, 12)))
        p, value = step(p, random(b, t, 3, seed=i), rng.random((b, t)) < 0.8)
        assert np.isfinite(value.item())
    assert compilations(step) == 2, step.explain()
    expect_bits(step, p, random(5, 8, 3), np.ones((5, 8), bool))


FUNCTIONS = {
    "elementwise": lambda x: rlx.exp(-x) * 2 + 1,
    "softmax": lambda x: rlx.softmax(x @ x.T / x.shape[0]),
    "moments": lambda x: (x.mean(0), x.var(), x.std(1), x.max(0), x.sum() / x.size),
    "reshape": lambda x: (x.reshape(-1, 2), x.reshape(x.shape[0] * 4), x.T.reshape((2, 2, -1))),
    "sizes": lambda x: (x.shape[0], x * (x.shape[0] * 0.1 + 1) ** 0.5, x.shape[0] % 3 + x.shape[0] // 4 - 1),
    "made": lambda x: (rlx.zeros(x.shape) + x, rlx.full((x.shape[0], 2), 7), rlx.eye(x.shape[0]), rlx.ones_like(x)),
    "arange": lambda x: (rlx.arange(x.shape[0]), rlx.arange(1, x.shape[0] + 1, 2), rlx.arange(x.shape[0], 0, -3)),
    "slices": lambda x: (x[1:], x[:-1], x[::-1], x[::2], x[:3], x[-2:, 1:], x[x.shape[0] // 2 :], x[5:], x[-3::-2]),
    "places": lambda x: (x[-1], x[x.shape[0] - 1], x[[0, -1]], x[[0, -1], [1, 2]], x[None, :, None]),
    "pieces": lambda x: (rlx.concatenate([x, x[:1]]), x.split(2, 1), x.split([1, x.shape[0] - 1]), rlx.stack([x, x])),
    "halves": lambda x: x.split(2),
    "pad": lambda x: (rlx.pad(x, 1), rlx.pad(x, ((0, 50 - x.shape[0]), (1, 0)))),
    "arranged": lambda x: (rlx.tile(x, (2, 1)), x.repeat(2, 0), rlx.roll(x, 1, 0), rlx.flip(x, 0), rlx.tril(x @ x.T)),
    "order": lambda x: (x.sort(0), x.argmax(0), rlx.median(x, 0), x.cumsum(0), rlx.take(x, rlx.argsort(x[:, 0]), 0)),
    "einsum": lambda x: rlx.einsum("ij,kj->ik", x, x),
    "scan": lambda x: rlx.scan(lambda c, r: (c + r, c * r), rlx.zeros(4), x),
    "cond": lambda x: rlx.cond(x.sum() > 0, lambda y: y * 2, lambda y: y + 1, x),
    "while": lambda x: rlx.while_loop(lambda c: c[1] < 3, lambda c: (c[0] * 2, c[1] + 1), (x, 0)),
    "vmap": lambda x: (rlx.vmap(lambda r: rlx.softmax(r) * r.shape[0])(x), rlx.vmap(lambda r: r.mean(), in_axes=1)(x)),
    "grad": lambda x: rlx.grad(lambda y: (rlx.tanh(y @ y.T) ** 2).mean())(x),
    "vjp and jvp": lambda x: (rlx.vjp(rlx.tanh, x)[1](x), rlx.jvp(rlx.sin, (x,), (x * 2,))),
    "jacobian": lambda x: rlx.jacrev(lambda y: y.sum(0))(x),
    "hessian": lambda x: rlx.hessian(lambda w: rlx.sin(x @ w).sum())(rlx.ones(4)),
    "custom_fn": lambda x: rlx.grad(lambda y: rlx.custom_fn(lambda z: z * 2, vjp=lambda a, z, g: (g * 3,))(y).sum())(x),
    "broadcast": lambda x: rlx.broadcast_to(x[0], x.shape) - x,
    "branches": lambda x: x.sum() if x.shape[0] == 0 else x.mean() if x.shape[0] > 1 and x.ndim == 2 else x,
    "wrong tangents": lambda x: rlx.jvp(rlx.sin, (x,), (x[:1],)),
    "wrong at some sizes": lambda x: x[5] + x[:7].sum(),
    "wrong at all sizes": lambda x: x + rlx.zeros((x.shape[0], 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_are_those_of_numbers(name):
    f = rlx.jit(FUNCTIONS[name])
    rng = np.random.default_rng(3)
    sizes = [6, 8, 0, 1, 2, 3, 7, 60] + [int(n) for n in rng.integers(2, 48, 23)]
    for n in sizes:
        expect_bits(f, random(n, 4, seed=n))
    if name not in ("halves", "wrong at all sizes", "wrong tangents"):
        # 0, 1 and the first are numbers, and what has no meaning with a symbol; ways of slices have one each.
        ways = 2 if name == "slices" else 1
        assert sum(c["symbolic"] for c in f.explain(as_dict=True)) == ways, f.explain()
    if name not in ("halves", "wrong at all sizes", "wrong tangents", "wrong at some sizes", "slices", "places", "pad"):
        assert compilations(f) <= 4, f.explain()
    assert compilations(f) <= 6 or name == "halves", f.explain()


MADE_OF_SIZES = {  # and how many ways there are
    "linspace": (1, lambda x: (rlx.linspace(0.1, 0.7, x.shape[0]), rlx.linspace(-1, x.shape[0], x.shape[0], False))),
    "linspace in float16": (1, lambda x: rlx.linspace(0.1, 0.7, x.shape[0] + 3, dtype="float16")),
    "reshape": (2, lambda x: x[:, 0].reshape(4, -1) + x.reshape((2, -1, 2)).sum()),  # or it raises
    "diagonal": (2, lambda x: (rlx.diagonal(x), rlx.trace(x), rlx.trace(x @ x.T))),
    "diagonals beside": (4, lambda x: (rlx.diagonal(x, 2), rlx.diagonal(x, -1), rlx.diagonal(x[None], 1, 2, -2))),
    "jacobians": (1, lambda x: (rlx.jacrev(rlx.tanh)(x), rlx.jacfwd(lambda y: (y * y).sum(1))(x))),
    "hessian": (1, lambda x: rlx.hessian(lambda y, z: (y**3 * z.sum()).sum(), argnums=(0, 1))(x[:, 0], x)),
    "complex moments": (1, lambda x: ((c := x + 2j * x).mean(), c.mean(0), c.mean(1), c.var(0))),
}


@pytest.mark.parametrize("name", MADE_OF_SIZES)
def test_what_is_made_of_sizes_needs_no_number(name):
    ways, f = MADE_OF_SIZES[name]
    f = rlx.jit(f)
    for n in (8, 12, 5, 2, 3, 4, 16, 7, 9, 20, 13, 40, 24):
        expect_bits(f, random(n, 4, seed=n))
    records = f.explain(as_dict=True)
    assert sum(r["symbolic"] for r in records) <= ways, f.explain()
    assert compilations(f) <= ways + 1 + (name == "diagonals beside"), f.explain()  # one has a meaning at 2 only


# ---- what a size may be asked


def sizes_of(f, *sizes):
    for n in sizes:
        expect_bits(f, random(n, 2, seed=n))
    return f.explain(as_dict=True)


PINS = {
    "int()": lambda x: x * int(x.shape[0]),
    "float()": lambda x: x * float(x.shape[0]),
    "complex()": lambda x: x * complex(x.shape[0]).real,
    "bool()": lambda x: x * 2 if x.shape[0] - 5 else x,
    "hash()": lambda x: x * {5: 2, 7: 3}.get(x.shape[0], 4),
    "use as an index": lambda x: x * [n * n for n in range(x.shape[0])][-1],
    "len()": lambda x: x * len(x),
    "use in NumPy": lambda x: x + np.asarray(x.shape[0]),
    "==": lambda x: x * 2 if x.shape[0] == 7 else x,
    "!=": lambda x: x * 2 if x.shape[0] != 7 else x,
    "<": lambda x: x * 2 if x.shape[0] < 7 else x,
    "<=": lambda x: x * 2 if x.shape[0] <= 7 else x,
    ">": lambda x: x * 2 if x.shape[0] > 7 else x,
    ">=": lambda x: x * 2 if 7 >= x.shape[0] * 2 else x,
    "//": lambda x: x * (100 // x.shape[0]),
}


@pytest.mark.parametrize("what", PINS)
def test_what_needs_the_number_pins_the_axis(what):
    f = rlx.jit(PINS[what])
    records = sizes_of(f, 5, 7, 9, 12, 5)
    assert compilations(f) == 4 and not any(r["symbolic"] for r in records)
    line = PINS[what].__code__.co_firstlineno
    what = "<=" if what == ">=" and "<=" in records[1]["why"] else what  # the mirrored one
    assert f"axis 0 of x0 is 7, pinned by {what} at {__file__}:{line}" in records[1]["why"], records[1]["why"]
    assert "had a second size: 5, then 7" in records[1]["why"] and "second" not in records[2]["why"]


COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


@pytest.mark.parametrize("compare", COMPARISONS, ids=lambda f: f.__name__)
def test_questions_near_the_least_size(compare):
    """A size that is a symbol is at least 2: where a comparison is decided by that, and where it is not."""
    polynomials = {
        "n": lambda n, m: n, "n + m": lambda n, m: n + m, "n * m": lambda n, m: n * m, "n - m": lambda n, m: n - m,
        "2 * n - 3": lambda n, m: 2 * n - 3,
    }  # fmt: skip
    with rlx.use_backend("reference"):
        for name, of in polynomials.items():
            for k in range(-1, 7):
                for mirrored in (False, True):
                    holds = lambda n, m: compare(k, of(n, m)) if mirrored else compare(of(n, m), k)
                    f = rlx.jit(lambda x: x * 2 if holds(*x.shape) else x)
                    for n, m in ((5, 7), (6, 8), (2, 2), (2, 3), (3, 2), (4, 9), (3, 3), (1, 2), (0, 1)):
                        expected = 2.0 if holds(n, m) else 1.0
                        assert np.all(f(np.ones((n, m), np.float32)).numpy() == expected), (name, k, mirrored, n, m)


def test_questions_about_sizes_of_graphs():
    """Which are at least 0; what depends on them is an error."""
    n, m = rlx.Dim("n"), rlx.Dim("m")
    assert n >= 0 and n > -1 and not n < 0 and not n <= -1 and n + 1 > 0 and n + m >= n and n * m >= 0 and n + 1 > n
    assert 0 <= n and not n + m < 0 and not n * n < -3 and not -1 >= n
    for ask in (
        lambda: n <= 0, lambda: n > 0, lambda: n >= 1, lambda: n < 1, lambda: 0 >= n, lambda: n + m <= 0,
        lambda: n * m <= 0, lambda: n + m > n, lambda: n <= m, lambda: 2 * n <= n,
    ):  # fmt: skip
        with pytest.raises(rlx.Error) as e:
            ask()
        assert e.value.code == "unbound-dim"


def test_what_polynomials_answer_pins_nothing():
    def f(x):
        n, d = x.shape
        assert n > 1 and n >= 2 and n != 0 and n != 1 and not n < 2 and n == n and n + 1 > n and 2 * n >= n + 2
        assert max(n, 1) is n and min(0, n) == 0 and n - n == 0 and abs(n) is n and round(n) is n and 2 * n // 2 == n
        assert (3 * n) % 3 == 0 and divmod(4 * n + 1, 4) == (n, 1) and 1 + n - 1 == n and -n + n == 0 and n // n == 1
        assert bool(n) and x.ndim == d == 2 and x.shape == (n, 2) and (n * d,) == x.reshape(-1).shape and n**2 == n * n
        assert str(n).startswith("?n") or n in (5, 7, 9)
        return x * n

    f = rlx.jit(f)
    assert [r["symbolic"] for r in sizes_of(f, 5, 7, 9)] == [False, True]


def test_a_size_is_a_number_beside_arrays():
    @rlx.jit
    def f(x, i):
        n = x.shape[0]
        return (
            x + n, n - x, x / n, n / x, n * i, i // n, 1 / n * x, (n * 0.1) * x, n**0.5 * x, 2.0**n * x, n // 2.0 + i,
            rlx.maximum(x, n), rlx.asarray(n), rlx.array([n, 2 * n, 0]), x > n, x == n, n % 2.5 * x, np.ones(3) * n,
            np.float64(0.3) * n * x, rlx.sqrt(n), x @ rlx.full((2,), n, dtype="float32"), (1 - 1 / n) * x,
        )  # fmt: skip

    for n in (5, 7, 9, 12):
        expect_bits(f, random(n, 2), np.arange(n))
    assert compilations(f) == 2, f.explain()


def test_a_caught_pin_counts_all_the_same():
    @rlx.jit
    def f(x):
        try:
            return x * int(x.shape[0])
        except BaseException:
            return x * 0

    assert [f(np.ones(n)).tolist()[0] for n in (3, 4, 5)] == [3, 4, 5]


def test_one_axis_is_pinned_and_the_other_is_not():
    f = rlx.jit(lambda x: x * int(x.shape[1]))
    for n in range(2, 20):
        for d in (3, 4):
            expect_bits(f, random(n, d))
    assert compilations(f) == 4, f.explain()  # (2, 3), (2, 4), (?, 4), (?, 3)


def test_a_size_outside_of_its_trace():
    kept = []
    f = rlx.jit(lambda x: (kept.append(x.shape[0]), x)[1])
    f(np.ones(3)), f(np.ones(4))
    with pytest.raises(rlx.Error) as e:
        int(kept[-1])
    assert e.value.code == "unbound-dim"
    with pytest.raises(rlx.Error) as e:
        rlx.asarray(kept[-1])
    assert e.value.code == "unbound-dim"


# ---- guards


def test_axes_that_must_be_equal():
    f = rlx.jit(lambda x, y: (x * y).sum())
    for n in (3, 5, 8, 12):
        expect_bits(f, random(n), random(n, seed=1))
    assert compilations(f) == 2
    expect_bits(f, random(4), random(5))  # the op's own error
    with pytest.raises(rlx.Error) as e:
        f(random(4), random(6))
    assert e.value.code != "dim-guard"
    np.testing.assert_allclose(f(random(4), random(1)), (random(4) * random(1)).sum(), rtol=1e-5)
    expect_bits(f, random(9), random(9))
    assert compilations(f) == 3
    f = rlx.jit(lambda x, y: x + y if x.shape == y.shape else x)  # axes that have always been equal are compared
    for n in (3, 5, 8):
        expect_bits(f, random(n), random(n, seed=1))
    assert compilations(f) == 2, f.explain()
    expect_bits(f, random(3), random(4))
    assert "a guard is broken" in f.explain(as_dict=True)[-1]["why"]


def test_equality_that_no_op_asks_for():
    """Results of which none joins the axes that must be equal: the transforms see to it."""
    given = random(4, 2)
    functions = (
        lambda x, y: rlx.vmap(lambda a, b: (a * 2, b * 3))(x, y),
        lambda x, y: rlx.vjp(lambda z: z * 2, x)[1](y),
        lambda x, y: rlx.jvp(lambda z: z * 2, (x,), (y,)),
        lambda x, y: (x, rlx.scan(lambda c, ab: (c, (ab[0] * 2, ab[1] * 3)), 0, (x, y))),
    )
    for raw in functions:
        f = rlx.jit(raw)
        for n, m in [(4, 4), (6, 6), (9, 9), (6, 9), (5, 5), (4, 6), (1, 5), (5, 1)]:
            expect_bits(f, random(n, 2), random(m, 2, seed=1))
        assert compilations(f) <= 3, f.explain()
    f = rlx.jit(lambda y: rlx.vjp(lambda z: z * 2, rlx.array(given))[1](y))
    for n in (4, 5, 6, 4):
        expect_bits(f, random(n, 2))


def test_a_captured_array_is_as_long_as_an_argument():
    table = random(10, 3)
    f = rlx.jit(lambda x: x + rlx.array(table)[: x.shape[0]])
    for n in (3, 5, 9, 10, 4):
        expect_bits(f, random(n, 3))
    assert compilations(f) == 2
    expect_bits(f, random(12, 3))  # too long: the op's own error
    expect_bits(f, random(8, 3))
    weights = rlx.array(random(5))
    f = rlx.jit(lambda x: (x * weights).sum())
    expect_bits(f, random(5))
    expect_bits(f, random(7))
    expect_bits(f, random(5, seed=3))


def test_what_fails_with_symbols_falls_back_to_numbers():
    names = {"w5": 2.0, "w7": 3.0, "w9": 4.0}
    f = rlx.jit(lambda x: x * names[f"w{x.shape[0]}"])
    records = sizes_of(f, 5, 7, 9)
    assert compilations(f) == 3 and "a number because with a symbol it fails (KeyError" in records[1]["why"]
    f = rlx.jit(lambda x: rlx.svd(x)[1])  # an op that takes no symbols
    records = sizes_of(f, 5, 7, 9)
    assert compilations(f) == 3 and "is 9, a number because with a symbol it fails (svd" in records[2]["why"]
    f = rlx.jit(lambda x: rlx.lstsq(x, x[:, 0]))  # one that is compiled for each size
    records = sizes_of(f, 5, 7, 9)
    assert compilations(f) == 3 and "with a symbol an op needs its number (svd" in records[1]["why"], f.explain()
    f = rlx.jit(lambda x, y: rlx.svd(x[:2])[1] + (x @ y).sum())
    f(random(3, 4), random(4))
    with pytest.raises(rlx.Error):  # a wrong call pins nothing
        f(random(5, 4), random(6))
    for n in (7, 8):
        expect_bits(f, random(n, 4), random(4))
    assert [c["symbolic"] for c in f.explain(as_dict=True)] == [False, True]


def test_a_program_with_symbols_for_each_way():
    f = rlx.jit(lambda x: x[:100].sum(0) + x[-40:].sum(0))
    for n in (50, 60, 120, 130, 101, 100, 99, 20, 30, 25, 2, 500, 40, 41, 70):
        expect_bits(f, random(n, 3, seed=n))
    records = f.explain(as_dict=True)
    assert [r["symbolic"] for r in records] == [False, True, True, True], f.explain()
    assert records[2]["why"] == "a guard is broken (?n0+1 <= 100)" and records[2]["sizes"] == 5
    assert f.cache_info().programs == 4

    g = rlx.jit(lambda x: rlx.svd(x[:100])[1])  # only one way needs the number
    for n in (150, 160, 50, 60, 170, 140, 80):
        expect_bits(g, random(n, 3, seed=n))
    records = g.explain(as_dict=True)
    assert [r["symbolic"] for r in records] == [False, True, False, False, False], g.explain()
    for r in records[2:]:
        assert "a guard is broken (?n0+1 > 100); with a symbol it fails (svd" in r["why"], r["why"]


def test_there_are_not_any_number_of_ways():
    def f(x):
        return sum(x[: 10 * k].sum(0) for k in range(1, 30))

    f = rlx.jit(f)
    for n in range(5, 290, 10):
        expect_bits(f, random(n, 2, seed=n))
    assert sum(r["symbolic"] for r in f.explain(as_dict=True)) == 8
    assert compilations(f) == 29
    for n in range(16, 80, 10):
        expect_bits(f, random(n, 2, seed=n))
    assert compilations(f) == 29


# ---- how functions are called


def test_trees_keywords_and_static_arguments():
    @rlx.jit
    def f(batch, *, scale=1.0):
        return {"y": batch["x"] * scale + batch["b"][0], "n": batch["x"].shape[0]}

    for n in (4, 6, 8, 10):
        expect_bits(f, {"x": random(n, 2), "b": (random(2),)}, scale=0.5)
    assert compilations(f) == 2
    f({"x": random(4, 2), "b": [random(2)]}, scale=0.5)
    assert "other structure" in f.explain(as_dict=True)[-1]["why"]
    f({"x": random(4, 2).astype(np.float64), "b": (random(2),)}, scale=0.5)
    assert "other dtypes or ranks" in f.explain(as_dict=True)[-1]["why"]
    g = rlx.jit(lambda x, k: x[:k] * k, static_argnums=1)
    for k in (2, 3):
        for n in (4, 6, 8, 10):
            assert g(random(n), k).shape == (k,)
    assert compilations(g) == 4 and "other static arguments" in g.explain()


def test_nested_functions():
    inner = rlx.jit(lambda x: x * x.shape[0] - x.mean())
    outer = rlx.jit(lambda x: inner(x) + inner(x * 2).sum() + rlx.vmap(inner)(x[:, None]).sum())
    for n in (4, 6, 9):
        expect_bits(outer, random(n))
    assert compilations(outer) == 2 and compilations(inner) == 0
    c = random(3)
    outer = rlx.jit(lambda x: x.sum() + rlx.jit(lambda y: y * x.shape[0])(c))  # captures what is traced
    for n in (4, 6, 9):
        expect_bits(outer, random(n))
    pinning = rlx.jit(lambda x: x * int(x.shape[0]))
    outer = rlx.jit(lambda x: pinning(x) + 1)
    for n in (4, 6, 9):
        expect_bits(outer, random(n))
    assert compilations(outer) == 3

    class Model:
        @rlx.jit
        def __call__(self, x):
            return x * 2

    assert rlx.grad(lambda x: rlx.jit(lambda y: (y * y.shape[0]).sum())(x))(random(4)).shape == (4,)


def test_arguments_of_numbers_alone():
    f = rlx.jit(lambda a, b: a * b)
    assert f(2, 3.0).item() == 6.0 and f(4, 5.0).item() == 20.0 and compilations(f) == 1
    g = rlx.jit(lambda: rlx.ones(3))
    assert g().tolist() == g().tolist() == [1, 1, 1] and "no arguments" in g.explain()


def test_results_are_only_sizes():
    f = rlx.jit(lambda x: (x.shape[0], [x.size, None]))
    for n in (3, 5, 7):
        assert f(random(n, 2))[0].item() == n and f(random(n, 2))[1][0].item() == 2 * n
    assert compilations(f) == 2


@pytest.mark.skipif("reference" not in rlx.backends(), reason="needs the reference")
def test_on_the_reference_device():
    f = rlx.jit(lambda x: rlx.softmax(x, axis=0) * x.shape[0])
    with rlx.use_backend("reference"):
        for n in (3, 5, 7):
            x = random(n, 2)
            e = np.exp(x - x.max(0))
            np.testing.assert_allclose(f(x), e / e.sum(0) * n, rtol=1e-5)
    assert compilations(f) == 2


def test_threads_with_different_sizes():
    f = rlx.jit(lambda x: rlx.tanh(x @ x.T).sum(0) / x.shape[0])
    f(random(4, 3)), f(random(5, 3))
    before, wrong = compilations(f), []

    def work(first):
        for i in range(200):
            n = first + 2 * (i % 20)
            x = random(n, 3, seed=n)
            y = np.asarray(f(x))
            if not np.allclose(y, np.tanh(x @ x.T).sum(0) / n, rtol=1e-4, atol=1e-5):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(first,)) for first in (4, 5)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong and compilations(f) == before == 2
    g = rlx.jit(lambda x: x * 2 + x.shape[0])  # both compile
    done = []
    threads = [threading.Thread(target=lambda n=n: done.append(g(random(n)).shape)) for n in range(2, 12)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert sorted(done) == [(n,) for n in range(2, 12)]


def at_once(*calls):
    """What each call gives, or raises, all begun at the same time by threads of their own."""
    results, barrier = [None] * len(calls), threading.Barrier(len(calls))

    def work(i):
        barrier.wait()
        try:
            results[i] = calls[i]()
        except Exception as e:
            results[i] = e

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(len(calls))]
    [t.start() for t in threads], [t.join(20) for t in threads]
    assert not any(t.is_alive() for t in threads), "threads wait for each other"
    return results


def slowly(f):
    """f, which takes a while to trace."""

    def slow(x):
        time.sleep(0.02)
        return f(x)

    return slow


def test_threads_that_need_the_same_program_wait_for_one():
    for _ in range(3):
        f = rlx.jit(slowly(lambda x: x * 2 + x.shape[0]))
        calls = [lambda n=n: f(np.full(n, 3.0)) for n in (*range(2, 10), 2, 3)]
        assert [y.tolist() for y in at_once(*calls)] == [[6 + n] * n for n in (*range(2, 10), 2, 3)]
        assert compilations(f) == 2, f.explain()
        f = rlx.jit(slowly(lambda x: x * int(x.shape[0])))  # a program for each size
        calls = [lambda n=n: f(np.ones(n)) for n in (4, 4, 5, 5, 5, 6, 6, 6)]
        assert [y.tolist() for y in at_once(*calls)] == [[n] * n for n in (4, 4, 5, 5, 5, 6, 6, 6)]
        assert compilations(f) == 3, f.explain()
        f = rlx.jit(slowly(lambda x: x[:4] * 2))  # two ways
        f(np.ones(2)), f(np.ones(3))
        at_once(*[lambda n=n: f(np.ones(n)) for n in (5, 6, 7, 8, 5, 6, 7, 8)])
        assert compilations(f) == 3, f.explain()


def test_threads_wait_for_nobody_who_waits_for_them(monkeypatch):
    c = rlx.ones(3)
    f = rlx.jit(slowly(lambda x: x + g(c) if x.ndim == 2 else x * 2))  # both call the other one on arrays
    g = rlx.jit(slowly(lambda x: x + f(c) if x.ndim == 2 else x * 3))
    x = np.ones((2, 3))
    results = at_once(*[lambda h=h: h(x) for h in (f, g) * 4])
    assert [y.tolist() for y in results] == [[[4] * 3] * 2, [[3] * 3] * 2] * 4

    inside = threading.local()  # both try symbols, and meanwhile call the other one, which does

    def calling(other):
        def h(x):
            if getattr(inside, "on", False):
                return x * 2
            inside.on = True
            try:
                return x + other()(c).sum()
            finally:
                inside.on = False

        return rlx.jit(slowly(h))

    f, g = calling(lambda: g), calling(lambda: f)
    inside.on = True
    f(np.ones(2, np.float32)), g(np.ones(2, np.float32))
    results = at_once(lambda: f(np.ones(4, np.float32)), lambda: g(np.ones(4, np.float32)))
    assert [y.shape for y in results] == [(4,), (4,)]

    f = rlx.jit(slowly(lambda x: x if x.shape[0] < 3 else x + f(rlx.ones(2)).sum()))  # itself
    assert [y.tolist() for y in at_once(*[lambda n=n: f(np.ones(n)) for n in (2, 3, 4) * 2])] == [
        [1, 1], [3, 3, 3], [3, 3, 3, 3]] * 2  # fmt: skip

    def wrong(x):
        raise KeyError("wrong")

    f = rlx.jit(slowly(wrong))
    assert all(isinstance(e, KeyError) for e in at_once(*[lambda n=n: f(np.ones(n)) for n in (2, 3, 3, 4)]))
    assert compilations(f) == 0 and not any(family.works for family in f._families.values())

    monkeypatch.setattr(rlx._jit, "_PATIENCE", 0.1)
    asked = []

    def others(x):  # waits for a thread that calls it
        if not asked:
            asked.append(1)
            asked.append(at_once(lambda: f(np.ones(3)))[0].tolist())
        return x * 2

    f = rlx.jit(others)
    assert f(np.ones(3)).tolist() == asked[1] == [2, 2, 2]


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_two_thousand_sizes_need_no_more_memory():
    f = rlx.jit(lambda x: rlx.tanh(x @ x.T).sum() / x.shape[0])
    for n in range(2, 402):
        f(np.ones((n, 2), np.float32))
    f(np.ones((2100, 2), np.float32))
    before = resident()
    for n in range(402, 2002):
        f(np.ones((n, 2), np.float32))
    assert resident() - before < 24 << 20
    assert compilations(f) == 2 and f.explain(as_dict=True)[1]["sizes"] == 1000
    assert sum(len(family.programs) for family in f._families.values()) == 2


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_a_program_for_each_size_needs_little_memory():
    """And is counted with what it needs: the caches are bounded by that."""
    f = rlx.jit(lambda x: rlx.tanh(x * int(x.shape[0])))
    rlx.clear_caches()
    for n in range(2, 102):
        f(np.ones(n, np.float32))
    before, said = resident(), _core.program_counts()[3]
    for n in range(102, 602):
        f(np.ones(n, np.float32))
    kept, said = (resident() - before) / 500, (_core.program_counts()[3] - said) / 500
    assert compilations(f) == 600 and kept < 64 << 10
    assert kept < 2.5 * said, (kept, said)  # with what the interpreter keeps, which the cache of functions counts


# ---- what explain says


def test_explain():
    def scaled(x, rate):
        return x * rate

    f = rlx.jit(scaled)
    assert f.explain() == "scaled: 0 compilations" and f.cache_info() == (0, 0, 0)
    for n in (32, 48, 48, 7, 1):
        f(random(n, 3), 0.5)
    lines = f.explain().splitlines()
    assert lines[0] == "scaled: 3 compilations" and f.cache_info() == (2, 3, 3)
    assert lines[1].startswith("1. x0 [32, 3] f32, x1 [] f32 number: first call; ")
    assert lines[1].endswith("1 size, 0 hits")
    assert lines[2].startswith("2. x0 [?n0, 3] f32, x1 [] f32 number: axis 0 of x0 had a second size: 32, then 48; ")
    assert lines[2].endswith("2 sizes, 2 hits") and " s, " in lines[2]
    assert lines[3].startswith("3. x0 [1, 3] f32, x1 [] f32 number: axis 0 of x0 is 1, before 32; ")
    record = f.explain(as_dict=True)[1]
    assert record.keys() == {"types", "why", "symbolic", "seconds", "sizes", "hits"} and record["seconds"] > 0
    rlx.clear_caches()
    f(random(32, 3), 0.5)
    assert "it was dropped" in f.explain(as_dict=True)[-1]["why"]
    g = rlx.jit(lambda xs: sum(x.sum() for x in xs))
    g([random(2)] * 20)
    assert "x6 [2] f32, 13 more" in g.explain()


def test_explain_remembers_the_last_compilations():
    f = rlx.jit(lambda x: x * float(x.shape[0]))
    with rlx.use_backend("reference"):
        for n in range(2, 302):
            f(np.ones(n)), f(np.ones(n))
    assert f.cache_info()[:2] == (300, 300) and len(f.explain(as_dict=True)) == 256
    assert f.explain().splitlines()[1].startswith("45. x0 [46] f64")


def test_extrema_of_no_elements_are_refused_at_any_size():
    for f in (rlx.max, rlx.min):
        g = rlx.jit(lambda x, f=f: f(x[5:], 0))
        for n in (9, 8, 5, 7, 5):
            x = np.arange(2 * n, dtype="f4").reshape(n, 2)
            if n > 5:
                np.testing.assert_array_equal(g(x), getattr(np, f.__name__)(x[5:], 0))
            else:
                with pytest.raises(rlx.UserError, match="of no elements"):
                    g(x)


def test_views_of_no_elements():
    f = rlx.jit(lambda x: x[: x.shape[0] // 3 * 3, ::2].reshape(3, x.shape[0] // 3, 2) * 2)
    for n in (6, 7, 2, 9, 1, 0, 3):
        x = np.arange(4 * n, dtype="f4").reshape(n, 4)
        np.testing.assert_array_equal(f(x), x[: n // 3 * 3, ::2].reshape(3, n // 3, 2) * 2)


def test_gradients_of_scans_shorter_than_their_checkpoints():
    w = np.float32([[0.3, -0.2], [0.1, 0.4]])

    def loss(w, x, checkpoints):
        step = lambda h, v: (rlx.tanh(h @ w + v), h)
        last, _ = rlx.scan(step, rlx.zeros(2), x, checkpoints=checkpoints)
        return (last * last).sum()

    for checkpoints in (3, 5):
        f = rlx.jit(rlx.grad(lambda w, x, c=checkpoints: loss(w, x, c)))
        for n in (4, 6, 2, 3, 1, 9):
            x = np.linspace(-1, 1, 2 * n, dtype="f4").reshape(n, 2)
            np.testing.assert_allclose(f(w, x), rlx.grad(lambda w: loss(w, x, None))(w), rtol=1e-5, atol=1e-7)
