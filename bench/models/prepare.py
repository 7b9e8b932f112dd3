"""Writes a network for all libraries into a folder: ONNX, RLX's text and weights, PyTorch's state, its operands and result.

    python bench/models/prepare.py resnet50 build/models/resnet50-1 1
    python bench/models/prepare.py bert_base build/models/bert_base-1x128 1 128

Needs torch, torchvision, transformers, onnx, and RLX's package by PYTHONPATH.
"""

import pathlib
import sys

import numpy as np

import conv_nets
import encoders


def family(name):
    for module in (conv_nets, encoders):
        if name in module.NAMES:
            return module
    raise SystemExit(f"no network {name}; there are {', '.join([*conv_nets.NAMES, *encoders.NAMES])}")


def main(name, folder, *sizes):
    import torch

    folder, source = pathlib.Path(folder), family(name)
    folder.mkdir(parents=True, exist_ok=True)
    module, operands = source.make(name), source.operands(name, *map(int, sizes))
    tensors = tuple(map(torch.from_numpy, operands.values()))
    with torch.no_grad():
        np.save(folder / "y.npy", module(*tensors).numpy())
    torch.save(module.state_dict(), folder / "state.pt")
    torch.onnx.export(
        module, tensors, folder / "model.onnx", input_names=list(operands), output_names=["y"], opset_version=17, dynamo=False
    )
    graph, weights = source.to_rlx(name, module, operands)
    (folder / "model.rlx").write_text(str(graph))
    np.savez(folder / "weights.npz", **weights)
    np.savez(folder / "operands.npz", **operands)  # the last: whoever sees it finds the others


if __name__ == "__main__":
    main(*sys.argv[1:])
