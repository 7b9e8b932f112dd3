"""RLX beside the libraries that do the same work: a table and a chart per group, into bench/RESULTS.md and bench/charts.

    python bench/peers/run.py [--only REGEX] [--libraries rlx,torch,jax] [--rounds 7] [--seconds 0.15] [--write]

Each library is a process (worker.py); the cases stand in cases/. For each case all load it, what they computed is
compared, and then they take turns: in every round each runs it for some time while the others sleep. A ratio is the median
over rounds of (the best other library's time / ours), so above 1 RLX is faster; the best is the one of the least median.
What the machine can do at most (FMA, and copying between two buffers beyond its caches) is measured before each case, and
the share of it is in the table. A library that cannot do a case, or computes something else, is named below the table.
`make bench-peers` makes the environment and runs all of it.

On a machine that others use at the same time the clock says how long one had to wait: `--clock cpu --threads 1` counts the
time that a process had a CPU, and a round by its shortest run.
"""

import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import numpy as np  # noqa: E402

import cases  # noqa: E402
import chart  # noqa: E402
from rounds import ROOT, SETTLE_SECONDS, Worker, cpu, spread, write_section  # noqa: E402

LIBRARIES = ("rlx", "torch", "torch-compile", "jax", "numpy", "scipy", "fftw", "onnxruntime", "openvino", "llama-cpp")


class Program:
    """RLX's side of cases that are timed in C++: a program of bench/ that speaks of operations, not of case numbers."""

    def __init__(self, name, args):
        self.clock, self.folder = args.clock, tempfile.TemporaryDirectory()
        path = ROOT / "build" / "release" / "bench" / name
        if not path.exists():
            raise SystemExit(f"{path} is not there; `cmake --build build/release --target benches` builds it")
        self.worker = Worker([str(path), self.folder.name, str(args.threads)], args.threads)

    def ask(self, command, number, *words):
        case = cases.CASES[number]
        if command == "drop":
            return {}
        if command == "run":
            return self.worker.ask("run", *words, self.clock)
        folder = pathlib.Path(self.folder.name)
        case.arrays()[0][0].tofile(folder / "in.bin")
        answer = self.worker.ask("load", case.op, "x".join(map(str, case.shape)))
        if "missing" in answer:
            return answer
        dtype, shape = case.result
        flat = np.fromfile(folder / "rlx.bin", dtype)
        picked = flat[np.linspace(0, flat.size - 1, min(256, flat.size)).astype(int)]
        picked = np.concatenate([picked.real, picked.imag]) if np.iscomplexobj(picked) else picked
        return {"values": [float(v) for v in picked], "size": flat.size, "version": ""}

    def end(self):
        self.worker.end()
        self.folder.cleanup()


class Workers:
    """The processes, each started when a case first needs it."""

    def __init__(self, args):
        self.args, self.running = args, {}

    def of(self, case, name):
        program = case.program if name == "rlx" else ""
        if (name, program) not in self.running:
            self.running[name, program] = Program(program, self.args) if program else self.start(name)
        return self.running[name, program]

    def start(self, name):
        command = [sys.executable, str(HERE / "worker.py"), name, str(self.args.threads), self.args.clock]
        return Worker(command, self.args.threads, {"PYTHONPATH": str(self.args.package)} if name == "rlx" else None)

    def limits(self):
        """What the machine can do now: {"gflops": .., "read_gbytes": .., "copy_gbytes": ..}"""
        tool = ROOT / "build" / "release" / "rlx"
        command = [str(tool), "bench", "--limits", "--threads", str(self.args.threads)]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

    def end(self):
        for worker in self.running.values():
            worker.end()


def differs(ours, theirs, tolerance):
    """Why the results are not the same; empty when they are."""
    if ours["size"] != theirs["size"]:
        return f"{theirs['size']} numbers instead of {ours['size']}"
    if tolerance == float("inf"):
        return ""
    largest = max((abs(v) for v in ours["values"]), default=0.0)
    worst = max((abs(a - b) for a, b in zip(ours["values"], theirs["values"])), default=0.0)
    return "" if worst <= tolerance * max(largest, 1e-30) else f"differs by {worst:.2g} where the largest is {largest:.2g}"


def measure(number, case, workers, args):
    """{library: [seconds of each round]}, and notes."""
    answers, notes = {}, []
    case.prepare(sys.executable, dict(os.environ, PYTHONPATH=str(args.package)))
    for name in args.libraries:
        if case.function_of(name) is None:
            continue
        answer = workers.of(case, name).ask("load", number)
        if "missing" in answer:
            notes.append(f"{case.name}, {name}: {answer['missing']}")
        else:
            answers[name] = answer
    if "rlx" in answers:
        for name in list(answers):
            if why := differs(answers["rlx"], answers[name], case.tolerance):
                notes.append(f"{case.name}, {name}: {why}")
                del answers[name]
    times = {name: [] for name in answers}
    for turn in range(args.rounds):
        names = list(times)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            time.sleep(SETTLE_SECONDS)
            times[name].append(workers.of(case, name).ask("run", number, args.seconds)["seconds"])
    for name in answers:
        workers.of(case, name).ask("drop", number)
    return times, {n: a["version"] for n, a in answers.items() if a["version"]}, notes


class Row:
    def __init__(self, case, times, limits):
        self.case, self.times, self.limits = case, times, limits
        self.ours = times.get("rlx")
        others = {n: t for n, t in times.items() if n != "rlx"}
        self.best = min(others, key=lambda n: statistics.median(others[n])) if others else None
        if self.ours and self.best:
            self.ratio, self.low, self.high = spread([b / o for o, b in zip(self.ours, others[self.best])])

    def rate(self):
        """What RLX reaches, and the share of the limit that is nearer."""
        seconds = statistics.median(self.ours)
        if not self.case.flops and not self.case.bytes:
            return "", ""
        reached = {"GF/s": self.case.flops / seconds / 1e9, "GB/s": self.case.bytes / seconds / 1e9}
        memory = self.limits["read_gbytes" if self.case.reads else "copy_gbytes"]
        shares = {unit: reached[unit] / limit for unit, limit in zip(reached, (self.limits["gflops"], memory))}
        unit = max(shares, key=shares.get)
        return f"{reached[unit]:.{0 if unit == 'GF/s' else 1}f} {unit}", f"{100 * shares[unit]:.0f} %"

    def cells(self, libraries):
        ms = [f"{statistics.median(self.times[n]) * 1e3:.3g}" if n in self.times else "" for n in libraries]
        ratio = [f"**{self.ratio:.2f}**" if self.ratio < 0.8 else f"{self.ratio:.2f}", f"{self.low:.2f} to {self.high:.2f}"]
        return "| " + " | ".join([self.case.name, *ms, *self.rate(), self.best, *ratio]) + " |"


def chart_name(group):
    return f"{group.replace(' ', '-')}.svg"


def section(group, rows, libraries):
    used = [n for n in libraries if any(n in r.times for r in rows)]
    mean = math.exp(statistics.mean(math.log(r.ratio) for r in rows))
    worst = min(rows, key=lambda r: r.ratio)
    return "\n".join(
        [
            f"### {group.capitalize()}",
            "",
            f"![ratios](charts/{chart_name(group)})",
            "",
            "| milliseconds | " + " | ".join(used) + " | RLX | of the limit | best other | ratio | quartiles |",
            "|---" * (len(used) + 6) + "|",
            *(r.cells(used) for r in rows),
            "",
            f"Geometric mean of the ratios {mean:.2f}; the least is {worst.ratio:.2f}, {worst.case.name}.",
            "",
        ]
    )


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose 'group: name' this regular expression finds")
    parser.add_argument("--libraries", default=",".join(LIBRARIES), help="some of " + ", ".join(LIBRARIES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.15, help="of a library in a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: for shared machines, with --threads 1")
    parser.add_argument("--package", type=pathlib.Path, default=ROOT / "build/release/python", help="where the rlx package lies")
    parser.add_argument("--list", action="store_true", help="print the cases and end")
    parser.add_argument("--write", action="store_true", help="into bench/RESULTS.md and bench/charts")
    args = parser.parse_args()
    args.libraries = args.libraries.split(",")
    if unknown := set(args.libraries) - set(LIBRARIES):
        parser.error(f"--libraries: no {', '.join(sorted(unknown))}; there are {', '.join(LIBRARIES)}")
    if args.clock == "cpu" and args.threads != 1:
        parser.error("--clock cpu counts the time of all threads: --threads 1")
    return args


def main():
    args = parse_args()
    picked = [(i, c) for i, c in enumerate(cases.CASES) if re.search(args.only, f"{c.group}: {c.name}")]
    if not picked:
        raise SystemExit(f"--only {args.only}: no case has such a name")
    if args.list:
        print("\n".join(f"{c.group}: {c.name}" for _, c in picked))
        return
    workers = Workers(args)
    groups, versions, notes, begin = {}, {}, [], time.monotonic()
    try:
        for done, (number, case) in enumerate(picked):
            limits = workers.limits()
            times, found, remarks = measure(number, case, workers, args)
            versions |= found
            notes += remarks
            row = Row(case, times, limits)
            if row.ours and row.best:
                groups.setdefault(case.group, []).append(row)
                said = f"{row.ratio:.2f} ({row.best})"
            else:
                notes.append(f"{case.name}: nothing to compare")
                said = "nothing to compare"
            print(f"{done + 1} of {len(picked)}, {time.monotonic() - begin:.0f} s: {case.name}: {said}", file=sys.stderr, flush=True)
    finally:
        workers.end()
    clock = "" if args.clock == "wall" else "CPU time instead of the clock, a round by its shortest run, "
    parts = [
        "## Beside other libraries",
        "",
        f"`make bench-peers`, {cpu()}, {args.threads} thread{'s' * (args.threads > 1)}, f32, {clock}{time.strftime('%Y-%m-%d')}: "
        f"{', '.join(v for v in versions.values() if v)}. "
        f"{args.rounds} rounds, in each of which every library runs for {args.seconds} s, in a process of its own, in turns. A ratio is the best "
        "other library's time by RLX's, the median over the rounds: above 1 RLX is faster. Results agree.",
        "",
        *(section(g, rows, args.libraries) for g, rows in groups.items()),
    ]
    if notes:
        parts += ["Left out:", "", *(f"- {n}" for n in notes), ""]
    text = "\n".join(parts)
    print(text)
    if args.write:
        folder = ROOT / "bench" / "charts"
        folder.mkdir(exist_ok=True)
        for group, rows in groups.items():
            bars = chart.bars(group, [(r.case.name, r.ratio, r.low, r.high, r.best) for r in rows])
            (folder / chart_name(group)).write_text(bars)
        write_section("peers", text)


if __name__ == "__main__":
    main()
