"""Writes the initial weights and token batches of the training-step benchmark (MODEL.md) from a seed.

    python gen_weights.py --out DIR [--vocab 96] [--seed 1]

Needs NumPy only. The same seed gives the same bytes on every machine.
"""

import argparse
import json
import pathlib

import numpy as np


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=pathlib.Path)
    for name, default in [
        ("vocab", 96),
        ("width", 128),
        ("layers", 4),
        ("heads", 4),
        ("block", 128),
        ("batch", 16),
        ("steps", 1000),
        ("batches", 20),
        ("seed", 1),
    ]:
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def weight_table(config):
    """(name, shape, standard deviation or a constant) of every tensor, in MODEL.md's order."""
    vocab, width, layers, block = (config[k] for k in ("vocab", "width", "layers", "block"))
    narrow = 0.02 / (2 * layers) ** 0.5
    yield "tok_emb", (vocab, width), ("normal", 0.02)
    yield "pos_emb", (block, width), ("normal", 0.02)
    for i in range(layers):
        yield f"l{i}.ln1.g", (width,), ("constant", 1)
        yield f"l{i}.ln1.b", (width,), ("constant", 0)
        for name in ("wq", "wk", "wv"):
            yield f"l{i}.{name}", (width, width), ("normal", 0.02)
        yield f"l{i}.wo", (width, width), ("normal", narrow)
        yield f"l{i}.ln2.g", (width,), ("constant", 1)
        yield f"l{i}.ln2.b", (width,), ("constant", 0)
        yield f"l{i}.w1", (width, 4 * width), ("normal", 0.02)
        yield f"l{i}.b1", (4 * width,), ("constant", 0)
        yield f"l{i}.w2", (4 * width, width), ("normal", narrow)
        yield f"l{i}.b2", (width,), ("constant", 0)
    yield "lnf.g", (width,), ("constant", 1)
    yield "lnf.b", (width,), ("constant", 0)
    yield "head", (width, vocab), ("normal", 0.02)


def markov_text(rng, vocab, length):
    """A random walk over tokens: nine times in ten one of four successors, else any token."""
    successors = rng.integers(0, vocab, (vocab, 4))
    choice = rng.integers(0, 4, length)
    jump = rng.random(length) < 0.1
    anywhere = rng.integers(0, vocab, length)
    text = np.zeros(length, np.int32)
    for i in range(1, length):
        text[i] = anywhere[i] if jump[i] else successors[text[i - 1], choice[i]]
    return text


def main():
    config = {k: v for k, v in vars(parse_args()).items()}
    out = config.pop("out")
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.Generator(np.random.Philox(config["seed"]))
    for name, shape, (kind, value) in weight_table(config):
        data = rng.standard_normal(shape) * value if kind == "normal" else np.full(shape, value)
        np.save(out / f"{name}.npy", data.astype("<f4"))
    batch, block = config["batch"], config["block"]
    span = batch * (block + 1)
    text = markov_text(rng, config["vocab"], config["batches"] * span)
    for i in range(config["batches"]):
        rows = text[i * span : (i + 1) * span].reshape(batch, block + 1)
        np.save(out / f"x_{i}.npy", np.ascontiguousarray(rows[:, :-1]).astype("<i4"))
        np.save(out / f"y_{i}.npy", np.ascontiguousarray(rows[:, 1:]).astype("<i4"))
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")


if __name__ == "__main__":
    main()
