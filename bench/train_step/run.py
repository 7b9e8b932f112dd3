"""Training-step benchmark: RLX against PyTorch and JAX on this machine, interleaved, into bench/RESULTS.md.

    python bench/train_step/run.py [--python /path/to/venv/bin/python] [--skip rlx] [--rounds 8] [--no-write]

Each peer is a process (protocol in MODEL.md). They start one after the other, then take turns: in every round each one runs
two unmeasured and `--steps` measured steps while the others sleep. A step time is the median over all rounds, its spread the
distance between the quartiles; a ratio is the median over rounds of (peer's round median / RLX's round median). The
driver itself needs only the standard library, the peers what they import.
"""

import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from rounds import ROOT, Worker, cpu, spread, write_section  # noqa: E402

LOSS_TOLERANCE = 1e-3  # relative, at each of the 20 steps
SETTLE_SECONDS = 0.5  # worker threads of the peer that ran last stop spinning


class Peer(Worker):
    """A running peer. `events` holds what it said so far by event name."""

    def __init__(self, key, command, threads):
        super().__init__(command, threads)
        self.key, self.events, self.rounds = key, {}, []

    def expect(self, event):
        while message := self.answer():
            self.events[message["event"]] = message
            if message["event"] == event:
                return message
        raise SystemExit(f"{self.key} ended before '{event}':\n{self.last_words()[-4000:]}")

    def request(self, command, event):
        self.tell(command)
        return self.expect(event)

    def measure(self, steps):
        self.request("run 2", "times")
        self.rounds.append(self.request(f"run {steps}", "times")["seconds"])

    def quit(self):
        self.request("quit", "memory")
        self.end()

    @property
    def name(self):
        return self.events["ready"].get("name", self.key)

    @property
    def seconds(self):
        return [s for r in self.rounds for s in r]


def commands(args, folder):
    common = ["--dir", str(folder), "--threads", str(args.threads)]
    table = {
        "rlx": [str(args.rlx), "bench", "train-step", "--json", *common],
        "torch-compile": [args.python, str(HERE / "peer_torch.py"), "--mode", "compile", *common],
        "torch-eager": [args.python, str(HERE / "peer_torch.py"), "--mode", "eager", *common],
        "jax": [args.python, str(HERE / "peer_jax.py"), *common],
    }
    unknown = set(args.skip) - set(table)
    if unknown:
        raise SystemExit(f"--skip: no peer {sorted(unknown)}; there are {sorted(table)}")
    return {k: v for k, v in table.items() if k not in args.skip}


def start(key, command, args):
    """Starts a peer `--starts` times and keeps the last; compile time is the median over the starts."""
    compile_seconds = []
    for attempt in range(args.starts):
        peer = Peer(key, command, args.threads)
        peer.expect("losses")
        compile_seconds.append(peer.events["compiled"]["seconds"])
        if attempt + 1 < args.starts:
            peer.quit()
    peer.compile_seconds = statistics.median(compile_seconds)
    print(f"{peer.name}: compiled in {peer.compile_seconds:.2f} s", file=sys.stderr, flush=True)
    return peer


def check_losses(peers):
    """The 20 losses must agree with the first peer's; returns the largest relative difference."""
    worst = 0.0
    first = peers[0].events["losses"]["losses"]
    for peer in peers[1:]:
        losses = peer.events["losses"]["losses"]
        if len(losses) != len(first):
            raise SystemExit(f"{peer.name} gave {len(losses)} losses, {peers[0].name} {len(first)}")
        for i, (a, b) in enumerate(zip(first, losses)):
            difference = abs(a - b) / abs(a)
            if not difference <= LOSS_TOLERANCE:
                raise SystemExit(
                    f"step {i}: loss {a} ({peers[0].name}) and {b} ({peer.name}) differ by {difference:.2g}"
                )
            worst = max(worst, difference)
    return worst


def ratio_of_rounds(peer, base):
    pairs = zip(peer.rounds, base.rounds)
    return statistics.median(statistics.median(p) / statistics.median(b) for p, b in pairs)


def row(peer, base):
    middle, low, high = spread(peer.seconds)
    memory = peer.events["memory"]
    peak = memory["peak_rss_above_baseline_bytes"]
    steady = memory.get("steady_peak_rss_above_baseline_bytes")
    base_peak = base.events["memory"]["peak_rss_above_baseline_bytes"]
    cells = [
        peer.name,
        f"{middle * 1e3:.1f}",
        f"{(high - low) * 1e3:.1f}",
        f"{min(peer.seconds) * 1e3:.1f}",
        f"{ratio_of_rounds(peer, base):.2f}",
        f"{peer.compile_seconds:.2f}",
        f"{peer.compile_seconds / base.compile_seconds:.1f}",
        f"{peak / 2**20:.0f}",
        f"{peak / base_peak:.2f}",
        "" if steady is None else f"{steady / 2**20:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def report(peers, worst, args, config):
    base = peers[0]
    versions = {k: v for p in peers for k, v in p.events["ready"].get("versions", {}).items()}
    lines = [
        "## Training step of a character GPT",
        "",
        f"{config['layers']} layers, width {config['width']}, {config['heads']} heads, {config['batch']}x{config['block']} tokens, "
        f"vocabulary {config['vocab']}, AdamW with clipping, f32; definition in `bench/train_step/MODEL.md`. {cpu()}, "
        f"{args.threads} threads, {time.strftime('%Y-%m-%d')}; {args.rounds} interleaved rounds of {args.steps} steps. "
        f"Ratios are to {base.name} (above 1: {base.name} is better). Memory is the peak above the libraries alone, compiling "
        "included; 'running' leaves compiling out.",
        "",
        "| | step ms (median) | IQR | min | ratio | compile s | ratio | peak MiB | ratio | running MiB |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(row(p, base) for p in peers),
        "",
        f"20 losses agree within {worst:.1e} (relative). Versions: "
        + ", ".join(f"{k} {v}" for k, v in sorted(versions.items()))
        + f", Python {platform.python_version()}.",
    ]
    return "\n".join(lines)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter that has the peers' packages"
    )
    parser.add_argument("--rlx", type=pathlib.Path, default=ROOT / "build" / "release" / "rlx")
    parser.add_argument(
        "--dir", type=pathlib.Path, help="folder made by gen_weights.py (default: a fresh one)"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10, help="measured steps per round")
    parser.add_argument(
        "--starts", type=int, default=1, help="starts per peer, for the compile time"
    )
    parser.add_argument("--skip", action="append", default=[], help="leave a peer out (repeatable)")
    parser.add_argument(
        "--no-write", action="store_true", help="print only; leave RESULTS.md alone"
    )
    return parser.parse_args()


def main():
    args = parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.dir or pathlib.Path(scratch)
        if args.dir is None:
            subprocess.run(
                [args.python, str(HERE / "gen_weights.py"), "--out", scratch], check=True
            )
        config = json.loads((folder / "config.json").read_text())
        peers = [start(key, command, args) for key, command in commands(args, folder).items()]
        worst = check_losses(peers)
        for _ in range(args.rounds):
            for peer in peers:
                time.sleep(SETTLE_SECONDS)
                peer.measure(args.steps)
        for peer in peers:
            peer.quit()
    section = report(peers, worst, args, config)
    print(section)
    if not args.no_write:
        write_section("train-step", section)


if __name__ == "__main__":
    main()
