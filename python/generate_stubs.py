"""Writes the type stubs of what the package makes when it is imported, beside the built extension.

    python generate_stubs.py FOLDER     # of the built package: has _core and the Python sources

op.pyi has the functions of the ops, __init__.pyi the package's names with them, _builder.pyi the methods of GraphBuilder
and HirModule; everything else is plain Python.
"""

import ast
import re
import sys
from pathlib import Path

HEADER = '''"""Type stubs of the ops, written from the op table."""

from collections.abc import Sequence
from typing import Any, Literal

from rlx._array import Array, ArrayLike
from rlx._core import Graph
from rlx._dims import Dim
from rlx._dtypes import DType

DTypeLike = Any
FUNCTIONS: dict[str, Any]
ENTRIES: dict[str, Any]
FAMILIES: dict[str, str]

'''


def annotation(kind):
    """The Python type of an attribute's type in the table."""
    if kind.endswith("?"):
        return annotation(kind[:-1]) + " | None"
    if kind.startswith("["):
        item = annotation(kind[1:-1])
        return f"Sequence[{item}] | {item}"
    if "|" in kind:
        return "Literal[" + ", ".join(f'"{word}"' for word in kind.split("|")) + "]"
    plain = {"int": "int", "float": "float", "bool": "bool", "string": "str", "dim": "int | str | Dim",
             "dtype": "DTypeLike", "tensor": "ArrayLike", "graph": "Graph"}  # fmt: skip
    return plain.get(kind, "Any")


def stub(signatures, op):
    doc = signatures.docstring(op).replace("\\", "\\\\").replace("\n", "\n    ")
    return f'def {signatures.python_name(op.name)}({signatures.parameters(op, annotation)}) -> Any:\n    """{doc}"""\n'


BUILDER_HEADER = '''"""Type stubs of GraphBuilder and HirModule, written from C++'s declarations and the op table."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from rlx._array import Array, ArrayLike
from rlx._graph import Graph

'''


def class_stub(tree, name, methods):
    """A class of _builder.py: its own methods, then those that are made when it is imported."""
    (node,) = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name]
    lines = [f"class {name}(Graph):", f'    """{ast.get_docstring(node)}"""'.replace("\n", "\n    ")]
    for f in node.body:
        if isinstance(f, ast.FunctionDef) and (f.name == "__init__" or not f.name.startswith("_")):
            lines += [f"    @{ast.unparse(d)}" for d in f.decorator_list]
            lines.append(f"    def {f.name}({ast.unparse(f.args)}) -> {'None' if f.name == '__init__' else 'Any'}: ...")
    return "\n".join(lines + methods) + "\n"


def builder_stub(source, core, signatures, ops):
    tree = ast.parse(source)
    # The functions that read the declarations, without importing the package.
    space = {"_s": signatures, "re": re}
    helpers = [n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.Assign))]
    exec(compile(ast.Module(helpers, []), "_builder.py", "exec"), space)
    methods, blocks = [], []
    for name, text, _ in core.builder_methods():
        parts = [f"{n}: {t}" + (f" = {d}" if d else "") for n, t, d in space["_parameters"](text)]
        methods.append(f"    def {name}(self, {', '.join(parts)}) -> Any: ...")
    own = {n.name for c in tree.body if isinstance(c, ast.ClassDef) for n in c.body if isinstance(n, ast.FunctionDef)}
    for op in ops:
        name = op.name.removeprefix("hir_")
        if op.stage != "hir" or name in own:
            continue
        parts, attrs, _ = space["_block_parts"](op)
        parts = [p.replace("=None", ": ArrayLike | None = None") if "=" in p else f"{p}: ArrayLike" for p in parts]
        parts += ["*"] * bool(attrs)
        parts += [f"{n}: {annotation(t)} = {signatures.literal(d)}" for n, t, d in attrs]
        blocks.append(f"    def {name}(self, {', '.join(parts)}) -> Any: ...")
    return BUILDER_HEADER + class_stub(tree, "GraphBuilder", methods) + "\n" + class_stub(tree, "HirModule", blocks)


def aliases(source):
    """(name, its line) for each row of the table in _aliases.py."""
    (table,) = [
        n.value for n in ast.parse(source).body
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name) and n.targets[0].id == "ALIASES"
    ]  # fmt: skip
    for key, value in zip(table.keys, table.values):
        name = key.value
        if isinstance(value, ast.Name):
            yield name, f"from rlx._aliases import {value.id} as {name}"
        elif isinstance(value, ast.Attribute) and value.value.id == "op":
            yield name, f"from rlx.op import {value.attr} as {name}"
        else:
            yield name, f"{name}: Any"


def package_stub(source, alias_source, signatures, ops):
    """The names of __init__.py, re-exported, the aliases, and the ops under those that are free."""
    lines, taken = ['"""Type stubs of the package, written from its sources and the op table."""\n'], set()
    lines.append("from typing import Any\n")
    for name, line in aliases(alias_source):
        lines.append(line)
        taken.add(name)
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("rlx"):
            names = [(a.name, a.asname or a.name) for a in node.names if not a.name.startswith("_")]
            taken.update(as_name for _, as_name in names)
            lines += [f"from {node.module} import {name} as {as_name}" for name, as_name in names]
        elif isinstance(node, ast.Assign):
            targets = [t for x in node.targets for t in (x.elts if isinstance(x, ast.Tuple) else [x])]
            lines += [f"{t.id}: {'str' if t.id == '__version__' else 'DType'}" for t in targets]
            taken.update(t.id for t in targets)
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            lines.append(f"def {node.name}() -> {ast.unparse(node.returns)}: ...")
            taken.add(node.name)
    names = [signatures.python_name(op.name) for op in ops]
    return "\n".join(lines + [f"from rlx.op import {n} as {n}" for n in names if n not in taken]) + "\n"


def write(path, text):
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main(folder):
    sys.path.insert(0, str(folder))
    import _core
    import _signatures

    ops = [op for op, _ in _core.op_table() if op.kind != "leaf"]
    write(folder / "op.pyi", HEADER + "\n".join(stub(_signatures, op) for op in ops))
    sources = [(folder / name).read_text() for name in ("__init__.py", "_aliases.py")]
    write(folder / "__init__.pyi", package_stub(*sources, _signatures, ops))
    write(folder / "_builder.pyi", builder_stub((folder / "_builder.py").read_text(), _core, _signatures, ops))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
