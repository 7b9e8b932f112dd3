"""Control flow that depends on values: scan, cond, while_loop with bodies written as Python functions.

Bodies are traced; arrays that they use from outside become operands.
"""

import functools

from rlx import op
from rlx._array import asarray
from rlx._errors import UserError
from rlx._transforms import run_trace
from rlx._tree import flatten, unflatten


def _arrays(tree):
    leaves, structure = flatten(tree)
    return [asarray(x) for x in leaves], structure


def _inputs(scope, name, arrays):
    return [scope.input_like(f"{name}{i}", x) for i, x in enumerate(arrays)]


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
        return _next_carries(result[0], carry_tree, carries), result[1]

    scope, (carry, y) = run_trace("scan_body", lambda s: _slices(s, carries, stacked), body)
    y_leaves, y_tree = flatten(y)
    graph = scope.finish(carry + [asarray(v) for v in y_leaves])
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


def _bodies(arrays, *named):
    """Functions of the same arrays, traced: (scope, leaves, structure) of each, and what any of them captured, which
    then is an input of all."""
    traced, seen = [], []
    for name, f in named:
        scope, out = run_trace(name, functools.partial(_seeded, arrays, seen), f)
        leaves, tree = flatten(out)
        leaves = [asarray(x) for x in leaves]
        for x in leaves:
            scope.capture(x)
        seen = scope.captured
        traced.append((scope, leaves, tree))
    for scope, _, _ in traced:
        for x in seen:
            scope.capture(x)
    return traced, seen


def _seeded(arrays, captured, scope):
    values = _inputs(scope, "x", arrays)
    for x in captured:
        scope.capture(x)
    return values


def _results(values, tree):
    return unflatten(tree, values if isinstance(values, tuple) else (values,))


def cond(pred, true_fun, false_fun, *operands):
    """true_fun(*operands) where pred holds, else false_fun(*operands); only one of them runs.

    Both return trees of the same structure and types.
    """
    arrays, tree = _arrays(operands)
    bodies, captured = _bodies(
        arrays,
        ("then_body", lambda xs: true_fun(*unflatten(tree, xs))),
        ("else_body", lambda xs: false_fun(*unflatten(tree, xs))),
    )
    (yes, yes_leaves, yes_tree), (no, no_leaves, no_tree) = bodies
    if yes_tree != no_tree:
        raise UserError("cond-result", f"cond: one body returns {yes_tree}, the other {no_tree}")
    then_body, else_body = yes.finish(yes_leaves), no.finish(no_leaves)
    results = op.cond(asarray(pred).astype("bool"), *arrays, *captured, then_body=then_body, else_body=else_body)
    return _results(results, yes_tree)


def while_loop(cond_fun, body_fun, init, max_iterations=None):
    """carry = body_fun(carry) for as long as cond_fun(carry) holds, at most max_iterations times.

    Only loops with a bound can be differentiated in reverse.
    """
    carries, tree = _arrays(init)
    bodies, captured = _bodies(
        carries,
        ("while_cond", lambda xs: asarray(cond_fun(unflatten(tree, xs))).astype("bool")),
        ("while_body", lambda xs: _next_carries(body_fun(unflatten(tree, xs)), tree, carries)),
    )
    (test, test_leaves, _), (step, step_leaves, _) = bodies
    results = op.while_loop(
        *carries, *captured, cond=test.finish(test_leaves), body=step.finish(step_leaves),
        num_carries=len(carries), max_iterations=max_iterations,
    )  # fmt: skip
    return _results(results, tree)


def _next_carries(value, tree, carries):
    leaves, structure = flatten(value)
    if structure != tree:
        raise UserError("carry-type", f"the carry is {tree} and the body returns {structure}")
    return [asarray(y, c.dtype) if isinstance(y, (bool, int, float)) else asarray(y) for y, c in zip(leaves, carries)]
