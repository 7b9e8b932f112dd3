"""Writes tests/text/exported: layers as PyTorch's exporters write them out, and as we write them.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch numpy onnx
    /tmp/venv/bin/python tests/golden/exporters/write.py

<layer>.torch.rlx is torch.export's program with full decompositions, <layer>.onnx.rlx that of the old ONNX exporter at
opset 13, <layer>.sdpa.rlx the first with scaled_dot_product_attention; each node becomes what it says in our primitives,
nothing is recognised here. <layer>.{torch,onnx}.ours.rlx is the same with our composites. <layer>.broken-<how>.rlx is a
layer that means something else. exported_test.cc reads them; `// values` are elements of PyTorch's result where leaves
have the values of leaf_values().
"""

import pathlib
import warnings

import numpy as np
import torch

import aten
import onnx_program
from composites import Composites
from layers import FUSED, LAYERS

OUT = pathlib.Path(__file__).resolve().parents[2] / "text" / "exported"


def leaf_values(name, shape, dtype):
    """What exported_test.cc gives a leaf of this name."""
    seed = sum(name.encode())
    i = np.arange(int(np.prod(shape)), dtype=np.float64)
    if dtype == torch.int64:
        return torch.from_numpy(((seed + 3 * i) % 10).astype(np.int64).reshape(shape))
    v = np.sin(seed + 1.3 * i + 0.01 * ((7 * i) % 31))
    if name == "mask":
        v = (v > -0.5).astype(np.float64)
    elif name.endswith("running_var"):
        v = 1.5 + v
    elif len(shape) > 1 and name.endswith("weight"):
        v = 0.3 * v
    return torch.from_numpy(v.astype(np.float32).reshape(shape))


def trained(layer):
    """Parameters, and what batch norms have seen."""
    seen = [(n, b) for n, b in layer.named_buffers() if "running_" in n]
    return [(n, p.detach()) for n, p in layer.named_parameters()] + seen


def filled(layer):
    for name, t in trained(layer):
        t.copy_(leaf_values(name, t.shape, t.dtype))
    return layer.eval()


def values(layer, inputs):
    given = {n: leaf_values(n, t.shape, t.dtype) for n, t in inputs.items()}
    with torch.no_grad():
        flat = layer(*given.values()).reshape(-1)
    return "values " + " ".join(f"{v:.7g}" for v in flat[:: max(1, flat.numel() // 16)][:16].tolist())


def write(name, program, comments):
    (OUT / f"{name}.rlx").write_text(program.text(comments))


def main():
    warnings.filterwarnings("ignore")
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.glob("*.rlx"):
        old.unlink()
    version = torch.__version__.split("+")[0]
    for name, (make, breaks) in LAYERS.items():
        layer, inputs = filled(make()), make.inputs()
        by = {"torch": f"{make.__doc__.splitlines()[0]} As torch.export of PyTorch {version} writes it out.",
              "onnx": f"{make.__doc__.splitlines()[0]} As the ONNX exporter of PyTorch {version} writes it at opset 13."}
        wanted = values(layer, inputs)
        write(f"{name}.torch", aten.FromAten(name, aten.decomposed(layer, inputs)).p, [by["torch"], wanted])
        graph = onnx_program.exported(layer, inputs)
        folded = [] if name == "resnet" else [wanted]  # its batch norms are folded into other weights
        write(f"{name}.onnx", onnx_program.FromOnnx(name, graph, trained(layer)).p, [by["onnx"], *folded])
        for exporter in by:
            ours = Composites(exporter).layer(name)
            known = folded if exporter == "onnx" else [wanted]
            write(f"{name}.{exporter}.ours", ours, [f"{make.__doc__.splitlines()[0]} With our composites.", *known])
        if name in FUSED:
            fused = filled(make(fused=True))
            program = aten.FromAten(name, aten.decomposed(fused, inputs)).p
            write(f"{name}.sdpa", program, [by["torch"], values(fused, inputs)])
        for how, op in breaks.items():
            broken = filled(make(broken=how))
            program = aten.FromAten(name, aten.decomposed(broken, inputs)).p
            write(f"{name}.broken-{how}", program, [f"not {op}", values(broken, inputs)])


if __name__ == "__main__":
    main()
