"""rlx.nn: initialisers by their moments, layers against NumPy, models made of them, and the example of
docs/python.md."""

import pathlib
import re

import numpy as np
import pytest

import rlx
from rlx import nn

RNG = np.random.default_rng(7)


def array(*shape, dtype="float32"):
    return rlx.array(RNG.normal(size=shape).astype(dtype))


def close(x, y, rtol=2e-5, atol=2e-5):
    np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=rtol, atol=atol)


# ---- initialisers

SHAPE, CONV = (300, 100), (40, 20, 3, 5)  # fans 300 and 100; 300 and 600


@pytest.mark.parametrize(
    "init, fans, mean, std, bound",
    [
        (nn.zeros(), None, 0, 0, 0),
        (nn.ones(), None, 1, 0, 1),
        (nn.constant(-2.5), None, -2.5, 0, 2.5),
        (nn.normal(0.5, 3.0), None, 3, 0.5, None),
        (nn.uniform(-1.0, 3.0), None, 1, 4 / 12**0.5, 3),
        (nn.trunc_normal(2.0), None, 0, 2 * 0.8796, 4),
        (nn.trunc_normal(1.0, 5.0, 1.0), None, 5, 0.5397, 6),
        (nn.xavier_uniform(2.0), (300, 100), 0, 2 * (2 / 400) ** 0.5, 2 * (6 / 400) ** 0.5),
        (nn.xavier_normal(), (300, 100), 0, (2 / 400) ** 0.5, None),
        (nn.kaiming_uniform(), (300, 100), 0, (2 / 300) ** 0.5, (6 / 300) ** 0.5),
        (nn.kaiming_normal(1.0), (300, 100), 0, (1 / 300) ** 0.5, None),
        (nn.xavier_uniform(), "out_in", 0, (2 / 900) ** 0.5, (6 / 900) ** 0.5),
        (nn.xavier_normal(), "out_in", 0, (2 / 900) ** 0.5, None),
        (nn.kaiming_uniform(), "out_in", 0, (2 / 300) ** 0.5, (6 / 300) ** 0.5),
        (nn.kaiming_normal(), "out_in", 0, (2 / 300) ** 0.5, None),
    ],
    ids=lambda x: str(x) if isinstance(x, nn.Initializer) else "",
)
def test_initializers(init, fans, mean, std, bound):
    x = init(rlx.key(3), CONV, fans="out_in") if fans == "out_in" else init(rlx.key(3), SHAPE)
    values = x.numpy().astype(np.float64)
    near = 4 * max(std, 1e-9) / values.size**0.5
    assert abs(values.mean() - mean) < near and abs(values.std() - std) <= 2 * near, (values.mean(), values.std())
    if bound is not None:
        assert 0.99 * bound <= abs(values).max() <= bound * (1 + 1e-6)
    again = init(rlx.key(3), x.shape, fans=fans if fans == "out_in" else "in_out")
    assert again.tolist() == x.tolist()
    assert std == 0 or init(rlx.key(4), SHAPE).tolist() != init(rlx.key(3), SHAPE).tolist()
    narrow = init(rlx.key(3), (4, 5), "bfloat16")
    assert narrow.dtype == "bfloat16" and narrow.tolist() == init(rlx.key(3), (4, 5)).astype("bfloat16").tolist()
    assert init(rlx.key(3), (4, 5), "float64").dtype == "float64"


def test_initializers_are_values():
    assert nn.xavier_normal(2.0) == nn.xavier_normal(2.0) != nn.xavier_normal() and hash(nn.zeros()) == hash(nn.zeros())
    for code, call in (
        ("init-fan", lambda: nn.xavier_normal()(rlx.key(0), (3,))),
        ("init-fan", lambda: nn.kaiming_normal()(rlx.key(0), (3, 3), fans="oi")),
        ("init-range", lambda: nn.uniform(1.0, 0.0)), ("init-range", lambda: nn.trunc_normal(cut=0.0)),
        ("dtype", lambda: nn.normal()(rlx.key(0), (3,), "int32")),
    ):  # fmt: skip
        with pytest.raises(rlx.Error) as e:
            call()
        assert e.value.code == code


# ---- layers


def test_linear_and_mlp():
    layer = nn.Linear(9, 130)
    p = layer.init(rlx.key(1))
    assert {k: v.shape for k, v in p.items()} == {"w": (9, 130), "b": (130,)} and p["b"].tolist() == [0] * 130
    p["b"], x = array(130), array(2, 3, 9)
    expected = x.numpy() @ p["w"].numpy() + p["b"].numpy()
    close(layer(p, x), expected)
    close(rlx.jit(layer)(p, x), expected)
    assert set(nn.Linear(2, 3, bias=False).init(rlx.key(1))) == {"w"}
    mlp = nn.MLP((9, 5, 4), rlx.tanh)
    q = mlp.init(rlx.key(2))
    hidden = np.tanh(x.numpy() @ q[0]["w"].numpy() + q[0]["b"].numpy())
    close(mlp(q, x), hidden @ q[1]["w"].numpy() + q[1]["b"].numpy())
    assert q[0]["w"].tolist() != mlp.init(rlx.key(3))[0]["w"].tolist()
    flat = nn.MLP((4, 4, 4)).init(rlx.key(3))
    assert flat[0]["w"].tolist() != flat[1]["w"].tolist()  # each layer has its own key


def conv_by_loops(x, w, b, stride, low, high, dilation, groups):
    axes = w.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *zip(low, high)])
    sizes = [(x.shape[2 + a] - (w.shape[2 + a] - 1) * dilation[a] - 1) // stride[a] + 1 for a in range(axes)]
    y = np.zeros((x.shape[0], w.shape[0], *sizes))
    per = w.shape[0] // groups
    for o in range(w.shape[0]):
        part = x[:, o // per * w.shape[1] : (o // per + 1) * w.shape[1]]
        for at in np.ndindex(*sizes):
            window = tuple(
                slice(i * s, i * s + (k - 1) * d + 1, d) for i, s, k, d in zip(at, stride, w.shape[2:], dilation)
            )
            y[(slice(None), o, *at)] = (part[(slice(None), slice(None), *window)] * w[o]).reshape(x.shape[0], -1).sum(1)
    return y + b.reshape(-1, *[1] * axes)


@pytest.mark.parametrize(
    "options, around, size",
    [
        (dict(kernel=(3, 5), padding=(1, 2), stride=(2, 1)), ((1, 2), (1, 2)), (9, 7)),
        (dict(kernel=(3, 4), padding="same", dilation=(2, 1)), ((2, 1), (2, 2)), (9, 7)),
        (dict(kernel=(2, 2), padding="valid", groups=2), ((0, 0), (0, 0)), (9, 7)),
        (dict(kernel=(5,), padding=2, stride=3), ((2,), (2,)), (17,)),
        (dict(kernel=(2, 3, 2), padding=1), ((1, 1, 1), (1, 1, 1)), (4, 5, 3)),
    ],
    ids=str,
)
def test_conv(options, around, size):
    layer = nn.Conv(4, 6, **options)
    p = layer.init(rlx.key(1))
    groups = options.get("groups", 1)
    assert p["w"].shape == (6, 4 // groups, *layer.kernel) and p["b"].shape == (6,)
    p["b"], x = array(6), array(2, 4, *size)
    y = layer(p, x)
    expected = conv_by_loops(
        x.numpy(), p["w"].numpy(), p["b"].numpy(), layer.stride, *around, layer.dilation, groups
    )  # fmt: skip
    close(y, expected)
    if options["padding"] == "same":
        assert y.shape[2:] == x.shape[2:]


def test_pools_and_flatten():
    x = array(2, 3, 6, 8)
    blocks = x.numpy().reshape(2, 3, 3, 2, 4, 2)
    close(nn.MaxPool((2, 2))(None, x), blocks.max((3, 5)))
    close(nn.AvgPool((2, 2))(None, x), blocks.mean((3, 5)))
    assert nn.MaxPool((3, 3), stride=1, padding=1)(None, x).shape == x.shape
    assert nn.Flatten()(None, x).shape == (2, 144) and nn.MaxPool((2, 2)).init(rlx.key(0)) is None


def test_embedding():
    layer = nn.Embedding(11, 6)
    p = layer.init(rlx.key(1))
    ids = np.array([[1, 10, 0], [1, 1, 5]])
    close(layer(p, ids), p["table"].numpy()[ids])
    x = array(2, 6)
    close(layer.attend(p, x), x.numpy() @ p["table"].numpy().T)
    g = rlx.grad(lambda p: layer(p, ids).sum())(p)["table"].numpy()
    assert g.sum(1).tolist() == [6 * n for n in (1, 3, 0, 0, 0, 1, 0, 0, 0, 0, 1)]


def test_norms():
    x, gamma, beta = array(3, 5, 70), array(70), array(70)
    v = x.numpy().astype(np.float64)
    centred = (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + 1e-3)
    layer = nn.LayerNorm(70, eps=1e-3)
    close(layer(layer.init(rlx.key(0)), x), centred)
    close(layer({"gamma": gamma, "beta": beta}, x), centred * gamma.numpy() + beta.numpy())
    scaled = v / np.sqrt((v**2).mean(-1, keepdims=True) + 1e-3)
    close(nn.RMSNorm(70, eps=1e-3)({"gamma": gamma}, x), scaled * gamma.numpy())
    assert set(nn.RMSNorm(70).init(rlx.key(0))) == {"gamma"}
    x = array(2, 6, 4, 5)
    grouped = x.numpy().reshape(2, 3, -1)
    grouped = (grouped - grouped.mean(-1, keepdims=True)) / np.sqrt(grouped.var(-1, keepdims=True) + 1e-5)
    layer = nn.GroupNorm(3, 6)
    close(layer(layer.init(rlx.key(0)), x), grouped.reshape(x.shape))


@pytest.mark.parametrize("eps", [None, 1e-5, 0.3, 2.0])
@pytest.mark.parametrize("layer", [nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.BatchNorm])
def test_norms_take_their_eps(layer, eps):
    sizes, axes = {
        nn.LayerNorm: ((8,), -1), nn.RMSNorm: ((8,), -1), nn.GroupNorm: ((2, 6), (2, 3)), nn.BatchNorm: ((6,), (0, 2)),
    }[layer]  # fmt: skip
    x = array(5, 8) if axes == -1 else array(4, 6, 7)
    x = x * 0.01 + 0.02  # variances of 1e-4
    f = layer(*sizes) if eps is None else layer(*sizes, eps=eps)
    p = rlx.tree_map(lambda v: v + array(*v.shape), f.init(rlx.key(0)))
    column = lambda v: v.numpy().astype(np.float64).reshape(v.shape if axes == -1 else (-1, 1))
    gamma, beta = column(p["gamma"]), column(p["beta"]) if "beta" in p else 0

    def expected(v, mean=None, var=None):
        whole = v.shape
        v = v.reshape(4, 2, 3, 7) if layer is nn.GroupNorm else v
        mean = (v.mean(axes, keepdims=True) if layer is not nn.RMSNorm else 0) if mean is None else mean
        var = ((v - mean) ** 2).mean(axes, keepdims=True) if var is None else var
        return ((v - mean) / np.sqrt(var + (1e-5 if eps is None else eps))).reshape(whole) * gamma + beta

    v = x.numpy().astype(np.float64)
    if layer is not nn.BatchNorm:
        close(f(p, x), expected(v), 2e-4)
        slope = rlx.grad(lambda x: (f(p, x) * weights).sum())
    else:
        close(f(p, x, state=f.init_state(), train=True)[0], expected(v), 2e-4)
        state = {"mean": array(6) * 0.01, "var": rlx.abs(array(6)) * 1e-4}
        known = (column(state["mean"]), column(state["var"]))
        close(f(p, x, state=state)[0], expected(v, *known), 2e-4)
        slope = rlx.grad(lambda x: (f(p, x, state=f.init_state(), train=True)[0] * weights).sum())
    weights, along, h = array(*x.shape), array(*x.shape), 1e-6
    ends = [(expected(v + s * h * along.numpy()) * weights.numpy()).sum() for s in (1, -1)]
    close((slope(x) * along).sum(), (ends[0] - ends[1]) / (2 * h), 2e-3)


@pytest.mark.parametrize("jit", [False, True])
def test_batch_norm(jit):
    layer = nn.BatchNorm(3, momentum=0.2)
    p, state = {"gamma": array(3), "beta": array(3)}, layer.init_state()
    train = (
        rlx.jit(lambda p, x, s: layer(p, x, state=s, train=True))
        if jit
        else lambda p, x, s: layer(p, x, state=s, train=True)
    )
    mean, var = np.zeros(3), np.ones(3)
    for n in (4, 9, 2):
        x = array(n, 3, 5, 2) * 2 + 1
        v = x.numpy().astype(np.float64)
        y, state = train(p, x, state)
        own = v.mean((0, 2, 3)), v.var((0, 2, 3))
        mean = 0.8 * mean + 0.2 * own[0]
        var = 0.8 * var + 0.2 * v.var((0, 2, 3), ddof=1)
        column = lambda a: np.asarray(a).reshape(1, 3, 1, 1)
        expected = (v - column(own[0])) / np.sqrt(column(own[1]) + 1e-5) * column(p["gamma"]) + column(p["beta"])
        close(y, expected, 1e-4, 1e-4)
        close(state["mean"], mean)
        close(state["var"], var)
    y, same = layer(p, x, state=state)
    expected = (v - column(mean)) / np.sqrt(column(var) + 1e-5) * column(p["gamma"]) + column(p["beta"])
    close(y, expected, 1e-4, 1e-4)
    assert same is state
    slope = rlx.grad(lambda x: rlx.tree_leaves(layer(p, x, state=state, train=True)[1])[0].sum())(x)
    assert abs(slope.numpy()).max() == 0  # the statistics are no way for gradients
    with pytest.raises(rlx.Error, match="BatchNorm: needs state=") as e:
        layer(p, x)
    assert e.value.code == "nn-state"


def test_dropout():
    layer, x = nn.Dropout(0.25), rlx.ones((100, 100))
    assert layer(None, x) is x and nn.Dropout(0.0)(None, x, train=True) is x
    y = layer(None, x, key=rlx.key(5), train=True).numpy()
    assert set(np.unique(y)) == {0, np.float32(1 / 0.75)} and abs((y == 0).mean() - 0.25) < 0.02
    assert (rlx.jit(lambda k: layer(None, x, key=k, train=True))(rlx.key(5)).numpy() == y).all()
    assert (layer(None, x, key=rlx.key(6), train=True).numpy() != y).any()
    assert layer(None, x.astype("bfloat16"), key=rlx.key(5), train=True).dtype == "bfloat16"
    for code, call in (("nn-key", lambda: layer(None, x, train=True)), ("dropout-rate", lambda: nn.Dropout(1.0))):
        with pytest.raises(rlx.Error) as e:
            call()
        assert e.value.code == code


def attention_by_numpy(layer, p, x, context=None, mask=None, positions=None):
    source = x if context is None else context
    bias = (lambda n: p[n]["b"].numpy()) if layer.bias else lambda n: 0
    heads = lambda n, v, count: (v @ p[n]["w"].numpy() + bias(n)).reshape(*v.shape[:-1], count, layer.head_size)
    q, k, v = heads("q", x, layer.heads), heads("k", source, layer.kv_heads), heads("v", source, layer.kv_heads)
    if layer.rope is not None:
        half = layer.head_size // 2
        places = np.arange(x.shape[-2]) if positions is None else np.asarray(positions)
        angles = places[:, None] * layer.rope ** (-np.arange(half) / half)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        turn = lambda a: np.concatenate(
            [a[..., :half] * cos - a[..., half:] * sin, a[..., half:] * cos + a[..., :half] * sin], -1
        )
        q, k = turn(q), turn(k)
    k, v = (np.repeat(a, layer.heads // layer.kv_heads, axis=-2) for a in (k, v))
    scores = np.einsum("...shd,...thd->...hst", q, k) / np.sqrt(layer.head_size)
    seen = np.ones(scores.shape[-2:], bool)
    if layer.causal:
        seen = np.tril(seen)
    if mask is not None:
        seen = seen & mask
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    y = np.einsum("...hst,...thd->...shd", weights / weights.sum(-1, keepdims=True), v)
    return y.reshape(*x.shape[:-1], -1) @ p["o"]["w"].numpy() + bias("o")


@pytest.mark.parametrize(
    "options",
    [dict(heads=4), dict(heads=4, kv_heads=2, causal=True), dict(heads=6, kv_heads=1, head_size=10, bias=True),
     dict(heads=2, causal=True, rope=10000.0), dict(heads=4, kv_heads=2, rope=500.0, head_size=6)],
    ids=str,
)  # fmt: skip
def test_attention(options):
    layer = nn.MultiHeadAttention(12, **options)
    p, x = layer.init(rlx.key(1)), array(2, 9, 12)
    if layer.bias:
        p = rlx.tree_map(lambda v: v + array(*v.shape) * 0.1, p)
    close(layer(p, x), attention_by_numpy(layer, p, x.numpy()), 1e-4, 1e-4)
    close(rlx.jit(layer)(p, x), attention_by_numpy(layer, p, x.numpy()), 1e-4, 1e-4)
    mask = RNG.uniform(size=(9, 9)) > 0.4
    mask |= np.eye(9, dtype=bool)
    close(layer(p, x, mask=mask), attention_by_numpy(layer, p, x.numpy(), mask=mask), 1e-4, 1e-4)
    many = RNG.uniform(size=(2, 9, 9)) > 0.4
    many |= np.eye(9, dtype=bool)
    close(layer(p, x, mask=many), attention_by_numpy(layer, p, x.numpy(), mask=many[:, None]), 1e-4, 1e-4)
    per_head = np.broadcast_to(many[:, None], (2, layer.heads, 9, 9)) ^ (np.arange(layer.heads) % 2 == 1)[:, None, None]
    per_head = per_head | np.eye(9, dtype=bool)
    close(layer(p, x, mask=per_head), attention_by_numpy(layer, p, x.numpy(), mask=per_head), 1e-4, 1e-4)
    close(layer(p, x[0]), attention_by_numpy(layer, p, x[0].numpy()), 1e-4, 1e-4)
    close(layer(p, x[0], mask=mask), attention_by_numpy(layer, p, x[0].numpy(), mask=mask), 1e-4, 1e-4)
    if layer.rope is None:
        context = array(2, 5, 12)
        if not layer.causal:
            close(layer(p, x, context), attention_by_numpy(layer, p, x.numpy(), context.numpy()), 1e-4, 1e-4)
    else:
        at = np.arange(9) * 3 + 5
        close(layer(p, x, positions=at), attention_by_numpy(layer, p, x.numpy(), positions=at), 1e-4, 1e-4)
    slope = rlx.grad(lambda p: (layer(p, x) ** 2).mean())(p)
    assert all(np.isfinite(g.numpy()).all() and abs(g.numpy()).max() > 0 for g in rlx.tree_leaves(slope))


@pytest.mark.parametrize(
    "code, part, call",
    [
        ("nn-heads", "5 heads cannot share 2", lambda: nn.MultiHeadAttention(10, 5, kv_heads=2)),
        ("nn-heads", "10 is no multiple of 4", lambda: nn.MultiHeadAttention(10, 4)),
        ("nn-heads", "even", lambda: nn.MultiHeadAttention(9, 3, rope=100.0)),
        ("nn-heads", "positions", lambda: call(nn.MultiHeadAttention(4, 2), rlx.ones((3, 4)), positions=[1, 2, 3])),
        (
            "nn-heads",
            "context",
            lambda: call(nn.MultiHeadAttention(4, 2, rope=9.0), rlx.ones((3, 4)), rlx.ones((3, 4))),
        ),
        ("nn-heads", "a mask is", lambda: call(nn.MultiHeadAttention(4, 2), rlx.ones((3, 4)), mask=rlx.ones(3))),
        ("nn-padding", "stride 1", lambda: nn.Conv(1, 1, (3, 3), stride=2, padding="same")),
        ("nn-padding", "'full'", lambda: nn.Conv(1, 1, (3, 3), padding="full")),
        ("nn-axes", "3 numbers for 2 axes", lambda: nn.Conv(1, 1, (3, 3), stride=(1, 1, 1))),
        ("nn-axes", "MLP", lambda: nn.MLP((4,))),
        ("nn-size", "Linear: inputs must be a positive integer, not 0", lambda: nn.Linear(0, 3)),
        ("nn-size", "Linear: outputs must be a positive integer, not -2", lambda: nn.Linear(3, -2)),
        ("nn-size", "Linear: inputs must be a positive integer, not 1.5", lambda: nn.Linear(1.5, 3)),
        ("nn-size", "Conv: kernel must be a positive integer, not 0", lambda: nn.Conv(1, 1, (3, 0))),
        ("nn-size", "Conv: groups must be a positive integer, not 0", lambda: nn.Conv(1, 1, (3,), groups=0)),
        ("nn-size", "Conv: stride", lambda: nn.Conv(1, 1, (3,), stride=-1)),
        ("nn-padding", "must not be negative", lambda: nn.Conv(1, 1, (3,), padding=-1)),
        ("nn-size", "Embedding: count", lambda: nn.Embedding(-1, 3)),
        ("nn-size", "LayerNorm: size", lambda: nn.LayerNorm(0)),
        ("nn-size", "RMSNorm: size", lambda: nn.RMSNorm(-3)),
        ("nn-size", "GroupNorm: groups", lambda: nn.GroupNorm(0, 4)),
        ("nn-groups", "4 channels in 3 groups", lambda: nn.GroupNorm(3, 4)),
        ("nn-size", "BatchNorm: channels", lambda: nn.BatchNorm(0)),
        ("nn-size", "MLP: sizes must be a positive integer, not 0", lambda: nn.MLP((4, 0, 2))),
        ("nn-size", "MultiHeadAttention: heads", lambda: nn.MultiHeadAttention(4, 0)),
        ("nn-size", "MultiHeadAttention: kv_heads", lambda: nn.MultiHeadAttention(4, 2, kv_heads=-1)),
        ("nn-size", "MaxPool: kernel", lambda: nn.MaxPool((0, 2))),
        ("nn-size", "AvgPool: stride", lambda: nn.AvgPool((2, 2), stride=0)),
        ("nn-groups", "4 inputs and 6 outputs in 4", lambda: nn.Conv(4, 6, (3, 3), groups=4)),
        (
            "nn-layers",
            "the field blocks",
            lambda: Transformer(nn.Embedding(2, 2), [rlx.relu, Block(0, 0)], 0).init(rlx.key(0)),
        ),
        ("nn-layers", "the field blocks", lambda: Transformer(0, (rlx.relu, Block(0, 0)), 0).init_state()),
        ("nn-params", "1 layers for 2", lambda: nn.Sequential(nn.Linear(1, 1), rlx.relu)([None], rlx.ones((1, 1)))),
        ("nn-state", "Sequential: needs state", lambda: call(nn.Sequential(nn.BatchNorm(2)), rlx.ones((1, 2)))),
    ],
)
def test_refusals(code, part, call):
    with pytest.raises(rlx.Error) as e:
        call()
    assert e.value.code == code and part in e.value.message, e.value


def call(layer, *args, **options):
    return layer(layer.init(rlx.key(0)), *args, **options)


def test_what_is_no_layer():
    with pytest.raises(TypeError, match="layer 1 must be"):
        nn.Sequential(nn.Linear(1, 1), 3)
    with pytest.raises(TypeError, match="kernel must be a tuple"):
        nn.Conv(1, 1, 3)

    class Empty(nn.Layer):
        pass

    with pytest.raises(NotImplementedError, match="Empty does not say"):
        Empty()(None, 1)


# ---- models


def test_sequential_hands_on_keys_and_states():
    model = nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm(6), rlx.relu, nn.Dropout(0.5), nn.Sequential(nn.BatchNorm(6), nn.Dropout(0.5))
    )
    p, state = model.init(rlx.key(0)), model.init_state()
    assert p[2] is None and p[3] is None and state[0] is None and state[4][1] is None
    x = array(70, 4)
    y, after = model(p, x, state=state, key=rlx.key(1), train=True)
    assert after[1]["mean"].tolist() != state[1]["mean"].tolist() and after[4][0]["var"].tolist() != [1] * 6
    again, _ = rlx.jit(lambda p, x, s, k: model(p, x, state=s, key=k, train=True))(p, x, state, rlx.key(1))
    close(y, again)
    half = (y.numpy() == 0).mean()
    assert 0.4 < half < 0.6  # the last of them; the one before has zeros of its own
    first = p[0]["w"].numpy()
    h = x.numpy() @ first
    assert np.allclose(
        model(p, x, state=state)[0].numpy(), np.maximum(h / np.sqrt(1 + 1e-5), 0) / np.sqrt(1 + 1e-5), atol=1e-5
    )
    out, none = nn.apply(nn.Linear(4, 6), p[0], x, key=rlx.key(1), train=True)
    assert none is None and out.shape == (70, 6)


class Block(nn.Layer):
    norm: nn.LayerNorm
    mlp: nn.MLP

    def __call__(self, p, x):
        return x + self.mlp(p["mlp"], self.norm(p["norm"], x))


class Transformer(nn.Layer):
    embedding: nn.Embedding
    blocks: tuple
    batch: nn.BatchNorm
    scale: float = 2.0

    def __call__(self, p, x, *, state, train=False):
        x = self.embedding(p["embedding"], x) * self.scale
        for block, q in zip(self.blocks, p["blocks"]):
            x = block(q, x)
        x, batch = self.batch(p["batch"], x, state=state["batch"], train=train)
        return x, {**state, "batch": batch}


def test_layers_of_ones_own():
    block = lambda: Block(nn.LayerNorm(8), nn.MLP((8, 16, 8)))
    model = Transformer(nn.Embedding(10, 8), (block(), block()), nn.BatchNorm(8))
    assert model == Transformer(nn.Embedding(10, 8), (block(), block()), nn.BatchNorm(8)) and hash(model) == hash(model)
    p, state = model.init(rlx.key(0)), model.init_state()
    assert sorted(p) == ["batch", "blocks", "embedding"] and len(p["blocks"]) == 2
    assert p["blocks"][0]["mlp"][0]["w"].tolist() != p["blocks"][1]["mlp"][0]["w"].tolist()
    assert state == {"embedding": None, "blocks": [None, None], "batch": state["batch"]}
    traces = []

    @rlx.jit
    def f(model, p, x, state):  # a model has no leaves: it is part of the program
        traces.append(1)
        return model(p, x, state=state, train=True)

    x = rlx.array([1, 2, 3])
    y, state = f(model, p, x, state)
    assert y.shape == (3, 8) and rlx.tree_leaves(model) == []
    f(Transformer(nn.Embedding(10, 8), (block(), block()), nn.BatchNorm(8)), p, x, state)
    assert len(traces) == 1
    f(Transformer(nn.Embedding(10, 8), (block(), block()), nn.BatchNorm(8), scale=1.0), p, x, state)
    assert len(traces) == 2
    with pytest.raises(AttributeError):
        model.scale = 3.0


def test_dtypes():
    model = nn.Sequential(nn.Linear(4, 6, dtype="bfloat16"), rlx.relu, nn.LayerNorm(6, dtype="bfloat16"))
    p = model.init(rlx.key(0))
    assert {x.dtype.long_name for x in rlx.tree_leaves(p)} == {"bfloat16"}
    assert model(p, rlx.ones((2, 4), "bfloat16")).dtype == "bfloat16"


def test_the_example_of_the_docs(tmp_path, monkeypatch, capsys):
    docs = (pathlib.Path(__file__).parents[2] / "docs" / "python.md").read_text()
    section = docs.split("## Training")[1].split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.S)
    assert len(blocks) >= 3
    monkeypatch.chdir(tmp_path)
    space = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), space)
    losses = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines() if "loss" in line]
    assert len(losses) > 1 and losses[-1] < losses[0] / 3, losses
