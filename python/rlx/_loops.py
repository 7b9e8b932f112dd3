"""Loops and choices made of scan, cond and while_loop: fori_loop, switch, associative_scan."""

import numpy as np

from rlx._aliases import flip
from rlx._array import Array, asarray, is_number
from rlx._control import cond, scan, while_loop
from rlx._errors import UserError
from rlx._functions import arange
from rlx._shaping import concatenate, stack
from rlx._tree import described, flatten, unflatten


def _is_static(x):
    if isinstance(x, Array) or not is_number(x):
        return False
    if isinstance(x, (bool, np.bool_)) or not isinstance(x, (int, np.integer)):
        raise UserError("loop-bound", f"fori_loop: a bound is {x!r}; it must be an integer")
    return True


def fori_loop(lower, upper, body_fun, init, max_iterations=None):
    """carry = body_fun(i, carry) for i = lower, lower + 1, .., upper - 1.

    Bounds that are Python numbers make a scan, which every transform takes. Other bounds are known when the program
    runs only: the loop is then a while_loop, and reverse mode needs max_iterations, which it never exceeds.
    """
    if _is_static(lower) and _is_static(upper):
        steps = arange(int(lower), max(int(lower), int(upper)), dtype="int32")
        return scan(lambda carry, i: (body_fun(i, carry), None), init, steps)[0]
    first, last = (asarray(x) for x in (lower, upper))
    for name, x in (("lower", first), ("upper", last)):
        if x.dtype.kind != "integer" or x.ndim:
            raise UserError("loop-bound", f"fori_loop: {name} is {x._type}; it must be a scalar of integers")
    dtype = first.dtype if first.dtype is last.dtype else "int64"
    last = last.astype(dtype)
    return while_loop(
        lambda state: state[0] < last,
        lambda state: (state[0] + 1, body_fun(state[0], state[1])),
        (first.astype(dtype), init),
        max_iterations,
    )[1]


def switch(index, branches, *operands):
    """branches[index](*operands), of which only that one runs; an index out of range takes the nearest branch.

    All branches return trees of the same structure and types, as those of cond do.
    """
    branches = list(branches)
    if not branches:
        raise UserError("switch-branches", "switch: there must be a branch")
    index = asarray(index)
    if index.dtype.kind != "integer" or index.ndim:
        raise UserError("switch-index", f"switch: the index is {index._type}; it must be a scalar of integers")

    def choose(begin, end):
        if end - begin == 1:
            return branches[begin]
        middle = (begin + end) // 2
        return lambda *args: cond(index < middle, choose(begin, middle), choose(middle, end), *args)

    return choose(0, len(branches))(*operands)


def associative_scan(fn, elems, reverse=False, axis=0):
    """All running results of an associative fn along an axis: [x0, fn(x0, x1), fn(fn(x0, x1), x2), ..].

    fn takes two trees built like elems whose arrays hold any number of elements along the axis, and combines them
    pairwise. About 2 n combinations in 2 log2(n) rounds. With reverse the running results begin at the end.
    """
    leaves, tree = flatten(elems)
    leaves = [asarray(x) for x in leaves]
    if not leaves:
        return elems
    for x in leaves:
        if not -x.ndim <= axis < x.ndim:
            raise UserError("axis-range", f"associative_scan: axis {axis} is out of range for {x._type}")
    axes = [axis % x.ndim for x in leaves]
    sizes = {int(x.shape[a]) for x, a in zip(leaves, axes)}
    if len(sizes) != 1:
        raise UserError("scan-length", f"associative_scan: the arrays have {', '.join(map(str, sorted(sizes)))} elements")

    def part(xs, *bounds):
        return [x[(slice(None),) * a + (slice(*bounds),)] for x, a in zip(xs, axes)]

    def combine(xs, ys):
        found, structure = flatten(fn(unflatten(tree, xs), unflatten(tree, ys)))
        if structure != tree:
            raise UserError(
                "scan-result", f"associative_scan: elements are {described(tree)}, fn returns {described(structure)}"
            )
        found = [asarray(z) for z in found]
        for z, x in zip(found, xs):
            if z.dtype is not x.dtype or tuple(z.shape) != tuple(x.shape):
                raise UserError("scan-result", f"associative_scan: fn makes {z._type} of {x._type}")
        return found

    def running(xs):
        n = int(xs[0].shape[axes[0]])
        if n < 2:
            return xs
        odd = running(combine(part(xs, 0, n - 1, 2), part(xs, 1, n, 2)))  # results 1, 3, 5, ..
        pairs = part(odd, 0, (n - 1) // 2)
        even = combine(pairs, part(xs, 2, n, 2)) if n > 2 else []  # results 2, 4, ..
        first = part(xs, 0, 1)
        even = [concatenate([f, e], axis=a) for f, e, a in zip(first, even, axes)] if n > 2 else first
        return [interleaved(e, o, a, n) for e, o, a in zip(even, odd, axes)]

    def interleaved(even, odd, a, n):
        half = n // 2
        both = stack([even[(slice(None),) * a + (slice(0, half),)], odd], axis=a + 1)
        shape = (*even.shape[:a], 2 * half, *even.shape[a + 1 :])
        both = both.reshape(shape)
        return both if n == 2 * half else concatenate([both, even[(slice(None),) * a + (slice(half, half + 1),)]], axis=a)

    turned = [flip(x, axis=a) for x, a in zip(leaves, axes)] if reverse else leaves
    found = running(turned)
    return unflatten(tree, [flip(x, axis=a) for x, a in zip(found, axes)] if reverse else found)
