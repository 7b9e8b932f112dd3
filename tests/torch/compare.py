"""PyTorch's own samples (op_db) run through our ops: values, gradients, second order.

    PYTHONPATH=build/release/python python tests/torch/compare.py [--ops add,div:floor_rounding] [--samples 6]

Every op of mapping.py is checked on every dtype that both have: values in all of them, gradients and second order in
every floating (and complex) dtype in which PyTorch differentiates. Those in float32 come from the CPU backend, all
else from the reference backend, which op_check holds against the CPU and which compiles nothing. A disagreement must
stand in a differences*.txt with its reason, and every line there must name a disagreement that exists; everything else
fails, and so does an op of which nothing could be compared. Needs torch and expecttest, which `make test` never does.
"""

import argparse
import collections
import dataclasses
import fnmatch
import functools
import pathlib
import re
import sys
import warnings

import numpy as np
import rlx
import torch
from helpers import Both, as_list, dtype_of, tensors
from mapping import MAPPING
from torch.testing._internal.common_methods_invocations import op_db

HERE = pathlib.Path(__file__).parent
FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8"]
# Arithmetic of ours takes no bools, and a part of the ops no complex numbers: what refuses them is not compared there.
OPTIONAL = ["bool", "complex64"]
DTYPES = FLOATS + INTEGERS + OPTIONAL
GROUPS = {"*": DTYPES, "floats": FLOATS, "halves": FLOATS[:2], "integers": INTEGERS}
STAGES = ("forward", "grad", "second")
# Epsilons by which two right answers may differ, by stage. Results in half precision are rounded once from float32, and
# so is every op of a derivative; the others carry the errors of their formulas and sums, which derivatives multiply.
EPSILONS = dict.fromkeys(["float16", "bfloat16"], dict(zip(STAGES, (2, 4, 8))))
EPSILONS |= dict.fromkeys(["float32", "float64", "complex64"], dict(zip(STAGES, (64, 256, 1024))))
OWN = 4  # times PyTorch's own error
EPS64, EPS32 = torch.finfo(torch.float64).eps, torch.finfo(torch.float32).eps
LARGEST = 100_000  # elements of a sample: the few larger ones take minutes on the reference backend and add nothing
SLACK = 4  # how many times wider a bound of differences*.txt may be than what was needed
SAMPLES = 100  # per op, dtype and stage: the few ops with hundreds vary two or three attributes in all combinations


class Disagreement(Exception):
    pass


class ValuesDiffer(Disagreement):
    """By so much where both are finite; `infinite` where an infinity or a NaN stands against something else."""

    def __init__(self, difference, largest, infinite):
        self.difference, self.infinite = difference, infinite
        self.fraction = difference / largest if difference and largest else np.inf if difference else 0
        super().__init__(
            f"values differ by {difference:.3g}, {self.fraction:.3g} of the largest element"
            + (", and in NaN or infinity" if infinite else "")
        )


class Refused(Exception):
    """One side lacks the dtype, or PyTorch has no derivative."""


def in_groups(names):
    """Dtypes, given by names and names of groups."""
    return [d for g in names.split(",") for d in GROUPS.get(g.strip(), [g.strip()])]


def to_ours(x):
    if isinstance(x, torch.Tensor):
        return rlx.array(x.detach().resolve_conj().resolve_neg())
    if isinstance(x, (list, tuple)):
        return type(x)(map(to_ours, x))
    return {k: to_ours(v) for k, v in x.items()} if isinstance(x, dict) else x


def refill(x, values):
    """The nest with its tensors replaced in order."""
    if isinstance(x, torch.Tensor):
        return next(values)
    if isinstance(x, (list, tuple)):
        return type(x)([refill(v, values) for v in x])
    return {k: refill(v, values) for k, v in x.items()} if isinstance(x, dict) else x


def differentiable(t):
    return t.is_floating_point() or t.is_complex()


def converted(t, dtype):
    """Floats and complex numbers of that precision."""
    return t.to(dtype.to_complex() if t.is_complex() else dtype) if differentiable(t) else t


@dataclasses.dataclass
class Question:
    """A stage of an op on one sample, nest = [args, kwargs], and what PyTorch answers."""

    op: object
    nest: list
    stage: str
    leaves: int | None = None  # how many tensors of the nest may be differentiated by; None: all
    answers: list = None
    wrt: list = None  # which tensors of the nest are differentiated by
    kept: list = None  # which results are differentiated
    cotangents: list = None
    directions: list = None  # what the gradient is multiplied with before it is differentiated

    def answer(self):
        if self.stage == "forward":
            args, kwargs = self.nest
            self.answers = as_list(self.op(*args, **kwargs))
        else:
            self.answers = self._derivatives()
        return self

    def _derivatives(self):
        everything = tensors(self.nest)
        self.wrt = [i for i, t in enumerate(everything[: self.leaves]) if differentiable(t) and t.requires_grad]
        leaves = [everything[i].detach().requires_grad_() for i in self.wrt]
        everything = [t.detach() for t in everything]
        for i, leaf in zip(self.wrt, leaves):
            everything[i] = leaf
        args, kwargs = refill(self.nest, iter(everything))
        results = as_list(self.op(*args, **kwargs))
        self.kept = [i for i, y in enumerate(results) if y.requires_grad]
        outs = [results[i] for i in self.kept]
        if not leaves or not outs:
            return []
        torch.manual_seed(1)
        self.cotangents = self.cotangents or [torch.randn_like(y) for y in outs]
        first = _gradients(outs, leaves, self.cotangents, self.stage == "second")
        if self.stage == "grad":
            return first
        self.directions = self.directions or [torch.randn_like(x) for x in leaves]
        total = sum((g * v).sum().real for g, v in zip(first, self.directions))
        return _gradients([total], leaves, None, False) if total.requires_grad else []

    def answered_in(self, dtype):
        """The answers in float64 or float32."""
        wide = lambda ts: ts and [converted(t, dtype) for t in ts]
        everything = [converted(t.detach(), dtype).requires_grad_(t.requires_grad) for t in tensors(self.nest)]
        same = Question(self.op, refill(self.nest, iter(everything)), self.stage, self.leaves)
        same.cotangents, same.directions = wide(self.cotangents), wide(self.directions)
        return same.answer().answers

    def ours(self, f):
        args, kwargs = to_ours(self.nest)
        if self.stage == "forward":
            return as_list(f(*args, **kwargs))
        everything = [to_ours(t) for t in tensors(self.nest)]
        cotangents, directions = to_ours(self.cotangents), to_ours(self.directions)

        def results(*xs):
            values = list(everything)
            for i, x in zip(self.wrt, xs):
                values[i] = x
            args, kwargs = refill(self.nest, iter(values))
            ys = as_list(f(*args, **kwargs))
            return [ys[i] for i in self.kept]

        def pulled(*xs):
            return rlx.vjp(results, *xs)[1](cotangents)

        def slope(*xs):
            return sum(rlx.asarray((g * v).sum()).real for g, v in zip(pulled(*xs), directions))

        xs = [everything[i] for i in self.wrt]
        return list(pulled(*xs) if self.stage == "grad" else rlx.grad(slope, tuple(range(len(xs))))(*xs))


def _gradients(outs, leaves, cotangents, create_graph):
    found = torch.autograd.grad(outs, leaves, cotangents, create_graph=create_graph, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves)]


def in_numpy(t):
    return t.detach().to(torch.float64 if t.dtype == torch.bfloat16 else t.dtype).numpy(force=True)


def comparable(x, y):
    """Where both are finite; and where one is not and the other is something else (infinity is not NaN)."""
    finite = np.isfinite(x) & np.isfinite(y)
    return finite, ~finite & (x != y) & ~(np.isnan(x) & np.isnan(y))


def error(x, y):
    """Element by element, 0 where one is not finite."""
    finite = comparable(x, y)[0]
    return np.where(finite, np.abs(np.where(finite, x, 0) - np.where(finite, y, 0)), 0)


def compare(question, ours):
    """Raises Disagreement. Every element must be within the tolerance of PyTorch's or of PyTorch's in float64, relative to
    itself; or, for sums whose terms cancel, no further from the latter than four times the worst of PyTorch's own. What
    PyTorch's float64 itself is off by is inferred from its float32."""
    answers = question.answers
    if len(ours) != len(answers):
        raise Disagreement(f"{len(ours)} results, PyTorch {len(answers)}")
    for i, (a, b) in enumerate(zip(ours, answers)):
        name = dtype_of(b.dtype)
        if a.dtype != name:
            raise Disagreement(f"dtype {a.dtype.long_name}, PyTorch {name}")
        if a.shape != tuple(b.shape):
            raise Disagreement(f"shape {a.shape}, PyTorch {tuple(b.shape)}")
        got = np.asarray(a.astype("f64") if a.dtype == "bf16" else a)
        expected = in_numpy(b)
        if name not in EPSILONS:
            got, expected = got.astype("f8"), expected.astype("f8")
            tolerance, precise = 0, expected
        else:
            tolerance = EPSILONS[name][question.stage] * torch.finfo(b.dtype).eps
            precise = expected
        # The least that counts: so many units in the last place of the smallest numbers.
        least = tolerance * torch.finfo(b.dtype).tiny if tolerance else 0
        off = error(got, expected)
        wrong = off > np.maximum(tolerance * np.abs(expected), least)
        infinite = comparable(got, expected)[1]
        if tolerance and (wrong | infinite).any():
            if name == "float64":
                narrow = in_numpy(question.answered_in(torch.float32)[i]).astype("f8")
                own = error(narrow, expected).max(initial=0) * OWN * EPS64 / EPS32
            else:
                precise = in_numpy(question.answered_in(torch.float64)[i].to(b.dtype))
                own = OWN * error(expected, precise).max(initial=0)
            off = np.minimum(off, error(got, precise))
            wrong &= off > np.maximum(tolerance * np.abs(precise), max(own, least))
            infinite &= comparable(got, precise)[1]
        if wrong.any() or infinite.any():
            largest = np.abs(precise[np.isfinite(precise)]).max(initial=0)
            raise ValuesDiffer(off[wrong].max(initial=0), largest, infinite.any())


def check(op, name, dtype, stage, sample):
    """Raises Disagreement, Refused, or what went wrong on our side."""
    entry = MAPPING[name] if isinstance(MAPPING[name], Both) else Both(MAPPING[name], lambda op, *a, **k: op(*a, **k))
    nest = [[sample.input, *sample.args], sample.kwargs]
    try:
        question = Question(functools.partial(entry.theirs, op), nest, stage, entry.wrt).answer()
    except (RuntimeError, NotImplementedError) as e:
        raise Refused(f"PyTorch: {str(e).splitlines()[0]}") from None
    seen = [*question.answers, *(question.cotangents or [])]
    if not question.answers:
        raise Refused("there is no derivative")
    if any(dtype_of(t.dtype) not in DTYPES for t in seen):
        raise Refused("the result has a dtype that we lack")
    backend = "cpu" if dtype == "float32" and "cpu" in rlx.backends() else "reference"
    with rlx.use_backend(backend):
        try:
            got = question.ours(entry.ours)
        except rlx.Error as e:
            if e.code == "dtype" and dtype in OPTIONAL:
                raise Refused(str(e)) from None
            raise
    compare(question, got)


# "values within 3e-5 of the largest", "values within 2", "values within 0 or NaN"
BOUND = re.compile(r"values within (?P<most>[-+.0-9e]+)(?P<of_largest> of the largest)?(?P<nan> or NaN)?")


@dataclasses.dataclass
class Difference:
    """A line of differences*.txt: op | stages | dtypes | what is reported | reason. What is reported is a pattern of the
    message, or for values a bound: those that differ do so by at most that much."""

    name: str
    stages: list
    dtypes: list
    pattern: str
    reason: str
    used: bool = False
    widest: float = 0  # needed of the bound

    def explains(self, name, dtype, stage, e):
        if not fnmatch.fnmatchcase(name, self.name) or stage not in self.stages or dtype not in self.dtypes:
            return False
        bound = BOUND.fullmatch(self.pattern)
        if not isinstance(e, ValuesDiffer) or not bound:
            return not bound and fnmatch.fnmatchcase(f"{type(e).__name__}: {e}", f"*{self.pattern}*")
        by = e.fraction if bound["of_largest"] else e.difference
        if by > float(bound["most"]) or e.infinite and not bound["nan"]:
            return False
        self.widest = max(self.widest, by)
        return True

    def loose(self):
        """Whether the bound is more than SLACK times what was needed of it."""
        bound = BOUND.fullmatch(self.pattern)
        return bool(bound) and self.used and float(bound["most"]) > SLACK * self.widest


def read_differences():
    for file in sorted(HERE.glob("differences*.txt")):
        for line in file.read_text().splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            name, stages, dtypes, pattern, reason = (part.strip() for part in line.split(" | "))
            stages = STAGES if stages == "*" else [s.strip() for s in stages.split(",")]
            dtypes = in_groups(dtypes)
            unbounded = "values" in pattern and not BOUND.fullmatch(pattern)
            if not reason or unbounded or set(stages) - set(STAGES) or set(dtypes) - set(DTYPES):
                raise SystemExit(f"{file.name}: cannot read: {line}")
            yield Difference(name, stages, dtypes, pattern, reason)


def name_of(op):
    return op.name + (f":{op.variant_test_name}" if op.variant_test_name else "")


def unaccounted():
    """Entries of op_db that are neither mapped nor in unmapped.txt (written for one version of PyTorch), or both."""
    lines = (HERE / "unmapped.txt").read_text().splitlines()
    version = lines[0].split("PyTorch ")[1].split()[0]
    listed = {name for line in lines[1:] for name in line.split(" | ")[1].split()}
    names = {name_of(op) for op in op_db}
    if torch.__version__.startswith(version):
        yield from sorted(f"{n}: neither mapped nor in unmapped.txt" for n in names - MAPPING.keys() - listed)
        yield from sorted(f"{n}: in unmapped.txt, but not in op_db" for n in listed - names)
    yield from sorted(f"{n}: mapped, and in unmapped.txt" for n in listed & MAPPING.keys())


def cases(wanted, dtypes):
    for op in op_db:
        name = name_of(op)
        if name not in MAPPING or (wanted and name not in wanted):
            continue
        for dtype in dtypes:
            torch_dtype = getattr(torch, dtype)
            if not op.supports_dtype(torch_dtype, "cpu"):
                continue
            yield op, name, dtype, "forward"
            if torch_dtype in op.supported_backward_dtypes("cpu") and op.supports_autograd:
                yield op, name, dtype, "grad"
                if op.supports_gradgrad:
                    yield op, name, dtype, "second"


def samples_of(op, dtype, stage, limit):
    torch.manual_seed(0)
    found = list(op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=stage != "forward"))
    found = [s for s in found if sum(t.numel() for t in tensors([s.input, s.args, s.kwargs])) <= LARGEST]
    return found[:: -(-len(found) // limit)] if found else []


def shown(sample):
    """A sample on one line, without what is the same in all of them."""
    text = " ".join(sample.summary().removeprefix("SampleInput").split())
    for noise in (', device="cpu"', ", broadcasts_input=False, name=''", "torch.", "size=", "dtype="):
        text = text.replace(noise, "")
    return text


class Report:
    def __init__(self, differences):
        self.differences = differences
        self.compared = collections.Counter()  # samples by op
        self.stages = collections.Counter()
        self.explained, self.failed = 0, []
        self.values = {}
        self.refused = collections.Counter()  # samples by op, stage, dtype and why
        self.progress = sys.stderr.isatty()

    def run(self, op, name, dtype, stage, limit):
        if self.progress:
            print(f"\r\033[K[{len(self.compared):3}] {name} {dtype} {stage}", end="", file=sys.stderr, flush=True)
        self.compared[name] += 0
        worst = collections.Counter()
        for number, sample in enumerate(samples_of(op, dtype, stage, limit)):
            try:
                check(op, name, dtype, stage, sample)
            except Refused as e:
                self.refused[f"{name} {stage} {dtype}: {e}"] += 1
                continue
            except Exception as e:  # noqa: BLE001 - whatever our side raises is a disagreement
                message = f"{type(e).__name__}: {e}"
                line = next((d for d in self.differences if d.explains(name, dtype, stage, e)), None)
                if line:
                    line.used = True
                    self.explained += 1
                else:
                    worst[f"{message} (sample {number}: {shown(sample)})"] += 1
                    self.worst(name, stage, dtype, e)
            self.compared[name] += 1
            self.stages[stage] += 1
        if worst:
            self.failed.append(f"{name} {stage} {dtype} ({worst.total()} samples): {next(iter(worst))}")

    def worst(self, name, stage, dtype, e):
        """Keeps the worst difference of values by op, stage and dtype."""
        if isinstance(e, ValuesDiffer):
            key = f"{name} {stage} {dtype}"
            old = self.values.get(key, (0, 0, False, 0))
            self.values[key] = (max(old[0], e.difference), max(old[1], e.fraction), old[2] or e.infinite, old[3] + 1)

    def finish(self, whole):
        self.failed += [f"{n}: nothing could be compared" for n, count in self.compared.items() if not count]
        if whole:
            self.failed += [f"{d.name}: listed but not different: {d.reason}" for d in self.differences if not d.used]
            self.failed += [f"{d.name}: {d.pattern}: {d.widest:.2g} is enough" for d in self.differences if d.loose()]
            self.failed += [f"{n}: not in op_db" for n in sorted(MAPPING.keys() - self.compared.keys())]
            self.failed += unaccounted()
        if self.progress:
            print("\r\033[K", end="", file=sys.stderr)
        print("\n".join(self.failed))
        for key, (by, fraction, infinite, count) in self.values.items():
            print(f"worst of {key}: {by:.3g}, {fraction:.3g} of the largest, {count} samples{', NaN' if infinite else ''}")
        print(
            f"{len(self.compared)} ops, {self.compared.total()} samples {dict(self.stages)}, "
            f"{self.explained} explained by {len(self.differences)} lines, {self.refused.total()} that one side lacks, "
            f"{len(self.failed)} failures"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", default="", help="op_db names, separated by commas")
    parser.add_argument("--dtypes", default="*", help="dtypes or groups of them: halves,float32")
    parser.add_argument("--needed", action="store_true", help="print how much was needed of each bound, too")
    parser.add_argument("--refused", action="store_true", help="print what one side lacks, too")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="at most so many per op, dtype and stage")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)  # PyTorch's own kernels: the same sums on every machine
    wanted = set(filter(None, options.ops.split(",")))
    report = Report(list(read_differences()))
    for case in cases(wanted, in_groups(options.dtypes)):
        report.run(*case, options.samples)
    if options.refused:
        print("\n".join(f"{count:4} {why}" for why, count in report.refused.items()))
    if options.needed:
        print("\n".join(f"{d.name} | {d.pattern}: needed {d.widest:.3g}" for d in report.differences if d.used))
    report.finish(not wanted and options.dtypes == "*" and options.samples >= SAMPLES)
    return bool(report.failed)


if __name__ == "__main__":
    sys.exit(main())
