"""scan, cond, while_loop, and functions with derivatives of their own (custom_fn), all with bodies written in Python.

Bodies are traced; arrays that they use from outside become operands.
"""

import functools

from rlx import _core, op
from rlx._array import asarray, exact, is_number, strong
from rlx._dtypes import ALL
from rlx._errors import UserError
from rlx._transforms import in_trace, run_trace
from rlx._tree import converted, described, flatten, unflatten


def _arrays(tree):
    """The leaves as arrays, and the structure. What stands for a number promotes as the number would."""
    leaves, structure = flatten(tree)
    return converted(leaves, structure, lambda x: _core.weak(x) if is_number(x) else asarray(x), "leaf"), structure


def _strong_arrays(tree):
    leaves, structure = flatten(tree)
    return converted(leaves, structure, lambda x: strong(asarray(x)), "leaf"), structure


def _inputs(scope, name="x", arrays=()):
    return [scope.input_like(f"{name}{i}", x) for i, x in enumerate(arrays)]


def scan(f, init, xs=None, length=None, reverse=False, checkpoints=0, binomial=False):
    """Folds f over the first axis: f(carry, x) -> (next carry, y); returns (last carry, ys stacked).

    carry, x and y are trees. Without xs the length must be given, and f gets None. With reverse the steps run from the
    last slice to the first (ys keep their places).

    Reverse mode keeps the carries of all steps. With checkpoints=k it keeps those that enter k segments of steps, and
    computes those of one segment at a time again; with binomial it keeps k carries at once, at the fewest
    evaluations. Gradients are the same bit for bit.
    """
    carries, carry_tree = _arrays(init)
    stacked, xs_tree = _strong_arrays(xs)
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
        return _next_carries(result[0], carry_tree, carries), _strong_arrays(result[1])

    def trace():
        return run_trace("scan_body", lambda s: _slices(s, carries, stacked), body)

    carries, (scope, (carry, (ys, y_tree))) = _settled(carries, trace, lambda traced: traced[1][0])
    graph = scope.finish(carry + ys)
    results = op.scan(
        *carries, *stacked, *scope.captured,
        body=graph, length=length, num_carries=len(carries), num_xs=len(stacked), reverse=reverse,
        checkpoints=checkpoints, binomial=binomial,
    )  # fmt: skip
    n = len(carries)
    return unflatten(carry_tree, results[:n]), unflatten(y_tree, results[n:])


def _settled(carries, trace, next_of):
    """Carries that began as numbers get the dtype that the body gives them, however many steps it takes to reach them;
    returns (carries, what trace() returns).

    trace() uses the list `carries`, which changes; next_of(traced) are the carries that the body returned.
    """
    start = list(carries)
    numbers = [i for i, c in enumerate(start) if c._weak]
    while True:
        traced = trace()
        joint = {i: ALL[_core.joint_dtype([carries[i], next_of(traced)[i]])] for i in numbers}
        joint = {i: to for i, to in joint.items() if carries[i]._weak or carries[i].dtype is not to}
        if not joint:
            return carries, traced
        for i, to in joint.items():
            carries[i] = start[i].astype(to)


def _slices(scope, carries, stacked):
    first = _inputs(scope, "carry", carries)
    return first, [scope.input_slice(f"x{i}", x, 0) for i, x in enumerate(stacked)]


def _bodies(arrays, *named, join=None):
    """Functions of the same arrays, traced: (scope, leaves, structure) of each, and what any of them captured, which
    then is an input of all."""
    return _traced([(name, functools.partial(_inputs, name="x", arrays=arrays), f) for name, f in named], join)


def _traced(bodies, join=None):
    """As _bodies, of (name, function of the scope that makes the inputs, function of these). join(list of the leaves of
    each body) gives the dtypes of the results where numbers are among them."""
    traced, seen = [], []
    for name, inputs, f in bodies:
        scope, (leaves, tree) = run_trace(
            name, functools.partial(_seeded, inputs, seen), lambda xs, f=f: _arrays(f(xs))
        )
        seen = scope.captured
        traced.append((scope, leaves, tree))
    dtypes = join(traced) if join else None
    done = []
    for scope, leaves, tree in traced:
        leaves = in_trace(scope, lambda leaves=leaves: _with_dtypes(leaves, dtypes))
        for x in (*seen, *leaves):
            scope.capture(x)
        seen = scope.captured
        done.append((scope, leaves, tree))
    for scope, _, _ in done:
        for x in seen:
            scope.capture(x)
    return done, seen


def _with_dtypes(leaves, dtypes):
    return [strong(x) if dtypes is None or not x._weak else x.astype(d) for x, d in zip(leaves, dtypes or leaves)]


def _seeded(inputs, captured, scope):
    values = inputs(scope)
    for x in captured:
        scope.capture(x)
    return values


def cond(pred, true_fun, false_fun, *operands):
    """true_fun(*operands) where pred holds, else false_fun(*operands); only one of them runs.

    Both return trees of the same structure and types; a number takes the dtype that the other body gives its place.
    """
    arrays, tree = _arrays(operands)

    def join(traced):
        (_, yes, yes_tree), (_, no, no_tree) = traced
        if yes_tree != no_tree:
            raise UserError(
                "cond-result", f"cond: one body returns {described(yes_tree)}, the other {described(no_tree)}"
            )
        return [ALL[_core.joint_dtype(pair)] for pair in zip(yes, no)]

    bodies, captured = _bodies(
        arrays,
        ("then_body", lambda xs: true_fun(*unflatten(tree, xs))),
        ("else_body", lambda xs: false_fun(*unflatten(tree, xs))),
        join=join,
    )
    (yes, yes_leaves, yes_tree), (no, no_leaves, _) = bodies
    then_body, else_body = yes.finish(yes_leaves), no.finish(no_leaves)
    results = op.cond(
        asarray(pred).astype("bool"), *[exact(x) for x in arrays], *captured, then_body=then_body, else_body=else_body
    )
    return unflatten(yes_tree, results)


def while_loop(cond_fun, body_fun, init, max_iterations=None):
    """carry = body_fun(carry) for as long as cond_fun(carry) holds, at most max_iterations times.

    Only loops with a bound can be differentiated in reverse.
    """
    carries, tree = _arrays(init)

    def trace():
        return _bodies(
            carries,
            ("while_cond", lambda xs: asarray(cond_fun(unflatten(tree, xs))).astype("bool")),
            ("while_body", lambda xs: _next_carries(body_fun(unflatten(tree, xs)), tree, carries)),
        )

    carries, (bodies, captured) = _settled(carries, trace, lambda traced: traced[0][1][1])
    (test, test_leaves, _), (step, step_leaves, _) = bodies
    results = op.while_loop(
        *carries, *captured, cond=test.finish(test_leaves), body=step.finish(step_leaves),
        num_carries=len(carries), max_iterations=max_iterations,
    )  # fmt: skip
    return unflatten(tree, results)


def _next_carries(value, tree, carries):
    leaves, structure = flatten(value)
    if structure != tree:
        raise UserError(
            "carry-type", f"the carry is {described(tree)} and the body returns {described(structure)}; * is an array"
        )
    return [_carry(y, c) for y, c in zip(leaves, carries)]


def _carry(y, carry):
    """y as the next value of a carry: a number takes its dtype, unless that is yet to be found."""
    y = _core.weak(y) if is_number(y) else asarray(y)
    if carry._weak or not y._weak:
        return y
    if ALL[_core.joint_dtype([carry, y])] is not carry.dtype:
        raise UserError("carry-type", f"{carry._type} cannot become a {y.dtype.kind} number")
    return y.astype(carry.dtype)


def custom_fn(f, vjp=None, jvp=None):
    """f with derivatives of your own: a function of trees that computes f, differentiated by what is given here.

    vjp(args, result, cotangent) returns the cotangents of args, a tuple; jvp(args, tangents) the tangent of the result.
    None stands for zero. A mode that is not given differentiates f itself. Both are differentiated and vectorised in
    their turn. Arrays from outside a transform are used as they are; what the transform follows must be an argument.

        clipped = rlx.custom_fn(lambda x: x, vjp=lambda args, y, g: (rlx.clamp(g, -1, 1),))
    """

    @functools.wraps(f)
    def call(*args):
        arrays, tree = _strong_arrays(args)
        parts = [_strong_arrays(x) for x in args]
        outs = []  # the leaves of the result and its structure, once f has been traced

        def forward(xs):
            outs.append(_strong_arrays(f(*unflatten(tree, xs))))
            return outs[0][0]

        def reverse_inputs(scope):
            results = outs[0][0]
            named = ("x", arrays), ("primal_output_", results), ("d_output_", results)
            return scope, *(_inputs(scope, name, like) for name, like in named)

        def reverse(values):
            scope, xs, *results = values
            given = vjp(unflatten(tree, xs), *(unflatten(outs[0][1], ys) for ys in results))
            if not isinstance(given, tuple) or len(given) != len(args):
                raise UserError("custom-fn", f"custom_fn: vjp must return a tuple of {len(args)} cotangents")
            return [y for part, value in zip(parts, given) for y in _derivative(scope, part, value)]

        def tangent_inputs(scope):
            return scope, _inputs(scope, "x", arrays), _inputs(scope, "tangent_", arrays)

        def tangent(values):
            scope, xs, ts = values
            return _derivative(scope, outs[0], jvp(unflatten(tree, xs), unflatten(tree, ts)))

        named = [("fwd", functools.partial(_inputs, name="x", arrays=arrays), forward)]
        named += [("vjp", reverse_inputs, reverse)] if vjp else []
        named += [("jvp", tangent_inputs, tangent)] if jvp else []
        traced, captured = _traced(named)
        if any(x._traced for x in captured):
            raise UserError("custom-fn", "custom_fn: an array that a transform follows must be an argument")
        bodies = {}
        for (name, _, _), (scope, leaves, _) in zip(named, traced):
            rest = [scope.zeros_like(x) for x in captured] if name == "vjp" else []
            bodies[name] = scope.finish(leaves + rest)
        return unflatten(outs[0][1], op.custom_fn(*arrays, *captured, **bodies))

    return call


class Saved:
    """A policy of checkpoint: which values reverse mode keeps. Made by save_names."""

    def __init__(self, *names):
        self.names = list(names)

    def __repr__(self):
        return f"save_names({', '.join(map(repr, self.names))})"


def save_names(*names):
    """The policy of checkpoint that keeps the values to which checkpoint_name gave one of these names."""
    for name in names:
        if not isinstance(name, str) or not name:
            raise UserError("checkpoint", f"save_names: takes names, not {name!r}")
    return Saved(*names)


def checkpoint_name(tree, name):
    """The same values, by a name under which checkpoint(f, policy=save_names(name)) around it keeps them."""
    if not isinstance(name, str) or not name:
        raise UserError("checkpoint", f"checkpoint_name: takes a name, not {name!r}")
    leaves, structure = _strong_arrays(tree)
    return unflatten(structure, [op.checkpoint_name(x, name=name) for x in leaves])


def checkpoint(f, policy="nothing"):
    """f, whose values reverse mode does not keep but computes again from the arguments, where it needs them.

    policy says which of them it keeps all the same: "nothing", "products" (the results of products, convolutions and
    attention), or save_names("a", "b"). Values and derivatives, of any order and in any mix with the other transforms,
    are those of f.

        loss = lambda w: rlx.checkpoint(block)(w, x).sum()
    """
    if not callable(f):
        raise TypeError(f"checkpoint: takes a function, not {f!r}, a {type(f).__name__}")
    if not isinstance(policy, Saved) and policy not in ("nothing", "products"):
        raise UserError(
            "checkpoint", f'checkpoint: the policy is "nothing", "products" or save_names(..), not {policy!r}'
        )
    saved = {"save": "names", "names": policy.names} if isinstance(policy, Saved) else {"save": policy}

    @functools.wraps(f)
    def call(*args, **kwargs):
        arrays, tree = _strong_arrays((args, kwargs))

        def traced(xs):
            positional, named = unflatten(tree, xs)
            return _strong_arrays(f(*positional, **named))

        scope, (leaves, out_tree) = run_trace("checkpoint", lambda s: _inputs(s, arrays=arrays), traced)
        body = scope.finish(leaves)
        return unflatten(out_tree, op.checkpoint(*arrays, *scope.captured, body=body, **saved))

    return call


def _derivative(scope, of, value):
    """The leaves of a derivative with the structure of what it belongs to (arrays, tree); None is zero."""
    arrays, tree = of
    if value is None:
        return [scope.zeros_like(x) for x in arrays]
    leaves, structure = flatten(value)
    if structure != tree:
        raise UserError("custom-fn", f"custom_fn: a derivative of {described(tree)} cannot be {described(structure)}")
    return [_carry(y, x) for y, x in zip(leaves, arrays)]
