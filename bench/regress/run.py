"""Is this tree slower than another commit? Both builds, interleaved, on programs of the kinds that people run.

    python bench/regress/run.py COMMIT [--rounds 9] [--seconds 0.3] [--only REGEX] [--limit 0.97]

Builds the Python package of COMMIT in build/regress/COMMIT and takes that of build/release for this tree. Each build is a
process; in every round each runs every program for some time while the other sleeps. A ratio is the median over rounds of
(COMMIT's time / this tree's), so above 1 this tree is faster. Exit status 1 when a ratio lies below --limit by more than
half the distance between its quartiles. What is timed is a call from Python, results included. `make bench-regress
BASE=COMMIT` does all of it.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from rounds import ROOT, SETTLE_SECONDS, Worker, spread  # noqa: E402


def start(package, programs, threads):
    return Worker([sys.executable, str(HERE / "peer.py"), str(programs), str(threads)], threads, {"PYTHONPATH": str(package)})


def build_base(commit, jobs):
    """The folder of the other commit's Python package."""
    full = subprocess.run(
        ["git", "rev-parse", "--verify", commit + "^{commit}"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    tree = ROOT / "build" / "regress" / full[:12]
    if not tree.exists():
        subprocess.run(["git", "clone", "-q", "--no-checkout", str(ROOT), str(tree)], check=True)
        subprocess.run(["git", "checkout", "-q", full], cwd=tree, check=True)
    for command in (
        ["cmake", "--preset", "release", "-DRLX_PYTHON=ON", f"-DPython_EXECUTABLE={sys.executable}", "--log-level=WARNING"],
        ["cmake", "--build", "build/release", f"-j{jobs}", "--target", "rlx_python"],
    ):
        subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL)
    return tree / "build/release/python"


def measure(builds, names, args):
    """{name: [(base, new), ..] of the rounds}"""
    times = {name: [] for name in names}
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
        for name in names:
            pair = []
            for b in builds if number % 2 == 0 else builds[::-1]:
                time.sleep(SETTLE_SECONDS)
                pair.append(b.ask("run", name, args.seconds)["seconds"])
            times[name].append(tuple(pair if number % 2 == 0 else pair[::-1]))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--programs", default=ROOT / "build/regress/programs")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=0.97)
    args = parser.parse_args()
    base = build_base(args.commit, os.cpu_count())
    builds = [start(p, args.programs, args.threads) for p in (base, ROOT / "build/release/python")]
    names, compiled = [], {}
    for path in sorted(pathlib.Path(args.programs).glob("*.rlx")):
        if not re.search(args.only, path.stem):
            continue
        answers = [b.ask("load", path.stem) for b in builds]
        if missing := [a["missing"] for a in answers if "missing" in a]:
            print(f"{path.stem}: left out: {missing[0]}", file=sys.stderr)
            continue
        names.append(path.stem)
        compiled[path.stem] = [a["compile"] for a in answers]
    times = measure(builds, names, args)
    print(f"| program | {args.commit} ms | now ms | ratio | quartiles | compile ratio |\n|---|---|---|---|---|---|")
    slower = []
    for name in names:
        ratios = [b / n for b, n in times[name]]
        middle, low, high = spread(ratios)
        before, now = (1e3 * statistics.median(t[i] for t in times[name]) for i in (0, 1))
        print(
            f"| {name} | {before:.3f} | {now:.3f} | {middle:.3f} | {low:.3f}, {high:.3f} | {compiled[name][0] / compiled[name][1]:.2f} |"
        )
        if middle + (high - low) / 2 < args.limit:
            slower.append(name)
    if slower:
        print(f"slower: {', '.join(slower)}")
    return bool(slower)


if __name__ == "__main__":
    sys.exit(main())
