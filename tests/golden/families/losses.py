"""Losses, by PyTorch in binary64, rounded once.

A loss is a sum of a few dozen terms of magnitude up to some tens: the absolute tolerance is that of such a sum.
"""

import numpy as np
import torch
import torch.nn.functional as F

from .core import FLOATS, array, narrow, random, rng_of, sample, ulps, unit

REDUCTIONS = ["none", "mean", "sum"]


def wide(x):
    x = np.asarray(x)
    integer = np.issubdtype(x.dtype, np.integer)
    return torch.from_numpy(x.astype(np.int64 if integer else np.float64))


def tolerance(dtype):
    return ulps(dtype, 16, 128 * unit(dtype))


def case(identifier, operands, function, note, **attrs):
    dtype = identifier.split("/")[1]
    out = function(*[wide(x) for x in operands]).numpy()
    return sample(identifier, operands, narrow(dtype, out), tolerance(dtype), note, **attrs)


def signs(rng, dtype, shape):
    return array(dtype, np.where(rng.random(shape) < 0.5, -1.0, 1.0))


# name, attributes, function(reduction) -> function of operands, ranges of the operands ("sign": -1 or 1)
ANY, UNIT, POSITIVE = (-3, 3), (0.02, 0.98), (0.1, 4)
POINTWISE = [
    ("mse_loss", {}, lambda r: lambda x, t: F.mse_loss(x, t, reduction=r), [ANY, ANY]),
    ("l1_loss", {}, lambda r: lambda x, t: F.l1_loss(x, t, reduction=r), [ANY, ANY]),
    ("smooth_l1_loss", {}, lambda r: lambda x, t: F.smooth_l1_loss(x, t, reduction=r), [ANY, ANY]),
    (
        "smooth_l1_loss",
        {"beta": 0.5},
        lambda r: lambda x, t: F.smooth_l1_loss(x, t, reduction=r, beta=0.5),
        [ANY, ANY],
    ),
    (
        "smooth_l1_loss",
        {"beta": 0.0},
        lambda r: lambda x, t: F.smooth_l1_loss(x, t, reduction=r, beta=0.0),
        [ANY, ANY],
    ),
    ("huber_loss", {}, lambda r: lambda x, t: F.huber_loss(x, t, reduction=r), [ANY, ANY]),
    (
        "huber_loss",
        {"delta": 2.0},
        lambda r: lambda x, t: F.huber_loss(x, t, reduction=r, delta=2.0),
        [ANY, ANY],
    ),
    (
        "bce_loss",
        {},
        lambda r: lambda x, t: F.binary_cross_entropy(x, t, reduction=r),
        [UNIT, UNIT],
    ),
    (
        "bce_with_logits_loss",
        {},
        lambda r: lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction=r),
        [ANY, UNIT],
    ),
    (
        "bce_with_logits_loss",
        {},
        lambda r: lambda x, t, w: F.binary_cross_entropy_with_logits(
            x, t, reduction=r, pos_weight=w
        ),
        [ANY, UNIT, POSITIVE],
    ),
    ("kl_div_loss", {}, lambda r: lambda x, t: F.kl_div(x, t, reduction=r), [(-3, 0), UNIT]),
    (
        "kl_div_loss",
        {"log_target": True},
        lambda r: lambda x, t: F.kl_div(x, t, reduction=r, log_target=True),
        [(-3, 0), (-3, 0)],
    ),
    (
        "hinge_embedding_loss",
        {},
        lambda r: lambda x, t: F.hinge_embedding_loss(x, t, reduction=r),
        [ANY, "sign"],
    ),
    (
        "hinge_embedding_loss",
        {"margin": 0.25},
        lambda r: lambda x, t: F.hinge_embedding_loss(x, t, reduction=r, margin=0.25),
        [ANY, "sign"],
    ),
    (
        "margin_ranking_loss",
        {},
        lambda r: lambda x, y, t: F.margin_ranking_loss(x, y, t, reduction=r),
        [ANY, ANY, "sign"],
    ),
    (
        "margin_ranking_loss",
        {"margin": 0.5},
        lambda r: lambda x, y, t: F.margin_ranking_loss(x, y, t, reduction=r, margin=0.5),
        [ANY, ANY, "sign"],
    ),
    (
        "poisson_nll_loss",
        {},
        lambda r: lambda x, t: F.poisson_nll_loss(x, t, reduction=r),
        [ANY, POSITIVE],
    ),
    (
        "poisson_nll_loss",
        {"log_input": False, "full": True, "eps": 0.01},
        lambda r: lambda x, t: F.poisson_nll_loss(
            x, t, reduction=r, log_input=False, full=True, eps=0.01
        ),
        [POSITIVE, POSITIVE],
    ),
    (
        "gaussian_nll_loss",
        {},
        lambda r: lambda x, t, v: F.gaussian_nll_loss(x, t, v, reduction=r),
        [ANY, ANY, POSITIVE],
    ),
    (
        "gaussian_nll_loss",
        {"full": True, "eps": 0.5},
        lambda r: lambda x, t, v: F.gaussian_nll_loss(x, t, v, reduction=r, full=True, eps=0.5),
        [ANY, ANY, POSITIVE],
    ),
]


def reduce(x, how):
    return x if how == "none" else x.mean() if how == "mean" else x.sum()


def hinge(margin):
    return lambda r: lambda x, t: reduce(torch.clamp(margin - x * t, min=0), r)


POINTWISE += [
    ("hinge_loss", {}, hinge(1.0), [ANY, "sign"]),
    ("hinge_loss", {"margin": 0.5}, hinge(0.5), [ANY, "sign"]),
]


def pointwise():
    seen = {}
    for name, attrs, function, ranges in POINTWISE:
        number = seen[name] = seen.get(name, -1) + 1
        for dtype in FLOATS:
            for how in REDUCTIONS:
                for shape_name, shape in (("matrix", (4, 5)), ("rank0", ())):
                    identifier = f"{name}/{dtype}/{how}-{shape_name}-{number}"
                    rng = rng_of(identifier)
                    operands = [
                        signs(rng, dtype, shape) if r == "sign" else random(rng, dtype, shape, *r)
                        for r in ranges
                    ]
                    yield case(
                        identifier, operands, function(how), shape_name, reduction=how, **attrs
                    )


def broadcasts():
    for dtype in FLOATS:
        rng = rng_of(f"losses/{dtype}/broadcast")
        x, t = random(rng, dtype, (4, 5), -2, 2), random(rng, dtype, (5,), -2, 2)
        yield case(
            f"mse_loss/{dtype}/broadcast",
            [x, t],
            lambda x, t: F.mse_loss(x, t.expand(4, 5)),
            "the target broadcasts",
        )
        empty = array(dtype, np.zeros((0, 3)))
        yield case(
            f"l1_loss/{dtype}/empty-sum",
            [empty, empty],
            lambda x, t: F.l1_loss(x, t, reduction="sum"),
            "the sum over nothing is 0",
            reduction="sum",
        )
        yield case(
            f"l1_loss/{dtype}/empty-mean",
            [empty, empty],
            F.l1_loss,
            "the mean over nothing is NaN",
        )
        p = array(dtype, [0.0, 0.0, 1.0, 1.0, 0.5, np.nan])
        t = array(dtype, [0.0, 1.0, 0.0, 1.0, 0.5, 1.0])
        bounded = [0.0, 100.0, 100.0, 0.0, np.log(2.0), np.nan]
        yield sample(
            f"bce_loss/{dtype}/ends",
            [p, t],
            narrow(dtype, np.array(bounded)),
            tolerance(dtype),
            "the logarithm is held at -100",
            reduction="none",
        )
        x = array(dtype, [100.0, -100.0, 1e4, -1e4])
        t = array(dtype, [0.0, 1.0, 1.0, 0.0])
        yield case(
            f"bce_with_logits_loss/{dtype}/extreme",
            [x, t],
            lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="none"),
            "no overflow",
            reduction="none",
        )
        x, t = array(dtype, [-1.0, -2.0, 0.0]), array(dtype, [0.0, 1.0, 0.0])
        yield case(
            f"kl_div_loss/{dtype}/zero",
            [x, t],
            lambda x, t: F.kl_div(x, t, reduction="none"),
            "0 log 0 is 0",
            reduction="none",
        )


def rows():
    for dtype in FLOATS:
        for how in REDUCTIONS:
            for n, shape in enumerate([(5, 4), (3, 7)]):
                identifier = f"cosine_embedding_loss/{dtype}/{how}-{n}"
                rng = rng_of(identifier)
                x, y = (random(rng, dtype, shape, -2, 2) for _ in range(2))
                margin = 0.25 * n
                yield case(
                    identifier,
                    [x, y, signs(rng, dtype, shape[:1])],
                    lambda x, y, t: F.cosine_embedding_loss(x, y, t, margin, reduction=how),
                    "rows",
                    reduction=how,
                    margin=margin,
                )
            for n, (p, swap, margin) in enumerate(
                [(2.0, False, 1.0), (2.0, True, 3.0), (1.0, False, 2.0), (3.0, True, 2.0)]
            ):
                identifier = f"triplet_margin_loss/{dtype}/{how}-{n}"
                rng = rng_of(identifier)
                yield case(
                    identifier,
                    [random(rng, dtype, (5, 4), -2, 2) for _ in range(3)],
                    lambda a, b, c: F.triplet_margin_loss(
                        a, b, c, margin=margin, p=p, swap=swap, reduction=how
                    ),
                    f"p {p}, swap {swap}",
                    reduction=how,
                    margin=margin,
                    p=p,
                    swap=swap,
                )


# shape of x, axis of the classes, ignored class, smoothing, weighted
CLASSES = [
    ((6, 4), 1, -100, 0.0, False),
    ((6, 4), 1, 2, 0.0, True),
    ((6, 4), 1, -100, 0.125, False),
    ((6, 4), 1, 1, 0.125, True),
    ((2, 4, 3), 1, 0, 0.25, True),
    ((2, 3, 5), -1, 3, 0.125, True),
    ((5,), 0, -100, 0.0, False),
]


def moved(function, axis, rank):
    """PyTorch has the classes at axis 1 (0 for rank 1)."""
    target = min(rank - 1, 1)
    return lambda x, *rest: function(torch.movedim(x, axis, target), *rest)


def class_losses():
    for dtype in FLOATS:
        for how in REDUCTIONS:
            for n, (shape, axis, ignored, smoothing, weighted) in enumerate(CLASSES):
                identifier = f"cross_entropy/{dtype}/{how}-{n}"
                rng = rng_of(identifier)
                classes = shape[axis]
                x = random(rng, dtype, shape, -4, 4)
                each = tuple(np.delete(shape, axis))
                labels = rng.integers(0, classes, each)
                weight = [random(rng, dtype, (classes,), 0.25, 2)] if weighted else []
                operands = [x, np.asarray(labels, np.int64), *weight]
                attrs = {"reduction": how, "axis": axis, "ignore_index": ignored}

                def cross_entropy(x, y, w=None):
                    return F.cross_entropy(
                        x, y, w, ignore_index=ignored, reduction=how, label_smoothing=smoothing
                    )

                yield case(
                    identifier,
                    operands,
                    moved(cross_entropy, axis, len(shape)),
                    f"smoothing {smoothing}, ignored {ignored}",
                    label_smoothing=smoothing,
                    **attrs,
                )
                if smoothing == 0:

                    def nll(x, y, w=None):
                        return F.nll_loss(x, y, w, ignore_index=ignored, reduction=how)

                    yield case(
                        identifier.replace("cross_entropy", "nll_loss"),
                        operands,
                        moved(nll, axis, len(shape)),
                        f"ignored {ignored}",
                        **attrs,
                    )


def smoothed_nll(x, y, w, smoothing, how):
    """-(1 - s) w[y] x[y] - s / C sum_c w[c] x[c]; the mean divides by the sum of the w[y]."""
    rows = torch.arange(len(y))
    each = -(1 - smoothing) * w[y] * x[rows, y] - smoothing / x.shape[1] * (w * x).sum(1)
    return {"none": each, "sum": each.sum(), "mean": each.sum() / w[y].sum()}[how]


def further_class_losses():
    for dtype in FLOATS:
        for how in REDUCTIONS:
            identifier = f"nll_loss/{dtype}/{how}-smoothed"
            rng = rng_of(identifier)
            x, w = random(rng, dtype, (5, 3), -4, 0), random(rng, dtype, (3,), 0.25, 2)
            labels = array("i32", rng.integers(0, 3, 5))
            yield case(
                identifier,
                [x, labels, w],
                lambda x, y, w: smoothed_nll(x, y.long(), w, 0.25, how),
                "smoothed, axis from the end, labels of i32",
                reduction=how,
                axis=-1,
                label_smoothing=0.25,
            )
            for axis in (0, -1):
                identifier = f"soft_cross_entropy/{dtype}/{how}-axis{axis}"
                rng = rng_of(identifier)
                x, t = random(rng, dtype, (3, 4), -4, 4), random(rng, dtype, (3, 4), 0, 1)
                yield case(
                    identifier,
                    [x, t],
                    lambda x, t: F.cross_entropy(
                        torch.movedim(x, axis, 1), torch.movedim(t, axis, 1), reduction=how
                    ),
                    f"classes along axis {axis}",
                    reduction=how,
                    axis=axis,
                )
        identifier = f"triplet_margin_loss/{dtype}/large-eps"
        rng = rng_of(identifier)
        yield case(
            identifier,
            [random(rng, dtype, (4, 3), -2, 2) for _ in range(3)],
            lambda a, b, c: F.triplet_margin_loss(a, b, c, eps=0.25),
            "eps is added to the difference",
            eps=0.25,
        )


def label_types():
    for dtype in ["i8", "i16", "i32", "u8", "u32", "f32", "f64"]:
        rng = rng_of(f"cross_entropy/{dtype}")
        x = random(rng, "f32", (5, 3), -2, 2)
        labels = rng.integers(0, 3, 5)
        wanted = F.cross_entropy(wide(x), torch.from_numpy(labels), reduction="none").numpy()
        yield sample(
            f"cross_entropy/labels-{dtype}/none",
            [x, array(dtype, labels)],
            narrow("f32", wanted),
            tolerance("f32"),
            "labels of every dtype",
            reduction="none",
        )
    x = array("f32", [[1.0, 2.0], [3.0, 1.0]])
    nothing = np.array([-100, -100])
    yield sample(
        "cross_entropy/f32/all-ignored",
        [x, nothing],
        narrow("f32", F.cross_entropy(wide(x), torch.from_numpy(nothing)).numpy()),
        tolerance("f32"),
        "the mean over no label is NaN",
    )


def soft_targets():
    for dtype in FLOATS:
        for how in REDUCTIONS:
            for n, (shape, smoothing, weighted) in enumerate(
                [((4, 3), 0.0, False), ((4, 3), 0.125, True), ((2, 3, 4), 0.25, False)]
            ):
                identifier = f"soft_cross_entropy/{dtype}/{how}-{n}"
                rng = rng_of(identifier)
                x, t = random(rng, dtype, shape, -4, 4), random(rng, dtype, shape, 0, 1)
                weight = [random(rng, dtype, (3,), 0.25, 2)] if weighted else []
                yield case(
                    identifier,
                    [x, t, *weight],
                    lambda x, t, w=None: F.cross_entropy(
                        x, t, w, reduction=how, label_smoothing=smoothing
                    ),
                    f"smoothing {smoothing}",
                    reduction=how,
                    label_smoothing=smoothing,
                )


def samples():
    for group in (pointwise, broadcasts, rows, class_losses, further_class_losses, label_types, soft_targets):
        yield from group()
