"""PyTorch's own samples (op_db) run through our ops: values, gradients, second order.

    PYTHONPATH=build/release/python python tests/torch/compare.py [--ops add,div:floor_rounding] [--samples 6]

Every op of mapping.py is checked on every dtype that both have: values in all of them, gradients and second order in
every floating (and complex) dtype in which PyTorch differentiates. Those in float32 come from the CPU backend, all
else from the reference backend, which op_check holds against the CPU and which compiles nothing. A disagreement must
stand in a differences*.txt with its reason, and every line there must name a disagreement that exists, or that some
machines and draws show ("at times"); everything else fails, and so does an op of which nothing could be compared. Needs
torch and expecttest, which `make test` never does.
"""

import argparse
import collections
import contextlib
import dataclasses
import fnmatch
import functools
import pathlib
import re
import sys
import warnings

import numpy as np
import planted
import rlx
import torch
from helpers import Both, as_list, dtype_of, tensors
from mapping import MAPPING
from rounding import Rounding
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
EPS64, EPS32 = torch.finfo(torch.float64).eps, torch.finfo(torch.float32).eps
RUNS = 8  # with noise
# Times what they move an element by: noise rounds each term once, a sum in the dtype as often as it has terms. In half
# precision sums are made in float32.
NOISE = dict.fromkeys(EPSILONS, 16) | dict.fromkeys(["float16", "bfloat16"], 4)
FINER = 4096  # times less noise, which must do less: what jumps is no rounding error
LARGEST = 100_000  # elements of a sample: the few larger ones take minutes on the reference backend and add nothing
SLACK = 4  # how many times wider a bound of differences*.txt may be than what was needed
SAMPLES = 100  # per op, dtype and stage: the few ops with hundreds vary two or three attributes in all combinations


class Disagreement(Exception):
    pass


class ValuesDiffer(Disagreement):
    """By so much where both are finite; `infinite` where an infinity or a NaN stands against something else. roundings():
    how many times what rounding each term to the dtype can do."""

    def __init__(self, difference, largest, infinite, eps, roundings):
        self.difference, self.infinite, self.roundings = difference, infinite, roundings
        self.fraction = difference / largest if difference and largest else np.inf if difference else 0
        self.epsilons = self.fraction / eps if eps else np.inf
        super().__init__(
            f"values differ by {difference:.3g}, {self.fraction:.3g} of the largest element"
            + (", and in NaN or infinity" if infinite else "")
        )

    def by(self, unit):
        """In the unit of a bound."""
        if unit and "terms" in unit:
            return self.roundings()
        return self.difference if not unit else self.epsilons if "epsilons" in unit else self.fraction


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


def in_precision(x, dtype):
    """The nest with its attributes `dtype` made that precise."""
    if isinstance(x, torch.dtype) and (x.is_floating_point or x.is_complex):
        return dtype.to_complex() if x.is_complex else dtype
    if isinstance(x, (list, tuple)):
        return type(x)([in_precision(v, dtype) for v in x])
    return {k: in_precision(v, dtype) for k, v in x.items()} if isinstance(x, dict) else x


@contextlib.contextmanager
def default_dtype(dtype):
    """What functions of integers are computed in."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


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

    def in_float64(self, result=0, term=0, seed=0):
        """The answers in float64, by default without noise (but by the formulas that PyTorch takes with noise)."""
        wide = lambda ts: ts and [converted(t, torch.float64) for t in ts]
        everything = [converted(t.detach(), torch.float64).requires_grad_(t.requires_grad) for t in tensors(self.nest)]
        nest = refill(in_precision(self.nest, torch.float64), iter(everything))
        same = Question(self.op, nest, self.stage, self.leaves)
        same.cotangents, same.directions = wide(self.cotangents), wide(self.directions)
        with default_dtype(torch.float64):
            try:
                with Rounding(result, term, seed):
                    found = same.answer().answers
            except RuntimeError:  # those of singular vectors are not checked, and fail
                if result:
                    raise
                found = same.answer().answers
        return found or [torch.zeros_like(converted(t, torch.float64)) for t in self.answers]  # a constant derivative

    def spread(self, i, exact, runs, result, term):
        """By how much such noise moves each element of answer i."""
        moved = np.zeros(exact.shape)
        for seed in range(runs):
            with contextlib.suppress(RuntimeError):
                moved = np.maximum(moved, error(in_numpy(self.in_float64(result, term, seed)[i]), exact))
        return moved

    def rounding(self, i, result, term):
        """What rounding can do to each element of answer i: results to a relative error of `result`, terms of `term`."""
        scale = FINER if term == EPS64 else 1  # noise that float64 holds
        exact = in_numpy(self.in_float64()[i])
        moved = self.spread(i, exact, RUNS, scale * result, scale * term)
        finer = self.spread(i, exact, RUNS // 2, scale * result / FINER, scale * term / FINER)
        return np.where(8 * finer <= moved, np.maximum(moved / scale, finer if scale > 1 else 0), 0)

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
    """In double precision."""
    return t.detach().to(torch.complex128 if t.is_complex() else torch.float64).numpy(force=True)


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
    itself; or, where terms cancel, within what rounding can do to it."""
    answers = question.answers
    if len(ours) != len(answers):
        raise Disagreement(f"{len(ours)} results, PyTorch {len(answers)}")
    for i, (a, b) in enumerate(zip(ours, answers)):
        name = dtype_of(b.dtype)
        if a.dtype != name:
            raise Disagreement(f"dtype {a.dtype.long_name}, PyTorch {name}")
        if a.shape != tuple(b.shape):
            raise Disagreement(f"shape {a.shape}, PyTorch {tuple(b.shape)}")
        got = np.asarray(a.astype("f64") if a.dtype == "bf16" else a).astype("c16" if b.is_complex() else "f8")
        precise = in_numpy(b)
        tolerance, eps, least = tolerance_of(b, question.stage), 0, 0
        if tolerance:
            eps = torch.finfo(b.dtype).eps
            least = tolerance * torch.finfo(b.dtype).tiny  # so many units in the last place of the smallest numbers
        off = error(got, precise)
        wrong = off > np.maximum(tolerance * np.abs(precise), least)
        infinite = comparable(got, precise)[1]
        if tolerance and (wrong | infinite).any():
            precise = in_numpy(question.in_float64()[i].to(b.dtype))
            off = np.minimum(off, error(got, precise))
            wrong &= off > np.maximum(tolerance * np.abs(precise), least)
            infinite &= comparable(got, precise)[1]
        if tolerance and wrong.any():
            wrong &= off > NOISE[name] * question.rounding(i, eps / 2, min(eps, EPS32))
        if wrong.any() or infinite.any():
            largest = np.abs(precise[np.isfinite(precise)]).max(initial=0)

            @functools.cache
            def roundings(i=i, eps=eps, off=off, wrong=wrong):
                terms = question.rounding(i, eps / 2, eps)
                return np.divide(off, terms, out=np.full(off.shape, np.inf), where=terms > 0)[wrong].max(initial=0)

            raise ValuesDiffer(off[wrong].max(initial=0), largest, infinite.any(), eps, roundings)


def tolerance_of(t, stage):
    name = dtype_of(t.dtype)
    return EPSILONS[name][stage] * torch.finfo(t.dtype).eps if name in EPSILONS else 0


def check(op, name, dtype, stage, sample, plant=None):
    """Raises Disagreement, Refused, or what went wrong on our side; of results with that error if one is planted."""
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
    if plant:
        tiny = [torch.finfo(t.dtype).tiny if differentiable(t) else 0 for t in question.answers]
        limits = [(tolerance_of(t, stage), least) for t, least in zip(question.answers, tiny)]
        got = planted.with_error(plant, got, limits)
        if not got:
            raise Refused("there is nothing to plant an error in")
    compare(question, got)


# "values within 2", "values within 0 or NaN", "values within 3e-5 of the largest", "values within 8 epsilons of the
# largest", "values within 1 rounding of the terms"; with ", at times" at the end where it depends on the machine or the
# draws whether they differ at all
AT_TIMES = ", at times"
BOUND = re.compile(
    r"values within (?P<most>[-+.0-9e]+)"
    r"(?P<unit> of the largest| epsilons of the largest| roundings? of the terms)?(?P<nan> or NaN)?"
)


@dataclasses.dataclass
class Difference:
    """A line of differences*.txt: op | stages | dtypes | what is reported | reason. What is reported is a pattern of the
    message, or for values a bound: those that differ do so by at most that much. One that is met `at_times` only may
    explain nothing, and its bound, which the reason counts, is not held to what one run needs."""

    name: str
    stages: list
    dtypes: list
    pattern: str
    reason: str
    at_times: bool = False
    used: bool = False
    widest: float = 0  # needed of the bound

    def explains(self, name, dtype, stage, e):
        if not fnmatch.fnmatchcase(name, self.name) or stage not in self.stages or dtype not in self.dtypes:
            return False
        bound = BOUND.fullmatch(self.pattern)
        if not isinstance(e, ValuesDiffer) or not bound:
            return not bound and fnmatch.fnmatchcase(f"{type(e).__name__}: {e}", f"*{self.pattern}*")
        by = e.by(bound["unit"])
        if by > float(bound["most"]) or e.infinite and not bound["nan"]:
            return False
        self.widest = max(self.widest, by)
        return True

    def loose(self):
        """Whether the bound is more than SLACK times what was needed of it."""
        bound = BOUND.fullmatch(self.pattern)
        return bool(bound) and self.used and not self.at_times and float(bound["most"]) > SLACK * self.widest


def read_differences():
    for file in sorted(HERE.glob("differences*.txt")):
        for line in file.read_text().splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            name, stages, dtypes, pattern, reason = (part.strip() for part in line.split(" | "))
            stages = STAGES if stages == "*" else [s.strip() for s in stages.split(",")]
            dtypes = in_groups(dtypes)
            at_times, pattern = pattern.endswith(AT_TIMES), pattern.removesuffix(AT_TIMES)
            unbounded = ("values" in pattern or at_times) and not BOUND.fullmatch(pattern)
            if not reason or unbounded or set(stages) - set(STAGES) or set(dtypes) - set(DTYPES):
                raise SystemExit(f"{file.name}: cannot read: {line}")
            yield Difference(name, stages, dtypes, pattern, reason, at_times)


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


def planting_grounds(op, dtype, stage):
    """Samples to plant errors in: some from far apart, then the others, for those that have no place for an error."""
    found = samples_of(op, dtype, stage, SAMPLES)
    step = -(-len(found) // planted.SAMPLES) or 1
    return (found[::step] + [s for i, s in enumerate(found) if i % step])[: planted.TRIED]


def unnoticed():
    """Errors planted in our results that no sample shows, and how many samples of how many show one."""
    found = total = 0
    missed = []
    for op, name, dtype, stage in cases(set(planted.OPS), in_groups(planted.DTYPES)):
        for plant in planted.PLANTS:
            shows = []
            for sample in planting_grounds(op, dtype, stage):
                if len(shows) == planted.SAMPLES:
                    break
                try:
                    check(op, name, dtype, stage, sample, plant)
                    shows.append(False)
                except ValuesDiffer:
                    shows.append(True)
                except (Refused, Disagreement, NotImplementedError, rlx.Error):
                    pass
            found, total = found + sum(shows), total + len(shows)
            if shows and not any(shows):
                missed.append(f"{name} {stage} {dtype}: {plant.__name__}: the planted error is not found")
    return missed, found, total


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
            old = self.values.get(key, (0, 0, 0, False, 0))
            most = [max(x, y) for x, y in zip(old, (e.difference, e.fraction, e.roundings()))]
            self.values[key] = (*most, old[3] or e.infinite, old[4] + 1)

    def finish(self, whole):
        self.failed += [f"{n}: nothing could be compared" for n, count in self.compared.items() if not count]
        if whole:
            unused = [d for d in self.differences if not d.used and not d.at_times]
            self.failed += [f"{d.name}: listed but not different: {d.reason}" for d in unused]
            self.failed += [f"{d.name}: {d.pattern}: {d.widest:.2g} is enough" for d in self.differences if d.loose()]
            self.failed += [f"{n}: not in op_db" for n in sorted(MAPPING.keys() - self.compared.keys())]
            self.failed += unaccounted()
        if self.progress:
            print("\r\033[K", end="", file=sys.stderr)
        print("\n".join(self.failed))
        for key, (by, fraction, roundings, infinite, count) in self.values.items():
            print(
                f"worst of {key}: {by:.3g}, {fraction:.3g} of the largest, {roundings:.3g} roundings of the terms, "
                f"{count} samples{', NaN' if infinite else ''}"
            )
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
    parser.add_argument("--planted", action="store_true", help="only see that errors planted in our results are found")
    parser.add_argument("--refused", action="store_true", help="print what one side lacks, too")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="at most so many per op, dtype and stage")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)  # PyTorch's own kernels: the same sums on every machine
    wanted = set(filter(None, options.ops.split(",")))
    report = Report(list(read_differences()))
    whole = not wanted and options.dtypes == "*" and options.samples >= SAMPLES
    if options.planted or whole:
        missed, found, total = unnoticed()
        print(f"{found} of {total} planted errors found")
        report.failed += missed + (["fewer than nine of ten planted errors found"] if found < 0.9 * total else [])
    for case in [] if options.planted else cases(wanted, in_groups(options.dtypes)):
        report.run(*case, options.samples)
    if options.refused:
        print("\n".join(f"{count:4} {why}" for why, count in report.refused.items()))
    if options.needed:
        print("\n".join(f"{d.name} | {d.pattern}: needed {d.widest:.3g}" for d in report.differences if d.used))
    report.finish(whole and not options.planted)
    return bool(report.failed)


if __name__ == "__main__":
    sys.exit(main())
