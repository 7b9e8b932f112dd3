"""Whole networks, from files that bench/models/prepare.py writes once (build/models)."""

import dataclasses
import pathlib
import subprocess
import sys

import numpy as np

from .case import Case, case

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODELS = ROOT / "bench" / "models"


def run_rlx(library, folder, operands, network):
    m = library.rlx
    f = m.compile(m.parse((folder / "model.rlx").read_text()), threads=library.threads)
    with np.load(folder / "weights.npz") as weights:
        f.set_params({name: weights[name] for name in weights.files})
    arrays = {name: m.asarray(x) for name, x in operands.items()}
    return lambda: f.run(arrays)[0]


def run_torch(library, folder, operands, network):
    torch = library.torch
    sys.path.insert(0, str(MODELS))
    import prepare

    module = prepare.family(network).make(network)
    module.load_state_dict(torch.load(folder / "state.pt"))
    images = {"memory_format": torch.channels_last} if "x" in operands else {}
    module = module.to(**images) if images else module
    tensors = [torch.from_numpy(x).to(**images) if images else torch.from_numpy(x) for x in operands.values()]
    if library.compiled:
        import torch._inductor.config

        torch._inductor.config.freezing = True  # folds batch norms
        module = torch.compile(module)

    def run():
        with torch.inference_mode():
            return module(*tensors)

    return run


def run_file(library, folder, operands, network):
    return library.open(folder / "model.onnx", operands)


@dataclasses.dataclass
class Network(Case):
    network: str = ""
    sizes: tuple = ()

    @property
    def folder(self):
        return ROOT / "build" / "models" / f"{self.network}-{'x'.join(map(str, self.sizes))}"

    def prepare(self, python, environment):
        if not (self.folder / "operands.npz").exists():
            command = [python, str(MODELS / "prepare.py"), self.network, str(self.folder), *map(str, self.sizes)]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                raise SystemExit(f"{self.name} could not be prepared:\n{done.stdout[-3000:]}")

    def start(self, library, name):
        with np.load(self.folder / "operands.npz") as file:
            operands = {n: file[n] for n in file.files}
        return self.function_of(name)(library, self.folder, operands, self.network)


def network(name, sizes, text, **options):
    ways = {"rlx": run_rlx, "torch": run_torch, "onnxruntime": run_file, "openvino": run_file, "jax": None}
    case("networks", f"{text} {'x'.join(map(str, sizes))}", [], kind=Network, network=name, sizes=sizes, only=ways, tolerance=1e-3, **options)


# Multiply-adds of an image of 224x224 (U-Net: 256x256), times two.
for images in (1, 16):
    network("resnet50", (images,), "ResNet-50, batch", flops=images * 8.18e9)
    network("mobilenet_v3", (images,), "MobileNet-v3 large, batch", flops=images * 4.3e8)
    network("unet", (images,), "U-Net, batch", flops=images * 2.72e10)
for name, text, layers, width in (("minilm", "MiniLM-L6, batch x length", 6, 384), ("bert_base", "BERT-base, batch x length", 12, 768)):
    for batch in (1, 8):
        for length in (16, 128, 512):
            work = 2 * 12 * width * width + 4 * length * width  # of a token in a layer: products with weights, with keys and values
            network(name, (batch, length), text, flops=batch * length * layers * work)
