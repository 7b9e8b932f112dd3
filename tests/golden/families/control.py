"""Control flow by JAX in binary64. The attributes hold the bodies as graph text."""

import os

os.environ.setdefault("JAX_ENABLE_X64", "1")

import jax
import jax.numpy as jnp
import numpy as np

from .core import ANY_ZERO, FLOATS, INTS, array, narrow, random, rng_of, sample, ulps, unit, whole

LIBRARIES = {"jax": jax.__version__}


def graph(inputs, lines, results):
    """The text of a body: inputs are (dtype, shape), lines are expressions with %n and their (dtype, shape)."""
    show = lambda dtype, shape: f"{list(shape)} {dtype}"
    text = [
        f'%{i} = input() {{name="x{i}", dtype={d}, shape={list(s)}}} : {show(d, s)}'
        for i, (d, s) in enumerate(inputs)
    ]
    text += [f"%{len(inputs) + i} = {e} : {show(d, s)}" for i, (e, d, s) in enumerate(lines)]
    return "graph @body {\n" + "\n".join(text) + "\nreturn " + ", ".join(results) + "\n}"


def up(x):
    return jnp.asarray(np.asarray(x).astype(np.float64))


def scans():
    for dtype in FLOATS:
        for reverse in (False, True):
            for length in (4, 1, 0):
                # c' = tanh(c w + x), y = c' c
                identifier = f"scan/{dtype}/cell-{length}{'-reverse' if reverse else ''}"
                rng = rng_of(identifier)
                c, xs, w = (random(rng, dtype, s, -1, 1) for s in ((2, 3), (length, 2, 3), (3,)))
                row = (dtype, (2, 3))
                body = graph(
                    [row, row, (dtype, (3,))],
                    [("mul(%0, %2)", *row), ("add(%3, %1)", *row), ("tanh(%4)", *row), ("mul(%5, %0)", *row)],
                    ["%5", "%6"],
                )

                def step(c, x, w=w):
                    new = jnp.tanh(c * up(w) + x)
                    return new, new * c

                last, ys = jax.lax.scan(step, up(c), up(xs), reverse=reverse)
                # Every node rounds: four roundings a step of values up to 2, on the way through four steps.
                half = {"f16": 2.0**-11, "bf16": 2.0**-8}.get(dtype, unit(dtype))
                yield sample(
                    identifier,
                    [c, xs, w],
                    [narrow(dtype, last), narrow(dtype, ys)],
                    ulps(dtype, 8, 32 * half),
                    f"{length} steps",
                    body=body,
                    length=length,
                    num_carries=1,
                    num_xs=1,
                    reverse=reverse,
                )
    for dtype in INTS:
        identifier = f"scan/{dtype}/count"
        xs, c = whole(rng_of(identifier), dtype, (5, 2), 2), array(dtype, [1, 2])
        row = (dtype, (2,))
        body = graph([row, row], [("add(%0, %1)", *row), ("maximum(%2, %0)", *row)], ["%2", "%3"])

        def step(c, x):
            return c + x, jnp.maximum(c + x, c)

        last, ys = jax.lax.scan(step, jnp.asarray(c), jnp.asarray(xs))
        yield sample(
            identifier,
            [c, xs],
            [np.asarray(last), np.asarray(ys)],
            ANY_ZERO,
            "integers",
            body=body,
            length=5,
            num_carries=1,
            num_xs=1,
        )


def conds():
    for dtype in FLOATS + INTS:
        for choice in (True, False):
            identifier = f"cond/{dtype}/{'then' if choice else 'else'}"
            rng = rng_of(identifier)
            a, b = whole(rng, dtype, (2, 3)), whole(rng, dtype, (3,))
            ins = [(dtype, (2, 3)), (dtype, (3,))]
            yes = graph(ins, [("mul(%0, %1)", dtype, (2, 3))], ["%2", "%0"])
            no = graph(ins, [("sub(%0, %1)", dtype, (2, 3))], ["%0", "%2"])
            out = jax.lax.cond(
                choice,
                lambda a, b: (a * b, a),
                lambda a, b: (a, a - b),
                jnp.asarray(a),
                jnp.asarray(b),
            )
            yield sample(
                identifier,
                [np.array(choice), a, b],
                [np.asarray(t).astype(a.dtype) for t in out],
                ANY_ZERO,
                "whole numbers: exact",
                then_body=yes,
                else_body=no,
            )


def regions():
    for dtype in ("f32", "f64"):
        rng = rng_of(f"region/{dtype}")
        a, b = random(rng, dtype, (3, 20)), random(rng, dtype, (20,))
        whole_type, line, rows = (dtype, (3, 20)), (dtype, (20,)), (dtype, (3, 1))
        elementwise = graph(
            [whole_type, line],
            [("mul(%0, %1)", *whole_type), ("tanh(%2)", *whole_type), ("add(%3, %0)", *whole_type)],
            ["%4", "%2"],
        )
        product = up(a) * up(b)
        yield sample(
            f"region/{dtype}/elementwise",
            [a, b],
            [narrow(dtype, jnp.tanh(product) + up(a)), narrow(dtype, product)],
            ulps(dtype, 8, 8 * unit(dtype)),
            "two results",
            body=elementwise,
            kind="elementwise",
            domain=[3, 20],
        )
        row = graph(
            [whole_type],
            [
                ("reduce_max(%0) {axes=[1], keepdims=true}", *rows),
                ("sub(%0, %1)", *whole_type),
                ("exp(%2)", *whole_type),
                ("reduce_sum(%3) {axes=[1], keepdims=true}", *rows),
                ("div(%3, %4)", *whole_type),
            ],
            ["%5"],
        )
        yield sample(
            f"region/{dtype}/row",
            [a],
            narrow(dtype, jax.nn.softmax(up(a), -1)),
            ulps(dtype, 16, 8 * unit(dtype)),
            "softmax as one kernel",
            body=row,
            kind="row",
            domain=[3, 20],
            axes=[1],
        )
        column = graph(
            [whole_type],
            [("square(%0)", *whole_type), ("reduce_sum(%1) {axes=[0]}", *line)],
            ["%2"],
        )
        yield sample(
            f"region/{dtype}/column",
            [a],
            narrow(dtype, (up(a) ** 2).sum(0)),
            ulps(dtype, 8, 0),
            "a sum over rows",
            body=column,
            kind="column",
            domain=[3, 20],
            axes=[0],
        )


def samples():
    for group in (scans, conds, regions):
        yield from group()
