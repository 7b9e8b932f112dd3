"""What the Python peers of the training-step benchmark share: files, schedule, memory figures, the protocol.

A peer imports its libraries, then calls `serve(name, versions, make_step)`. `make_step(model)` builds and compiles and
returns `step(i) -> float`, which runs step i and returns its loss. See MODEL.md for the model and the protocol.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys
import time

import numpy as np

LOSS_STEPS = 20
PEAK_LR, WARMUP, FLOOR = 2e-3, 100, 0.1
BETA1, BETA2, EPS, WEIGHT_DECAY, CLIP = 0.9, 0.95, 1e-8, 0.1, 1.0
LN_EPS = 1e-5


@dataclasses.dataclass
class Model:
    """The contents of a folder made by gen_weights.py."""

    config: dict
    weights: dict[str, np.ndarray]
    batches: list[tuple[np.ndarray, np.ndarray]]


def load(folder: pathlib.Path) -> Model:
    config = json.loads((folder / "config.json").read_text())
    is_batch = lambda path: path.name.startswith(("x_", "y_"))
    weights = {p.name[:-4]: np.load(p) for p in sorted(folder.glob("*.npy")) if not is_batch(p)}
    batches = [
        tuple(np.load(folder / f"{side}_{i}.npy") for side in "xy")
        for i in range(config["batches"])
    ]
    return Model(config, weights, batches)


def decays(name: str) -> bool:
    """Weight decay applies to the matrices that multiply, not to embeddings, norms and biases."""
    return name == "head" or name.split(".")[-1] in ("wq", "wk", "wv", "wo", "wqkv", "w1", "w2")


def learning_rate(i: int, steps: int) -> float:
    if i < WARMUP:
        return PEAK_LR * (i + 1) / WARMUP
    progress = min(1.0, (i - WARMUP) / (steps - WARMUP))
    return PEAK_LR * (FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * progress)) / 2)


def status_bytes(field: str) -> int:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def reset_peak() -> bool:
    """Sets VmHWM back to the present size; false where the kernel does not permit it."""
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        return True
    except OSError:
        return False


def emit(event: str, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def serve(name, versions, make_step, folder):
    reset_peak()
    baseline = status_bytes("VmRSS")
    emit("ready", name=name, versions=versions, rss_bytes=baseline)
    model = load(folder)

    begin = time.perf_counter()
    step = make_step(model)
    losses = [step(0)]
    emit("compiled", seconds=time.perf_counter() - begin)
    losses += [step(i) for i in range(1, LOSS_STEPS)]
    emit("losses", losses=losses)

    done = LOSS_STEPS
    peak = status_bytes("VmHWM")
    steady = reset_peak()
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["run"]:
            seconds = []
            for i in range(done, done + int(words[1])):
                begin = time.perf_counter()
                step(i)
                seconds.append(time.perf_counter() - begin)
            done += len(seconds)
            emit("times", seconds=seconds)
        elif words == ["quit"]:
            break
        elif words:
            raise SystemExit(f"unknown command: {line!r}; expected 'run N' or 'quit'")
    last = status_bytes("VmHWM")
    figures = {"peak_rss_above_baseline_bytes": max(peak, last) - baseline}
    if steady:
        figures["steady_peak_rss_above_baseline_bytes"] = last - baseline
    emit("memory", **figures)


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--dir", required=True, type=pathlib.Path, help="folder made by gen_weights.py"
    )
    parser.add_argument("--threads", type=int, default=2)
    return parser
