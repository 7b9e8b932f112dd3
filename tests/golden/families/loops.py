"""While loops, functions with stated derivatives and the scan family, step by step in NumPy.

Whole numbers, so that every dtype is exact. The sweeps follow the specification's own loop (section 2.11).
"""

import numpy as np

from .control import graph
from .core import ANY_ZERO, EXACT, F8, INEXACT, NUMBERS, any_bits, array, narrow, rng_of, sample, whole, wide


def row(dtype, *shape):
    return (dtype, shape)


def small(rng, dtype, *shape):
    """-1, 0 and 1: products of many stay small."""
    return whole(rng, dtype, shape, 1)


# ---- while_loop


def counted(dtype, limit, y, w, bound):
    """i < limit: i + 1, y w + w; at most `bound` times."""
    i, y, w = 0, wide(y), wide(w)
    while i < limit and (bound is None or i < bound):
        i, y = i + 1, y * w + w
    return [array("i32", i), narrow(dtype, y)]


def whiles():
    for dtype in NUMBERS:
        line = row(dtype, 2)
        ins = [row("i32"), line, line]
        cond = graph(ins, [("constant() {value=i32[]{3}}", *row("i32")), ("lt(%0, %3)", *row("bool"))], ["%4"])
        body = graph(
            ins,
            [
                ("constant() {value=i32[]{1}}", *row("i32")),
                ("add(%0, %3)", *row("i32")),
                ("mul(%1, %2)", *line),
                ("add(%5, %2)", *line),
            ],
            ["%4", "%6"],
        )
        for name, bound in (("until-false", None), ("bounded", 2), ("not-reached", 9), ("none", 0)):
            identifier = f"while_loop/{dtype}/{name}"
            rng = rng_of(identifier)
            y, w = small(rng, dtype, 2), small(rng, dtype, 2)
            attrs = {"num_carries": 2, "cond": cond, "body": body}
            if bound is not None:
                attrs["max_iterations"] = bound
            out = counted(dtype, 3, y, w, bound)
            yield sample(identifier, [array("i32", 0), y, w], out, ANY_ZERO, f"at most {bound} steps", **attrs)
        ins = [line, row("i32")]
        steps = [("constant() {value=i32[]{2}}", *row("i32")), ("lt(%1, %2)", *row("bool"))]
        cond = graph(ins, steps, ["%3"])
        steps = [("constant() {value=i32[]{1}}", *row("i32")), ("add(%1, %2)", *row("i32")), ("add(%0, %0)", *line)]
        attrs = {"num_carries": 2, "cond": cond, "body": graph(ins, steps, ["%4", "%3"])}
        y = whole(rng_of(f"while_loop/{dtype}/first"), dtype, (2,))
        out = [narrow(dtype, 4 * wide(y)), array("i32", 2)]
        yield sample(f"while_loop/{dtype}/first", [y, array("i32", 0)], out, ANY_ZERO, "unbounded", **attrs)
        always = graph([line], [("constant() {value=bool[]{1}}", *row("bool"))], ["%1"])
        twice = graph([line], [("add(%0, %0)", *line)], ["%1"])
        y = whole(rng_of(f"while_loop/{dtype}/alone"), dtype, (2,))
        attrs = {"num_carries": 1, "max_iterations": 3, "cond": always, "body": twice}
        yield sample(f"while_loop/{dtype}/alone", [y], narrow(dtype, 8 * wide(y)), ANY_ZERO, "one carry", **attrs)
    one = row("i64")
    cond = graph([one, one], [("lt(%0, %1)", *row("bool"))], ["%2"])
    body = graph(
        [one, one],
        [
            ("constant() {value=i64[]{2}}", *one),
            ("mul(%0, %2)", *one),
            ("constant() {value=i64[]{1}}", *one),
            ("add(%3, %4)", *one),
        ],
        ["%5"],
    )
    for start in (3, 40, 50):
        i = start
        while i < 50:
            i = 2 * i + 1
        operands = [array("i64", start), array("i64", 50)]
        attrs = {"num_carries": 1, "cond": cond, "body": body}
        yield sample(f"while_loop/i64/from-{start}", operands, array("i64", i), ANY_ZERO, "unbounded", **attrs)
    flag = row("bool")
    cond, body = graph([flag], [], ["%0"]), graph([flag], [("logical_not(%0)", *flag)], ["%1"])
    for start in (False, True):
        attrs = {"num_carries": 1, "max_iterations": 3, "cond": cond, "body": body}
        yield sample(f"while_loop/bool/from-{start}", [np.array(start)], np.array(False), ANY_ZERO, "bools", **attrs)
        del attrs["max_iterations"]
        name = f"while_loop/bool/unbounded-from-{start}"
        yield sample(name, [np.array(start)], np.array(False), ANY_ZERO, "bools", **attrs)


# ---- custom_fn


def functions():
    for dtype in NUMBERS:
        line = row(dtype, 2)
        rng = rng_of(f"custom_fn/{dtype}")
        x, w = whole(rng, dtype, (2,)), whole(rng, dtype, (2,))
        fwd = graph([line, line], [("mul(%0, %1)", *line), ("mul(%2, %0)", *line)], ["%2", "%3"])
        p = wide(x) * wide(w)
        out = [narrow(dtype, p), narrow(dtype, p * wide(x))]
        yield sample(f"custom_fn/{dtype}/two-results", [x, w], out, ANY_ZERO, "no stated derivative", fwd=fwd)
        fwd = graph([line], [("mul(%0, %0)", *line)], ["%1"])
        stated = graph([line, line, line], [("mul(%0, %2)", *line), ("add(%3, %3)", *line)], ["%4"])
        jvp = graph([line, line], [("mul(%0, %1)", *line), ("add(%2, %2)", *line)], ["%3"])
        out = narrow(dtype, wide(x) * wide(x))
        attrs = {"fwd": fwd, "vjp": stated, "jvp": jvp}
        yield sample(f"custom_fn/{dtype}/stated", [x], out, ANY_ZERO, "the value is that of fwd", **attrs)
    flags = row("bool", 2)
    fwd = graph([flags], [("logical_not(%0)", *flags)], ["%1"])
    x = np.array([True, False])
    yield sample("custom_fn/bool/not", [x], ~x, ANY_ZERO, "bools", fwd=fwd)


# ---- scans of one carry


def kept_steps(length, checkpoints):
    """The specification's: min(ceil((k + 1) length / K) - 1, length - 1)."""
    return [min(-(-(k + 1) * length // checkpoints) - 1, length - 1) for k in range(checkpoints)]


def scans():
    for dtype in NUMBERS:
        line = row(dtype, 2)
        body = graph([line, line, line], [("mul(%0, %1)", *line), ("add(%3, %2)", *line)], ["%4"])
        for length, checkpoints in ((7, 3), (4, 0), (3, 3), (5, 1), (0, 0)):
            identifier = f"scan_checkpointed/{dtype}/{length}-{checkpoints}"
            rng = rng_of(identifier)
            y, w, xs = small(rng, dtype, 2), small(rng, dtype, 2), small(rng, dtype, length, 2)
            last = wide(y)
            for x in wide(xs):
                last = last * wide(w) + x
            attrs = {"length": length, "num_bcast": 1, "num_checkpoints": checkpoints, "body": body}
            yield sample(identifier, [y, w, xs], narrow(dtype, last), ANY_ZERO, f"keeps {checkpoints}", **attrs)
        identifier = f"scan_checkpointed/{dtype}/alone"
        y = small(rng_of(identifier), dtype)
        square = graph([row(dtype)], [("mul(%0, %0)", *row(dtype))], ["%1"])
        last = wide(y) ** 8
        attrs = {"length": 3, "num_checkpoints": 2, "body": square}
        yield sample(identifier, [y], narrow(dtype, last), ANY_ZERO, "no further operands", **attrs)
    flags = row("bool", 2)
    body = graph([flags, flags], [("logical_xor(%0, %1)", *flags)], ["%2"])
    rng = rng_of("scan_checkpointed/bool")
    y, xs = rng.random(2) < 0.5, rng.random((3, 2)) < 0.5
    out = y ^ xs[0] ^ xs[1] ^ xs[2]
    attrs = {"length": 3, "num_checkpoints": 2, "body": body}
    yield sample("scan_checkpointed/bool/xor", [y, xs], out, ANY_ZERO, "bools", **attrs)


def sweep(init, states, upstream, a, b, save):
    """Of y' = y a + b: the cotangents of init, a and b. `states` are the carries after each step."""
    d = np.zeros_like(init) if save else upstream
    da, db = np.zeros_like(a), np.zeros_like(b)
    for t in reversed(range(len(a))):
        if save:
            d = d + upstream[t]
        y = init if t == 0 else states[t - 1]
        da[t], db[t], d = d * y, d, d * a[t]
    return d, da, db


def short_sweeps():
    """Of y' = y + y without, and of y' = y a with one stacked input."""
    for dtype in INEXACT:
        line = row(dtype, 2)
        rng = rng_of(f"scan_backward/{dtype}/short")
        init, d, a = small(rng, dtype, 2), small(rng, dtype, 2), small(rng, dtype, 3, 2)
        back = graph([line] * 2, [("add(%1, %1)", *line)], ["%2"]).replace('name="x1"', 'name="d_output"')
        states = narrow(dtype, np.stack([wide(init) * 2**t for t in (1, 2, 3)]))
        attrs = {"length": 3, "body_vjp": back}
        out = narrow(dtype, 8 * wide(d))
        yield sample(f"scan_backward/{dtype}/no-inputs", [init, states, d], out, ANY_ZERO, "no inputs", **attrs)
        back = graph([line] * 3, [("mul(%2, %1)", *line), ("mul(%2, %0)", *line)], ["%3", "%4"])
        attrs["body_vjp"] = back.replace('name="x2"', 'name="d_output"')
        states = np.cumprod(wide(a), 0) * wide(init)
        first, da, _ = sweep(wide(init), states, wide(d), wide(a), np.zeros_like(wide(a)), False)
        operands = [init, narrow(dtype, states), d, a]
        yield sample(f"scan_backward/{dtype}/one-input", operands, narrow(dtype, first), ANY_ZERO, "one input", **attrs)
        yield sample(f"scan_backward_xs/{dtype}/one-input", operands, narrow(dtype, da), ANY_ZERO, "one input", **attrs)


def sweeps():
    for dtype in INEXACT:
        line = row(dtype, 2)
        back = graph([line] * 4, [("mul(%3, %1)", *line), ("mul(%3, %0)", *line)], ["%4", "%5", "%3"])
        back = back.replace('name="x3"', 'name="d_output"')
        forward = graph([line] * 3, [("mul(%0, %1)", *line), ("add(%3, %2)", *line)], ["%4"])
        cases = [(4, True, 0), (4, False, 0), (5, False, 2), (5, True, 2), (3, False, 3), (1, False, 0)]
        cases += [(10, False, 3), (7, True, 4)] if dtype == "f32" else []  # the specification's examples
        for length, save, checkpoints in cases:
            name = f"{length}-{'all' if save else 'last'}-{checkpoints}"
            rng = rng_of(f"scan_backward/{dtype}/{name}")
            init, a, b = small(rng, dtype, 2), small(rng, dtype, length, 2), small(rng, dtype, length, 2)
            upstream = small(rng, dtype, *((length, 2) if save else (2,)))
            states, y = [], wide(init)
            for t in range(length):
                y = y * wide(a)[t] + wide(b)[t]
                states.append(y)
            steps = kept_steps(length, checkpoints) if checkpoints else range(length)
            kept = narrow(dtype, np.stack([states[t] for t in steps]))
            grads = sweep(wide(init), states, wide(upstream), wide(a), wide(b), save)
            operands = [init, kept, upstream, a, b]
            attrs = {"length": length, "save_trajectory": save, "num_checkpoints": checkpoints, "body_vjp": back}
            if 0 < checkpoints < length:
                attrs["forward_body"] = forward
            note = f"upstream of {'every step' if save else 'the last carry'}, {checkpoints} checkpoints"
            first, *others = (narrow(dtype, g) for g in grads)
            yield sample(f"scan_backward/{dtype}/{name}", operands, first, ANY_ZERO, note, **attrs)
            for index, g in enumerate(others):
                identifier = f"scan_backward_xs/{dtype}/{name}-{index}"
                yield sample(identifier, operands, g, ANY_ZERO, note, xs_index=index, **attrs)
    attrs["xs_index"] = 1
    yield sample(f"scan_backward/{dtype}/index", operands, first, ANY_ZERO, "xs_index is for scan_backward_xs", **attrs)


def moves():
    """Bodies that only move, of the dtypes that are not computed with."""
    for dtype in F8 + ["bool"]:
        line, count = row(dtype, 2), row("i32")
        x, y, xs = (any_bits(rng_of(f"moves/{dtype}/{n}"), dtype, s) for n, s in enumerate([(2,), (2,), (3, 2)]))
        ins = [line, line, count]
        cond = graph(ins, [("constant() {value=i32[]{3}}", *count), ("lt(%2, %3)", *row("bool"))], ["%4"])
        steps = [("constant() {value=i32[]{1}}", *count), ("add(%2, %3)", *count)]
        attrs = {"num_carries": 3, "cond": cond, "body": graph(ins, steps, ["%1", "%0", "%4"])}
        out = [y, x, array("i32", 3)]
        yield sample(f"while_loop/{dtype}/exchange", [x, y, array("i32", 0)], out, EXACT, "three times", **attrs)
        if dtype == "bool":
            continue
        fwd = graph([line], [("reverse(%0) {axes=[0]}", *line)], ["%1"])
        yield sample(f"custom_fn/{dtype}/reverse", [x], x[::-1].copy(), EXACT, "moves", fwd=fwd)
        body = graph([line, line], [("reverse(%1) {axes=[0]}", *line)], ["%2"])
        attrs = {"length": 3, "num_checkpoints": 2, "body": body}
        yield sample(f"scan_checkpointed/{dtype}/last", [x, xs], xs[2, ::-1].copy(), EXACT, "the last", **attrs)


# ---- checkpoints: values are those of the body


def checkpoints():
    for dtype in NUMBERS:
        line = row(dtype, 2)
        rng = rng_of(f"checkpoint/{dtype}")
        x, w = whole(rng, dtype, (2,)), whole(rng, dtype, (2,))
        named = ('checkpoint_name(%2) {name="h"}', *line)
        body = graph([line, line], [("mul(%0, %1)", *line), named, ("mul(%3, %0)", *line)], ["%3", "%4"])
        p = wide(x) * wide(w)
        out = [narrow(dtype, p), narrow(dtype, p * wide(x))]
        cases = {"nothing": {}, "products": {"save": "products"}, "names": {"save": "names", "names": ["h"]}}
        for name, attrs in cases.items():
            yield sample(f"checkpoint/{dtype}/{name}", [x, w], out, ANY_ZERO, "the body's", body=body, **attrs)
        attrs = {"body": body, "again": 1, "guarded": 1}
        yield sample(f"checkpoint/{dtype}/again", [x, w], out, ANY_ZERO, "as reverse mode writes it", **attrs)
        twice = graph([line], [("add(%0, %0)", *line)], ["%1"])
        out = narrow(dtype, 2 * wide(x))
        yield sample(f"checkpoint/{dtype}/one", [x], out, ANY_ZERO, "one operand, one result", body=twice)
    for dtype in NUMBERS + F8 + ["bool"]:
        x = any_bits(rng_of(f"barrier/{dtype}"), dtype, (2, 3))
        for again in (0, 1):
            yield sample(f"barrier/{dtype}/{again}", [x], x, EXACT, "itself", again=again)
        for name, index in (("", -1), ("h", 0)):
            attrs = {"name": f'"{name}"', "index": index}
            yield sample(f"checkpoint_name/{dtype}/{index}", [x], x, EXACT, "itself", **attrs)
    for dtype in F8 + ["bool"]:
        line = row(dtype, 2)
        x = any_bits(rng_of(f"checkpoint/{dtype}"), dtype, (2,))
        body = graph([line], [("reverse(%0) {axes=[0]}", *line)], ["%1"])
        cases = {"nothing": {}, "products": {"save": "products"}, "names": {"save": "names", "names": ["h"]}}
        for name, attrs in cases.items():
            yield sample(f"checkpoint/{dtype}/{name}", [x], x[::-1].copy(), EXACT, "moves", body=body, **attrs)


def kept_scans():
    """y' = y w + x, with y stacked as it enters each step, and again as it enters each segment."""
    for dtype in NUMBERS:
        line = row(dtype, 2)
        ins = [line, line, line]
        body = graph(ins, [("mul(%0, %2)", *line), ("add(%3, %1)", *line)], ["%4", "%0"])
        cases = [(7, 3, False, 0), (7, 3, True, 0), (4, 2, False, 0), (4, 2, True, 0), (3, 1, False, 0)]
        for length, each, reverse, given in [*cases, (7, 2, False, 2), (4, 2, True, 2), (2, 0, False, 3)]:
            identifier = f"scan_kept/{dtype}/{length}-{each}-{'back' if reverse else 'on'}{f'-{given}' if given else ''}"
            rng = rng_of(identifier)
            y, w, xs = small(rng, dtype, 2), small(rng, dtype, 2), small(rng, dtype, length, 2)
            now, entering = wide(y), {}
            order = range(length)[::-1] if reverse else range(length)
            for t in order:
                entering[t] = now
                now = now * wide(w) + wide(xs)[t]
            ys = np.stack([entering[t] for t in range(length)])
            count = given or length // each
            enters = [*(entering[t] for t in order), now]  # the last one a rest without steps
            starts = [enters[k * each] for k in range(count)]
            out = [now, ys, np.stack(starts[::-1] if reverse else starts)]
            out += [enters[count * each]] if given or count * each < length else []
            attrs = {"length": length, "num_carries": 1, "num_xs": 1, "reverse": reverse, "each": each, "body": body}
            attrs |= {"count": given} if given else {}
            out = [narrow(dtype, o) for o in out]
            yield sample(identifier, [y, xs, w], out, ANY_ZERO, f"segments of {each}", **attrs)
        identifier = f"scan_kept/{dtype}/alone"
        y = small(rng_of(identifier), dtype, 2)
        body = graph([line], [("add(%0, %0)", *line)], ["%1"])
        out = [narrow(dtype, o) for o in (16 * wide(y), np.stack([wide(y), 4 * wide(y)]))]
        attrs = {"length": 4, "num_carries": 1, "each": 2, "body": body}
        yield sample(identifier, [y], out, ANY_ZERO, "nothing stacked", **attrs)
    for dtype in F8 + ["bool"]:
        line = row(dtype, 2)
        x, y, xs = (any_bits(rng_of(f"kept/{dtype}/{n}"), dtype, s) for n, s in enumerate([(2,), (2,), (4, 2)]))
        body = graph([line, line, line], [], ["%1", "%0", "%2"])  # two carries that change places
        for reverse in (False, True):
            attrs = {"length": 4, "num_carries": 2, "num_xs": 1, "reverse": reverse, "each": 2, "body": body}
            out = [x, y, xs, np.stack([x, x]), np.stack([y, y])]
            name = f"scan_kept/{dtype}/{'back' if reverse else 'on'}"
            yield sample(name, [x, y, xs], out, EXACT, "moves", **attrs)


def snapshot_scans():
    """y' = y w + x, with y stacked as it enters each step, and again as it enters some of them."""
    for dtype in NUMBERS:
        line = row(dtype, 2)
        body = graph([line] * 3, [("mul(%0, %2)", *line), ("add(%3, %1)", *line)], ["%4", "%0"])
        for length, times, reverse in ((7, [0, 3, 6], False), (7, [0, 1, 4], True), (3, [0], False), (3, [0, 1, 2], True)):
            identifier = f"scan_snapshots/{dtype}/{length}-{len(times)}-{'back' if reverse else 'on'}"
            rng = rng_of(identifier)
            y, w, xs = small(rng, dtype, 2), small(rng, dtype, 2), small(rng, dtype, length, 2)
            now, entering = wide(y), []  # in the order of time
            for t in range(length)[::-1] if reverse else range(length):
                entering.append(now)
                now = now * wide(w) + wide(xs)[t]
            ys = np.stack(entering[::-1] if reverse else entering)
            out = [narrow(dtype, o) for o in (now, ys, np.stack([entering[t] for t in times]))]
            attrs = {"length": length, "num_carries": 1, "num_xs": 1, "reverse": reverse, "times": times, "body": body}
            yield sample(identifier, [y, xs, w], out, ANY_ZERO, f"enters {times}", **attrs)
        identifier = f"scan_snapshots/{dtype}/alone"
        y = small(rng_of(identifier), dtype, 2)
        body = graph([line], [("add(%0, %0)", *line)], ["%1"])
        out = [narrow(dtype, o) for o in (16 * wide(y), np.stack([wide(y), 2 * wide(y), 8 * wide(y)]))]
        attrs = {"length": 4, "num_carries": 1, "times": [0, 1, 3], "body": body}
        yield sample(identifier, [y], out, ANY_ZERO, "nothing stacked", **attrs)
    for dtype in F8 + ["bool"]:
        line = row(dtype, 2)
        x, y, xs = (any_bits(rng_of(f"snapshots/{dtype}/{n}"), dtype, s) for n, s in enumerate([(2,), (2,), (4, 2)]))
        body = graph([line, line, line], [], ["%1", "%0", "%2"])  # two carries that change places
        for reverse in (False, True):
            attrs = {"length": 4, "num_carries": 2, "num_xs": 1, "reverse": reverse, "times": [0, 1, 2], "body": body}
            out = [x, y, xs, np.stack([x, y, x]), np.stack([y, x, y])]
            name = f"scan_snapshots/{dtype}/{'back' if reverse else 'on'}"
            yield sample(name, [x, y, xs], out, EXACT, "moves", **attrs)


def snapshot_sweeps():
    """Of y' = y a + b w: the cotangents of init, w, a and b; the sweep carries those of y and w."""
    for dtype in NUMBERS:
        line = row(dtype, 2)
        forward = graph([line] * 4, [("mul(%0, %1)", *line), ("mul(%2, %3)", *line), ("add(%4, %5)", *line)], ["%6"])
        steps = [
            ("add(%0, %5)", *line),  # the cotangent of y', with that of the stacked output
            ("mul(%7, %3)", *line),
            ("mul(%7, %4)", *line),
            ("add(%1, %9)", *line),
            ("mul(%7, %2)", *line),
            ("mul(%7, %6)", *line),
        ]
        back = graph([line] * 7, steps, ["%8", "%10", "%11", "%12"])
        cases = ((5, 2, False, [0, 2]), (5, 2, True, [0, 3, 4]), (4, 1, False, [0]), (1, 1, False, [0]))
        for length, slots, reverse, times in cases:
            identifier = f"scan_sweep/{dtype}/{length}-{slots}-{'back' if reverse else 'on'}"
            rng = rng_of(identifier)
            d, dw, init, w = (small(rng, dtype, 2) for _ in range(4))
            a, b, u = (small(rng, dtype, length, 2) for _ in range(3))
            order = range(length)[::-1] if reverse else range(length)
            y, entering = wide(init), {}
            for t in order:
                entering[t] = y
                y = y * wide(a)[t] + wide(b)[t] * wide(w)
            snapshots = narrow(dtype, np.stack([entering[order[t]] for t in times]))
            dy, sums = wide(d), wide(dw)
            da, db = np.zeros_like(wide(a)), np.zeros_like(wide(b))
            for t in order[::-1]:
                total = dy + wide(u)[t]
                da[t], db[t] = total * entering[t], total * wide(w)
                sums, dy = sums + total * wide(b)[t], total * wide(a)[t]
            attrs = {
                "length": length, "num_carries": 2, "num_entering": 1, "num_xs": 2, "num_cotangents": 1,
                "reverse": reverse, "slots": slots, "times": times, "forward": forward, "back": back,
            }  # fmt: skip
            out = [narrow(dtype, g) for g in (dy, sums, da, db)]
            operands = [d, dw, snapshots, a, b, u, w]
            yield sample(identifier, operands, out, ANY_ZERO, f"{slots} slots, {len(times)} given", **attrs)
        # One carry, which the sweep multiplies together; nothing is stacked.
        forward, back = graph([line], [("add(%0, %0)", *line)], ["%1"]), graph([line] * 2, [("mul(%0, %1)", *line)], ["%2"])
        rng = rng_of(f"scan_sweep/{dtype}/alone")
        d, init = small(rng, dtype, 2), small(rng, dtype, 2)
        attrs = {"length": 3, "num_carries": 1, "num_entering": 1, "slots": 1, "forward": forward, "back": back}
        out = narrow(dtype, wide(d) * wide(init) * (2 * wide(init)) * (4 * wide(init)))
        yield sample(f"scan_sweep/{dtype}/alone", [d, init[None]], out, ANY_ZERO, "nothing stacked", **attrs)
        # Two carries that change places: the sweep multiplies by the first of them.
        forward, back = graph([line] * 2, [], ["%1", "%0"]), graph([line] * 3, [("mul(%0, %1)", *line)], ["%3"])
        other = small(rng, dtype, 2)
        attrs = {"length": 3, "num_carries": 1, "num_entering": 2, "times": [0, 1], "slots": 1}
        attrs |= {"forward": forward, "back": back}
        entering = [np.stack([init, other]), np.stack([other, init])]
        out = narrow(dtype, wide(d) * wide(init) * wide(other) * wide(init))
        yield sample(f"scan_sweep/{dtype}/two", [d, *entering], out, ANY_ZERO, "two carries", **attrs)
    for dtype in F8 + ["bool"]:
        line = row(dtype, 2)
        x, y, xs = (any_bits(rng_of(f"sweep/{dtype}/{n}"), dtype, s) for n, s in enumerate([(2,), (2,), (4, 2)]))
        forward, back = graph([line] * 2, [], ["%1"]), graph([line] * 3, [], ["%1", "%0"])
        for reverse in (False, True):
            attrs = {
                "length": 4, "num_carries": 1, "num_entering": 1, "num_xs": 1, "reverse": reverse, "slots": 1,
                "forward": forward, "back": back,
            }  # fmt: skip
            rows = xs[::-1] if reverse else xs  # in the order of time
            entering = np.stack([y, *rows[:3]])
            seen = np.stack([entering[1], entering[2], entering[3], x])
            out = [y, seen[::-1].copy() if reverse else seen]
            name = f"scan_sweep/{dtype}/{'back' if reverse else 'on'}"
            yield sample(name, [x, y[None], xs], out, EXACT, "moves", **attrs)


def samples():
    for group in (whiles, functions, scans, sweeps, short_sweeps, moves, checkpoints, kept_scans, snapshot_scans, snapshot_sweeps):
        yield from group()
