"""Fourier transforms: RLX against MKL (through torch.fft), FFTW and pocketfft (scipy.fft), interleaved, into bench/RESULTS.md.

    build/peers-venv/bin/python bench/fft/run.py [--rounds 15] [--seconds 0.05] [--only REGEX] [--no-write]

Needs `ninja -C build/release benches` and a Python with torch, scipy, pyfftw. Each peer is a process (peer.py; fft_case.cc is ours);
their results must agree. In every round each one runs the case for some time while the others sleep; there are many short rounds
because the machine may be shared. A ratio is the median over rounds of (a peer's time / ours), above 1 we are faster; the row's is
the one against the peer that is best at it. The list is cases.txt.
"""

import argparse
import json
import math
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from rounds import ROOT, cpu, write_section  # noqa: E402

SETTLE_SECONDS = 0.002  # threads of the one that ran last stop spinning
TOLERANCE = 2e-6  # of the largest bin


class Peer:
    def __init__(self, name, command, threads):
        self.name, self.versions = name, {}
        env = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads), RLX_CACHE="0")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended at: {' '.join(map(str, words))}")
        answer = json.loads(line)
        self.versions.update(answer.get("versions", {}))
        return answer


def operand(op, shape):
    random = np.random.default_rng(7)
    real = lambda s: random.random(s, "f4") - np.float32(0.5)
    if op == "rfft":
        return real(shape)
    if op == "irfft":
        return np.fft.rfft(real(shape)).astype("c8")
    return (real(shape) + 1j * real(shape)).astype("c8")


def check(folder, op, peers, case):
    kind = "f4" if op == "irfft" else "c8"
    first = np.fromfile(folder / f"{peers[0].name}.bin", kind)
    for peer in peers[1:]:
        other = np.fromfile(folder / f"{peer.name}.bin", kind)
        error = np.abs(first - other).max() / np.abs(first).max()
        if not error <= TOLERANCE:
            raise SystemExit(f"{case}: {peers[0].name} and {peer.name} differ by {error:.2g} of the largest value")


def measure(peers, args):
    times = {p.name: [] for p in peers}
    for number in range(args.rounds):
        order = peers[number % len(peers) :] + peers[: number % len(peers)]
        for p in order:
            time.sleep(SETTLE_SECONDS)
            answer = p.ask("run", args.seconds, args.clock)
            times[p.name].append((answer["seconds"], answer["least"]))
    return times


def row(case, peers, times):
    """The ratios of the case, by medians of rounds and by least times, and its line of the table."""
    ours = times[peers[0].name]
    ratios = {p.name: [t / o for (t, _), (o, _) in zip(times[p.name], ours)] for p in peers[1:]}
    least = {p.name: min(t for _, t in times[p.name]) for p in peers}
    best = min(ratios, key=lambda name: statistics.median(ratios[name]))
    low, middle, high = statistics.quantiles(ratios[best], n=4)
    quiet = min(least[p.name] for p in peers[1:]) / least[peers[0].name]
    cells = [f"{1e3 * statistics.median(t for t, _ in times[p.name]):.4g} ({1e3 * least[p.name]:.4g})" for p in peers]
    return middle, quiet, f"| {case} | {' | '.join(cells)} | {best} | {middle:.2f} | {low:.2f}, {high:.2f} | {quiet:.2f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: the calling thread's time; with --threads 1")
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", action="append", default=[], help="leave a peer out (repeatable)")
    parser.add_argument("--machine", default=cpu(), help="what the table says of it")
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args()
    if args.clock == "cpu" and args.threads != 1:
        parser.error("--clock cpu sees the calling thread alone: --threads 1")
    cases = [l.split() for l in (HERE / "cases.txt").read_text().splitlines() if l and not l.startswith("#")]
    lines, middles, quiets = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        common = [scratch, str(args.threads)]
        peers = [Peer("rlx", [str(ROOT / "build/release/bench/fft_case"), *common], args.threads)]
        for name in ("mkl", "fftw", "pocketfft"):
            if name not in args.skip:
                peers.append(Peer(name, [sys.executable, str(HERE / "peer.py"), name, *common], args.threads))
        for op, shape in cases:
            case = f"{op} {shape}"
            if not re.search(args.only, case):
                continue
            operand(op, [int(s) for s in shape.split("x")]).tofile(folder / "in.bin")
            for p in peers:
                p.ask("load", op, shape)
            check(folder, op, peers, case)
            middle, quiet, line = row(case, peers, measure(peers, args))
            middles.append(middle)
            quiets.append(quiet)
            lines.append(line)
            print(line, file=sys.stderr, flush=True)
        versions = {k: v for p in peers for k, v in p.versions.items()}
    mean, quiet_mean = (math.exp(statistics.mean(map(math.log, m))) for m in (middles, quiets))
    clock = "CPU time of one thread" if args.clock == "cpu" else f"{args.threads} threads"
    section = "\n".join(
        [
            "## Fourier transforms",
            "",
            f"`bench/fft/run.py`: c64 and f32, {clock}; {args.machine}, {time.strftime('%Y-%m-%d')}. {args.rounds} interleaved "
            f"rounds of {args.seconds} s, medians in milliseconds and in brackets the least time of all; the ratio is the best peer's time by ours, its "
            "median and quartiles over rounds; the last column is the ratio of the least times, which other work on the machine disturbs least. "
            "MKL through torch.fft, FFTW with a measured plan, pocketfft through scipy.fft.",
            "",
            f"| case | {' | '.join(p.name for p in peers)} | best peer | ratio | quartiles | least |",
            "|---|" + "---|" * (len(peers) + 4),
            *lines,
            "",
            f"Geometric mean of the ratios {mean:.2f}, of the least times' {quiet_mean:.2f}. Versions: "
            + ", ".join(f"{k} {v}" for k, v in sorted(versions.items()))
            + f", Python {platform.python_version()}.",
            "",
        ]
    )
    print(section)
    if not args.no_write:
        write_section("fft", section)


if __name__ == "__main__":
    main()
