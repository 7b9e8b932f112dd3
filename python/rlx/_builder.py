"""GraphBuilder and HirModule: programs under the builders' established names, and programs made of blocks.

g = rlx.GraphBuilder("bert_layer")
x, w, b = g.input("hidden", (4, 15, 384)), g.param("w", (384, 1152)), g.param("b", (1152,))
g.outputs = [g.gelu(g.add(g.mm(x, w), b))]

h = rlx.HirModule("ffn")
x, w = h.input("x", (4, 8)), h.param("w", (8, 8))
h.outputs = [h.named("proj", lambda h: h.linear(x, w, activation="gelu"))]
g = h.lower()                            # an rlx.Graph; nodes carry the label "proj" and the block's number

Both are graphs: their values are traced arrays with operators, and every op of the table is a method, too. The methods
of GraphBuilder are those of the C++ class, those of HirModule the blocks of the op table.
"""

import re

from rlx import _core, op
from rlx import _signatures as _s
from rlx._graph import Graph

_TYPES = {  # of C++: what Python gives for it
    "NodeId": "ArrayLike", "MaybeNode": "ArrayLike | None", "Values": "Sequence[ArrayLike]", "AnyOp": "Any",
    "Declared": "Any", "Type": "Any", "Graph": "Any", "bool": "bool", "double": "float", "int64_t": "int",
    "uint64_t": "int", "Ints": "Sequence[int]", "Dim": "Any", "Shape": "Sequence[Any]", "DType": "Any",
    "GaussianSplatInputs": "Sequence[ArrayLike]",
}  # fmt: skip
_DEFAULTS = {"{}": "None", "false": "False", "true": "True", "DType::F32": '"float32"'}


def _parameters(text):
    """(name, annotation, default or None) of each parameter, as C++ declares them."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text + ","):
        depth += (c in "<{(") - (c in ">})")
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    out = []
    for part in filter(None, parts):
        declared, _, default = part.partition(" = ")
        kind, name = declared.rsplit(" ", 1)
        kind = re.sub(r"^const |&$", "", kind)
        note = re.fullmatch(r"std::optional<(.*)>", kind)
        note = f"{_TYPES.get(note[1], 'str')} | None" if note else _TYPES.get(kind, "str")
        if kind.startswith("std::array") or kind.startswith("std::vector"):
            note = "Sequence[float]"
        elif kind.endswith("Params"):
            note = "dict[str, Any]"
        if default == "{}" and kind == "std::string":
            default = '""'
        out.append((_s.python_name(name), note, _DEFAULTS.get(default, default) or None))
    return out


class GraphBuilder(Graph):
    """An rlx.Graph with a method for each builder of the C++ class of that name.

    Arguments are as there: nodes are arrays, lists of them are lists, words ("add", "gelu", "causal", "int8/32") are
    strings, bodies are graphs. A declared shape, (4, 8) of float32 or ((4, 8), "float16"), may be left out; where it is
    given it is checked.
    """


def _builder_method(index, name, parameters, doc):
    names = _parameters(parameters)
    given = ", ".join(n if default is None else f"{n}={default}" for n, _, default in names)
    values = "".join(n + ", " for n, _, _ in names)
    space = {"_call": _core.call_builder, "__name__": __name__}
    exec(f"def {name}(self, {given}):\n    return _call(self._scope, {index}, ({values}))\n", space)
    method = space[name]
    method.__qualname__ = f"GraphBuilder.{name}"
    method.__doc__ = doc or f"GraphBuilder::{name}({parameters})."
    return method


for _index, (_name, _text, _doc) in enumerate(_core.builder_methods()):
    setattr(GraphBuilder, _name, _builder_method(_index, _name, _text, _doc))


class HirModule(Graph):
    """A program made of blocks: an rlx.Graph with a method for each block of the op table.

    `fusion_policy` says what blocks are lowered to: "direct", fused ops where there are some, or "fusable", primitives
    that fusion and derivatives see.
    """

    def __init__(self, name="main", fusion_policy="direct"):
        super().__init__(name)
        self.fusion_policy = fusion_policy

    def named(self, name, build):
        """What build(self) returns, with its node called `name`."""
        value = build(self)
        self._scope.name_node(value, name)
        return value

    def shared_linear_pair(self, x, w_first, w_second):
        """The products of x with both, as a pair."""
        return tuple(self.hir_shared_linear_pair(x, w_first, w_second, slot=slot) for slot in (0, 1))

    def transformer_block(self, *inputs, **attributes):
        """`llama_decoder_block` under this name."""
        return self.named("transformer_block", lambda h: h.llama_decoder_block(*inputs, **attributes))

    def lower(self):
        """The program without blocks, as an rlx.Graph."""
        return Graph._of(self.value.lower_blocks(self.fusion_policy))

    def _program(self):
        return self.value.lower_blocks(self.fusion_policy)

    def inspect(self):
        """The program as a table of its blocks."""
        return self.value.inspect_hir(self.fusion_policy)

    def to_json(self):
        """The program as JSON, which `HirModule.from_json` and the tool read."""
        return self.value.hir_to_json(self.fusion_policy)

    def __reduce__(self):
        return HirModule.from_json, (self.to_json(),)

    @classmethod
    def from_json(cls, text):
        """The module that `to_json` wrote."""
        graph, policy = _core.hir_from_json(text)
        module = cls._of(graph)
        module.fusion_policy = policy
        return module


def _block_parts(entry):
    """The text of a block's operands, its attributes, and the text of the call's arguments. Whether optional operands are
    given says what the entry's flags (has_bias, carry_state) are."""
    optional = [_s.python_name(name) for name, may_miss in entry.operands if may_miss]
    flags = {n for n, kind, _ in _s.attributes(entry) if kind == "bool"} if optional else set()
    parts = [n if n not in optional else f"{n}=None" for n in _s.operand_names(entry)]
    attrs = [(n, kind, d) for n, kind, d in _s.attributes(entry) if n not in flags]
    values = "".join(f"{optional[-1]} is not None, " if n in flags else f"{n}, " for n, _, _ in _s.attributes(entry))
    return parts, attrs, f"{_s.operands(entry)}, ({values})"


def _block_method(entry):
    parts, attrs, call = _block_parts(entry)
    parts += ["*"] * bool(attrs) + [f"{n}={_s.literal(d)}" for n, _, d in attrs]
    name = entry.name.removeprefix("hir_")
    space = {"_emit": _core.emit_into, "_entry": entry, "__name__": __name__} | _s.HELPERS
    exec(f"def {name}(self, {', '.join(parts)}):\n    return _emit(self._scope, _entry, {call})\n", space)
    method = space[name]
    method.__qualname__ = f"HirModule.{name}"
    stated = [f"{n}: " for n, _, _ in _s.attributes(entry) if n not in {a for a, _, _ in attrs}]
    lines = _s.docstring(entry).splitlines()
    method.__doc__ = "\n".join(line for line in lines if not line.startswith(tuple(stated)))
    return method


for _entry in op.ENTRIES.values():
    if _entry.stage == "hir" and not hasattr(HirModule, _entry.name.removeprefix("hir_")):
        setattr(HirModule, _entry.name.removeprefix("hir_"), _block_method(_entry))
del _index, _name, _text, _doc, _entry
