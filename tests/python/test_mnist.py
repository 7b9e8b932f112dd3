"""Networks of rlx.nn and rlx.optim learn handwritten digits, and a run that is stopped at any step goes on bit for bit
from a file. mnist_test does the same in C++. The data are ../shared/data/mnist beside the project, or the folder
RLX_MNIST."""

import gzip
import os
import pathlib
import random

import numpy as np
import pytest

import rlx
from rlx import nn, optim

FOLDER = pathlib.Path(os.environ.get("RLX_MNIST") or pathlib.Path(__file__).parents[3] / "shared" / "data" / "mnist")
NAMES = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
TRAIN, BATCH = 8000, 50


@pytest.fixture(scope="module")
def digits():
    if not all((FOLDER / name).exists() for name in NAMES):
        pytest.skip(f"{FOLDER} is not there")
    pixels, labels = (np.frombuffer(gzip.decompress((FOLDER / name).read_bytes()), np.uint8) for name in NAMES)
    images = (pixels[16:].reshape(-1, 1, 28, 28).astype(np.float32) / 255 - 0.13) / 0.31
    return images.astype(np.float32), labels[8:].astype(np.int32)


class Training:
    """A model's training, whose whole state is one tree."""

    def __init__(self, digits, model, optimizer):
        self.images, self.labels = digits
        params = model.init(rlx.key(1))
        self.state = {"params": params, "optimizer": optimizer.init(params), "key": rlx.key(2), "done": 0}

        def loss(params, x, y, key):
            return rlx.cross_entropy(model(params, x, key=key, train=True), y)

        @rlx.jit
        def step(params, state, x, y, key):
            gradients = rlx.grad(loss)(params, x, y, key)
            return optimizer.update(gradients, state, params)

        self._step, self._guess = step, rlx.jit(lambda params, x: model(params, x).argmax(-1))

    def step(self):
        s = self.state
        epoch, at = divmod(s["done"], TRAIN // BATCH)
        chosen = np.random.default_rng(epoch).permutation(TRAIN)[at * BATCH :][:BATCH]
        key = rlx.random_fold_in(s["key"], s["done"])
        params, optimizer = self._step(s["params"], s["optimizer"], self.images[chosen], self.labels[chosen], key)
        self.state = {**s, "params": params, "optimizer": optimizer, "done": s["done"] + 1}

    def share_right(self):
        guess = self._guess(self.state["params"], self.images[TRAIN:])
        return (guess.numpy() == self.labels[TRAIN:]).mean()


def bits(tree):
    return [x.numpy().tobytes() if isinstance(x, rlx.Array) else x for x in rlx.tree_leaves(tree)]


def learns(digits, path, model, epochs, rate, share, further):
    """Trains; at a step that differs from run to run the state is saved, loaded by another training, which then takes
    `further` steps beside the first."""
    total = epochs * TRAIN // BATCH
    stop = random.SystemRandom().randrange(total - further)

    def training():
        optimizer = optim.chain(
            optim.clip_by_global_norm(5.0), optim.adamw(optim.cosine(rate, total), decays=optim.is_matrix)
        )
        return Training(digits, model, optimizer)

    whole = training()
    for i in range(total):
        if i == stop:
            rlx.save(path, whole.state)
        whole.step()
        if i + 1 == stop + further:
            later = whole.state
    assert whole.share_right() >= share
    resumed = training()
    resumed.state = rlx.load(path)
    assert resumed.state["done"] == stop
    for _ in range(further):
        resumed.step()
    assert rlx.tree_structure(resumed.state) == rlx.tree_structure(later)
    assert bits(resumed.state) == bits(later), f"stopped at step {stop}"


def test_an_mlp_is_right_on_93_percent(digits, tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), rlx.relu, nn.Dropout(0.1), nn.Linear(64, 10))
    learns(digits, tmp_path / "mlp", model, 3, 3e-3, 0.93, 40)


def test_a_conv_net_is_right_on_97_percent(digits, tmp_path):
    model = nn.Sequential(
        nn.Conv(1, 8, (5, 5), stride=2, padding=2), rlx.relu,
        nn.Conv(8, 16, (5, 5), padding="same"), rlx.relu, nn.MaxPool((2, 2)), nn.Flatten(), nn.Linear(784, 10),
    )  # fmt: skip
    learns(digits, tmp_path / "conv", model, 2, 5e-3, 0.97, 15)
