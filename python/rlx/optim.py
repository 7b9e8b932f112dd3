"""Optimisers over trees of parameters, schedules of rates, clipping, accumulation, averages.

    optimizer = rlx.optim.chain(rlx.optim.clip_by_global_norm(1.0), rlx.optim.adamw(rlx.optim.cosine(1e-3, 1000)))
    state = optimizer.init(params)

    @rlx.jit(donate_argnums=(0, 1))                       # parameters and state are written in place
    def step(params, state, x, y):
        value, gradients = rlx.value_and_grad(loss)(params, x, y)
        params, state = optimizer.update(gradients, state, params)
        return params, state, value

An `Optimizer` is a pair of functions: init(params) gives its state, a tree, and update(gradients, state, params) the
next parameters and the next state. A `Transform` has the same two, but its update gives other gradients; `chain` puts
transforms in front of an optimiser. All of them work at once and inside of `jit`. The formulas are those of the C++
library's training steps, which see f16 and bf16 parameters in f32 and keep their state in f32.
"""

import dataclasses
import functools
import inspect
import math
import numbers
import operator
from collections.abc import Callable
from typing import Any

from rlx import _core, op
from rlx._array import Array, asarray
from rlx._dims import equal_shapes, is_dim
from rlx._dtypes import dtype as as_dtype
from rlx._errors import Error, UserError
from rlx._functions import where, zeros
from rlx._tree import described, flatten, paths, register_tree, spread, tree_map, unflatten


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """init(params) -> state; update(gradients, state, params) -> (next params, next state)."""

    init: Callable[[Any], Any]
    update: Callable[[Any, Any, Any], tuple[Any, Any]]


@dataclasses.dataclass(frozen=True)
class Transform:
    """init(params) -> state; update(gradients, state, params) -> (other gradients, next state)."""

    init: Callable[[Any], Any]
    update: Callable[[Any, Any, Any], tuple[Any, Any]]


for _cls in (Optimizer, Transform):  # functions, not parameters: no leaves
    register_tree(_cls, lambda pair: ((), pair), lambda pair, _: pair)


def chain(*links: Transform | Optimizer) -> Any:
    """The links one behind the other: each gets what the one before it made of the gradients. An optimiser can only be
    the last; without one the chain is a transform. Its state is the tuple of theirs."""
    for i, link in enumerate(links):
        if not isinstance(link, (Transform, Optimizer)):
            raise TypeError(f"chain: link {i} must be a Transform or an Optimizer, not {link!r}")
        if isinstance(link, Optimizer) and i + 1 < len(links):
            raise UserError(
                "optim-chain", f"chain: an optimiser must be the last link, this one is {i} of {len(links)}"
            )
    if not links:
        raise UserError("optim-chain", "chain: needs at least one link")

    def update(gradients, state, params):
        after = []
        for link, own in zip(links, state, strict=True):
            gradients, own = link.update(gradients, own, params)
            after.append(own)
        return gradients, tuple(after)

    return type(links[-1])(lambda params: tuple(link.init(params) for link in links), update)


# ---- leaves


def _wide(dtype):
    """The dtype that a parameter of this dtype is updated in."""
    return as_dtype("float64" if dtype == "float64" else "float32")


def _widest(arrays):
    """The dtype of what all parameters share in a step."""
    return as_dtype("float64" if any(x.dtype == "float64" for x in arrays) else "float32")


def _params(who, params):
    """The leaves as arrays, and the structure; raises unless they are of floats."""
    leaves, structure = flatten(params)
    arrays = [asarray(x) for x in leaves]
    for i, x in enumerate(arrays):
        if not x.dtype.is_floating:
            raise UserError(
                "optim-dtype", f"{who}: the parameter {paths(structure)[i]!r} is {x._type}; floats are trained"
            )
    if not arrays:
        raise UserError("no-params", f"{who}: there are no parameters to train")
    return arrays, structure


def _equally_built(who, gradients, structure):
    leaves, same = flatten(gradients)
    if same != structure:
        raise UserError(
            "optim-tree", f"{who}: the gradients are {described(same)}, the parameters {described(structure)}"
        )
    return leaves


def _gradients(who, gradients, arrays, structure):
    """The gradients' leaves in the dtypes that parameters are updated in."""
    leaves = _equally_built(who, gradients, structure)
    out = []
    for i, (g, p) in enumerate(zip(leaves, arrays)):
        g = asarray(g)
        if not equal_shapes(g.shape, p.shape):
            path = paths(structure)[i]
            raise UserError("optim-tree", f"{who}: the parameter {path!r} is {p._type}, its gradient {g._type}")
        out.append(g.astype(_wide(p.dtype)))
    return out


def _mask(who, mask, arrays, structure):
    """A bool per leaf: of None all, of a function f(path, leaf), of a tree of bools that may stop early."""
    if mask is None:
        return [True] * len(arrays)
    if callable(mask):
        flags = [mask(path, x) for path, x in zip(paths(structure), arrays)]
    else:
        flags = spread(mask, unflatten(structure, arrays))
    for path, flag in zip(paths(structure), flags):
        if not isinstance(flag, bool):
            raise UserError("optim-mask", f"{who}: the mask must say True or False of {path!r}, not {flag!r}")
    return flags


def is_matrix(path: str, leaf: Array) -> bool:
    """A mask: two axes or more, so no biases and no norms."""
    return leaf.ndim >= 2


# ---- optimisers


def _optimizer(kind, rate, decays, **options):
    options = {k: v if isinstance(v, bool) else _real(kind, k, v, kind) for k, v in options.items()}
    if isinstance(rate, numbers.Real):
        rate = _checked_rate(kind, rate)
    slots = _core.optimizer_slots(kind, options)  # raises for options out of range
    prepare = functools.cache(lambda dtype: _core.optimizer_prepare(kind, options, dtype))
    build = functools.partial(_core.optimizer_update, kind, options)
    cached = functools.lru_cache(1024)(build)

    def init(params):
        arrays, structure = _params(kind, params)

        def slot():
            return unflatten(structure, [zeros(x.shape, _wide(x.dtype)) for x in arrays])

        return {"step": asarray(0, "int32"), **{name: slot() for name in slots}}

    def update(gradients, state, params):
        arrays, structure = _params(kind, params)
        grads = _gradients(kind, gradients, arrays, structure)
        step = state["step"].astype(_widest(arrays))
        scalars = _core.call_graph(prepare(step.dtype.name), [step, _rate(rate, step)])
        kept = [flatten(state[name])[0] for name in slots]
        results = []
        for i, (p, g, flag) in enumerate(zip(arrays, grads, _mask(kind, decays, arrays, structure))):
            program = build if any(map(is_dim, p.shape)) else cached  # a size in a key would be asked for its number
            graph = program(g.dtype.name, p.shape, flag, len(scalars))
            operands = [p.astype(g.dtype), g, *(slot[i] for slot in kept), *(s.astype(g.dtype) for s in scalars)]
            results.append(_core.call_graph(graph, operands))
        after = [r[0].astype(p.dtype) for r, p in zip(results, arrays)]
        moved = {name: unflatten(structure, [r[1 + k] for r in results]) for k, name in enumerate(slots)}
        return unflatten(structure, after), {"step": state["step"] + 1, **moved}

    return Optimizer(init, update)


def _rate(rate, step):
    """The rate at a step, in its dtype."""
    value = asarray(rate(step) if callable(rate) else rate, step.dtype)  # a number with all its digits
    if value.shape != ():
        raise UserError("schedule", f"a rate must be one number, got {value._type}")
    return value


def sgd(rate: Any = 1e-2, *, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0,
        decays: Any = None) -> Optimizer:  # fmt: skip
    """Steps along the gradient, or with momentum along m = momentum * m + g (nesterov: g + momentum * m).

    rate is a number or a schedule: a function of the number of finished steps. weight_decay adds weight_decay * p to
    the gradient of each parameter that `decays` names: a function f(path, leaf) such as `is_matrix`, or a tree of
    bools, all without.
    """
    return _optimizer("sgd", rate, decays, momentum=momentum, nesterov=bool(nesterov), weight_decay=weight_decay)


def adam(rate: Any = 1e-3, *, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.0,
         decays: Any = None) -> Optimizer:  # fmt: skip
    """Adam (Kingma and Ba, 2015). weight_decay is part of the gradient, as in PyTorch; see `sgd` for rate and
    decays."""
    return _optimizer("adam", rate, decays, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay)


def adamw(rate: Any = 1e-3, *, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.01,
          decays: Any = None) -> Optimizer:  # fmt: skip
    """Adam with decay apart from the gradient: p (1 - rate * weight_decay) (Loshchilov and Hutter, 2019); see `sgd` for
    rate and decays."""
    return _optimizer("adamw", rate, decays, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay)


def lion(rate: Any = 1e-4, *, beta1: float = 0.9, beta2: float = 0.99, weight_decay: float = 0.0,
         decays: Any = None) -> Optimizer:  # fmt: skip
    """Lion (Chen et al., 2023): steps of the rate in the direction of sign(beta1 * m + (1 - beta1) * g); decay as in
    `adamw`, see `sgd` for rate and decays."""
    return _optimizer("lion", rate, decays, beta1=beta1, beta2=beta2, weight_decay=weight_decay)


def cpp_options(name: str, options: dict) -> tuple:
    """(name, rate, options) of an optimiser of the C++ library; those not given are its function's."""
    known = {f.__name__: f for f in (sgd, adam, adamw, lion)}
    if name not in known:
        raise UserError("optimizer", f"there is no optimizer {name!r}; there are {', '.join(known)}")
    given = inspect.signature(known[name]).parameters
    given = {n: p.default for n, p in given.items() if n != "decays"}
    for n, v in options.items():
        if n not in given:
            raise UserError("optimizer", f"{name}: has no option {n}; there are {', '.join(given)}")
        given[n] = bool(v) if isinstance(given[n], bool) else _real(name, n, v, name)
    return name, _checked_rate(name, given.pop("rate")), given


# ---- around optimisers


def accumulate(optimizer: Optimizer, runs: int) -> Optimizer:
    """Moves the parameters in every `runs`-th update only, along the mean of the gradients that came meanwhile. What
    should see the mean (clipping, averages) belongs inside: accumulate(chain(clip_by_global_norm(1.0), adamw()), 4)."""
    _check_optimizer("accumulate", optimizer)
    if not isinstance(runs, int) or runs < 1:
        raise UserError("accumulate", f"accumulate: a step must be made of at least one run, got {runs!r}")

    def init(params):
        arrays, structure = _params("accumulate", params)
        sums = unflatten(structure, [zeros(x.shape, _wide(x.dtype)) for x in arrays])
        return {"run": asarray(0, "int32"), "sum": sums, "inner": optimizer.init(params)}

    def update(gradients, state, params):
        arrays, structure = _params("accumulate", params)
        grads = _gradients("accumulate", gradients, arrays, structure)
        sums = [s + g for s, g in zip(flatten(state["sum"])[0], grads)]
        mean = unflatten(structure, [s * (1 / runs) for s in sums])
        moved = optimizer.update(mean, state["inner"], unflatten(structure, arrays))
        last = state["run"] >= runs - 1
        after, inner = tree_map(lambda new, old: where(last, new, old), moved, (params, state["inner"]))
        cleared = unflatten(structure, [where(last, 0, s) for s in sums])
        return after, {"run": where(last, 0, state["run"] + 1), "sum": cleared, "inner": inner}

    return Optimizer(init, update)


def ema(optimizer: Optimizer, decay: float) -> Optimizer:
    """Keeps an average of the parameters in state["average"]: the parameters after the first step, then decay * average
    + (1 - decay) * parameters after each."""
    _check_optimizer("ema", optimizer)
    if not 0 <= decay < 1:
        raise UserError("ema", f"ema: the decay of an average must be in [0, 1), got {decay!r}")

    def init(params):
        arrays, structure = _params("ema", params)
        average = unflatten(structure, [x.astype(_wide(x.dtype)).copy() for x in arrays])
        return {"step": asarray(0, "int32"), "average": average, "inner": optimizer.init(params)}

    def update(gradients, state, params):
        after, inner = optimizer.update(gradients, state["inner"], params)
        first = state["step"] <= 0

        def mean(old, p):
            p = asarray(p).astype(old.dtype)
            return where(first, p, old * decay + p * (1 - decay))

        return after, {"step": state["step"] + 1, "average": tree_map(mean, state["average"], after), "inner": inner}

    return Optimizer(init, update)


def masked(optimizer: Optimizer, mask: Any) -> Optimizer:
    """Trains the parameters that the mask names, a function f(path, leaf) or a tree of bools; the others stay as they
    are and have no state."""
    _check_optimizer("masked", optimizer)

    def split(params):
        leaves, structure = flatten(params)
        return leaves, structure, _mask("masked", mask, [asarray(x) for x in leaves], structure)

    def part(leaves, structure, flags):  # None is no leaf
        return unflatten(structure, [x if flag else None for x, flag in zip(leaves, flags)])

    def update(gradients, state, params):
        leaves, structure, flags = split(params)
        grads = _equally_built("masked", gradients, structure)
        trained, state = optimizer.update(part(grads, structure, flags), state, part(leaves, structure, flags))
        moved = iter(flatten(trained)[0])
        return unflatten(structure, [next(moved) if flag else x for x, flag in zip(leaves, flags)]), state

    return Optimizer(lambda params: optimizer.init(part(*split(params))), update)


def _check_optimizer(who, optimizer):
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{who}: takes an optimiser, not {optimizer!r}")


# ---- transforms of gradients


def clip_by_value(limit: float) -> Transform:
    """Each element of the gradients between -limit and limit."""
    if not limit > 0:
        raise UserError("clip-value", f"clip_by_value: the limit must be positive, got {limit!r}")

    def update(gradients, state, params):
        return tree_map(lambda g: op.clamp(asarray(g), -limit, limit), gradients), state

    return Transform(lambda params: (), update)


def clip_by_global_norm(max_norm: float) -> Transform:
    """Gradients times min(1, max_norm / (norm + 1e-6)), where norm is the root of the sum of the squares of all."""
    if not max_norm > 0:
        raise UserError("clip-norm", f"clip_by_global_norm: the norm must be positive, got {max_norm!r}")

    def update(gradients, state, params):
        factor = _norm(gradients, max_norm)[1]
        return tree_map(lambda g: _widened(g) * factor.astype(_widened(g).dtype), gradients), state

    return Transform(lambda params: (), update)


def global_norm(tree: Any) -> Array:
    """The root of the sum of the squares of all elements."""
    return _norm(tree, 1.0)[0]


def _widened(g):
    g = asarray(g)
    return g.astype(_wide(g.dtype))


def _norm(tree, max_norm):
    leaves = [_widened(g) for g in flatten(tree)[0]]
    return _core.call_graph(_core.clip_program(leaves, float(max_norm), _widest(leaves).name), leaves)


# ---- schedules: functions of the number of finished steps


def _schedule(kind, *arguments):
    program = functools.cache(lambda dtype: _core.schedule_program(kind, arguments, dtype))
    program("f32")  # raises for arguments out of range

    def schedule(step):
        step = _step(step)
        return _core.call_graph(program(step.dtype.name), [step])[0]

    schedule.__name__ = schedule.__qualname__ = kind
    return schedule


def _real(who, what, value, code="schedule"):
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except Error:
        raise
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(code, f"{who}: {what} must be a number, not {value!r}")
    return number


def _count(who, what, value):
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise UserError("schedule", f"{who}: {what} must be an integer, not {value!r}")
    return operator.index(value)


def _checked_rate(who, rate):
    """A rate that is a number of Python; it moves along the gradient's negative, so it has no sign."""
    number = _real(who, "a rate", rate)
    if number < 0:
        raise UserError("schedule", f"{who}: a rate must not be negative, got {rate!r}")
    return number


def constant(rate: float) -> Callable:
    """Always the same; a number for a rate is that."""
    rate = _checked_rate("constant", rate)
    return lambda step: rate


def linear(start: float, stop: float, total: int) -> Callable:
    """From start to stop over `total` steps, then stop."""
    return _schedule("linear", _checked_rate("linear", start), _checked_rate("linear", stop), _count("linear", "total", total))


def cosine(peak: float, total: int, floor: float = 0.0) -> Callable:
    """Half a cosine from peak to peak * floor over `total` steps, then that."""
    return _schedule(
        "cosine", _checked_rate("cosine", peak), _count("cosine", "total", total), _real("cosine", "floor", floor)
    )


def warmup_cosine(peak: float, warmup: int, total: int, floor: float = 0.0) -> Callable:
    """peak * (step + 1) / warmup in the first `warmup` steps, then half a cosine to peak * floor at step `total`."""
    who = "warmup_cosine"
    counts = _count(who, "warmup", warmup), _count(who, "total", total)
    return _schedule(who, _checked_rate(who, peak), *counts, _real(who, "floor", floor))


def exponential(rate: float, factor: float, every: int, staircase: bool = False) -> Callable:
    """rate * factor ** (step / every); with staircase the quotient is rounded down."""
    who = "exponential"
    factor, every = _real(who, "factor", factor), _count(who, "every", every)
    return _schedule(who, _checked_rate(who, rate), factor, every, bool(staircase))


def piecewise(rate: float, factors: dict[int, float]) -> Callable:
    """rate, times each factor whose step has come."""
    if not isinstance(factors, dict):
        raise UserError("schedule", f"piecewise: factors is a dict {{step: factor}}, not {factors!r}")
    pairs = [(_count("piecewise", "a step", step), _real("piecewise", "a factor", f)) for step, f in factors.items()]
    return _schedule("piecewise", _checked_rate("piecewise", rate), sorted(pairs))


def warmup(schedule: Any, steps: int) -> Callable:
    """The schedule (or number) times (step + 1) / steps, up to 1."""
    if steps < 1:
        raise UserError("schedule", f"warmup: needs a positive number of steps, got {steps}")

    def schedule_of(step):
        step = _step(step)
        return _rate(schedule, step) * op.minimum((step + 1) * (1 / steps), 1)

    return schedule_of


def join(schedules: list, boundaries: list[int]) -> Callable:
    """The first schedule (or number) up to boundaries[0], from there the second, which counts its steps from the
    boundary, and so on."""
    schedules, boundaries = list(schedules), list(boundaries)
    if len(schedules) != len(boundaries) + 1:
        raise UserError(
            "schedule", f"join: {len(schedules)} schedules need {len(schedules) - 1} boundaries, got {len(boundaries)}"
        )
    if any(b <= a for a, b in zip([0, *boundaries], boundaries)):
        raise UserError("schedule", f"join: boundaries must be positive and ascend, got {boundaries}")

    def schedule_of(step):
        step = _step(step)
        rate = _rate(schedules[0], step)
        for start, schedule in zip(boundaries, schedules[1:]):
            rate = where(step < start, rate, _rate(schedule, op.maximum(step - start, 0)))
        return rate

    return schedule_of


def _step(step):
    step = asarray(step)
    return step if step.dtype.is_floating and not step._weak else step.astype("float32")
