"""Writes tests/golden/mlp.txt: the loss of a small network, its gradients and its weights after two steps, by JAX in f64.

    python tests/golden/mlp.py        # needs jax and numpy

The network: h = tanh(x w1 + b1), logits = h w2 + b2, the loss the mean of -log softmax(logits)[label]. After the line with
the versions there are lines of a name and hexadecimal numbers: x [7, 19], labels [7], w1 [19, 33], b1, w2 [33, 5], b2;
loss, and d_NAME; then after_NAME, the weights after two steps w - 0.5 dw.
"""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
SEED = 20240607
rng = np.random.default_rng(SEED)
x, labels = rng.normal(size=(7, 19)), rng.integers(0, 5, size=7)
weights = {
    "w1": rng.normal(size=(19, 33)) / 4,
    "b1": rng.normal(size=33) / 10,
    "w2": rng.normal(size=(33, 5)) / 6,
    "b2": rng.normal(size=5) / 10,
}


def loss(w):
    logits = jnp.tanh(x @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"]
    return -jnp.mean(jax.nn.log_softmax(logits)[np.arange(7), labels])


def line(name, values):
    return name + " " + " ".join(float(v).hex() for v in np.asarray(values, np.float64).reshape(-1))


value, gradients = jax.value_and_grad(loss)(weights)
after = weights
for _ in range(2):
    after = {k: after[k] - 0.5 * g for k, g in jax.grad(loss)(after).items()}
lines = [f"# numpy {np.__version__}, jax {jax.__version__}, seed {SEED}", line("x", x), line("labels", labels)]
lines += [line(k, v) for k, v in weights.items()] + [line("loss", value)]
lines += [line("d_" + k, gradients[k]) for k in weights] + [line("after_" + k, after[k]) for k in weights]
pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")
