"""rlx.optim against PyTorch and Optax (tests/golden/optim.py), in jit and at once, over all sorts of trees; C++'s
training steps are held against the same file by optim_test."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import optim

FILE = pathlib.Path(__file__).parents[1] / "golden" / "optim.txt"
DTYPES = {"f64": "float64", "f32": "float32"}


def read():
    data, cases, schedules = {}, {}, {}
    for line in FILE.read_text().splitlines():
        words = line.split()
        if words[0] == "data":
            data[words[1]] = np.array([float.fromhex(v) for v in words[2:]])
        elif words[0] == "case":
            rows = cases.setdefault((words[1], words[2]), {})
        elif words[0] == "after":
            rows[int(words[1])] = np.array([float.fromhex(v) for v in words[2:]])
        elif words[0] == "schedule":
            schedules[words[1]] = [float.fromhex(v) for v in words[2:]]
    shapes = {"x": (3, 7, 9), "y": (3, 7, 5), "w": (9, 5), "b": (5,)}
    return {k: v.reshape(shapes[k]) for k, v in data.items()}, cases, schedules


DATA, CASES, SCHEDULES = read()

OPTIMIZERS = {
    "sgd": lambda: optim.sgd(0.1),
    "sgd-momentum": lambda: optim.sgd(0.05, momentum=0.9),
    "sgd-nesterov": lambda: optim.sgd(0.05, momentum=0.9, nesterov=True, weight_decay=0.05),
    "adam": lambda: optim.adam(0.02),
    "adam-decay": lambda: optim.adam(0.02, beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=0.1),
    "adamw": lambda: optim.adamw(0.02, weight_decay=0.1),
    "adamw-mask": lambda: optim.adamw(optim.cosine(0.05, 8, 0.1), weight_decay=0.3, decays=optim.is_matrix),
    "lion": lambda: optim.lion(0.01, beta1=0.9, beta2=0.95, weight_decay=0.1),
    "clip-norm": lambda: optim.chain(optim.clip_by_global_norm(0.5), optim.sgd(0.3)),
    "clip-value": lambda: optim.chain(optim.clip_by_value(0.05), optim.sgd(0.3)),
    "ema": lambda: optim.ema(optim.sgd(0.3), 0.8),
    "accumulate": lambda: optim.accumulate(optim.chain(optim.clip_by_global_norm(0.5), optim.adam(0.05)), 3),
}


def loss(p, x, y):
    return 10 * ((rlx.tanh(x @ p["w"] + p["b"]) - y) ** 2).mean()


def data(dtype):
    return {k: rlx.array(v.astype(dtype)) for k, v in DATA.items()}


def flat(p):
    return np.concatenate([np.asarray(p["w"], np.float64).reshape(-1), np.asarray(p["b"], np.float64)])


def step_of(optimizer):
    def step(p, state, x, y):
        gradients = rlx.grad(loss)(p, x, y)
        return optimizer.update(gradients, state, p)

    return step


@pytest.mark.parametrize("name, dtype", CASES)
def test_steps_are_those_of_torch_and_optax(name, dtype):
    d, optimizer = data(DTYPES[dtype]), OPTIMIZERS[name]()
    params = {"w": d["w"], "b": d["b"]}
    state, step = optimizer.init(params), rlx.jit(step_of(optimizer))
    for t in range(max(CASES[name, dtype])):
        params, state = step(params, state, d["x"][t % 3], d["y"][t % 3])
        expected = CASES[name, dtype].get(t + 1)
        if expected is not None:
            got = flat(state["average"] if name == "ema" else params)
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9 if dtype == "f64" else 3e-6)
    assert params["w"].dtype == DTYPES[dtype]


def test_every_case_has_an_optimizer_and_a_schedule():
    assert {name for name, _ in CASES} == set(OPTIMIZERS)
    assert set(SCHEDULES) == set(schedules())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_at_once_as_in_jit(name):
    d, optimizer = data("float32"), OPTIMIZERS[name]()
    step = step_of(optimizer)
    results = []
    for f in (step, rlx.jit(step)):
        params = {"w": d["w"], "b": d["b"]}
        state = optimizer.init(params)
        for t in range(4):
            params, state = f(params, state, d["x"][t % 3], d["y"][t % 3])
        results.append(params)
    np.testing.assert_allclose(flat(results[0]), flat(results[1]), rtol=1e-6, atol=1e-7)


# ---- schedules


def schedules():
    return {
        "linear": optim.linear(0.5, 0.1, 16),
        "cosine": optim.cosine(0.3, 20, 0.05),
        "exponential": optim.exponential(0.2, 0.6, 7),
        "staircase": optim.exponential(0.2, 0.6, 7, staircase=True),
        "piecewise": optim.piecewise(0.4, {11: 0.1, 5: 0.5}),
        "join": optim.join([optim.linear(0.0, 0.4, 6), optim.exponential(0.4, 0.5, 4), 0.01], [6, 18]),
        "warmup": optim.warmup(optim.cosine(0.3, 20, 0.05), 6),
        "warmup-cosine": optim.warmup_cosine(0.2, 4, 20, 0.1),
    }


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name):
    rate = schedules()[name]
    got = [float(rate(rlx.array(np.float64(i)))) for i in range(25)]
    np.testing.assert_allclose(got, SCHEDULES[name], rtol=1e-9, atol=1e-12)
    traced = rlx.jit(lambda step: rate(step))
    narrow = [float(rate(i)) for i in range(25)]
    np.testing.assert_allclose(narrow, SCHEDULES[name], rtol=2e-6, atol=1e-7)
    assert float(traced(rlx.array(7))) == narrow[7]


def test_a_rate_is_a_number_an_array_or_a_function():
    p, g = {"w": rlx.ones(2)}, {"w": rlx.ones(2)}

    def moved(rate):
        optimizer = optim.sgd(rate)
        return optimizer.update(g, optimizer.init(p), p)[0]["w"].tolist()

    assert (
        moved(0.5) == moved(rlx.array(0.5)) == moved(optim.constant(0.5)) == moved(lambda step: 0.5 + step) == [0.5] * 2
    )
    late = rlx.jit(lambda rate: optim.sgd(rate).update(g, optim.sgd(rate).init(p), p)[0]["w"])
    assert late(0.25).tolist() == [0.75] * 2 and late(0.5).tolist() == [0.5] * 2  # the rate is no part of the program


# ---- trees


@dataclasses.dataclass
class Model:
    w: Any
    layers: list
    name: str = rlx.static_field(default="m")


def test_any_tree_and_the_step_counter():
    p = Model(rlx.ones((2, 3)), [(rlx.ones(3), None), {"deep": rlx.ones(())}])
    optimizer = optim.adamw(0.1)
    state = optimizer.init(p)
    assert isinstance(state["m"], Model) and state["m"].name == "m" and int(state["step"]) == 0
    for _ in range(3):
        p, state = rlx.jit(optimizer.update)(rlx.tree_map(rlx.ones_like, p), state, p)
    assert int(state["step"]) == 3 and state["step"].dtype == "int32" and p.layers[0][1] is None
    assert float(p.layers[1]["deep"]) < 0.75


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_parameters_have_a_wide_state(dtype):
    p = {"w": rlx.ones(130, dtype)}
    optimizer = optim.adamw(0.01)
    state = optimizer.init(p)
    p, state = optimizer.update({"w": rlx.full(130, 0.5, dtype)}, state, p)
    assert p["w"].dtype == dtype and state["m"]["w"].dtype == "float32"
    expected = np.float32(1 * (1 - 0.01 * 0.01) - 0.01)
    assert p["w"].tolist() == [float(rlx.array(expected).astype(dtype))] * 130


def test_masks():
    p = {"w": rlx.ones((2, 2)), "norm": {"gamma": rlx.ones(2), "beta": rlx.ones(2)}}
    zero = rlx.tree_map(rlx.zeros_like, p)

    def decayed(decays):
        optimizer = optim.sgd(1.0, weight_decay=0.5, decays=decays)
        after = optimizer.update(zero, optimizer.init(p), p)[0]
        return [path for path, x in rlx.tree_flatten_with_path(after)[0] if float(x.sum()) < x.size]

    assert decayed(None) == ["norm.beta", "norm.gamma", "w"]
    assert decayed(optim.is_matrix) == ["w"]
    assert decayed(lambda path, leaf: path.endswith("gamma")) == ["norm.gamma"]
    assert decayed({"w": False, "norm": True}) == ["norm.beta", "norm.gamma"]
    with pytest.raises(rlx.Error, match="True or False of 'w', not 1"):
        decayed({"w": 1, "norm": True})


def test_masked_parameters_stay_and_have_no_state():
    p = {"w": rlx.ones(2), "ids": rlx.array([1, 2]), "frozen": rlx.ones(2)}
    g = {"w": rlx.ones(2), "ids": rlx.zeros(2), "frozen": rlx.ones(2)}
    optimizer = optim.masked(optim.adam(0.1), {"w": True, "ids": False, "frozen": False})
    state = optimizer.init(p)
    assert state["m"]["ids"] is None and state["m"]["frozen"] is None
    after, state = rlx.jit(optimizer.update)(g, state, p)
    assert after["frozen"].tolist() == [1, 1] and after["ids"].tolist() == [1, 2] and float(after["w"][0]) < 0.95
    with pytest.raises(rlx.Error, match="masked: the gradients are"):
        optimizer.update({"w": rlx.ones(2)}, state, p)


def test_chains_of_transforms():
    p = {"w": rlx.ones(4)}
    halve = optim.Transform(lambda p: 0, lambda g, s, p: (rlx.tree_map(lambda x: x / 2, g), s + 1))
    inner = optim.chain(halve, optim.clip_by_value(0.2))
    assert isinstance(inner, optim.Transform)
    optimizer = optim.chain(inner, optim.sgd(1.0))
    after, state = optimizer.update({"w": rlx.array([0.1, 1.0, -1.0, 0.0])}, optimizer.init(p), p)
    np.testing.assert_allclose(after["w"], [0.95, 0.8, 1.2, 1])
    assert state[0][0] == 1
    after, state = rlx.jit(lambda o, g, s, p: o.update(g, s, p))(optimizer, p, state, p)  # an optimiser has no leaves
    np.testing.assert_allclose(after["w"], 0.8)
    np.testing.assert_allclose(optim.global_norm({"a": [rlx.array([3.0]), rlx.array([[4.0]])]}), 5)


def test_accumulation_moves_on_the_last_run_and_clips_the_mean():
    p = {"w": rlx.ones(2)}
    optimizer = optim.accumulate(optim.ema(optim.chain(optim.clip_by_value(1.0), optim.sgd(1.0)), 0.5), 2)
    state = optimizer.init(p)
    update = rlx.jit(optimizer.update)
    for gradient, expected, run in ((4.0, 1, 1), (-1.0, 0, 0), (0.5, 0, 1), (0.5, -0.5, 0)):
        p, state = update({"w": rlx.full(2, gradient)}, state, p)
        assert p["w"].tolist() == [expected] * 2 and int(state["run"]) == run
    assert state["inner"]["average"]["w"].tolist() == [-0.25] * 2 and int(state["inner"]["step"]) == 2
    assert state["sum"]["w"].tolist() == [0, 0]


# ---- what is refused


@pytest.mark.parametrize(
    "code, part, call",
    [
        ("sgd", "nesterov needs a momentum", lambda: optim.sgd(0.1, nesterov=True)),
        ("adam", "adam: a beta", lambda: optim.adam(beta1=1.0)),
        ("adamw", "eps", lambda: optim.adamw(eps=0.0)),
        ("lion", "lion: a beta", lambda: optim.lion(beta2=-0.1)),
        ("schedule", "cosine_rate", lambda: optim.cosine(1.0, 0)),
        ("schedule", "ascend", lambda: optim.piecewise(1.0, {0: 2.0})),
        ("schedule", "ascend", lambda: optim.join([1.0, 2.0, 3.0], [5, 5])),
        ("schedule", "2 schedules need 1", lambda: optim.join([1.0, 2.0], [])),
        ("schedule", "warmup", lambda: optim.warmup(1.0, 0)),
        ("schedule", "piecewise: factors is a dict", lambda: optim.piecewise(1.0, [(3, 0.5)])),
        ("schedule", "a step must be an integer, not 'x'", lambda: optim.piecewise(1.0, {"x": 0.5})),
        ("schedule", "a factor must be a number, not None", lambda: optim.piecewise(1.0, {3: None})),
        ("schedule", "total must be an integer, not 2.5", lambda: optim.linear(1.0, 0.0, 2.5)),
        ("schedule", "sgd: a rate must not be negative, got -0.1", lambda: optim.sgd(-0.1)),
        ("schedule", "lion: a rate must not be negative", lambda: optim.lion(-1)),
        ("schedule", "cosine: a rate must not be negative", lambda: optim.cosine(-1.0, 5)),
        ("schedule", "constant: a rate must be a number, not nan", lambda: optim.constant(float("nan"))),
        ("adam", "adam: eps must be a number, not 'x'", lambda: optim.adam(eps="x")),
        ("schedule", "one number", lambda: update(optim.sgd(rlx.ones(2)))),
        ("clip-norm", "0", lambda: optim.clip_by_global_norm(0)),
        ("clip-value", "-1", lambda: optim.clip_by_value(-1)),
        ("ema", "[0, 1)", lambda: optim.ema(optim.sgd(), 1.0)),
        ("accumulate", "at least one", lambda: optim.accumulate(optim.sgd(), 0)),
        ("optim-chain", "last", lambda: optim.chain(optim.sgd(), optim.clip_by_value(1))),
        ("optim-chain", "at least one", optim.chain),
        ("optim-dtype", "'a.1' is [2] i64", lambda: optim.sgd().init({"a": [rlx.ones(2), rlx.array([1, 2])]})),
        ("no-params", "adam", lambda: optim.adam().init({})),
        ("optim-tree", "{'w': *}", lambda: update(optim.sgd(), {"v": rlx.ones(2)})),
        ("optim-tree", "'w' is [2] f32, its gradient [3] f32", lambda: update(optim.sgd(), {"w": rlx.ones(3)})),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_refusals(code, part, call):
    with pytest.raises(rlx.Error) as e:
        call()
    assert e.value.code == code and part in e.value.message, e.value


def update(optimizer, g=None):
    p = {"w": rlx.ones(2)}
    return optimizer.update(p if g is None else g, optimizer.init(p), p)


def test_what_is_no_optimizer():
    for call in (
        lambda: optim.ema(optim.clip_by_value(1), 0.5), lambda: optim.chain(0.1), lambda: optim.accumulate(None, 2),
        lambda: optim.masked(3, True),
    ):  # fmt: skip
        with pytest.raises(TypeError):
            call()
