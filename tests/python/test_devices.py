"""Arrays on devices: where they lie, where ops on them run, and what DLPack says of it. The device of the tests is one
whose memory the host cannot touch: reading it without a copy ends the process."""

import numpy as np
import pytest

import rlx
from rlx import _core
from test_array import dlpack_tensor

pytestmark = pytest.mark.skipif(not hasattr(_core, "register_hidden_device"), reason="needs the CPU backend")


@pytest.fixture(scope="module", autouse=True)
def hidden():
    _core.register_hidden_device(0)
    _core.register_hidden_device(1)


def ramp(*sizes, dtype="float32"):
    return np.arange(np.prod(sizes), dtype=dtype).reshape(sizes)


def test_arrays_lie_on_a_device():
    x = rlx.array(ramp(2, 3))
    assert x.device == "cpu"
    y = x.to_device("hidden")
    assert y.device == "hidden" and y.to_device("hidden")._address == y._address
    assert y.to_device("cpu").device == "cpu"
    np.testing.assert_array_equal(y.to_device("hidden:1").to_device("cpu"), ramp(2, 3))
    assert rlx.array(ramp(3), device="hidden:1").device == "hidden:1"
    assert rlx.array(y).device == "hidden"


def test_arrays_can_be_read():
    y = rlx.array(ramp(2, 3), device="hidden")
    np.testing.assert_array_equal(y.numpy(), ramp(2, 3))
    np.testing.assert_array_equal(np.asarray(y), ramp(2, 3))
    assert y[1, 2].item() == 5 and float(y.sum()) == 15 and y.tolist() == ramp(2, 3).tolist()
    assert "5." in repr(y) and y.shape == (2, 3)
    half = rlx.array(ramp(4), "bfloat16", device="hidden")
    np.testing.assert_array_equal(half.numpy().astype("float32"), ramp(4))
    with pytest.raises(BufferError, match="memory of the host"):
        memoryview(y)
    with pytest.raises(AttributeError):
        y.__array_interface__
    assert y.reshape(3, 2).device == "hidden" and y.reshape(3, 2)[2, 1].item() == 5


def test_ops_run_where_their_operands_lie():
    a = ramp(4, 4)
    y = rlx.array(a, device="hidden")
    z = rlx.tanh(y @ y * 0.01 + 1) - y[0]
    assert z.device == "hidden"
    np.testing.assert_array_equal(z, rlx.tanh(rlx.array(a) @ a * 0.01 + 1) - a[0])
    parts = rlx.split(y, 2)
    assert {p.device for p in parts} == {"hidden"}
    np.testing.assert_array_equal(parts[1], a[2:])


def test_what_is_no_array_goes_along():
    y, a = rlx.array(ramp(3, 4), device="hidden"), ramp(3, 4)
    assert (y + a).device == "hidden" and (a[0] * y).device == "hidden"
    np.testing.assert_array_equal(y + a + [1, 2, 3, 4], 2 * a + [1, 2, 3, 4])
    f = rlx.jit(lambda x, n: (x + n) * a + np.float32(2))
    np.testing.assert_array_equal(f(y, a), (a + a) * a + 2)
    assert f(y, a).device == "hidden" and f(a, a).device == "cpu"
    g = rlx.jit(lambda x: x[np.array([[0], [1]]), np.array([3, 2])])
    np.testing.assert_array_equal(g(y), a[np.array([[0], [1]]), np.array([3, 2])])


def test_indexing():
    y, a = rlx.array(ramp(5, 4), device="hidden"), ramp(5, 4)
    for index in (0, -1, (1, 2), slice(1, 4), (slice(None, None, -2), None, 1), (..., 3), np.array([2, 0, 2]),
                  [4, 1], (np.array([[0], [1]]), np.array([3, 2])), a > 7, True, a[:, 0] > 7,
                  (slice(1, 3), [0, 0])):  # fmt: skip
        got = y[index]
        assert got.device == "hidden", index
        np.testing.assert_array_equal(got, a[index])
    np.testing.assert_array_equal(y[rlx.array([3, 1], device="hidden")], a[[3, 1]])
    with pytest.raises(IndexError):
        y[7]


def test_this_threads_device():
    with rlx.use_backend("hidden"):
        x = rlx.ones((2, 2)) + ramp(2, 2)
        assert x.device == "hidden" and rlx.array([1, 2]).device == "hidden"
        assert rlx.key(1).device == "hidden"
    assert rlx.ones(1).device == "cpu"
    with rlx.use_backend("reference"):  # reads the memory of the CPU
        assert (rlx.ones(2) + rlx.array([1.0, 2.0])).device == "cpu"
    with pytest.raises(rlx.Error, match="hidden:7.*there is"):
        rlx.use_backend("hidden:7")
    with pytest.raises(rlx.Error, match="names no device"):
        rlx.use_backend("no such thing")


def test_devices_do_not_mix():
    x, y = rlx.array(ramp(3), device="cpu"), rlx.array(ramp(3), device="hidden")
    for call in (lambda: x + y, lambda: rlx.jit(lambda a, b: a + b)(x, y), lambda: rlx.jit(lambda b: x + b)(y)):
        with pytest.raises(rlx.Error, match="memory of (cpu and of hidden|hidden and of cpu)") as e:
            call()
        assert e.value.code == "device-mixed"
    np.testing.assert_array_equal(x.to_device("hidden") + y, 2 * ramp(3))


def test_traced_functions():
    weights = rlx.array(ramp(3, 3), device="hidden")
    calls = []

    @rlx.jit
    def f(x, scale):
        calls.append(x.shape)
        return rlx.softmax(x @ weights) * scale, x.sum()

    a = ramp(2, 3) / 10
    for _ in range(3):
        y, total = f(rlx.array(a, device="hidden"), 2.5)
    assert len(calls) == 1 and y.device == "hidden" and total.device == "hidden"
    want = rlx.softmax(rlx.array(a) @ ramp(3, 3)) * 2.5
    np.testing.assert_array_equal(y, want)

    g = rlx.jit(rlx.value_and_grad(lambda x: (rlx.tanh(x) ** 2).sum()))
    on_cpu, on_hidden = g(rlx.array(a)), g(rlx.array(a, device="hidden"))
    assert on_hidden[1].device == "hidden" and on_cpu[1].device == "cpu"
    np.testing.assert_array_equal(on_cpu[1], on_hidden[1])


def test_what_nobody_placed_goes_along():
    """Arrays that were made without a device, and what is made of them, go where the others lie."""
    y, v = rlx.array(ramp(3, 4), device="hidden"), rlx.array(ramp(4), device="hidden")
    a, b = ramp(3, 4), ramp(4)
    same = np.testing.assert_array_equal
    same(rlx.jit(lambda x: x + rlx.ones((3, 4)) * rlx.arange(4))(y), a + np.arange(4))
    same(rlx.vmap(lambda r: r + rlx.arange(4))(y), a + np.arange(4))
    same(rlx.grad(lambda x: (x * rlx.ones_like(x)).sum())(y), np.ones((3, 4)))
    assert [float(n) for n in rlx.jit(lambda x: (x.sum(), 3.0))(y)] == [66, 3]
    same(rlx.scan(lambda c, x: (c + x, c), 0.0, v)[1], [0, 0, 1, 3])
    same(rlx.scan(lambda c, x: (c + x, c), v[0], b)[0], 6)
    same(rlx.cond(True, lambda x: x + 1, lambda x: x - 1, y), a + 1)
    same(rlx.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (0, v))[1], 8 * b)
    same(rlx.jacfwd(rlx.square)(v), np.diag(2 * b))
    same(rlx.jacrev(rlx.square)(v), np.diag(2 * b))
    same(rlx.hessian(lambda x: (x**3).sum())(v), np.diag(6 * b))
    same(rlx.jvp(rlx.square, (v,), (b,))[1], 2 * b * b)
    same(rlx.grad(lambda x: (x * y).sum())(3.0), 66)
    for got, want in ((a @ y.T, a @ a.T), (rlx.outer(b, v), np.outer(b, b)), (rlx.vstack([b, v]), np.vstack([b, b])),
                      (rlx.where(a > 3, y, 0.0), np.where(a > 3, a, 0)), (rlx.pad(y, 1), np.pad(a, 1)),
                      (rlx.zeros_like(y) + y, a), (rlx.array([v[1], 2.0]), [1, 2])):  # fmt: skip
        assert got.device == "hidden"
        same(got, want)
    with rlx.use_backend("hidden"):
        made = rlx.arange(4) * 2
    assert made.device == "hidden" and (made + 1).device == "hidden"  # it stays while nothing else says where to go
    same(rlx.array(b, device="cpu") + made, b + 2 * np.arange(4))
    same(np.from_dlpack(_Host(v)), b)


class _Host:
    """Asks for a copy in memory of the host."""

    def __init__(self, x):
        self.x = x

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        return self.x.__dlpack__(**{**options, "dl_device": (1, 0)})


def test_control_flow_and_training():
    def train(device):
        x = rlx.array(ramp(8, 2) / 16, device=device)
        y = rlx.array(ramp(8, 1) / 8, device=device)
        p = {"w": rlx.array(ramp(2, 1), device=device), "b": rlx.array(ramp(1), device=device)}

        @rlx.jit
        def step(p, rate):
            loss, g = rlx.value_and_grad(lambda p: ((x @ p["w"] + p["b"] - y) ** 2).mean())(p)
            return loss, rlx.tree_map(lambda w, d: w - rate * d, p, g)

        losses = []
        for _ in range(20):
            loss, p = step(p, 0.1)
            losses.append(loss.item())
        carry, out = rlx.scan(lambda c, x: (c + x, c * x), p["b"][0], x[:, 0])
        return losses, p["w"].numpy(), carry.item(), out.numpy()

    cpu, hidden = train("cpu"), train("hidden")
    assert cpu[0] == hidden[0] and cpu[0][-1] < cpu[0][0] and cpu[2] == hidden[2]
    np.testing.assert_array_equal(cpu[1], hidden[1])
    np.testing.assert_array_equal(cpu[3], hidden[3])


def test_compiled_graphs():
    g = rlx.Graph("linear")
    x, w = g.input("x", (2, 3)), g.param("w", (3, 2))
    g.outputs = [x @ w]
    g.update("w", w + 1.0)
    f = rlx.Session("hidden").compile(g)
    f.set_param("w", ramp(3, 2))
    (y,) = f.run({"x": ramp(2, 3)})
    assert y.device == "hidden"
    np.testing.assert_array_equal(y, ramp(2, 3) @ ramp(3, 2))
    before = f.param("w")
    np.testing.assert_array_equal(f.run()[0], ramp(2, 3) @ (ramp(3, 2) + 1))
    np.testing.assert_array_equal(before, ramp(3, 2) + 1)  # an array does not change
    np.testing.assert_array_equal(f.params()["w"], ramp(3, 2) + 2)
    f.set_params({"w": rlx.array(ramp(3, 2), device="hidden")})
    np.testing.assert_array_equal(f.run()[0], ramp(2, 3) @ ramp(3, 2))


def test_dlpack_carries_the_device():
    x = rlx.array(ramp(2, 3), device="hidden:1")
    assert x.__dlpack_device__() == (12, 1)
    y = rlx.from_dlpack(x)
    assert y.device == "hidden:1" and y._address != x._address
    np.testing.assert_array_equal(y, ramp(2, 3))
    assert rlx.array(ramp(2)).__dlpack_device__() == (1, 0)

    class Elsewhere:
        """What lies on another device."""

        def __init__(self, kind, ordinal):
            self.where = kind, ordinal

        def __dlpack_device__(self):
            return self.where

        def __dlpack__(self, **options):
            capsule = x.__dlpack__(**options)
            dlpack_tensor(capsule).device[:] = self.where
            return capsule

    np.testing.assert_array_equal(rlx.from_dlpack(Elsewhere(12, 1)), ramp(2, 3))
    for where in ((12, 5), (2, 0), (99, 0)):
        with pytest.raises(rlx.Error, match="no device here") as e:
            rlx.from_dlpack(Elsewhere(*where))
        assert e.value.code == "array-like"
    with pytest.raises((BufferError, RuntimeError, ValueError, TypeError)):
        np.from_dlpack(x)
