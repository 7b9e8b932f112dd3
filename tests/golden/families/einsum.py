"""Contractions by index and special products, by NumPy: small whole numbers exactly, reals within the bound of their sums."""

import numpy as np

from .core import (
    ANY_ZERO,
    FLOATS,
    INTS,
    NUMBERS,
    narrow,
    random,
    rng_of,
    sample,
    sum_tolerance,
    whole,
    wide,
)

EINSUMS = [
    ("ij,jk->ik", [(3, 4), (4, 2)], "matrix product"),
    ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 2, 4)], "attention scores"),
    ("ii->i", [(4, 4)], "diagonal"),
    ("ii", [(4, 4)], "trace"),
    ("iji->j", [(3, 2, 3)], "sum of diagonals"),
    ("ba", [(2, 3)], "implied result: alphabetical"),
    ("i,i", [(5,), (5,)], "implied result: none"),
    ("i,j->ji", [(2,), (3,)], "outer product, transposed"),
    ("ij,ij->ij", [(2, 3), (2, 3)], "elementwise"),
    ("ij,j->i", [(2, 3), (3,)], "matrix times vector"),
    ("...ij,...jk->...ik", [(2, 3, 4), (4, 2)], "ellipsis of different length"),
    ("...i,i...", [(2, 1, 3), (3, 4)], "ellipsis broadcasts, implied"),
    ("a...b->b...", [(2, 3, 1, 4)], "ellipsis in the middle"),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)], "chain"),
    ("ab,cb,c,ad->d", [(2, 3), (4, 3), (4,), (2, 5)], "four operands"),
    ("abab->ba", [(2, 3, 2, 3)], "two diagonals"),
    ("ij->", [(3, 4)], "sum of all"),
    (",->", [(), ()], "rank 0"),
    ("i,j->", [(2,), (3,)], "sums of each"),
    ("ij,jk->ik", [(2, 0), (0, 3)], "nothing to sum"),
]


def products():
    """op, attributes, function, shapes, number of terms, note"""
    for equation, shapes, note in EINSUMS:
        yield "einsum", {"equation": f'"{equation}"'}, lambda *xs, e=equation: np.einsum(
            e, *xs
        ), shapes, note
    yield "tensordot", {"axes_a": [1], "axes_b": [0]}, lambda a, b: np.tensordot(
        a, b, ([1], [0])
    ), [(2, 3), (3, 4)], "matrices"
    yield "tensordot", {"axes_a": [2, 0], "axes_b": [-1, 1]}, lambda a, b: np.tensordot(
        a, b, ([2, 0], [-1, 1])
    ), [(2, 3, 4), (3, 2, 4)], "two pairs"
    yield "tensordot", {}, lambda a, b: np.tensordot(a, b, 0), [(2,), (3,)], "no pairs"
    yield "outer", {}, np.multiply.outer, [(2,), (3,)], "vectors"
    yield "outer", {}, np.multiply.outer, [(2, 2), (3,)], "matrix and vector"
    yield "outer", {}, np.multiply.outer, [(), (3,)], "rank 0"
    yield "inner", {}, np.inner, [(4,), (4,)], "vectors"
    yield "inner", {}, np.inner, [(2, 4), (3, 2, 4)], "last axes"
    yield "inner", {}, np.inner, [(), (3,)], "rank 0"
    yield "kron", {}, np.kron, [(2, 2), (2, 3)], "matrices"
    yield "kron", {}, np.kron, [(2,), (2, 3)], "different ranks"
    yield "vdot", {}, np.vdot, [(2, 3), (3, 2)], "conjugates a"
    yield "vdot", {}, np.vdot, [(), ()], "rank 0"
    yield "cross", {"axis": -1}, lambda a, b: np.cross(a, b), [(4, 3), (4, 3)], "last axis"
    yield "cross", {"axis": 0}, lambda a, b: np.cross(a, b, axis=0), [
        (3, 2),
        (3, 1),
    ], "first axis, broadcast"
    yield "tensordot", {"axes_a": [-1, 0], "axes_b": [0, -1]}, lambda a, b: np.tensordot(
        a, b, ([-1, 0], [0, -1])
    ), [(2, 3, 4), (4, 3, 2)], "axes from the end"


def samples():
    for n, (op, attrs, function, shapes, note) in enumerate(products()):
        for dtype in NUMBERS:
            for kind in ("whole", "random"):
                if kind == "random" and dtype in INTS:
                    continue
                name = f"{op}/{dtype}/case-{n}-{kind}"
                rng = rng_of(name)
                xs = [
                    whole(rng, dtype, s, 2) if kind == "whole" else random(rng, dtype, s)
                    for s in shapes
                ]
                out = np.asarray(function(*[wide(x) for x in xs]))
                size = (
                    function(*[np.abs(wide(x)).astype(np.float64) for x in xs])
                    if op != "cross"
                    else 81.0
                )
                size = float(np.abs(size).max(initial=0))
                # Intermediate results of chains round to the dtype: as many steps as operands.
                step = {"f16": 2.0**-10, "bf16": 2.0**-7}.get(dtype, 0) * (
                    len(xs) - 2 if len(xs) > 2 else 0
                )
                tol = sum_tolerance(dtype, 32, size)
                if dtype in FLOATS or dtype == "c64":
                    tol = {"rel": tol["rel"], "abs": tol["abs"] + step * size}
                yield sample(
                    name,
                    xs,
                    narrow(dtype, out),
                    ANY_ZERO if kind == "whole" else tol,
                    note,
                    **attrs,
                )
