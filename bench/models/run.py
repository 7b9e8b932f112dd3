"""Convolutional networks on RLX and its peers on this machine, interleaved; a table for bench/RESULTS.md on standard output.

    python bench/models/run.py --python build/peers-venv/bin/python [--nets resnet50,unet] [--batches 1,16] [--rounds 12]

The Python named runs everything but this driver; it needs numpy, onnx, onnxruntime, openvino, torch and torchvision, by name from
PyPI, and RLX's package by PYTHONPATH. Each peer is a process of its own that sleeps while another runs; a figure is the median over rounds of their
medians, a ratio the median over rounds of (peer's median in the round / RLX's). On a machine that others use at the same time the clock says
how long one had to wait: `--clock cpu --threads 1` counts the time that the process had a CPU, and a round counts by its shortest run.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from rounds import cpu  # noqa: E402

PEERS = ["rlx", "onnxruntime", "openvino", "torch", "torch.compile"]
LARGEST_ERROR = 1e-3  # relative to the largest output


class Peer:
    def __init__(self, python, name, folder, threads, environment):
        self.name, self.rounds = name, []
        command = [python, str(HERE / "peer.py"), name, str(folder), "--threads", str(threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        self.ready = self.answer()

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"{self.name} ended with {self.process.wait()}")

    def run(self, count, clock):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return self.answer()[clock]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--nets", default="resnet50,mobilenet_v3,unet")
    p.add_argument("--batches", default="1,16")
    p.add_argument("--peers", default=",".join(PEERS))
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--seconds", type=float, default=0.5, help="of a peer in a round, about")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    p.add_argument("--folder", type=pathlib.Path, default=HERE.parent.parent / "build" / "models")
    a = p.parse_args()
    environment = dict(os.environ, OMP_NUM_THREADS=str(a.threads), MKL_NUM_THREADS=str(a.threads))
    names = a.peers.split(",")
    print(f"{cpu()}, {a.threads} threads, {a.clock} time, load {os.getloadavg()[0]:.1f} at the start\n")
    print("| network | batch | " + " | ".join(f"{n} ms" for n in names) + " | best peer / RLX | spread |")
    print("|---" * (len(names) + 4) + "|")
    versions = {}
    for net in a.nets.split(","):
        for batch in a.batches.split(","):
            folder = a.folder / f"{net}-{batch}"
            if not (folder / "weights.npz").exists():
                subprocess.run([a.python, str(HERE / "prepare.py"), net, batch, str(folder)], check=True, env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            peers = [Peer(a.python, name, folder, a.threads, environment) for name in names]
            for peer in peers:
                versions[peer.name] = peer.ready["version"]
                if not peer.ready["error"] < LARGEST_ERROR:
                    raise SystemExit(f"{peer.name}, {net}: outputs differ by {peer.ready['error']:.1e}")
            for _ in range(a.rounds):
                for peer in peers:
                    time.sleep(0.1)  # threads of the one before stop spinning
                    first = min(peer.run(2, a.clock))
                    peer.rounds.append(peer.run(max(3, min(100, int(a.seconds * 1e3 / first))), a.clock))
            of_round = statistics.median if a.clock == "wall" else min
            medians = [[of_round(r) for r in peer.rounds] for peer in peers]
            ratios = [[m / own for m, own in zip(row, medians[0])] for row in medians]
            best = min(range(1, len(peers)), key=lambda i: statistics.median(ratios[i]), default=0)
            quartiles = statistics.quantiles(ratios[best], n=4)
            cells = [f"{statistics.median(row):.1f}" for row in medians]
            print(f"| {net} | {batch} | " + " | ".join(cells) +
                  f" | {statistics.median(ratios[best]):.2f} | {quartiles[0]:.2f} to {quartiles[2]:.2f} |", flush=True)
            for peer in peers:
                peer.end()
    print("\nVersions: " + ", ".join(f"{n} {v}" for n, v in versions.items()) + ".")


if __name__ == "__main__":
    main()
