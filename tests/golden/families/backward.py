"""Gradients as ops: PyTorch's autograd in binary64 over the forward function, rounded once.

Only the derivatives of sqrt and rsqrt where x > 0 does not hold are ours: 0.
"""

import numpy as np
import torch
import torch.nn.functional as F

from .core import EXACT, FLOATS, INTS, NUMBERS, array, narrow, random, rng_of, sample, ulps, unit, whole

# kind -> function, range of the basic case
ACTIVATIONS = {
    "gelu": (F.gelu, (-4, 4)),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), (-4, 4)),
    "silu": (F.silu, (-6, 6)),
    "relu": (F.relu, (-3, 3)),
    "sigmoid": (torch.sigmoid, (-6, 6)),
    "tanh": (torch.tanh, (-3, 3)),
    "exp": (torch.exp, (-4, 4)),
    "log": (torch.log, (0.1, 5)),
    "sqrt": (torch.sqrt, (0.1, 5)),
    "rsqrt": (torch.rsqrt, (0.1, 5)),
    "neg": (torch.neg, (-3, 3)),
    "abs": (torch.abs, (-3, 3)),
    "sin": (torch.sin, (-6, 6)),
    "cos": (torch.cos, (-6, 6)),
    "tan": (torch.tan, (-1.2, 1.2)),
    "atan": (torch.atan, (-4, 4)),
    "round": (lambda x: x, (-3, 3)),  # straight through
}


def gradients(function, operands, dy):
    """The gradients by all operands for the cotangent dy."""
    wide = [torch.tensor(np.asarray(x, np.float64), requires_grad=True) for x in operands]
    out = function(*wide)
    cotangent = torch.from_numpy(np.asarray(dy, np.float64))
    return [g.numpy() for g in torch.autograd.grad(out, wide, cotangent)]


def activations():
    kinks = [0.0, -0.0, -1.0, 1.0, np.inf, 20.0]
    for kind, (function, (low, high)) in ACTIVATIONS.items():
        for dtype in FLOATS:
            tol = ulps(dtype, 32, 8 * unit(dtype))
            for case, shape in (("basic", (5, 7)), ("rank0", ()), ("empty", (0, 3))):
                identifier = f"activation_backward/{dtype}/{kind}-{case}"
                rng = rng_of(identifier)
                x, dy = random(rng, dtype, shape, low, high), random(rng, dtype, shape)
                (dx,) = gradients(function, [x], dy)
                yield sample(identifier, [x, dy], narrow(dtype, dx), tol, case, kind=kind)
            if kind in ("relu", "abs", "sigmoid", "tanh", "atan"):
                x, dy = array(dtype, kinks), array(dtype, np.arange(1.0, 7.0))
                (dx,) = gradients(function, [x], dy)
                identifier = f"activation_backward/{dtype}/{kind}-kinks"
                yield sample(identifier, [x, dy], narrow(dtype, dx), tol, "kinks, limits", kind=kind)
                if kind == "relu":
                    identifier = f"relu_backward/{dtype}/kinks"
                    yield sample(identifier, [x, dy], narrow(dtype, dx), EXACT, "0 at 0")
            if kind in ("sqrt", "rsqrt"):
                x = array(dtype, [0.0, -0.0, -1.0, -np.inf, np.nan, 4.0, np.inf])
                slope = 0.25 if kind == "sqrt" else -0.0625
                dx = array(dtype, [0.0, 0.0, 0.0, 0.0, 0.0, 2 * slope, 0.0])
                dy = array(dtype, np.full(7, 2.0))
                identifier = f"activation_backward/{dtype}/{kind}-outside"
                yield sample(identifier, [x, dy], dx, tol, "0 where x > 0 does not hold", kind=kind)
    for dtype in FLOATS:
        rng = rng_of(f"relu_backward/{dtype}")
        x, dy = random(rng, dtype, (4, 5)), random(rng, dtype, (4, 5))
        yield sample(
            f"relu_backward/{dtype}/basic",
            [x, dy],
            np.where(x > 0, dy, np.zeros_like(dy)),
            EXACT,
            "dy where x > 0",
        )


def layer_norm(axis, eps):
    def forward(x, gamma, beta):
        moved = torch.movedim(x, axis, -1)
        return torch.movedim(F.layer_norm(moved, moved.shape[-1:], gamma, beta, eps), -1, axis)

    return forward


def rms_norm(axis, eps):
    def forward(x, gamma, beta):
        moved = torch.movedim(x, axis, -1)
        root = torch.rsqrt((moved * moved).mean(-1, keepdim=True) + eps)
        return torch.movedim(moved * root * gamma + beta, -1, axis)

    return forward


NORM_SHAPES = [((3, 6), -1, 1e-5), ((5, 3), 0, 1e-3), ((2, 4, 3), 1, 1e-5), ((4, 37), 1, 1e-5)]


def norms():
    for dtype in FLOATS:
        tol = ulps(dtype, 16, 64 * unit(dtype))
        for n, (shape, axis, eps) in enumerate(NORM_SHAPES):
            rng = rng_of(f"norms/{dtype}/{n}")
            x, dy = random(rng, dtype, shape, -2, 2), random(rng, dtype, shape, -2, 2)
            gamma, beta = (random(rng, dtype, shape[axis : axis + 1 or None]) for _ in range(2))
            attrs = {"axis": axis, "eps": eps}
            note = f"shape {shape}, axis {axis}"
            grads = gradients(layer_norm(axis, eps), [x, gamma, beta], dy)
            dx, dgamma, _ = [narrow(dtype, g) for g in grads]
            name = f"layer_norm_backward_input/{dtype}/case-{n}"
            yield sample(name, [x, gamma, dy], dx, tol, note, **attrs)
            name = f"layer_norm_backward_gamma/{dtype}/case-{n}"
            yield sample(name, [x, dy], dgamma, tol, note, **attrs)
            grads = gradients(rms_norm(axis, eps), [x, gamma, beta], dy)
            for part, g in zip(("input", "gamma", "beta"), grads):
                name = f"rms_norm_backward_{part}/{dtype}/case-{n}"
                yield sample(name, [x, gamma, beta, dy], narrow(dtype, g), tol, note, **attrs)
        for n, (shape, groups) in enumerate([((2, 4, 3, 2), 2), ((3, 6, 5), 3), ((1, 4), 1)]):
            rng = rng_of(f"group-norms/{dtype}/{n}")
            x, dy = random(rng, dtype, shape, -2, 2), random(rng, dtype, shape, -2, 2)
            gamma, beta = (random(rng, dtype, shape[1:2]) for _ in range(2))
            attrs = {"num_groups": groups, "eps": 1e-5}

            def group_norm(x, gamma, beta):
                return F.group_norm(x, groups, gamma, beta, 1e-5)

            for part, g in zip(
                ("input", "gamma", "beta"), gradients(group_norm, [x, gamma, beta], dy)
            ):
                name = f"group_norm_backward_{part}/{dtype}/case-{n}"
                operands = [x, gamma, beta, dy] if part == "input" else [x, dy]
                yield sample(name, operands, narrow(dtype, g), tol, f"shape {shape}", **attrs)


def other_group_norms():
    for dtype in FLOATS:
        rng = rng_of(f"group-norms/{dtype}/eps")
        x, dy = random(rng, dtype, (2, 4, 3), -2, 2), random(rng, dtype, (2, 4, 3), -2, 2)
        gamma, beta = (random(rng, dtype, (4,)) for _ in range(2))
        grads = gradients(lambda x, g, b: F.group_norm(x, 4, g, b, 0.5), [x, gamma, beta], dy)
        for part, g in zip(("input", "gamma", "beta"), grads):
            name = f"group_norm_backward_{part}/{dtype}/large-eps"
            operands = [x, gamma, beta, dy] if part == "input" else [x, dy]
            tol = ulps(dtype, 16, 64 * unit(dtype))
            yield sample(name, operands, narrow(dtype, g), tol, "eps 0.5", num_groups=4, eps=0.5)


def interleaved_ropes():
    for dtype in FLOATS:
        identifier = f"rope_backward/{dtype}/interleaved"
        rng = rng_of(identifier)
        dy, angles = random(rng, dtype, (2, 3, 12)), rng.uniform(-3, 3, (3, 2))
        cos, sin = array(dtype, np.cos(angles)), array(dtype, np.sin(angles))

        def forward(x, cos, sin):
            heads = x.reshape(2, 3, 2, 6)
            pairs = torch.view_as_complex(heads[..., :4].reshape(2, 3, 2, 2, 2))
            turned = torch.view_as_real(pairs * torch.complex(cos, sin)[:, None]).reshape(2, 3, 2, 4)
            return torch.cat([turned, heads[..., 4:]], -1).reshape(x.shape)

        dx = gradients(forward, [np.zeros((2, 3, 12)), cos, sin], dy)[0]
        tol = ulps(dtype, 2, 16 * unit(dtype))
        attrs = {"head_dim": 6, "n_rot": 4, "interleaved": True}
        yield sample(identifier, [dy, cos, sin], narrow(dtype, dx), tol, "pairs of neighbours", **attrs)


def from_the_end():
    any_zero = {"rel": 0, "abs": 0, "any_zero": True}
    for dtype in NUMBERS:
        kind = np.complex128 if dtype == "c64" else np.float64
        for exclusive in (False, True):
            identifier = f"cumsum_backward/{dtype}/reverse-{exclusive}"
            dy = whole(rng_of(identifier), dtype, (2, 4, 3))
            wide = dy.astype(kind)
            dx = np.cumsum(wide, -2) - (wide if exclusive else 0)
            attrs = {"axis": -2, "exclusive": exclusive, "reverse": True}
            yield sample(identifier, [dy], narrow(dtype, dx), any_zero, "of sums from the end", **attrs)
        identifier = f"gather_backward/{dtype}/axis-from-the-end"
        rng = rng_of(identifier)
        dy, indices = whole(rng, dtype, (2, 3, 2)), rng.integers(0, 4, 3)
        table = np.zeros((2, 4, 2), kind)
        for k, index in enumerate(indices):
            table[:, index] += dy.astype(kind)[:, k]
        operands = [dy, array("i32", indices)]
        note = "indices of i32, axis of the table from its end"
        yield sample(identifier, operands, narrow(dtype, table), any_zero, note, axis=-2, size=4)


def rope(head_dim, n_rot):
    def forward(x, cos, sin):
        rows = x.shape[-2]
        heads = x.reshape(*x.shape[:-1], -1, head_dim)
        half = n_rot // 2
        c, s = cos[:rows, None, :half], sin[:rows, None, :half]
        a, b, rest = heads[..., :half], heads[..., half:n_rot], heads[..., n_rot:]
        return torch.cat([a * c - b * s, b * c + a * s, rest], -1).reshape(x.shape)

    return forward


def positions_and_sums():
    for dtype in FLOATS:
        for n, (shape, head_dim, n_rot) in enumerate(
            [((3, 8), 4, 4), ((2, 3, 12), 6, 4), ((2, 5, 16), 16, 8)]
        ):
            identifier = f"rope_backward/{dtype}/case-{n}"
            rng = rng_of(identifier)
            dy = random(rng, dtype, shape)
            angles = rng.uniform(-3, 3, (shape[-2] + 1, n_rot // 2))
            cos, sin = array(dtype, np.cos(angles)), array(dtype, np.sin(angles))
            dx = gradients(rope(head_dim, n_rot), [np.zeros(shape), cos, sin], dy)[0]
            yield sample(
                identifier,
                [dy, cos, sin],
                narrow(dtype, dx),
                ulps(dtype, 2, 16 * unit(dtype)),
                f"shape {shape}",
                head_dim=head_dim,
                n_rot=n_rot,
            )
    for dtype in NUMBERS:
        for n, (shape, axis) in enumerate([((3, 5), 1), ((4, 3), 0), ((2, 3, 2), 1), ((0, 3), 0)]):
            for exclusive in (False, True):
                identifier = f"cumsum_backward/{dtype}/case-{n}-{exclusive}"
                dy = whole(rng_of(identifier), dtype, shape)
                rows = np.moveaxis(dy.astype(np.complex128), axis, 0)[::-1]
                sums = np.cumsum(rows, 0) - (rows if exclusive else 0)
                dx = np.moveaxis(sums[::-1], 0, axis)
                out = narrow(dtype, dx if dtype == "c64" else dx.real.astype(np.float64))
                yield sample(
                    identifier,
                    [dy],
                    out,
                    {"rel": 0, "abs": 0, "any_zero": True},
                    f"shape {shape}",
                    axis=axis,
                    exclusive=exclusive,
                )
        # dy, indices, axis and size of the table
        for n, (shape, index_shape, axis, size) in enumerate(
            [((5, 2), (5,), 0, 4), ((2, 3, 2), (3, 2), 1, 5), ((3, 4), (), 1, 2)]
        ):
            identifier = f"gather_backward/{dtype}/case-{n}"
            rng = rng_of(identifier)
            dy = whole(rng, dtype, shape)
            indices = np.asarray(rng.integers(0, size, index_shape))
            width = len(index_shape)
            outer, inner = shape[:axis], shape[axis + width :]
            table = np.zeros((*outer, size, *inner), np.complex128)
            flat = dy.astype(np.complex128).reshape(*outer, -1, *inner)
            for k, index in enumerate(indices.ravel()):
                table[(slice(None),) * axis + (index,)] += flat[(slice(None),) * axis + (k,)]
            out = narrow(dtype, table if dtype == "c64" else table.real)
            yield sample(
                identifier,
                [dy, indices],
                out,
                {"rel": 0, "abs": 0, "any_zero": True},
                f"indices {index_shape}",
                axis=axis,
                size=size,
            )


def cross_entropy():
    for dtype in FLOATS:
        for n, shape in enumerate([(4, 5), (2, 3, 7), (6,)]):
            identifier = f"softmax_cross_entropy_backward/{dtype}/case-{n}"
            rng = rng_of(identifier)
            logits, d_loss = random(rng, dtype, shape, -6, 6), random(rng, dtype, shape[:-1])
            labels = np.asarray(rng.integers(0, shape[-1], shape[:-1]))

            def forward(x):
                flat = F.cross_entropy(
                    x.reshape(-1, shape[-1]),
                    torch.from_numpy(labels.reshape(-1)),
                    reduction="none",
                )
                return flat.reshape(labels.shape)

            (dx,) = gradients(forward, [logits], d_loss)
            yield sample(
                identifier,
                [logits, labels, d_loss],
                narrow(dtype, dx),
                ulps(dtype, 16, 16 * unit(dtype)),
                f"shape {shape}",
            )
        for kind in INTS + ["f32", "f64"]:
            identifier = f"softmax_cross_entropy_backward/{dtype}/{kind}-labels"
            rng = rng_of(identifier)
            logits, d_loss = random(rng, dtype, (3, 4), -6, 6), random(rng, dtype, (3,))
            forward = lambda x: F.cross_entropy(x, torch.tensor([2, 0, 3]), reduction="none")
            (dx,) = gradients(forward, [logits], d_loss)
            operands = [logits, array(kind, [2, 0, 3]), d_loss]
            tol = ulps(dtype, 16, 16 * unit(dtype))
            yield sample(identifier, operands, narrow(dtype, dx), tol, f"labels carried as {kind}")
    # The specification's own values, to six decimals.
    yield sample(
        "softmax_cross_entropy_backward/f32/specification",
        [array("f32", [1.0, 2.0, 3.0]), np.asarray(0), array("f32", 1.0)],
        array("f32", [-0.909969, 0.244728, 0.665241]),
        {"rel": 0, "abs": 1e-6},
        "the specification's example",
    )
    x, ones, dy = array("f32", [[1, 2, 3, 4]]), array("f32", np.ones(4)), array("f32", [[1, 0, 0, 0]])
    yield sample(
        "layer_norm_backward_input/f32/specification",
        [x, ones, dy],
        array("f32", [[0.268330, -0.357768, -0.089443, 0.178882]]),
        {"rel": 0, "abs": 1e-6},
        "the specification's example",
        eps=1e-5,
    )
    yield sample(
        "rms_norm_backward_input/f32/specification",
        [x, ones, ones, dy],
        array("f32", [[0.352977, -0.024343, -0.036515, -0.048686]]),
        {"rel": 0, "abs": 1e-6},
        "the specification's example",
        eps=1e-5,
    )


def samples():
    groups = (activations, norms, other_group_norms, interleaved_ropes)
    for group in (*groups, positions_and_sums, from_the_end, cross_entropy):
        yield from group()
