"""Transforms of Python functions: grad, value_and_grad, vjp, jvp, vmap, jacobians; jit is in _jit.py.

A function is *traced*: it runs once on arrays that have types but no values, and the ops it uses are written down as a
graph. Transforms are then graph to graph. Arguments and results are trees (nested tuples, lists, dicts, None) of
arrays. Arrays that the function uses without being handed them are captured: they become further inputs of its graph,
so a later call with other arrays compiles nothing new. Any nesting works, because the call of a transformed function on
traced arrays writes its graph into the program around it.
"""

import functools

import numpy as np

from rlx import _core, op
from rlx._array import Array, asarray, is_number, strong
from rlx._dims import equal, equal_shapes, is_dim
from rlx._errors import UserError
from rlx._functions import eye, zeros, zeros_like
from rlx._tree import converted, described, flatten, spread, unflatten


class Traced:
    """A traced function: its graph, the structure of its results, what it captured."""

    __slots__ = ("captured", "graph", "out_tree")

    def __init__(self, graph, captured, out_tree):
        self.graph, self.captured, self.out_tree = graph, captured, out_tree


def run_trace(name, make_inputs, f):
    """Runs f on the inputs that make_inputs(scope) gives; returns the scope, still open, and f's result."""
    scope = _core.Scope(name, True)
    inputs = make_inputs(scope)
    return scope, in_trace(scope, lambda: f(inputs))


def in_trace(scope, f):
    """f(), whose ops go to that trace."""
    _core.push_trace(scope)
    try:
        return f()
    finally:
        _core.pop_trace()


def _name(f):
    return getattr(f, "__name__", type(f).__name__)


def trace(f, leaves, tree, slices=None, shapes=None):
    """f traced on arguments of the types of `leaves`; tree is the structure of (args, kwargs).

    Where slices[i] is an axis, argument i is one slice along it; where shapes[i] is given, it has these sizes.
    """

    def inputs(scope):
        axes, sizes = slices or [None] * len(leaves), shapes or [None] * len(leaves)
        return [
            scope.input_like(f"x{i}", x, shape) if axis is None else scope.input_slice(f"x{i}", x, axis)
            for i, (x, axis, shape) in enumerate(zip(leaves, axes, sizes))
        ]

    def body(xs):
        args, kwargs = unflatten(tree, xs)
        return f(*args, **kwargs)

    def body_of_arrays(xs):
        out_leaves, out_tree = flatten(body(xs))
        return converted(out_leaves, out_tree, lambda x: strong(asarray(x)), "result"), out_tree

    scope, (outs, out_tree) = run_trace(_name(f), inputs, body_of_arrays)
    graph = scope.finish(outs)
    return Traced(graph, scope.captured, out_tree)


def _argument(x):
    """A leaf as an array; what stands for a number promotes as the number would."""
    return x if type(x) is Array else _core.weak(x) if is_number(x) else asarray(x)


def _arrays(leaves, tree, wrt=None):
    """The leaves as arrays; tree is the structure of (args, kwargs). Those to differentiate by (all, unless told which)
    are no longer numbers: such a number takes the floating dtype of the arrays beside it."""
    if all([type(x) is Array and not x._weak for x in leaves]):
        return leaves
    arrays = converted(leaves, tree, _argument, "argument")
    floats = [a.dtype for a in arrays if not a._weak and a.dtype.is_floating]
    beside = functools.reduce(lambda a, b: a if a is b else _widest(a, b), floats) if floats else "float32"
    return [
        asarray(x, beside if a.dtype.is_floating else a.dtype) if a._weak and (wrt is None or i in wrt) else a
        for i, (x, a) in enumerate(zip(leaves, arrays))
    ]


def _widest(a, b):
    return max((a, b), key=lambda d: (d.itemsize, d.name == "f32"))


def _arguments(args, kwargs, wrt=None):
    leaves, tree = flatten((args, kwargs))
    return _arrays(leaves, tree, wrt), tree


def _check_function(transform, f):
    if not callable(f):
        raise TypeError(f"{transform}: takes a function, not {f!r}, a {type(f).__name__}")


def _leaf_numbers(args, argnums):
    """The positions, among all leaves, of those in the arguments `argnums`, and the structure of each argument."""
    at, ranges = 0, []
    for a in args:
        n = len(flatten(a)[0])
        ranges.append(range(at, at + n))
        at += n
    for n in argnums:
        if not -len(args) <= n < len(args):
            raise UserError("argnums", f"argument {n} of {len(args)} does not exist")
    return [i for n in argnums for i in ranges[n]]


# ---- reverse mode


def value_and_grad(f, argnums=0, has_aux=False):
    """A function that returns (f(...), gradients by the arguments `argnums`).

    f returns a real scalar, or with has_aux a pair (scalar, anything), and then the value is that pair. Gradients have
    the structure of the argument, or are a tuple when argnums is one.
    """
    _check_function("grad", f)
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(f)
    def wrapped(*args, **kwargs):
        wrt = _leaf_numbers(args, numbers)
        leaves, tree = _arguments(args, kwargs, wrt)
        traced = trace(f, leaves, tree)
        if has_aux and not (
            isinstance(traced.out_tree, tuple) and traced.out_tree[0] is tuple and len(traced.out_tree[1]) == 2
        ):
            raise UserError("loss-type", f"{_name(f)}: with has_aux it must return a pair (loss, aux)")
        if (traced.out_tree[1][0] if has_aux else traced.out_tree) != "*":
            raise UserError("loss-type", f"{_name(f)}: must return one scalar, or a pair with has_aux=True")
        graph = traced.graph.recognised().value_and_grad([f"x{i}" for i in wrt], True, 0)
        outs = _core.call_graph(graph, leaves + traced.captured)
        count = len(outs) - len(wrt)
        value = unflatten(traced.out_tree, outs[:count])
        gradients = iter(outs[count:])
        trees = tuple(unflatten(flatten(args[n])[1], gradients) for n in numbers)
        return value, trees[0] if isinstance(argnums, int) else trees

    return wrapped


def grad(f, argnums=0, has_aux=False):
    """A function that returns the gradients of a scalar function; with has_aux (gradients, aux)."""
    both = value_and_grad(f, argnums, has_aux)

    @functools.wraps(f)
    def wrapped(*args, **kwargs):
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return wrapped


def _call_by_name(graph, by_name):
    return _core.call_graph(graph, [by_name[name] for name, _, _ in graph.inputs])


def _inputs_by_name(traced, leaves):
    names = [name for name, _, _ in traced.graph.inputs]
    return dict(zip(names, leaves + traced.captured))


def _is_differentiable(x):
    return x.dtype.kind in ("floating", "complex")


def _direction(code, given, x):
    """A cotangent of the result x, or a tangent of the primal x, in its dtype."""
    given = asarray(given)
    if not equal_shapes(given.shape, x.shape):
        raise UserError(code, f"one of the {code} has the shape {given.shape} where {x.shape} is needed")
    return given.astype(x.dtype)


def vjp(f, *primals, has_aux=False):
    """(f(*primals), pull) where pull(cotangents) gives the cotangents of the primals, a tuple.

    With has_aux f returns (out, aux) and the answer is (out, pull, aux). Primals of integers get None. pull computes f
    again; inside jit that work is shared.
    """
    _check_function("vjp", f)
    leaves, tree = _arguments(primals, {})
    traced = trace(f, leaves, tree)
    outs = _core.call_graph(traced.graph, leaves + traced.captured)
    whole = unflatten(traced.out_tree, outs)
    out, aux = whole if has_aux else (whole, None)
    ys, out_tree = flatten(out)
    wrt = [i for i, x in enumerate(leaves) if _is_differentiable(x)]
    graph = traced.graph.first_outputs(len(ys)).recognised().vjp([f"x{i}" for i in wrt], True)
    inputs = _inputs_by_name(traced, leaves)
    names = ["d_output"] if len(ys) == 1 else [f"d_{i}" for i in range(len(ys))]
    args_tree = tree[1][0]

    def pull(cotangents):
        given, given_tree = flatten(cotangents)
        if given_tree != out_tree:
            raise UserError(
                "cotangents",
                f"the cotangents {described(given_tree)} are not built like the results {described(out_tree)}",
            )
        by_name = dict(inputs)
        for name, y, ct in zip(names, ys, given):
            if _is_differentiable(y):
                by_name[name] = _direction("cotangents", ct, y)
        by_leaf = dict(zip(wrt, _call_by_name(graph, by_name)[len(ys) :]))
        return unflatten(args_tree, [by_leaf.get(i) for i in range(len(leaves))])

    return (out, pull, aux) if has_aux else (out, pull)


# ---- forward mode


def jvp(f, primals, tangents, has_aux=False):
    """(f(*primals), the derivative of f at the primals along the tangents); with has_aux f returns a pair, and aux
    comes third.

    Both are tuples of equally built trees; tangents of integers are ignored (None is fine). Results of integers have
    tangents that are zeros.
    """
    _check_function("jvp", f)
    leaves, tree = _arguments(tuple(primals), {})
    along = _tangent_leaves(leaves, primals, tangents)
    traced = trace(f, leaves, tree)
    wrt = [i for i, x in enumerate(leaves) if _is_differentiable(x)]
    graph = traced.graph.jvp([f"x{i}" for i in wrt])
    by_name = _inputs_by_name(traced, leaves)
    by_name |= {f"tangent_x{i}": _direction("tangents", along[i], leaves[i]) for i in wrt}
    outs = _core.call_graph(graph, [by_name[name] for name, _, _ in graph.inputs])
    count = len(traced.graph.outputs)
    moved = iter(outs[count:])
    slopes = _slopes(outs[:count], moved)
    value, slope = unflatten(traced.out_tree, outs[:count]), unflatten(traced.out_tree, slopes)
    return (value[0], slope[0], value[1]) if has_aux else (value, slope)


def _slopes(ys, moved):
    """The next derivatives for the results ys; zeros for integers, which have none."""
    return [next(moved) if _is_differentiable(y) else zeros_like(y) for y in ys]


def linearize(f, *primals):
    """(f(*primals), push) where push(*tangents) is the derivative of f there along the tangents.

    What does not depend on the tangents is computed once, here; push is linear and cheap to call again.
    """
    _check_function("linearize", f)
    leaves, tree = _arguments(primals, {})
    traced = trace(f, leaves, tree)
    wrt = [i for i, x in enumerate(leaves) if _is_differentiable(x)]
    value, tangent = traced.graph.linearize([f"x{i}" for i in wrt])
    outs = _core.call_graph(value, leaves + traced.captured)
    count = len(traced.graph.outputs)
    ys, residuals = outs[:count], {f"residual_{i}": r for i, r in enumerate(outs[count:])}

    def push(*tangents):
        if len(tangents) != len(primals):
            raise UserError("tangents", f"linearize: {len(tangents)} tangents for {len(primals)} primals")
        along = _tangent_leaves(leaves, primals, tangents)
        by_name = residuals | {f"tangent_x{i}": _direction("tangents", along[i], leaves[i]) for i in wrt}
        moved = iter(_call_by_name(tangent, by_name))
        return unflatten(traced.out_tree, _slopes(ys, moved))

    return unflatten(traced.out_tree, ys), push


def linear_transpose(f, *primals):
    """The transpose of f, which is linear in its arguments: a function that takes cotangents built like the results and
    gives the cotangents of the primals, a tuple (None for integers).

    The primals only say what types the arguments have. A constant that f adds is no part of the transpose; an f whose
    derivative depends on the arguments raises "not-linear".
    """
    _check_function("linear_transpose", f)
    leaves, tree = _arguments(primals, {})
    traced = trace(f, leaves, tree)
    wrt = [i for i, x in enumerate(leaves) if _is_differentiable(x)]
    graph = traced.graph.linear_transpose([f"x{i}" for i in wrt])
    inputs = _inputs_by_name(traced, leaves)
    types = traced.graph.outputs
    names = ["d_output"] if len(types) == 1 else [f"d_{i}" for i in range(len(types))]

    def transposed(cotangents):
        given, given_tree = flatten(cotangents)
        if given_tree != traced.out_tree:
            raise UserError(
                "cotangents",
                f"the cotangents {described(given_tree)} are not built like the results {described(traced.out_tree)}",
            )
        by_name = dict(inputs)
        for name, ct, (dtype, shape) in zip(names, given, types):
            ct = asarray(ct)
            if not equal_shapes(ct.shape, shape):
                raise UserError(
                    "cotangents", f"one of the cotangents has the shape {ct.shape} where {shape} is needed"
                )
            by_name[name] = ct.astype(dtype)
        by_leaf = dict(zip(wrt, _call_by_name(graph, by_name)))
        return unflatten(tree[1][0], [by_leaf.get(i) for i in range(len(leaves))])

    return transposed


def jet(f, primals, series):
    """Taylor mode: (f(*primals), [first derivatives, second, ..]) by the time of f along a curve.

    series has for each primal a list of its derivatives by the time, from the first on, all lists of one length; a
    derivative is built like its primal, None for one of integers. Each derivative of the result is built like the
    result. A straight line has zeros from the second on.
    """
    _check_function("jet", f)
    primals, series = tuple(primals), tuple(series)
    orders = {len(s) for s in series}
    if len(series) != len(primals) or len(orders) != 1 or 0 in orders:
        raise UserError(
            "series", f"jet: {len(primals)} primals need as many lists of one length, at least 1; got lists of "
            f"{', '.join(str(len(s)) for s in series) or 'none'}"
        )
    (order,) = orders
    leaves, tree = _arguments(primals, {})
    traced = trace(f, leaves, tree)
    wrt = [i for i, x in enumerate(leaves) if _is_differentiable(x)]
    graph = traced.graph.jet([f"x{i}" for i in wrt], order)
    by_name = _inputs_by_name(traced, leaves)
    for k in range(order):
        along = _tangent_leaves(leaves, primals, [s[k] for s in series])
        by_name |= {f"d{k + 1}_x{i}": _direction("series", along[i], leaves[i]) for i in wrt}
    outs = _call_by_name(graph, by_name)
    count = len(traced.graph.outputs)
    ys, moved = outs[:count], iter(outs[count:])
    slopes = [_slopes(ys, moved) for _ in range(order)]
    return unflatten(traced.out_tree, ys), [unflatten(traced.out_tree, s) for s in slopes]


def _tangent_leaves(leaves, primals, tangents):
    out = []
    for p, t in zip(primals, tangents, strict=True):
        p_leaves, p_tree = flatten(p)
        t_leaves, t_tree = flatten(t)
        if p_tree == t_tree:
            out += t_leaves
        elif t is None and not any(_is_differentiable(x) for x in leaves[len(out) : len(out) + len(p_leaves)]):
            out += [None] * len(p_leaves)
        else:
            raise UserError(
                "tangents", f"the tangents {described(t_tree)} are not built like the primals {described(p_tree)}"
            )
    return out


# ---- vmap


def vmap(f, in_axes=0, out_axes=0):
    """f on every slice of its arguments at once.

    in_axes: the axis along which an argument is sliced, None for one that all share; one for all arguments, or a tuple
    with one (or a tree of them) per argument. Keyword arguments are sliced along axis 0. out_axes: where the results
    carry the axis; None for a result that does not depend on any slice.
    """

    _check_function("vmap", f)

    @functools.wraps(f)
    def wrapped(*args, **kwargs):
        leaves, tree = flatten((args, kwargs))
        leaves = converted(leaves, tree, _argument, "argument")
        per_arg = tuple(in_axes) if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
        if len(per_arg) != len(args):
            raise UserError("in-axes", f"vmap: {len(per_arg)} axes for {len(args)} arguments")
        axes = spread(per_arg, args) + [0] * len(flatten(kwargs)[0])
        axes = [a if a is None else _axis_of(a, x) for a, x in zip(axes, leaves)]
        size = _batch_size([x.shape[a] for a, x in zip(axes, leaves) if a is not None])
        traced = trace(f, leaves, tree, axes)
        places = [-1 if a is None else a for a in axes] + [-1] * len(traced.captured)
        graph, batched = traced.graph.batched(places, size)
        outs = _core.call_graph(graph, leaves + traced.captured)
        out = unflatten(traced.out_tree, outs)
        outs = [_placed(y, b, a, size) for y, b, a in zip(outs, batched, spread(out_axes, out))]
        return unflatten(traced.out_tree, outs)

    return wrapped


def _batch_size(sizes):
    """The one size of all sliced axes; a number, if it has one."""
    if not sizes or not all(equal(sizes[0], n) for n in sizes[1:]):
        got = sorted({str(n) for n in sizes}, key=lambda n: (len(n), n))
        raise UserError("vmap-size", f"vmap: the sliced axes must have one size, got {', '.join(got) or 'none'}")
    return next((n for n in sizes if isinstance(n, int)), sizes[0])


def _axis_of(axis, x):
    if not -x.ndim <= axis < x.ndim:
        raise UserError("axis-range", f"vmap: axis {axis} is out of range for {x._type}")
    return axis % x.ndim


def _placed(y, batched, axis, size):
    """A result with the batch axis at its place."""
    if axis is None:
        if batched:
            raise UserError("out-axes", "vmap: a result with out_axes None depends on a slice")
        return y
    if not batched:
        y = op.broadcast(y, shape=(size, *y.shape))
    n = y.ndim
    if not -n <= axis < n:
        raise UserError("axis-range", f"vmap: out_axes {axis} is out of range for {y._type}")
    order = list(range(1, n))
    order.insert(axis % n, 0)
    return y if axis % n == 0 else op.transpose(y, perm=order)


# ---- Jacobians


def _basis(leaves, k):
    """Unit vectors of leaf k, stacked, and zeros for the other leaves."""
    n = leaves[k].size
    if any(is_dim(s) for x in leaves for s in x.shape):
        unit = eye(n).reshape((n, *leaves[k].shape))
        return [(unit if i == k else zeros((n, *x.shape))).astype(x.dtype) for i, x in enumerate(leaves)]
    unit = np.eye(n).reshape(n, *leaves[k].shape)
    return [asarray(unit if i == k else np.zeros((n, *x.shape))).astype(x.dtype) for i, x in enumerate(leaves)]


def _of_leaves(transform, f, args, kwargs, argnums):
    """(the leaves of the arguments argnums, what orders derivatives by them as they are asked for, f of the leaves)."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise UserError("argnums", f"argument {n} of {len(args)} does not exist")
    numbers = [n % len(args) for n in numbers]
    once = list(dict.fromkeys(numbers))  # each argument, however often it is asked for
    leaves, tree = flatten(tuple(args[n] for n in once))
    leaves = _arrays(leaves, (tuple, (tree,)))
    for x in leaves:
        if not _is_differentiable(x):
            raise UserError("wrt-dtype", f"{transform}: cannot differentiate by {x._type}")

    def g(*xs):
        changed = dict(zip(once, unflatten(tree, xs)))
        return f(*[changed.get(i, a) for i, a in enumerate(args)], **kwargs)

    def by_arguments(derivatives):
        found = dict(zip(once, unflatten(tree, derivatives)))
        return found[numbers[0]] if isinstance(argnums, int) else tuple(found[n] for n in numbers)

    return leaves, by_arguments, g


def jacfwd(f, argnums=0, has_aux=False):
    """The Jacobian by forward mode: for each result, for each leaf of the argument, an array of shape
    result.shape + leaf.shape. argnums may be a tuple: then there is one such tree per argument. With has_aux f returns
    a pair (results, anything), and the function gives (Jacobian, anything)."""
    _check_function("jacfwd", f)

    @functools.wraps(f)
    def wrapped(*args, **kwargs):
        leaves, by_arguments, g = _of_leaves("jacfwd", f, args, kwargs, argnums)

        def along(*directions):
            moved = jvp(g, leaves, directions, has_aux)
            return (moved[1], moved[2]) if has_aux else (moved[1], None)

        columns, aux, out_tree = [], None, None
        for k, x in enumerate(leaves):
            moved, aux = vmap(along, out_axes=(0, None))(*_basis(leaves, k))
            ys, out_tree = flatten(moved)
            columns.append([_axis_last(y).reshape((*y.shape[1:], *x.shape)) for y in ys])
        jacobian = unflatten(out_tree, [by_arguments(row) for row in zip(*columns)])
        return (jacobian, aux) if has_aux else jacobian

    return wrapped


def _axis_last(y):
    return op.transpose(y, perm=[*range(1, y.ndim), 0])


def jacrev(f, argnums=0, has_aux=False):
    """The Jacobian by reverse mode; its structure and arguments are those of jacfwd."""
    _check_function("jacrev", f)

    @functools.wraps(f)
    def wrapped(*args, **kwargs):
        leaves, by_arguments, g = _of_leaves("jacrev", f, args, kwargs, argnums)
        out, pull, *aux = vjp(g, *leaves, has_aux=has_aux)
        ys, out_tree = flatten(out)
        rows = []
        for k, y in enumerate(ys):
            back = vmap(lambda *ct: pull(unflatten(out_tree, ct)))(*_basis(ys, k))
            rows.append(by_arguments([b.reshape((*y.shape, *x.shape)) for b, x in zip(back, leaves)]))
        jacobian = unflatten(out_tree, rows)
        return (jacobian, *aux) if has_aux else jacobian

    return wrapped


jacobian = jacrev


def hessian(f, argnums=0, has_aux=False):
    """The second derivatives of a scalar function, forward over reverse; with a tuple of argnums a tuple per argument
    of tuples per argument."""
    _check_function("hessian", f)
    return jacfwd(jacrev(f, argnums, has_aux), argnums, has_aux)


def _same_shape(code, given, needed):
    if not equal_shapes(given, needed):
        raise UserError(code, f"force_energy_loss: {code} of the shape {given} where {needed} is needed")


def force_energy_loss(energy, argnums=0, force_weight=1.0, energy_weight=1.0):
    """The loss of a potential: how far its forces, -d energy / d positions, and its energies are off.

    energy(*args) gives a scalar, or energies [B] of a batch; argnums says which arguments are positions. The result is
    loss(*args, forces=, energy=, atoms=None): forces are built like the positions (a tuple when argnums is one), atoms are
    weights or a mask that broadcasts to the positions without their last axis. It is

        force_weight * weighted mean of (-d energy / d positions - forces)^2 + energy_weight * mean of (energy' - energy)^2
    """
    _check_function("force_energy_loss", energy)
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    total = value_and_grad(lambda *a, **k: (lambda e: (e.sum(), e))(asarray(energy(*a, **k))), numbers, has_aux=True)

    def loss(*args, forces, energy, atoms=None, **kwargs):
        wanted = (forces,) if isinstance(argnums, int) else tuple(forces)
        masks = [None] * len(numbers) if atoms is None else [atoms] if isinstance(argnums, int) else list(atoms)
        if len(wanted) != len(numbers) or len(masks) != len(numbers):
            raise UserError("forces", f"force_energy_loss: {len(wanted)} forces and {len(masks)} weights for "
                            f"{len(numbers)} positions")
        (_, found), slopes = total(*args, **kwargs)
        squares, count = 0.0, 0.0
        for slope, force, mask in zip(slopes, wanted, masks):
            force = asarray(force)
            _same_shape("forces", force.shape, slope.shape)
            off = (slope + force) ** 2
            weight = 1.0 if mask is None else asarray(mask).astype(off.dtype).reshape((*asarray(mask).shape, 1))
            squares = squares + (off * weight).sum()
            count = count + (zeros_like(off) + weight).sum()
        energy = asarray(energy)
        _same_shape("energy", energy.shape, found.shape)
        return force_weight * squares / count + energy_weight * ((found - energy) ** 2).mean()

    return loss


def stop_gradient(tree):
    """The same values, of which no derivative is taken."""
    leaves, structure = flatten(tree)
    return unflatten(structure, [op.stop_gradient(x) for x in leaves])
