"""Writes tests/golden/optim.txt: parameters after steps of optimisers, and schedules, by PyTorch, Optax and NumPy.

    python tests/golden/optim.py        # needs numpy, torch, jax and optax

The problem: w [9, 5] and b [5] fit tanh(x @ w + b) to y; the loss is 10 * mean((tanh(x @ w + b) - y)^2), and step t
(from 0) sees batch t % 3 of x [3, 7, 9] and y [3, 7, 5]. After the line with the versions there are lines of words and
hexadecimal numbers:

    data x NUMBERS..                    x, y, w, b in binary64 (binary32 cases round them)
    case NAME f64|f32                   what was computed (optim_test.cc and test_optim.py say it), and in which dtype
    after STEPS NUMBERS..               w, then b, after so many steps (of the average: its values)
    schedule NAME NUMBERS..             the rate at the steps 0, 1, .. 24
"""

import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

jax.config.update("jax_enable_x64", True)
SEED = 20240607
RECORDED = (1, 3, 12)
torch.set_num_threads(1)

rng = np.random.default_rng(SEED)
DATA = {
    "x": rng.normal(size=(3, 7, 9)),
    "y": rng.uniform(-1, 1, size=(3, 7, 5)),
    "w": rng.normal(size=(9, 5)) / 3,
    "b": rng.normal(size=5) / 10,
}


def numbers(values):
    return " ".join(float(v).hex() for v in np.asarray(values, np.float64).reshape(-1))


# ---- PyTorch


def by_torch(make, dtype, before=lambda params: None, average=None, runs=1):
    kind = {"f64": torch.float64, "f32": torch.float32}[dtype]
    data = {k: torch.tensor(v, dtype=kind) for k, v in DATA.items()}

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.b = torch.nn.Parameter(data["w"].clone()), torch.nn.Parameter(data["b"].clone())

    model = Model()
    optimizer = make(model)
    kept = None
    if average is not None:
        kept = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(average)
        )
    for t in range(max(RECORDED)):
        x, y = data["x"][t % 3], data["y"][t % 3]
        (10 * ((torch.tanh(x @ model.w + model.b) - y) ** 2).mean() / runs).backward()
        if (t + 1) % runs == 0:
            before(model.parameters())
            optimizer.step()
            optimizer.zero_grad()
        if kept is not None:
            kept.update_parameters(model)
        shown = kept.module if kept is not None else model
        yield t + 1, torch.cat([shown.w.reshape(-1), shown.b]).detach().numpy()


def clip_norm(params):
    torch.nn.utils.clip_grad_norm_(params, 0.5)


def clip_value(params):
    torch.nn.utils.clip_grad_value_(params, 0.05)


Optim = torch.optim
TORCH = {
    "sgd": dict(make=lambda m: Optim.SGD(m.parameters(), 0.1)),
    "sgd-momentum": dict(make=lambda m: Optim.SGD(m.parameters(), 0.05, momentum=0.9)),
    "sgd-nesterov": dict(
        make=lambda m: Optim.SGD(m.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=0.05)
    ),
    "adam": dict(make=lambda m: Optim.Adam(m.parameters(), 0.02)),
    "adam-decay": dict(make=lambda m: Optim.Adam(m.parameters(), 0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    "adamw": dict(make=lambda m: Optim.AdamW(m.parameters(), 0.02, weight_decay=0.1)),
    "clip-norm": dict(make=lambda m: Optim.SGD(m.parameters(), 0.3), before=clip_norm),
    "clip-value": dict(make=lambda m: Optim.SGD(m.parameters(), 0.3), before=clip_value),
    "ema": dict(make=lambda m: Optim.SGD(m.parameters(), 0.3), average=0.8),
    "accumulate": dict(make=lambda m: Optim.Adam(m.parameters(), 0.05), before=clip_norm, runs=3),
}


# ---- Optax


def by_optax(optimizer, dtype):
    data = {k: jnp.asarray(v, {"f64": jnp.float64, "f32": jnp.float32}[dtype]) for k, v in DATA.items()}
    params = {"w": data["w"], "b": data["b"]}
    state = optimizer.init(params)
    loss = lambda p, x, y: 10 * ((jnp.tanh(x @ p["w"] + p["b"]) - y) ** 2).mean()
    for t in range(max(RECORDED)):
        grads = jax.grad(loss)(params, data["x"][t % 3], data["y"][t % 3])
        updates, state = optimizer.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        yield t + 1, np.concatenate([np.asarray(params["w"]).reshape(-1), np.asarray(params["b"])])


OPTAX = {
    "adamw-mask": optax.adamw(
        optax.cosine_decay_schedule(0.05, 8, 0.1), weight_decay=0.3, mask={"w": True, "b": False}
    ),
    "lion": optax.lion(0.01, b1=0.9, b2=0.95, weight_decay=0.1),
}


# ---- schedules

STEPS = range(25)
SCHEDULES = {
    "linear": optax.linear_schedule(0.5, 0.1, 16),
    "cosine": optax.cosine_decay_schedule(0.3, 20, 0.05),
    "exponential": optax.exponential_decay(0.2, 7, 0.6),
    "staircase": optax.exponential_decay(0.2, 7, 0.6, staircase=True),
    "piecewise": optax.piecewise_constant_schedule(0.4, {5: 0.5, 11: 0.1}),
    "join": optax.join_schedules(
        [optax.linear_schedule(0.0, 0.4, 6), optax.exponential_decay(0.4, 4, 0.5), optax.constant_schedule(0.01)], [6, 18]
    ),
    "warmup": lambda s: min(1, (s + 1) / 6) * 0.3 * (0.05 + 0.95 * (1 + math.cos(math.pi * min(1, s / 20))) / 2),
    "warmup-cosine": lambda s: 0.2 * (s + 1) / 4 if s < 4
    else 0.2 * (0.1 + 0.9 * (1 + math.cos(math.pi * min(1, (s - 4) / 16))) / 2),
}  # fmt: skip


def main():
    versions = f"numpy {np.__version__}, torch {torch.__version__}, jax {jax.__version__}, optax {optax.__version__}"
    lines = [f"# {versions}, seed {SEED}"]
    lines += [f"data {name} {numbers(values)}" for name, values in DATA.items()]
    for dtype in ("f64", "f32"):
        runs = {name: by_torch(dtype=dtype, **how) for name, how in TORCH.items()}
        runs |= {name: by_optax(how, dtype) for name, how in OPTAX.items()}
        for name, run in runs.items():
            lines.append(f"case {name} {dtype}")
            lines += [f"after {step} {numbers(values)}" for step, values in run if step in RECORDED]
    for name, schedule in SCHEDULES.items():
        rates = [schedule(jnp.asarray(s, jnp.float64) if "warmup" not in name else s) for s in STEPS]
        lines.append(f"schedule {name} {numbers(rates)}")
    pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
