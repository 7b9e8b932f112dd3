"""The Python signature of an op, from its entry in the table. Used for the functions, the methods of graphs and the
type stubs.

Operands are positional, or keywords under the table's names; attributes are keywords, and a leading `axis` or `axes`
may be positional, too. Where an op has `axes` it also takes `axis`. An op with `axes` (by default none) and `keepdims`
is a reduction: in Python its default is all axes, as in NumPy. Attributes of windows take one number for all spatial
axes.

Imports nothing of the package, so that the stub generator can use it while the package is being built.
"""

import keyword

VARIADIC = -1

_WINDOW = ("kernel", "stride", "dilation", "low", "high", "padding", "output_padding")


def operand_names(op):
    return [python_name(name) for name, _ in op.operands]


def literal(value):
    """Source text of a default."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    return repr(value)


def python_name(name):
    """A name of the table as an identifier."""
    return name + "_" if keyword.iskeyword(name) else name


def _default(name, default):
    return None if name == "axes" else default  # None: the table's default, or all axes: see docstring


def attributes(op):
    """(Python name, type, default) of each attribute."""
    return [(python_name(n), t, _default(n, d)) for n, t, d in op.attributes]


def has_axes(op):
    return any(n == "axes" for n, _, _ in op.attributes)


def is_reduction(op):
    """Whether the op folds the axes that it is given."""
    kinds = {n: (t, d) for n, t, d in op.attributes}
    return kinds.get("axes") == ("[int]", ()) and "keepdims" in kinds


def per_spatial_axis(op):
    """The attributes of a window, which have one entry for each axis behind the first two."""
    kinds = {n: t for n, t, _ in op.attributes}
    if op.name.startswith("adaptive_"):
        return ["size"]
    windowed = "kernel" in kinds or ("stride" in kinds and "start" not in kinds)
    return [n for n, t in kinds.items() if windowed and n in _WINDOW and t == "[int]"]


def _least(op):
    return op.min_arity or op.arity


def parameters(op, annotate=None):
    """The text between the parentheses of `def`; `annotate(type)` gives attribute annotations."""
    note = (lambda t, d: ": " + annotate(t if d is not None or t.endswith("?") else t + "?")) if annotate else None
    array = ": ArrayLike" if annotate else ""
    parts = []
    if op.arity == VARIADIC:
        parts.append("*xs" + array)
    elif op.arity:
        optional = (": ArrayLike | None" if annotate else "") + " = None"
        names = operand_names(op)
        given = [may_miss for _, may_miss in op.operands] + [True]
        parts += [n + (array if i < given.index(True) else optional) for i, n in enumerate(names)]
    attrs = [f"{n}{note(t, d) if note else ''} = {literal(d)}" for n, t, d in attributes(op)]
    if has_axes(op):
        attrs.append(f"axis{note('[int]', None) if note else ''} = None")
    if attrs and op.arity not in (VARIADIC, 0) and _least(op) == op.arity and op.attributes[0][0] in ("axis", "axes"):
        parts.append(attrs.pop(0))
    if attrs and op.arity != VARIADIC:
        parts.append("*")
    return ", ".join(parts + attrs)


def operands(op):
    """Source text of the tuple of operands."""
    if op.arity == VARIADIC:
        return "_several(xs)"
    names = ", ".join(operand_names(op))
    if op.min_arity and op.min_arity < op.arity:
        return f"_given({op.name!r}, {operand_names(op)!r}, {names})"
    return f"({names},)" if names else "()"


def definition(op, call, first=""):
    """Source text of the op's function: `call` up to the operands, `first` parameters before all others.

    It uses the names in `HELPERS`.
    """
    lines = []
    if has_axes(op):
        lines.append(f"axes = _axes({op.name!r}, axes, axis)")
    x = operand_names(op)[0] if op.arity > 0 else None
    if is_reduction(op):
        lines.append(f"{x}, axes = _over({x}, axes)")
    lines += [f"{n} = _each({n}, {x})" for n in per_spatial_axis(op)]
    values = "".join(n + ", " for n, _, _ in attributes(op))
    lines.append(f"return {call}, {operands(op)}, ({values}))")
    return f"def {python_name(op.name)}({first}{parameters(op)}):\n" + "".join(f"    {line}\n" for line in lines)


def _several(xs):
    if len(xs) == 1 and isinstance(xs[0], (list, tuple)):
        return tuple(xs[0])
    return xs


def _given(op, names, *xs):
    """The operands up to the last one given. A zero point in front of another one may be left out, it is 0."""
    count = len(xs)
    while count and xs[count - 1] is None:
        count -= 1
    missing = [n for n, x in zip(names, xs[:count]) if x is None]
    if not missing:
        return xs[:count]
    if all(n.endswith("zero_point") for n in missing):
        return tuple(0 if x is None else x for x in xs[:count])
    from rlx._errors import UserError  # which needs the ops

    raise UserError("operands", f"{op}: {names[count - 1]} is given without {' and '.join(missing)}")


def _axes(name, axes, axis):
    if axis is None:
        return axes
    if axes is not None:
        raise TypeError(f"{name}: give axis or axes, not both")
    return axis


def _as_array(x):
    """x with a rank."""
    if hasattr(x, "ndim"):
        return x
    from rlx._array import asarray  # which needs the ops

    return asarray(x)


def _over(x, axes):
    if axes is not None:
        return x, axes
    x = _as_array(x)
    return x, list(range(x.ndim))


def _each(value, x):
    """One number for all spatial axes of x."""
    if value is None or hasattr(value, "__len__"):
        return value
    return [value] * max(_as_array(x).ndim - 2, 1)


HELPERS = {"_several": _several, "_given": _given, "_axes": _axes, "_over": _over, "_each": _each}


def docstring(op):
    """What help() says about the op."""
    lines = [op.doc, ""]
    if op.arity == VARIADIC:
        lines.append(f"Takes {op.min_arity} or more arrays, or one list of them.")
    if op.arity != 0:
        lines.append(f"The first operand may be {op.dtypes}.")
    if op.variadic_results:
        lines.append("Returns a tuple.")
    for (name, kind, default), (_, _, tables) in zip(attributes(op), op.attributes):
        if name == "axes":
            default = "all" if is_reduction(op) else repr(tables)
            lines.append(f"axes: {kind}, by default {default}; may be called axis")
        else:
            lines.append(f"{name}: {kind}, by default {default!r}")
    if op.not_differentiable:
        lines.append(f"Not differentiable: {op.not_differentiable}.")
    return "\n".join(lines).strip()
