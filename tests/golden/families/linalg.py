"""Contractions."""

import string

import numpy as np

from .core import EXACT, INTS, NUMBERS, narrow, random, rng_of, sample, sum_tolerance, whole, wide

# a, b, transpose_a, transpose_b, note
MATMULS = [
    ((3, 4), (4, 5), False, False, "plain"),
    ((4, 3), (4, 5), True, False, "a transposed"),
    ((3, 4), (5, 4), False, True, "b transposed"),
    ((4, 3), (5, 4), True, True, "both transposed"),
    ((2, 3, 4), (4, 2), False, False, "a batched"),
    ((3, 4), (2, 4, 2), False, False, "b batched"),
    ((2, 1, 2, 3), (3, 3, 2), False, False, "batch axes broadcast"),
    ((2, 3, 4), (2, 5, 4), False, True, "batched, b transposed"),
    ((1, 7), (7, 1), False, False, "row times column"),
    ((3, 0), (0, 2), False, False, "empty sum: zeros"),
    ((0, 3), (3, 2), False, False, "no rows"),
    ((17, 33), (33, 19), False, False, "odd sizes beyond one tile"),
]
# lhs, rhs, lhs_contracting, rhs_contracting, lhs_batch, rhs_batch, note
DOTS = [
    ((3, 4), (4, 5), [1], [0], [], [], "matrix product"),
    ((2, 3, 4), (3, 4, 2), [2], [1], [0], [2], "batch axis last on the right"),
    ((2, 3), (3, 2), [0, 1], [1, 0], [], [], "full contraction to rank 0"),
    ((3,), (4,), [], [], [], [], "outer product"),
    ((2, 3, 4), (4, 2, 5), [2], [0], [0], [1], "batch axis in the middle"),
    ((2, 3, 4, 5), (3, 5, 2, 6), [3], [1], [0, 1], [2, 0], "two batch axes, permuted"),
    ((2, 0), (0, 3), [1], [0], [], [], "empty sum: zeros"),
    ((2, 3, 4), (2, 3), [0, 1], [0, 1], [], [], "two contracted axes"),
    ((2, 3, 4), (4, 2, 5), [-1], [-3], [-3], [-2], "axes from the end"),
]


def values_of(kind, rng, dtype, shape):
    return whole(rng, dtype, shape, 2) if kind == "whole" else random(rng, dtype, shape, -1, 1)


def matmul(a, b, transpose_a, transpose_b):
    a = a.swapaxes(-1, -2) if transpose_a else a
    b = b.swapaxes(-1, -2) if transpose_b else b
    return np.matmul(a, b)


def dot_general(a, b, contract_a, contract_b, batch_a, batch_b):
    """Through einsum: batch axes, then a's free axes, then b's."""
    letters = iter(string.ascii_letters)
    names_a, names_b = [None] * a.ndim, [None] * b.ndim
    contract_a, batch_a = ([i % a.ndim for i in axes] for axes in (contract_a, batch_a))
    contract_b, batch_b = ([i % b.ndim for i in axes] for axes in (contract_b, batch_b))
    for i, j in [*zip(batch_a, batch_b), *zip(contract_a, contract_b)]:
        names_a[i] = names_b[j] = next(letters)
    names_a = [n or next(letters) for n in names_a]
    names_b = [n or next(letters) for n in names_b]
    bound = set(batch_a) | set(contract_a), set(batch_b) | set(contract_b)
    out = (
        [names_a[i] for i in batch_a]
        + [n for i, n in enumerate(names_a) if i not in bound[0]]
        + [n for i, n in enumerate(names_b) if i not in bound[1]]
    )
    return np.einsum(f"{''.join(names_a)},{''.join(names_b)}->{''.join(out)}", a, b)


def contraction(name, dtype, kind, shapes, function, terms, note, attrs):
    rng = rng_of(name)
    a, b = (values_of(kind, rng, dtype, s) for s in shapes)
    out = narrow(dtype, function(wide(a), wide(b)))
    magnitude = np.max(function(np.abs(wide(a)), np.abs(wide(b))), initial=0) if terms else 0
    exactly = kind == "whole" or dtype in INTS
    return sample(
        name,
        [a, b],
        out,
        EXACT if exactly else sum_tolerance(dtype, terms, magnitude),
        note,
        **attrs,
    )


def samples():
    for dtype in NUMBERS:
        for kind in ("whole", "random"):
            for n, (a, b, ta, tb, note) in enumerate(MATMULS):
                terms = a[-2] if ta else a[-1]
                yield contraction(
                    f"matmul/{dtype}/case-{n}-{kind}",
                    dtype,
                    kind,
                    (a, b),
                    lambda p, q: matmul(p, q, ta, tb),
                    terms,
                    note,
                    {"transpose_a": ta, "transpose_b": tb},
                )
            for n, (a, b, ca, cb, ba, bb, note) in enumerate(DOTS):
                terms = int(np.prod([a[i] for i in ca], dtype=np.int64))
                yield contraction(
                    f"dot_general/{dtype}/case-{n}-{kind}",
                    dtype,
                    kind,
                    (a, b),
                    lambda p, q: dot_general(p, q, ca, cb, ba, bb),
                    terms,
                    note,
                    {
                        "lhs_contracting": ca,
                        "rhs_contracting": cb,
                        "lhs_batch": ba,
                        "rhs_batch": bb,
                    },
                )
