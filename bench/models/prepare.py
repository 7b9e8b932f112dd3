"""Writes a network for all peers into a folder: ONNX, RLX's text and weights, the input and PyTorch's output.

    python bench/models/prepare.py resnet50 1 build/models/resnet50-1
"""

import pathlib
import sys

import numpy as np
import torch

import nets


def main(name, batch, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    module = nets.make(name)
    shape = (int(batch), 3, nets.SIZES[name], nets.SIZES[name])
    x = np.random.default_rng(1).standard_normal(shape).astype("f4")
    np.save(folder / "x.npy", x)
    with torch.no_grad():
        np.save(folder / "y.npy", module(torch.from_numpy(x)).numpy())
    torch.save(module.state_dict(), folder / "state.pt")
    torch.onnx.export(
        module, (torch.from_numpy(x),), folder / "model.onnx", input_names=["x"], output_names=["y"],
        opset_version=17, dynamo=False,
    )
    graph, weights = nets.to_rlx(name, module, shape)
    (folder / "model.rlx").write_text(str(graph))
    np.savez(folder / "weights.npz", **weights)


if __name__ == "__main__":
    main(*sys.argv[1:])
