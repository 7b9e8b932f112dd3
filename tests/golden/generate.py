"""Writes the golden values of the ops: tests/golden/<family>.jsonl, by NumPy, SciPy, PyTorch, JAX.., independent of RLX.

    python tests/golden/generate.py [family ...]      # all families when none is named

Needs numpy, ml_dtypes, mpmath and what the families import: scipy, torch, jax, onnx, gguf; each file's first line has the versions.

Tests only read the files. Nothing here depends on the time, the machine's thread count or the order of samples: the values of a
sample are drawn from its id. Running the script again with the versions named in a file gives the same bytes.

## Format
A file is UTF-8 text, one JSON object per line. The first line is about the file:

    {"family": "reduce", "format": 1, "samples": 371, "seed": 20240607, "versions": {"numpy": "2.4.6", ...}}

each further line is a sample:

    {"id": "add/f32/broadcast-1", "op": "add", "attrs": {}, "inputs": [T..], "outputs": [T..], "tol": [{..}..], "note": "..."}

* `id` is unique in the file, stable, and of the form op/dtype/case. `note` says in words what the case is about.
* `attrs` holds the op's attributes under their names: integers, booleans, reals, lists of integers, and strings for dtypes
  ("f32") and enumerators ("causal"). Attributes that are not given have their default.
* T is {"dtype": "f32", "shape": [2, 3], "data": "0000803f.."}: row-major, two lower-case hex digits per byte, little-endian as in
  memory; bool is one byte 0 or 1; c64 is re, im as f32. Dtypes: f32 f16 bf16 f64 i8 i16 i32 i64 u8 u32 bool c64
  f8e4m3fn f8e5m2.
* `tol` has one entry per output. {"rel": r, "abs": a} accepts x for the golden y when
    - both are NaN (whatever the payload), or both are the same infinity, or
    - r = a = 0 and x equals y, a zero also in its sign, or
    - not r = a = 0, both are finite and |x - y| <= a + r |y|.
  c64 with r = a = 0 is compared part by part as f32; otherwise |.| is the modulus and no part is NaN or infinite.
  {"rel": 0, "abs": 0, "any_zero": true}: as above, but +0 and -0 are the same (maximum of +0 and -0).
  {"rel": r, "abs": a, "signed_zero": true}: a golden zero is met by a zero of its sign alone; c64 part by part.

## How values are computed
Operands are exactly what the file holds. Results are computed in a wider type (x87 80-bit reals for functions and sums, exact
integers for integers, binary64 for + - * / on types whose results that makes correctly rounded) and rounded once, to nearest even. So
`tol` speaks about the implementation alone; families/core.py lists the tolerances and why they are what they are. Cases that mix
concerns are separate samples: "special" (NaN, infinities, signed zeros), "denormal", "extreme" (near overflow), "huge" (arguments of
sin and cos far beyond 2 pi), "empty", "rank0", "broadcast-n".
"""

import ast
import importlib.metadata
import inspect
import json
import pathlib
import pkgutil
import sys

import families
from families import core

# Every module of families/ but core is a family and has samples(); a module says FAMILY where its name would not do.
MODULES = [
    importlib.import_module(f"families.{m.name}")
    for m in pkgutil.iter_modules(families.__path__)
    if m.name != "core"
]
FAMILIES = {getattr(m, "FAMILY", m.__name__.split(".")[-1]): m for m in MODULES}
PEERS = {"scipy", "torch", "jax", "onnx", "gguf"}


def imported(name: str) -> set[str]:
    """The packages that a family imports, itself or through another family."""
    out = set()
    for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(name)))):
        if isinstance(node, ast.Import):
            out |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            out.add(node.module.split(".")[0])
        elif isinstance(node, ast.ImportFrom):
            others = [node.module] if node.module else [a.name for a in node.names]
            out |= set().union(*(imported(f"families.{n}") for n in others))
    return out


def versions(module) -> dict[str, str]:
    peers = sorted(imported(module.__name__) & PEERS)
    return core.versions() | {p: importlib.metadata.version(p) for p in peers}


def write(family: str) -> tuple[int, int]:
    """Writes one family's file; returns the number of samples and of bytes."""
    samples = list(FAMILIES[family].samples())
    ids = [s["id"] for s in samples]
    assert len(set(ids)) == len(
        ids
    ), f"{family}: repeated id {[i for i in ids if ids.count(i) > 1][0]}"
    header = {
        "family": family,
        "format": 1,
        "samples": len(samples),
        "seed": core.SEED,
        "versions": versions(FAMILIES[family]),
    }
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in [header, *samples])
    path = pathlib.Path(__file__).with_name(f"{family}.jsonl")
    path.write_text(text)
    return len(samples), len(text)


def main():
    wanted = sys.argv[1:] or list(FAMILIES)
    unknown = [name for name in wanted if name not in FAMILIES]
    if unknown:
        raise SystemExit(f"no family {unknown}; there are {list(FAMILIES)}")
    totals = [write(name) for name in wanted]
    for name, (samples, size) in zip(wanted, totals):
        print(f"{name:12} {samples:5} samples {size / 1e6:6.2f} MB")
    print(
        f"{'all':12} {sum(t[0] for t in totals):5} samples {sum(t[1] for t in totals) / 1e6:6.2f} MB"
    )


if __name__ == "__main__":
    main()
