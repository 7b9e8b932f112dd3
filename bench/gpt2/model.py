"""The training step that bench/gpt2 times: GPT-2 of 124 million parameters, the same numbers for every peer.

    config = {"vocab": 50257, "width": 768, "layers": 12, "heads": 12, "block": 256, "batch": 4, "seed": 1}
    p = weights(config)                   # NumPy arrays by name
    x, y = batch(config, 0)               # int64 [batch, block]

    h = wte[x] + wpe
    each layer: h += merge(softmax(causal(q k^T / sqrt(D))) v) @ proj.w + proj.b,  q, k, v = layer_norm(h) @ qkv.w + qkv.b
                h += gelu_tanh(layer_norm(h) @ fc.w + fc.b) @ out.w + out.b
    loss = mean cross-entropy of layer_norm(h) @ wte^T and y

The table of tokens is the last layer's matrix, too. AdamW with a rate of 3e-4, b1 0.9, b2 0.95, eps 1e-8 and a decay of 0.1 of
all matrices; no dropout, no clipping. Norms have eps 1e-5 and biased variances.
"""

import numpy as np

RATE, BETA1, BETA2, EPS, DECAY = 3e-4, 0.9, 0.95, 1e-8, 0.1
BATCHES = 4
LOSS_STEPS = 6  # whose losses must agree


def shapes(config):
    """The sizes of each tensor by name, and the standard deviation it is drawn with; None: it is filled with that 0 or 1."""
    c, std = config["width"], 0.02
    deep = std / (2 * config["layers"]) ** 0.5
    out = {"wte": ((config["vocab"], c), std), "wpe": ((config["block"], c), std)}
    for i in range(config["layers"]):
        layer = {
            "ln1.g": ((c,), 1), "ln1.b": ((c,), 0), "qkv.w": ((c, 3 * c), std), "qkv.b": ((3 * c,), 0),
            "proj.w": ((c, c), deep), "proj.b": ((c,), 0), "ln2.g": ((c,), 1), "ln2.b": ((c,), 0),
            "fc.w": ((c, 4 * c), std), "fc.b": ((4 * c,), 0), "out.w": ((4 * c, c), deep), "out.b": ((c,), 0),
        }  # fmt: skip
        out |= {f"l{i}.{name}": value for name, value in layer.items()}
    return out | {"lnf.g": ((c,), 1), "lnf.b": ((c,), 0)}


def weights(config):
    random = np.random.default_rng(config["seed"])
    made = {}
    for name, (sizes, how) in shapes(config).items():
        if len(sizes) == 1:
            made[name] = np.full(sizes, how, np.float32)
        else:
            made[name] = random.standard_normal(sizes, np.float32)
            made[name] *= np.float32(how)
    return made


def batch(config, i):
    random = np.random.default_rng((config["seed"], i % BATCHES))
    text = random.integers(0, config["vocab"], (config["batch"], config["block"] + 1))
    return text[:, :-1].astype(np.int64), text[:, 1:].astype(np.int64)
