"""Donated arguments of jit: the same bits in the same memory, and nobody gets to read what was written over."""

import copy
import ctypes
import gc
import inspect
import pickle
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import rlx
from rlx import _core, nn, optim


def ramp(*sizes, dtype="float32", first=0):
    return (np.arange(np.prod(sizes)) + first).astype(dtype).reshape(sizes)


def arr(*sizes, **kwargs):
    return rlx.array(ramp(*sizes, **kwargs))


def plain(x):
    return rlx.tanh(x * 0.01) + 1


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def gone(x, name):
    return pytest.raises(rlx.UserError, match=f"this array, .*, was donated to {name} and is gone")


def test_results_lie_in_donated_memory():
    f, same = rlx.jit(plain, donate_argnums=0), rlx.jit(plain)
    x, y = arr(64, 32), arr(64, 32)
    for _ in range(3):
        address, want = x._address, same(y)
        x = f(x)
        assert x._address == address
        y = want
        assert x.tolist() == y.tolist()
    assert f.cache_info().compilations == 1


def test_a_donated_array_is_gone():
    def update(x):
        return x + 1

    f = rlx.jit(update, donate_argnums=(0,))
    x = arr(3, 4)
    y = f(x)
    assert x.is_deleted() and not y.is_deleted()
    assert x.shape == (3, 4) and x.dtype == "float32" and x.ndim == 2 and x.size == 12 and x.device == "cpu"
    assert repr(x) == "rlx.Array([3, 4] f32, donated)"
    uses = [
        lambda: x + 1, lambda: rlx.sum(x), lambda: x.numpy(), lambda: np.asarray(x), lambda: x.tolist(), lambda: x[0],
        lambda: x.reshape(12), lambda: float(x.reshape(-1)[0]), lambda: np.sum(x), lambda: x.to_device("cpu"),
        lambda: x.__dlpack__(), lambda: pickle.dumps(x), lambda: f(x), lambda: rlx.jit(plain)(x), lambda: x.astype("f64"),
        lambda: rlx.grad(lambda a: (a * x).sum())(y), lambda: rlx.jit(lambda a: a + x)(y), lambda: x.T, lambda: bool(x.any()),
        lambda: rlx.vmap(plain)(x), lambda: rlx.concatenate([x, y]), lambda: x == y, lambda: list(x), lambda: x.__array_interface__,
        lambda: rlx.save("/nowhere/x", {"x": x}), lambda: rlx.array([x, y]),
    ]  # fmt: skip
    for use in uses:
        with gone(x, "update"):
            use()
    with pytest.raises(BufferError, match="was donated to update"):
        memoryview(x)
    assert y.tolist() == (ramp(3, 4) + 1).tolist()


def test_which_arguments():
    def f(a, b, /, c, *more, d, **others):
        return [x + 1 for x in (a, b, c, *more, d, *[others[n] for n in sorted(others)])]

    def deleted(donate, *args, **kwargs):
        args, kwargs = [arr(3) for _ in range(args[0])], {n: arr(3) for n in kwargs}
        out = rlx.jit(f, **donate)(*args, **kwargs)
        assert [y.tolist() for y in out] == [(ramp(3) + 1).tolist()] * len(out)
        return [i for i, x in enumerate(args) if x.is_deleted()] + [n for n, x in kwargs.items() if x.is_deleted()]

    assert deleted({"donate_argnums": 1}, 3, d=1) == [1]
    assert deleted({"donate_argnums": (0, 2)}, 5, d=1) == [0, 2]
    assert deleted({"donate_argnums": 2}, 2, c=1, d=1) == ["c"]  # by name, too
    assert deleted({"donate_argnames": "c"}, 3, d=1) == [2]
    assert deleted({"donate_argnames": ("d", "e")}, 3, d=1, e=1, g=1) == ["d", "e"]
    assert deleted({"donate_argnums": 4}, 6, d=1) == [4]  # one of the further ones
    assert deleted({"donate_argnums": 9}, 6, d=1) == []
    assert deleted({}, 6, d=1) == []
    assert rlx.jit(lambda *a: a[0] + 1, donate_argnums=0)(arr(2)).tolist() == [1, 2]

    @rlx.jit
    def tree(p):
        return p

    x = {"w": arr(3), "b": [arr(2), None]}
    rlx.jit(lambda a, p: rlx.tree_map(lambda v: v * a, p), donate_argnames="p")(arr(), x)
    assert x["w"].is_deleted() and x["b"][0].is_deleted()

    for donate, part in [
        ({"donate_argnums": 3}, "has no argument 3 that could be donated"),
        ({"donate_argnums": -4}, "has no argument -4"),
        ({"donate_argnames": "q"}, "has no argument 'q'"),
        ({"donate_argnums": 0, "static_argnums": 0}, "the argument a is static, which cannot be donated"),
        ({"donate_argnames": "a", "static_argnums": -3}, "the argument a is static, which cannot be donated"),
    ]:
        with pytest.raises(rlx.UserError, match=part):
            rlx.jit(lambda a, b, c: a, **donate)
    with pytest.raises(rlx.UserError, match="has no argument 'more'"):
        rlx.jit(f, donate_argnames="more")

    @rlx.jit(donate_argnums=-1)
    def last(a, b, c):
        """Twice c."""
        return c * 2

    assert last.__name__ == "last" and last.__doc__ == "Twice c."
    assert list(inspect.signature(last).parameters) == ["a", "b", "c"]
    assert [*inspect.signature(rlx.jit).parameters][:2] == ["f", "static_argnums"]
    with pytest.raises(TypeError, match="takes a function, not None"):
        rlx.jit(None)
    x = arr(3)
    last(arr(3), arr(3), x)
    assert x.is_deleted()


def test_static_arguments_beside():
    def f(n, a, *more, scale=2, **others):
        return a * scale, [x * n for x in more], others["b"] + n

    g = rlx.jit(f, static_argnums=0, static_argnames="scale", donate_argnums=(1, 3), donate_argnames="b")
    xs = [arr(3, first=i) for i in range(4)]
    out = g(3, xs[0], xs[1], xs[2], b=xs[3], scale=5)
    assert [x.is_deleted() for x in xs] == [True, False, True, True]
    assert out[0].tolist() == [0, 5, 10] and out[1][1].tolist() == [6, 9, 12] and out[2].tolist() == [6, 7, 8]


class Model:
    @rlx.jit
    def __call__(self, x):
        return x

    def step(self, x):
        return x + 1


def test_numpy_numbers_and_methods():
    f = rlx.jit(lambda x, n: x + n, donate_argnums=(0, 1))
    a = ramp(3)
    assert f(a, 2).tolist() == [2, 3, 4] and a.tolist() == [0, 1, 2]
    assert f(arr(), 2.0).item() == 2
    assert rlx.jit(lambda x: x * 2, donate_argnums=0)(rlx.zeros((0, 3))).shape == (0, 3)
    x = rlx.array(5)
    assert rlx.jit(Model().step, donate_argnums=0)(x).item() == 6 and x.is_deleted()


def test_what_no_result_can_use_is_told_once():
    def f(p, x):
        return {"p": p["w"] + x.sum()}

    g = rlx.jit(f, donate_argnums=(0, 1))
    with pytest.warns(UserWarning, match=r"^f: no result could use the memory of donated arguments: 1 \(\[7\] f32\)$"):
        g({"w": arr(3)}, arr(7))
    p, x = {"w": arr(3)}, arr(7)
    g(p, x)  # not again
    assert p["w"].is_deleted() and x.is_deleted()
    with warnings.catch_warnings(), pytest.raises(UserWarning):
        warnings.simplefilter("error")
        x = arr(7)
        rlx.jit(lambda x: x.sum(), donate_argnums=0)(x)
    assert not x.is_deleted()  # the run has not begun


def copied(names):
    return pytest.warns(UserWarning, match=rf": donated arguments were copied, .*: {names}$")


def test_memory_that_others_see_is_copied():
    f = rlx.jit(plain, donate_argnums=0)
    want = plain(arr(4, 6)).tolist()
    views = [
        lambda x: x.reshape(24), lambda x: x.reshape(2, 12).reshape(4, 6), np.asarray, memoryview, lambda x: np.asarray(x)[1:].T,
        lambda x: x.__array_interface__, lambda x: np.frombuffer(x, np.float32), lambda x: np.array(x, copy=False)[0],
    ]  # fmt: skip
    for make in views:
        f = rlx.jit(plain, donate_argnums=0)
        x = arr(4, 6)
        address = x._address
        view = make(x)
        with copied("0"):
            y = f(x)
        assert x.is_deleted() and y._address != address and y.tolist() == want
        gc.collect()
        again = arr(4, 6)  # what was given back is taken by others
        f(arr(4, 6))  # told once
        if hasattr(view, "tolist"):
            flat = np.asarray(view.tolist() if not isinstance(view, memoryview) else view).reshape(-1)
            assert set(flat) <= set(range(24)) and len(flat) >= 6
        del again
    # A view that is gone, and copies, are no reason.
    f, x = rlx.jit(plain, donate_argnums=0), arr(4, 6)
    np.asarray(x).sum(), x.reshape(24), np.from_dlpack(x), x.numpy().copy()
    kept = np.from_dlpack(x)
    address = x._address
    assert f(x)._address == address and kept.tolist() == ramp(4, 6).tolist()


def test_a_view_of_a_donated_array_stays():
    f, x = rlx.jit(plain, donate_argnums=0), arr(4, 6)
    rows, half = np.asarray(x), x.reshape(2, 12)
    with copied("0"):
        f(x)
    del x
    gc.collect()
    for _ in range(5):
        arr(4, 6) + 7
    assert rows.tolist() == ramp(4, 6).tolist() and half.tolist() == ramp(2, 12).tolist()
    g = rlx.jit(plain, donate_argnums=0)
    with copied("0"):
        g(half)  # its memory is that of `rows`, too
    assert rows.tolist() == ramp(4, 6).tolist()


def test_plain_bytes_that_are_given_back_at_once_and_read_on():
    """As torch.frombuffer does: it keeps the array, not the view."""

    class View(ctypes.Structure):
        _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t)]
        _fields_ += [("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p)]
        _fields_ += [(name, ctypes.c_void_p) for name in ("shape", "strides", "suboffsets", "internal")]

    f, x, view = rlx.jit(plain, donate_argnums=0), arr(4, 6), View()
    assert ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(x), ctypes.byref(view), 0) == 0
    address, size = view.buf, view.len
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    with copied("0"):
        y = f(x)
    for _ in range(5):
        arr(4, 6) + 7
    assert y.tolist() != ramp(4, 6).tolist()
    assert np.frombuffer(ctypes.string_at(address, size), "f4").reshape(4, 6).tolist() == ramp(4, 6).tolist()


def test_an_array_passed_twice():
    def f(a, b):
        return a + 1, b * 2

    for donate in (0, 1, (0, 1)):
        g, x = rlx.jit(f, donate_argnums=donate), arr(5)
        with copied("1" if donate == 1 else "0"):  # of two one need not be
            y, z = g(x, x)
        assert y.tolist() == [1, 2, 3, 4, 5] and z.tolist() == [0, 2, 4, 6, 8]
        assert x.is_deleted()
    g, x = rlx.jit(f, donate_argnums=0), arr(5)
    with copied("0"):
        g(x, x.reshape(5))
    shared = arr(5)
    h = rlx.jit(lambda a: a + shared, donate_argnums=0)
    with copied("0"):
        assert h(shared).tolist() == [0, 2, 4, 6, 8]
    assert shared.is_deleted() and h(arr(5)).tolist() == [0, 2, 4, 6, 8]  # what was captured stays


def test_transforms_around_ignore_it():
    f = rlx.jit(lambda x: (x * x).sum(), donate_argnums=0)
    x = arr(3)
    assert rlx.grad(f)(x).tolist() == [0, 2, 4] and not x.is_deleted()
    y = arr(2, 3)
    assert rlx.vmap(f)(y).tolist() == [5, 50] and not y.is_deleted()
    outer = rlx.jit(lambda x: f(x) + f(x * 2))
    assert outer(x).item() == 25 and not x.is_deleted()
    rlx.jvp(f, (x,), (x,)), f.graph(x)
    assert not x.is_deleted()
    assert rlx.jit(lambda x: plain(rlx.jit(plain, donate_argnums=0)(x)))(x).tolist() == plain(plain(x)).tolist()


def test_sizes_that_are_symbols():
    f, same = rlx.jit(lambda x, y: (x + 1, y * 2), donate_argnums=(0, 1)), rlx.jit(lambda x, y: (x + 1, y * 2))
    for n, m in [(5, 3), (6, 4), (9, 9), (1, 7), (0, 5), (30, 2), (12, 12)]:
        x, y = arr(n), arr(m, 2)
        addresses = {x._address, y._address}
        want = [v.tolist() for v in same(arr(n), arr(m, 2))]
        out = f(x, y)
        assert [v.tolist() for v in out] == want and x.is_deleted() and y.is_deleted()
        if n > 1:
            assert {v._address for v in out} == addresses
    assert f.cache_info().compilations <= same.cache_info().compilations
    # A call that has no meaning takes nothing.
    g = rlx.jit(lambda x, y: x + y, donate_argnums=0)
    for n in (4, 5, 6):
        g(arr(n), arr(n))
    x = arr(7)
    with pytest.raises(rlx.Error):
        g(x, arr(5))
    assert x.tolist() == ramp(7).tolist()


def test_a_run_that_fails_has_taken_them():
    def f(x, i):
        return rlx.take(x, i, axis=0), x + 1

    g = rlx.jit(f, donate_argnums=0)
    x = arr(5)
    with pytest.raises(rlx.Error, match="out of range"):
        g(x, rlx.array([7]))
    with gone(x, "f"):
        x + 1
    with pytest.raises(rlx.Error):  # tracing has failed: no run
        rlx.jit(lambda x: x @ rlx.ones((3, 3)), donate_argnums=0)(x := arr(5))
    assert x.tolist() == ramp(5).tolist()
    h = rlx.jit(lambda x: x + 1, donate_argnums=0)
    assert h(h(arr(5))).tolist() == [2, 3, 4, 5, 6]


def test_copies_stay():
    f = rlx.jit(plain, donate_argnums=0)
    x = arr(4, 6)
    kept = [x.copy(), copy.deepcopy({"x": x})["x"], copy.copy(x)]
    f(x)
    assert all(k.tolist() == ramp(4, 6).tolist() for k in kept)
    with gone(x, "plain"):
        x.copy()


def test_cancelled():
    code = """
import os, signal, threading, rlx
x = rlx.ones((64, 64))
n = rlx.jit(lambda x: rlx.scan(lambda c, _: (c @ c * 0.5, None), x, length=4000000)[0], donate_argnums=0)
threading.Timer(2.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    n(x)
    print("not stopped")
except KeyboardInterrupt:
    print("stopped", x.is_deleted(), flush=True)
seen = []
signal.signal(signal.SIGINT, lambda *a: seen.append(1))  # as training loops have it: the state must survive
m = rlx.jit(lambda x: rlx.scan(lambda c, _: (rlx.tanh(c @ c), None), x, length=3000)[0], donate_argnums=0)
x = rlx.ones((64, 64))
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
while not seen:
    x = m(x)
print("done", x.shape == (64, 64) and abs(float(x.sum())) >= 0, len(seen), flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "stopped True\ndone True 1\n", done


def test_threads():
    f = rlx.jit(plain, donate_argnums=0)
    f(arr(64, 64))
    for _ in range(20):
        x, outcomes = arr(64, 64), []
        barrier = threading.Barrier(4)

        def call(x=x, outcomes=outcomes, barrier=barrier):
            barrier.wait()
            try:
                outcomes.append(f(x).tolist())
            except rlx.UserError as e:
                outcomes.append(e.code)

        threads = [threading.Thread(target=call) for _ in range(4)]
        [t.start() for t in threads], [t.join() for t in threads]
        assert outcomes.count("donated") == 3
        assert next(o for o in outcomes if o != "donated") == plain(arr(64, 64)).tolist()


def test_others_read_while_one_donates():
    f = rlx.jit(lambda x: x * 0 - 1, donate_argnums=0)
    total = rlx.jit(lambda x: (x @ x.T).sum())
    want = total(rlx.ones((300, 300))).item()
    f(arr(300, 300)), total(arr(300, 300))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(30):
            x, seen = rlx.ones((300, 300)), []
            started = threading.Event()

            def read(x=x, seen=seen, started=started):
                try:
                    started.set()
                    seen.append(total(x).item())
                except rlx.UserError as e:
                    assert e.code == "donated"

            thread = threading.Thread(target=read)
            thread.start()
            started.wait()
            y = f(x)
            thread.join()
            assert y.tolist()[0][0] == -1 and seen in ([], [want])


@pytest.mark.skipif(not hasattr(_core, "register_hidden_device"), reason="needs the CPU backend")
def test_on_other_devices():
    _core.register_hidden_device(0)
    f = rlx.jit(plain, donate_argnums=0)
    x = rlx.array(ramp(8, 8), device="hidden")
    y = f(x)
    assert x.is_deleted() and y.device == "hidden" and y.tolist() == plain(arr(8, 8)).tolist()
    address = y._address
    assert f(y)._address == address and y.is_deleted()
    x = rlx.array(ramp(8, 8), device="hidden")
    view = x.reshape(64)
    g = rlx.jit(plain, donate_argnums=0)
    with copied("0"):
        g(x)
    assert view.tolist() == ramp(64).tolist()
    # What is moved for the run is gone where it was, too.
    z = arr(8, 8)
    h = rlx.jit(lambda x, y: x + y, donate_argnums=0)
    assert h(z, rlx.array(ramp(8, 8), device="hidden")).tolist() == (2 * ramp(8, 8)).tolist()
    assert z.is_deleted()
    previous = rlx.get_backend()
    rlx.use_backend("reference")
    try:
        k, x = rlx.jit(plain, donate_argnums=0), arr(8, 8)
        np.testing.assert_allclose(k(x).numpy(), plain(arr(8, 8)).numpy(), rtol=1e-6)
        assert x.is_deleted()
    finally:
        rlx.use_backend(previous)


# ---- training


MODEL = nn.Sequential(nn.Linear(16, 32), rlx.tanh, nn.Linear(32, 32), rlx.tanh, nn.Linear(32, 1))


def training(optimizer, **donate):
    def loss(params, x, y):
        return ((MODEL(params, x) - y) ** 2).mean()

    @(lambda f: rlx.jit(f, **donate))
    def step(params, state, x, y):
        value, gradients = rlx.value_and_grad(loss)(params, x, y)
        params, state = optimizer.update(gradients, state, params)
        return params, state, value

    return step


@pytest.mark.parametrize(
    "optimizer",
    [
        optim.sgd(0.1, momentum=0.9), optim.adam(1e-2), optim.adamw(optim.warmup_cosine(1e-2, 5, 50)), optim.lion(1e-3),
        optim.chain(optim.clip_by_global_norm(0.5), optim.adamw(1e-2)), optim.ema(optim.adamw(1e-2), 0.9),
        optim.accumulate(optim.adamw(1e-2), 3),
        optim.masked(optim.adamw(1e-2), lambda path, leaf: not path.endswith("b")),
    ],
    ids=["sgd", "adam", "adamw", "lion", "clip", "ema", "accumulate", "masked"],
)  # fmt: skip
def test_training_in_place(optimizer):
    step, plain_step = training(optimizer, donate_argnums=(0, 1)), training(optimizer)
    x = rlx.array(np.random.default_rng(0).normal(size=(24, 16)).astype("f4"))
    y = x[:, :1] * x[:, 1:2]
    params = MODEL.init(rlx.key(0))
    state = optimizer.init(params)
    others = rlx.tree_map(lambda a: rlx.array(a.numpy()), (params, state))
    addresses = None
    for i in range(7):
        params, state, value = step(params, state, x, y)
        *others, expected = plain_step(*others, x, y)
        assert value.item() == expected.item()
        now = sorted(a._address for a in rlx.tree_leaves((params, state)) if a.size > 1)
        assert addresses is None or now == addresses
        addresses = now
    for a, b in zip(rlx.tree_leaves((params, state)), rlx.tree_leaves(tuple(others))):
        assert a.tolist() == b.tolist()


PEAK = """
import sys, rlx
from rlx import nn, optim
model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(4)])
optimizer = optim.adamw(1e-3)

def step(params, state, x):
    value, gradients = rlx.value_and_grad(lambda p: (model(p, x) ** 2).mean())(params)
    params, state = optimizer.update(gradients, state, params)
    return params, state, value

step = rlx.jit(step, donate_argnums=(0, 1) if sys.argv[1] == "in place" else ())
params = model.init(rlx.key(0))
state = optimizer.init(params)
x = rlx.ones((8, 1024))
for _ in range(4):
    params, state, value = step(params, state, x)
peak = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(peak, sum(a.size * 4 for a in rlx.tree_leaves(params)), value.item())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory():
    def run(how):
        done = subprocess.run([sys.executable, "-c", PEAK, how], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    (peak, size, value), (in_place, _, same) = run("anew"), run("in place")
    assert value == same
    # Parameters and two moments once instead of twice.
    assert int(peak) - int(in_place) > 2.5 * int(size), (peak, in_place, size)
