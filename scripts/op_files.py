"""The work of op_files.sh, which says what it does."""

import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOL = os.environ.get("RLX", ROOT / "build/release/rlx")

# What a file is to an op: where, and how it names it (NAME). The first row that fits counts.
WAYS = [
    ("entry", r"src/ops/.*\.cc", r'\.name = "NAME"|\(\s*"NAME",'),
    ("declaration", r"src/ops/.*\.h", r"extern const Op<[^>]*>[^;]*\bNAME\b"),
    ("kernel", r"src/backend/.*", r"&op::NAME\b"),
    ("rule", r"src/(?!ops/|backend/).*", r"&op::NAME\b"),
    ("native code", r"src/backend/cpu/kernels/.*", r"(?<!:)\bNAME\w*\("),  # where there is a row of a kernel list, too
    ("builder", r"src/stages/builders/.*", r"GraphBuilder::NAME\(|op::NAME\.def|NodeId NAME\("),
    ("method", r"src/front/.*", r"\bop::NAME\("),
    ("Python", r"python/.*\.py", r"""["']NAME["']|\bop\.NAME\b"""),
    ("samples", r"tests/samples/.*\.txt", r"^NAME(?: |$)"),
    ("errors", r"tests/errors/.*\.txt", r"^NAME\b|= NAME[ ({]"),
    ("golden values", r"tests/(golden|torch)/.*\.py", r"""["']NAME["'/]|\bNAME="""),
    ("special values", r"tests/special_values\.txt", r"\| NAME \|"),
    ("test", r"tests/(unit|long|support)/.*", r'"NAME"|&op::NAME\b'),
    ("docs", r"docs/.*\.md|README\.md|ARCHITECTURE\.md", r"`NAME[`({ ]"),
    ("made", r"tests/schema\.txt", r"^NAME\("),
    ("made", r"tests/allowances\.txt", r"\bNAME\b"),
    ("made", r"tests/golden/.*\.(jsonl|txt)", r'"NAME"|^NAME\b'),
]


def table():
    try:
        out = subprocess.run([TOOL, "ops", "--json"], check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        sys.exit(f"op_files.sh: no {TOOL}; build it with `make tool`, or say where it is with RLX")
    return [op["name"] for op in json.loads(out)["ops"]]


def sources():
    """(path, text, the ways that apply to it) of every tracked file."""
    for path in subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines():
        ways = [(way, pattern) for way, where, pattern in WAYS if re.fullmatch(where, path)]
        if ways:
            yield path, (ROOT / path).read_text(), ways


def files_of(op, files):
    found = []
    for path, text, ways in files:
        if op in text:
            named = (way for way, pattern in ways if re.search(pattern.replace("NAME", op), text, re.M))
            if way := next(named, None):
                found.append((path, way))
    has_kernel = any(way == "kernel" for _, way in found)
    return [(path, way) for path, way in found if has_kernel or way != "native code"]


def main(names):
    ops = table()
    unknown = [name for name in names if name not in ops]
    if unknown:
        sys.exit(f"op_files.sh: the table has no {', '.join(unknown)}")
    files = list(sources())
    total = 0
    for op in names or ops:
        found = files_of(op, files)
        made = sum(way == "made" for _, way in found)
        total += len(found) - made
        print(f"{op}: {len(found) - made} files, and {made} that tools write")
        if names:
            for path, way in found:
                print(f"  {path}  ({way})")
    if not names:
        print(f"{len(ops)} ops, {total / len(ops):.1f} files each")


if __name__ == "__main__":
    main(sys.argv[1:])
