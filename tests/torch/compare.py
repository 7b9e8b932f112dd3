"""PyTorch's own samples (op_db) run through our ops: values, gradients, second order.

    PYTHONPATH=build/release/python python tests/torch/compare.py [--ops add,div:floor_rounding] [--samples 6]

Every op of mapping.py is checked on every dtype that PyTorch samples it for. A disagreement must stand in
differences.txt with its reason, and a line there must name a disagreement that exists; everything else fails.
Needs torch and expecttest, which `make test` never does.
"""

import argparse
import collections
import pathlib
import sys
import warnings

import numpy as np
import rlx
import torch
from mapping import MAPPING
from torch.testing._internal.common_methods_invocations import op_db

HERE = pathlib.Path(__file__).parent
DTYPES = {"float32": 2e-5, "float64": 1e-9, "bfloat16": 2e-2, "int32": 0, "int64": 0, "uint8": 0, "bool": 0}
SAMPLES = 6  # per op, dtype and stage
STAGES = ("forward", "grad", "second")


class Disagreement(Exception):
    pass


def to_ours(x):
    if isinstance(x, torch.Tensor):
        return rlx.array(x.detach().resolve_conj().resolve_neg())
    if isinstance(x, (list, tuple)):
        return type(x)(map(to_ours, x))
    return {k: to_ours(v) for k, v in x.items()} if isinstance(x, dict) else x


def tensors(x):
    """The tensors in a nest of arguments, in order."""
    if isinstance(x, torch.Tensor):
        return [x]
    if isinstance(x, dict):
        x = list(x.values())
    return [t for v in x for t in tensors(v)] if isinstance(x, (list, tuple)) else []


def refill(x, values):
    """The nest with its tensors replaced in order."""
    if isinstance(x, torch.Tensor):
        return next(values)
    if isinstance(x, (list, tuple)):
        return type(x)([refill(v, values) for v in x])
    return {k: refill(v, values) for k, v in x.items()} if isinstance(x, dict) else x


def as_list(x):
    return list(x) if isinstance(x, (list, tuple)) else [x]


def compare(ours, theirs, tolerance, what):
    for a, b in zip(ours, theirs, strict=True):
        b = torch.zeros(()) if b is None else b.detach()
        expected = b.to(torch.float64).numpy() if b.dtype == torch.bfloat16 else b.numpy(force=True)
        got = np.asarray(a.astype("f64") if a.dtype == "bf16" else a)
        name = str(b.dtype).removeprefix("torch.")
        if a.dtype != name and what == "forward":
            raise Disagreement(f"dtype {a.dtype}, PyTorch {name}")
        if got.shape != expected.shape:
            raise Disagreement(f"shape {got.shape}, PyTorch {expected.shape}")
        if got.dtype.kind == "f" and tolerance == 0:
            tolerance = DTYPES["float32"]  # integers in, floats out
        scale = max(1.0, np.abs(expected[np.isfinite(expected)]).max(initial=0)) if got.dtype.kind == "f" else 0
        if not np.allclose(got, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            worst = np.nanmax(np.abs(got.astype("f8") - expected.astype("f8")))
            raise Disagreement(f"values differ by {worst:.3g}")


def forward(op, f, sample, tolerance):
    args = (sample.input, *sample.args)
    theirs = op(*args, **sample.kwargs)
    compare(as_list(f(*to_ours(args), **to_ours(sample.kwargs))), as_list(theirs), tolerance, "forward")


def derivatives(op, f, sample, tolerance, stage):
    nest = [[sample.input, *sample.args], sample.kwargs]
    everything = tensors(nest)
    wrt = [i for i, t in enumerate(everything) if t.is_floating_point() and t.requires_grad]
    leaves = [everything[i].detach().requires_grad_() for i in wrt]
    filled = list(everything)
    for i, leaf in zip(wrt, leaves):
        filled[i] = leaf
    args, kwargs = refill(nest, iter(filled))
    outs = [y for y in as_list(op(*args, **kwargs)) if y.requires_grad]
    if not wrt or not outs:
        return
    torch.manual_seed(1)
    cts = [torch.randn_like(y) for y in outs]
    first = torch.autograd.grad(outs, leaves, cts, create_graph=True, allow_unused=True)
    first = [torch.zeros_like(x) if g is None else g for g, x in zip(first, leaves)]

    def ours(*xs):
        values = [rlx.array(t.detach()) for t in everything]
        for i, x in zip(wrt, xs):
            values[i] = x
        a, k = refill(nest, iter(values))
        return [y for y in as_list(f(*a, **k)) if y.dtype.is_floating]

    xs = [rlx.array(x.detach()) for x in leaves]
    pulled = lambda *xs: rlx.vjp(ours, *xs)[1]([rlx.array(c) for c in cts])
    if stage == "grad":
        return compare(pulled(*xs), first, tolerance, "grad")
    vs = [torch.randn_like(x) for x in leaves]
    total = sum((g * v).sum() for g, v in zip(first, vs))
    if not total.requires_grad:
        return
    second = torch.autograd.grad(total, leaves, allow_unused=True)
    second = [torch.zeros_like(x) if g is None else g for g, x in zip(second, leaves)]
    slope = lambda *xs: sum((g * rlx.array(v)).sum() for g, v in zip(pulled(*xs), vs))
    compare(rlx.grad(slope, tuple(range(len(xs))))(*xs), second, tolerance, "second")


def check(op, name, dtype, stage, limit):
    """What disagrees first, or None; and how many samples there were."""
    torch_dtype, tolerance = getattr(torch, dtype), DTYPES[dtype]
    torch.manual_seed(0)
    count = 0
    for sample in op.sample_inputs("cpu", torch_dtype, requires_grad=stage != "forward"):
        if count >= limit:
            break
        count += 1
        try:
            if stage == "forward":
                forward(op, MAPPING[name], sample, tolerance)
            else:
                derivatives(op, MAPPING[name], sample, tolerance * 10, stage)
        except (Disagreement, rlx.Error, NotImplementedError, TypeError, ValueError) as e:
            return f"{type(e).__name__}: {e} (sample {count}: {sample.summary()})", count
    return None, count


def read_differences():
    """(op, stage, dtype) to the reason. A line: op | stages | dtypes | reason; * means all."""
    out = {}
    lines = [line for file in sorted(HERE.glob("differences*.txt")) for line in file.read_text().splitlines()]
    for line in lines:
        if line.strip() and not line.startswith("#"):
            name, stages, dtypes, reason = (part.strip() for part in line.split("|"))
            for stage in STAGES if stages == "*" else stages.split(","):
                for dtype in DTYPES if dtypes == "*" else dtypes.split(","):
                    out[name, stage.strip(), dtype.strip()] = reason
    return out


def cases(wanted):
    for op in op_db:
        name = op.name + (f":{op.variant_test_name}" if op.variant_test_name else "")
        if name not in MAPPING or (wanted and name not in wanted):
            continue
        for dtype in DTYPES:
            torch_dtype = getattr(torch, dtype)
            if not op.supports_dtype(torch_dtype, "cpu"):
                continue
            yield op, name, dtype, "forward"
            if dtype == "float64" and op.supports_autograd:
                yield op, name, dtype, "grad"
                if op.supports_gradgrad:
                    yield op, name, dtype, "second"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", default="")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--backend", default=rlx.get_backend())
    options = parser.parse_args()
    rlx.use_backend(options.backend)
    warnings.simplefilter("ignore")
    wanted = set(filter(None, options.ops.split(",")))
    differences, used, failed = read_differences(), set(), []
    samples, stages, names = 0, collections.Counter(), set()
    for op, name, dtype, stage in cases(wanted):
        why, count = check(op, name, dtype, stage, options.samples)
        samples, stages[stage] = samples + count, stages[stage] + 1
        names.add(name)
        key = (name, stage, dtype)
        if why and key in differences:
            used.add(key)
        elif why:
            failed.append(f"{name} {stage} {dtype}: {why}")
    if not wanted and options.samples >= SAMPLES:
        stale = {(n, r) for (n, _, _), r in differences.items()} - {(n, differences[n, s, d]) for n, s, d in used}
        failed += [f"{n}: listed in differences.txt but no longer different ({r})" for n, r in sorted(stale)]
        failed += [f"{n}: not in op_db" for n in sorted(MAPPING.keys() - names)]
    print("\n".join(failed))
    print(f"{len(names)} ops, {dict(stages)} cases, {samples} samples, {len(used)} explained, {len(failed)} failures")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
