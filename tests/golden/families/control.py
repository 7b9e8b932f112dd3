"""Control flow by JAX in binary64. The attributes hold the bodies as graph text."""

import os

os.environ.setdefault("JAX_ENABLE_X64", "1")

import jax
import jax.numpy as jnp
import numpy as np

from .core import ALL, ANY_ZERO, EXACT, F8, FLOATS, INTS, NUMBERS, any_bits, array, narrow, random
from .core import rng_of, sample, ulps, unit, whole, wide


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


def plain_scans():
    """Whole numbers in every dtype: two carries, several and no stacked inputs, both directions."""
    for dtype in NUMBERS:
        line, one = (dtype, (2,)), ("i64", ())
        for reverse in (False, True):
            identifier = f"scan/{dtype}/two-carries{'-reverse' if reverse else ''}"
            rng = rng_of(identifier)
            y, a, b = (whole(rng, dtype, s, 1) for s in ((2,), (3, 2), (3, 2)))
            body = graph(
                [one, line, line, line],
                [
                    ("constant() {value=i64[]{1}}", *one),
                    ("add(%0, %4)", *one),
                    ("mul(%1, %2)", *line),
                    ("add(%6, %3)", *line),
                ],
                ["%5", "%7", "%6"],
            )
            last, ys = wide(y), [None] * 3
            for t in range(3)[:: -1 if reverse else 1]:
                ys[t] = last * wide(a)[t]
                last = ys[t] + wide(b)[t]
            yield sample(
                identifier,
                [np.array(4, np.int64), y, a, b],
                [np.array(7, np.int64), narrow(dtype, last), narrow(dtype, np.stack(ys))],
                ANY_ZERO,
                "two carries, two stacked inputs",
                body=body,
                length=3,
                num_carries=2,
                num_xs=2,
                reverse=reverse,
            )
        for reverse in (False, True):
            identifier = f"scan/{dtype}/no-inputs{'-reverse' if reverse else ''}"
            y = whole(rng_of(identifier), dtype, (2,), 1)
            body = graph([line], [("add(%0, %0)", *line)], ["%1", "%0"])
            states = np.stack([wide(y) * 2**t for t in range(3)][:: -1 if reverse else 1])
            outs = [narrow(dtype, 8 * wide(y)), narrow(dtype, states)]
            attrs = {"body": body, "length": 3, "num_carries": 1, "num_xs": 0, "reverse": reverse}
            yield sample(identifier, [y], outs, ANY_ZERO, "no stacked inputs", **attrs)
        for binomial in (False, True):  # of the last y: what reverse mode keeps changes no value
            identifier = f"scan/{dtype}/checkpoints-{'binomial' if binomial else 'even'}"
            attrs |= {"checkpoints": 2, "binomial": binomial}
            yield sample(identifier, [y], outs, ANY_ZERO, "few carries are kept", **attrs)
    flags = ("bool", (2,))
    rng = rng_of("scan/bool")
    for reverse in (False, True):
        y, xs = rng.random(2) < 0.5, rng.random((3, 2)) < 0.5
        body = graph([flags, flags], [("logical_xor(%0, %1)", *flags)], ["%2", "%0"])
        last, ys = y, np.zeros((3, 2), bool)
        for t in range(3)[:: -1 if reverse else 1]:
            ys[t], last = last, last ^ xs[t]
        attrs = {"body": body, "length": 3, "num_carries": 1, "num_xs": 1, "reverse": reverse}
        yield sample(f"scan/bool/xor-{reverse}", [y, xs], [last, ys], ANY_ZERO, "bools", **attrs)
        attrs |= {"checkpoints": 2, "binomial": True}
        yield sample(f"scan/bool/xor-{reverse}-binomial", [y, xs], [last, ys], ANY_ZERO, "bools", **attrs)


def plain_conds():
    for dtype in ALL:
        for choice in (True, False):
            identifier = f"cond/{dtype}/one-{'then' if choice else 'else'}"
            x = any_bits(rng_of(identifier), dtype, (2, 2))
            ins = [(dtype, (2, 2))]
            yes = graph(ins, [("transpose(%0) {perm=[1, 0]}", *ins[0])], ["%1"])
            no = graph(ins, [], ["%0"])
            out = np.ascontiguousarray(x.T) if choice else x
            attrs = {"then_body": yes, "else_body": no}
            yield sample(identifier, [np.array(choice), x], out, EXACT, "one operand", **attrs)


def conds():
    for dtype in FLOATS + INTS + ["c64"]:
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


def plain_regions():
    """Elementwise regions of whole numbers in every dtype."""
    for dtype in NUMBERS:
        identifier = f"region/{dtype}/whole"
        rng = rng_of(identifier)
        a, b = whole(rng, dtype, (2, 3)), whole(rng, dtype, (3,))
        both, line = (dtype, (2, 3)), (dtype, (3,))
        body = graph([both, line], [("mul(%0, %1)", *both), ("square(%2)", *both)], ["%3", "%2"])
        product = wide(a) * wide(b)
        outs = [narrow(dtype, product * product), narrow(dtype, product)]
        yield sample(identifier, [a, b], outs, ANY_ZERO, "whole numbers", body=body, domain=[2, 3])
        sums = [("reduce_sum(%0) {axes=[1], keepdims=true}", dtype, (2, 1)), ("add(%1, %0)", *both)]
        out = narrow(dtype, wide(a).sum(1, keepdims=True) + wide(a))
        attrs = {"body": graph([both], sums, ["%2"]), "kind": "row", "domain": [2, 3], "axes": [1]}
        yield sample(f"region/{dtype}/whole-row", [a], out, ANY_ZERO, "sums of rows", **attrs)
        sums = [("square(%0)", *both), ("reduce_sum(%1) {axes=[0]}", *line)]
        out = narrow(dtype, (wide(a) * wide(a)).sum(0))
        attrs = {"body": graph([both], sums, ["%2"]), "kind": "column", "domain": [2, 3], "axes": [0]}
        yield sample(f"region/{dtype}/whole-column", [a], out, ANY_ZERO, "sums of columns", **attrs)
        sums = [("square(%0)", *both), ("reduce_sum(%1) {axes=[0, 1]}", dtype, ())]
        out = narrow(dtype, (wide(a) * wide(a)).sum())
        attrs = {"body": graph([both], sums, ["%2"]), "kind": "split", "domain": [2, 3], "axes": [0, 1]}
        yield sample(f"region/{dtype}/whole-split", [a], out, ANY_ZERO, "one sum of all", **attrs)
    both, x = ("bool", (2, 3)), np.array([[True, False, False], [False, False, False]])
    steps = [("any(%0) {axes=[1], keepdims=true}", "bool", (2, 1)), ("logical_xor(%1, %0)", *both)]
    attrs = {"body": graph([both], steps, ["%2"]), "kind": "row", "domain": [2, 3], "axes": [1]}
    yield sample("region/bool/row", [x], x.any(1, keepdims=True) ^ x, EXACT, "any of a row", **attrs)
    steps = [("logical_not(%0)", *both), ("all(%1) {axes=[0]}", "bool", (3,))]
    attrs = {"body": graph([both], steps, ["%2"]), "kind": "column", "domain": [2, 3], "axes": [0]}
    yield sample("region/bool/column", [x], (~x).all(0), EXACT, "all of a column", **attrs)
    steps = [("logical_not(%0)", *both), ("all(%1) {axes=[0, 1]}", "bool", ())]
    attrs = {"body": graph([both], steps, ["%2"]), "kind": "split", "domain": [2, 3], "axes": [0, 1]}
    yield sample("region/bool/split", [x], (~x).all(), EXACT, "all of all", **attrs)
    flags = ("bool", (3,))
    body, x = graph([flags], [("logical_not(%0)", *flags)], ["%1"]), np.array([True, False, True])
    yield sample("region/bool/not", [x], ~x, EXACT, "bools", body=body, domain=[3])


def moves():
    """Bodies that only move or choose, of the dtypes that are not computed with."""
    for dtype in F8:
        line, both = (dtype, (2,)), (dtype, (2, 3))
        for reverse in (False, True):
            identifier = f"scan/{dtype}/delay{'-reverse' * reverse}"
            rng = rng_of(identifier)
            y, xs = any_bits(rng, dtype, (2,)), any_bits(rng, dtype, (3, 2))
            ahead = np.concatenate([y[None], xs[:-1]]) if not reverse else np.concatenate([xs[1:], y[None]])
            attrs = {"body": graph([line, line], [], ["%1", "%0"]), "length": 3, "num_carries": 1, "num_xs": 1}
            out = [xs[0 if reverse else 2], ahead]
            yield sample(identifier, [y, xs], out, EXACT, "one step late", reverse=reverse, **attrs)
            attrs |= {"checkpoints": 2, "binomial": True}
            yield sample(identifier + "-binomial", [y, xs], out, EXACT, "one step late", reverse=reverse, **attrs)
        rng = rng_of(f"region/{dtype}/choice")
        a, b, c = any_bits(rng, dtype, (2, 3)), any_bits(rng, dtype, (3,)), rng.random((2, 3)) < 0.5
        body = graph([both, (dtype, (3,)), ("bool", (2, 3))], [("select(%2, %0, %1)", *both)], ["%3"])
        out = np.where(c, a, b).astype(a.dtype)
        yield sample(f"region/{dtype}/choice", [a, b, c], out, EXACT, "select", body=body, domain=[2, 3])
        numbers = a.astype(np.float32) == a.astype(np.float32)
        rows = numbers.all(1, keepdims=True)
        for kind, axes, shape, out in (
            ("row", [1], (2, 1), np.where(rows, a, a[:, ::-1]).astype(a.dtype)),
            ("column", [0], (3,), numbers.all(0)),
            ("split", [0, 1], (), numbers.all()),
        ):
            steps = [("eq(%0, %0)", "bool", (2, 3)), (f"all(%2) {{axes={axes}, keepdims={str(kind == 'row').lower()}}}", "bool", shape)]
            steps += [("select(%3, %0, %1)", *both)] * (kind == "row")
            attrs = {"kind": kind, "domain": [2, 3], "axes": axes, "body": graph([both, both], steps, [f"%{len(steps) + 1}"])}
            other = np.ascontiguousarray(a[:, ::-1])
            yield sample(f"region/{dtype}/{kind}", [a, other], out, EXACT, "whether all are numbers", **attrs)


def samples():
    for group in (scans, plain_scans, conds, plain_conds, regions, plain_regions, moves):
        yield from group()
