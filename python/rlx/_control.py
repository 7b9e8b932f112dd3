"""Control flow that depends on values: scan, cond, while_loop with bodies written as Python functions.

Bodies are traced; arrays that they use from outside become operands.
"""

from rlx import _core, op
from rlx._array import asarray
from rlx._errors import UserError
from rlx._transforms import run_trace
from rlx._tree import flatten, unflatten


def _arrays(tree):
    leaves, structure = flatten(tree)
    return [asarray(x) for x in leaves], structure


def _inputs(scope, name, arrays):
    return [scope.input_like(f"{name}{i}", x) for i, x in enumerate(arrays)]


def _as_carry(outs, carries, name):
    """The next carries: numbers take the carry's dtype, everything else must have it."""
    if len(outs) != len(carries):
        raise UserError("carry-type", f"{name}: the body takes {len(carries)} carried arrays and returns {len(outs)}")
    return [
        asarray(y).astype(c.dtype) if isinstance(y, (bool, int, float)) else asarray(y) for y, c in zip(outs, carries)
    ]


def scan(f, init, xs=None, length=None, reverse=False):
    """Folds f over the first axis: f(carry, x) -> (next carry, y); returns (last carry, ys stacked).

    carry, x and y are trees. Without xs the length must be given, and f gets None. With reverse the steps run from the
    last slice to the first (ys keep their places).
    """
    carries, carry_tree = _arrays(init)
    stacked, xs_tree = _arrays(xs)
    if length is None:
        if not stacked:
            raise UserError("scan-length", "scan: without xs the length must be given")
        if any(x.ndim == 0 for x in stacked):
            raise UserError("scan-length", "scan: xs need an axis to run along")
        length = stacked[0].shape[0]

    def body(values):
        result = f(unflatten(carry_tree, values[0]), unflatten(xs_tree, values[1]))
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise UserError("scan-result", "scan: the body must return a pair (carry, y)")
        return result

    scope, (carry, y) = run_trace("scan_body", lambda s: _slices(s, carries, stacked), body)
    next_leaves, next_tree = flatten(carry)
    if next_tree != carry_tree:
        raise UserError("carry-type", f"scan: the carry is {carry_tree} and the body returns {next_tree}")
    y_leaves, y_tree = flatten(y)
    with_types = _as_carry_in(scope, next_leaves, carries, "scan")
    graph = scope.finish(with_types + [asarray(v) for v in y_leaves])
    results = op.scan(
        *carries, *stacked, *scope.captured,
        body=graph, length=length, num_carries=len(carries), num_xs=len(stacked), reverse=reverse,
    )  # fmt: skip
    results = results if isinstance(results, tuple) else (results,)
    n = len(carries)
    return unflatten(carry_tree, results[:n]), unflatten(y_tree, results[n:])


def _slices(scope, carries, stacked):
    first = _inputs(scope, "carry", carries)
    return first, [scope.input_slice(f"x{i}", x, 0) for i, x in enumerate(stacked)]


def _as_carry_in(scope, leaves, carries, name):
    _core.push_trace(scope)
    try:
        return _as_carry(leaves, carries, name)
    finally:
        _core.pop_trace()


def cond(pred, true_fun, false_fun, *operands):
    """true_fun(*operands) where pred holds, else false_fun(*operands); only one of them runs.

    Both return trees of the same structure and types.
    """
    arrays, tree = _arrays(operands)
    pred = asarray(pred)
    if pred.dtype != "bool":
        pred = pred.astype("bool")

    def traced(f, name, seen):
        scope, out = run_trace(
            name, lambda s: _seeded(s, arrays, seen), lambda values: f(*unflatten(tree, values))
        )
        leaves, out_tree = flatten(out)
        leaves = [asarray(x) for x in leaves]
        for x in leaves:
            scope.capture(x)
        return scope, leaves, out_tree

    yes, yes_leaves, yes_tree = traced(true_fun, "then_body", [])
    no, no_leaves, no_tree = traced(false_fun, "else_body", yes.captured)
    if yes_tree != no_tree:
        raise UserError("cond-result", f"cond: one body returns {yes_tree}, the other {no_tree}")
    captured = no.captured
    for x in captured:
        yes.capture(x)
    results = op.cond(pred, *arrays, *captured, then_body=yes.finish(yes_leaves), else_body=no.finish(no_leaves))
    results = results if isinstance(results, tuple) else (results,)
    return unflatten(yes_tree, results)


def _seeded(scope, arrays, captured):
    values = _inputs(scope, "x", arrays)
    for x in captured:
        scope.capture(x)
    return values
