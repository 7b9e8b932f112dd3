"""One peer of the model benchmark: a process that loads a prepared network and runs it when told.

    python bench/models/peer.py rlx build/models/resnet50-1 --threads 2

Says {"ready": .., "version": .., "error": ..} (the largest difference to PyTorch's output, relative to the largest output), then for
every line on standard input, a number of runs, {"wall": [..], "cpu": [..]}: milliseconds of each, by the clock and of the process's CPUs.
"""

import argparse
import json
import pathlib
import sys
import time

import numpy as np


def rlx_peer(folder, x, threads):
    import rlx

    f = rlx.compile(rlx.parse((folder / "model.rlx").read_text()), threads=threads)
    with np.load(folder / "weights.npz") as weights:
        for name in weights.files:
            f.set_param(name, weights[name])
    return rlx.__version__, lambda: np.asarray(f.run({"x": x})[0])


def onnxruntime_peer(folder, x, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    return onnxruntime.__version__, lambda: session.run(["y"], {"x": x})[0]


def openvino_peer(folder, x, threads):
    import openvino

    core = openvino.Core()
    config = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(core.read_model(folder / "model.onnx"), "CPU", config).create_infer_request()
    return openvino.__version__, lambda: request.infer({"x": x}, share_outputs=True)[0]


def torch_peer(folder, x, threads, compiled):
    import torch

    import nets

    torch.set_num_threads(threads)
    module = nets.make(folder.name.rsplit("-", 1)[0])
    module.load_state_dict(torch.load(folder / "state.pt"))
    module = module.to(memory_format=torch.channels_last)
    tx = torch.from_numpy(x).to(memory_format=torch.channels_last)
    if compiled:
        import torch._inductor.config

        torch._inductor.config.freezing = True  # folds the batch norms
        module = torch.compile(module)

    def run():
        with torch.inference_mode():
            return module(tx).numpy()

    return torch.__version__, run


PEERS = {
    "rlx": rlx_peer,
    "onnxruntime": onnxruntime_peer,
    "openvino": openvino_peer,
    "torch": lambda *a: torch_peer(*a, compiled=False),
    "torch.compile": lambda *a: torch_peer(*a, compiled=True),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    a = parser.parse_args()
    x, want = np.load(a.folder / "x.npy"), np.load(a.folder / "y.npy")
    version, run = PEERS[a.peer](a.folder, x, a.threads)
    got = run()
    error = float(np.abs(got - want).max() / np.abs(want).max())
    say = lambda **message: print(json.dumps(message), flush=True)
    say(ready=a.peer, version=version, error=error)
    for line in sys.stdin:
        times = {"wall": [], "cpu": []}
        for _ in range(int(line)):
            start = time.perf_counter(), time.process_time()
            run()
            end = time.perf_counter(), time.process_time()
            for kind, a, b in zip(times, start, end):
                times[kind].append(1e3 * (b - a))
        say(**times)


if __name__ == "__main__":
    main()
