"""One function per op of the table, generated when the package is imported.

Operands are positional, attributes keywords: `rlx.op.softmax(x, axis=-1)`. An op with several results returns a tuple.
On arrays the op is run at once (it is compiled on the first call with these attributes and types); on traced arrays it
is added to the program being traced.
"""

from rlx import _core
from rlx import _signatures as _s

ENTRIES = {op.name: op for op, _ in _core.op_table()}
FAMILIES = {op.name: family for op, family in _core.op_table()}


def _generate():
    callable_ops = [op for op in ENTRIES.values() if op.kind != "leaf"]
    space = {"_call": _core.call_op, "__name__": __name__} | _s.HELPERS
    space |= {f"_entry_{op.name}": op for op in callable_ops}
    exec("".join(_s.definition(op, f"_call(_entry_{op.name}") for op in callable_ops), space)
    functions = {_s.python_name(op.name): space[_s.python_name(op.name)] for op in callable_ops}
    for op in callable_ops:
        functions[_s.python_name(op.name)].__doc__ = _s.docstring(op)
    return functions


FUNCTIONS = _generate()
globals().update(FUNCTIONS)
__all__ = list(FUNCTIONS)
