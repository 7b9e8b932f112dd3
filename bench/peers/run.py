"""RLX beside the libraries that do the same work: a table and a chart per group, into bench/RESULTS.md and bench/charts.

    python bench/peers/run.py [--only REGEX] [--libraries rlx,torch,jax] [--rounds 7] [--seconds 0.15] [--write]

Each library is a process (worker.py); the cases stand in cases.py. For each case all load it, what they computed is
compared, and then they take turns: in every round each runs it for some time while the others sleep. A ratio is the median
over rounds of (the best other library's time / ours), so above 1 RLX is faster; the best is the one of the least median.
A library that cannot do a case, or computes something else, is named below the table. `make bench-peers` makes the
environment and runs all of it.
"""

import argparse
import os
import pathlib
import re
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import cases  # noqa: E402
import chart  # noqa: E402
from rounds import ROOT, SETTLE_SECONDS, Worker, cpu, spread, write_section  # noqa: E402

LIBRARIES = ("rlx", "torch", "torch-compile", "jax", "numpy", "scipy", "fftw")


def start(args):
    paths = {"PYTHONPATH": str(args.package)}
    return {
        name: Worker([sys.executable, str(HERE / "worker.py"), name, str(args.threads)], args.threads, paths if name == "rlx" else None)
        for name in args.libraries
    }


def differs(ours, theirs, tolerance):
    """Why the results are not the same; empty when they are."""
    if ours["size"] != theirs["size"]:
        return f"{theirs['size']} numbers instead of {ours['size']}"
    largest = max((abs(v) for v in ours["values"]), default=0.0)
    worst = max((abs(a - b) for a, b in zip(ours["values"], theirs["values"])), default=0.0)
    return "" if worst <= tolerance * max(largest, 1e-30) or tolerance == float("inf") else f"differs by {worst:.2g} where the largest is {largest:.2g}"


def measure(number, case, workers, args):
    """{library: [seconds of each round]}, and notes."""
    answers, notes = {}, []
    for name, worker in workers.items():
        if case.function_of(name) is None:
            continue
        answer = worker.ask("load", number)
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
        for name in list(times) if turn % 2 == 0 else list(times)[::-1]:
            time.sleep(SETTLE_SECONDS)
            times[name].append(workers[name].ask("run", number, args.seconds)["seconds"])
    for name in answers:
        workers[name].ask("drop", number)
    return times, {n: a["version"] for n, a in answers.items() if a["version"]}, notes


class Row:
    def __init__(self, case, times):
        self.case, self.times = case, times
        self.ours = times.get("rlx")
        others = {n: t for n, t in times.items() if n != "rlx"}
        self.best = min(others, key=lambda n: statistics.median(others[n])) if others else None
        if self.ours and self.best:
            self.ratio, self.low, self.high = spread([b / o for o, b in zip(self.ours, others[self.best])])

    def rate(self):
        seconds = statistics.median(self.ours)
        if self.case.flops:
            return f"{self.case.flops / seconds / 1e9:.0f} GF/s"
        return f"{self.case.bytes / seconds / 1e9:.1f} GB/s" if self.case.bytes else ""

    def cells(self, libraries):
        ms = [f"{statistics.median(self.times[n]) * 1e3:.3g}" if n in self.times else "" for n in libraries]
        ratio = [f"**{self.ratio:.2f}**" if self.ratio < 0.8 else f"{self.ratio:.2f}", f"{self.low:.2f} to {self.high:.2f}"]
        return "| " + " | ".join([self.case.name, *ms, self.rate(), self.best, *ratio]) + " |"


def section(group, rows, libraries):
    used = [n for n in libraries if any(n in r.times for r in rows)]
    return "\n".join(
        [
            f"### {group.capitalize()}",
            "",
            f"![ratios](charts/{group.replace(' ', '-')}.svg)",
            "",
            "| milliseconds | " + " | ".join(used) + " | RLX | best other | ratio | quartiles |",
            "|---" * (len(used) + 5) + "|",
            *(r.cells(used) for r in rows),
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
    parser.add_argument("--package", type=pathlib.Path, default=ROOT / "build/release/python", help="where the rlx package lies")
    parser.add_argument("--write", action="store_true", help="into bench/RESULTS.md and bench/charts")
    args = parser.parse_args()
    args.libraries = args.libraries.split(",")
    if unknown := set(args.libraries) - set(LIBRARIES):
        parser.error(f"--libraries: no {', '.join(sorted(unknown))}; there are {', '.join(LIBRARIES)}")
    return args


def main():
    args = parse_args()
    picked = [(i, c) for i, c in enumerate(cases.CASES) if re.search(args.only, f"{c.group}: {c.name}")]
    if not picked:
        raise SystemExit(f"--only {args.only}: no case has such a name")
    workers = start(args)
    groups, versions, notes = {}, {}, []
    try:
        for done, (number, case) in enumerate(picked):
            print(f"{done + 1} of {len(picked)}: {case.name}", file=sys.stderr, flush=True)
            times, found, remarks = measure(number, case, workers, args)
            versions |= found
            notes += remarks
            row = Row(case, times)
            if row.ours and row.best:
                groups.setdefault(case.group, []).append(row)
            else:
                notes.append(f"{case.name}: nothing to compare")
    finally:
        for worker in workers.values():
            worker.end()
    parts = [
        "## Beside other libraries",
        "",
        f"`make bench-peers`, {cpu()}, {args.threads} threads, f32, {time.strftime('%Y-%m-%d')}: {', '.join(versions.values())}. "
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
            name = f"{group.replace(' ', '-')}.svg"
            (folder / name).write_text(chart.bars(group, [(r.case.name, r.ratio, r.low, r.high, r.best) for r in rows]))
        write_section("peers", text)


if __name__ == "__main__":
    main()
