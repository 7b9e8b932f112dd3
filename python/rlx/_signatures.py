"""The Python signature of an op, from its entry in the table. Used for the functions and for the type stubs.

Imports nothing of the package, so that the stub generator can use it while the package is being built.
"""

import keyword

VARIADIC = -1


def _operand_names(op):
    names = ["x", "y", "z"] if op.arity <= 3 else [f"x{i}" for i in range(op.arity)]
    return names[: op.arity]


def literal(value):
    """Source text of a default."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    return repr(value)


def python_name(name):
    """A name of the table as an identifier."""
    return name + "_" if keyword.iskeyword(name) else name


def attributes(op):
    """(Python name, type, default) of each attribute."""
    return [(python_name(n), t, d) for n, t, d in op.attributes]


def parameters(op, annotate=None):
    """The text between the parentheses of `def`; `annotate(type)` gives attribute annotations."""
    note = (lambda t: ": " + annotate(t)) if annotate else lambda t: ""
    array = ": ArrayLike" if annotate else ""
    parts = []
    if op.arity == VARIADIC:
        parts.append("*xs" + array)
    elif op.arity:
        least = op.min_arity or op.arity
        optional = (": ArrayLike | None" if annotate else "") + " = None"
        names = _operand_names(op)
        parts += [n + (array if i < least else optional) for i, n in enumerate(names)] + ["/"]
    attrs = attributes(op)
    if attrs and op.arity != VARIADIC:
        parts.append("*")
    parts += [f"{n}{note(t)} = {literal(d)}" for n, t, d in attrs]
    return ", ".join(parts)


def operands(op):
    """Source text of the tuple of operands."""
    if op.arity == VARIADIC:
        return "_several(xs)"
    names = ", ".join(_operand_names(op))
    if op.min_arity and op.min_arity < op.arity:
        return f"_given({names})"
    return f"({names},)" if names else "()"


def docstring(op):
    """What help() says about the op."""
    lines = [op.doc, ""]
    if op.arity == VARIADIC:
        lines.append(f"Takes {op.min_arity} or more arrays, or one list of them.")
    if op.arity != 0:
        lines.append(f"The first operand may be {op.dtypes}.")
    for name, kind, default in attributes(op):
        lines.append(f"{name}: {kind}, by default {default!r}")
    if op.not_differentiable:
        lines.append(f"Not differentiable: {op.not_differentiable}.")
    return "\n".join(lines).strip()
