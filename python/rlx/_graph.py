"""Graphs built by hand, and compiling them.

g = rlx.Graph("mlp")
x, w = g.input("x", (8, 4)), g.param("w", (4, 2))
g.outputs = [g.tanh(x @ w)]
f = rlx.compile(g)                       # or rlx.Session("cpu").compile(g)
f.set_param("w", w_value)
(y,) = f.run({"x": x_value})
"""

from rlx import _core, op
from rlx import _signatures as _s
from rlx._array import Array, asarray
from rlx._dims import Dim
from rlx._dtypes import from_table
from rlx._errors import Error, UserError, checked_budget, checked_name, file_name
from rlx._precision import as_policy

CompiledGraph = _core.CompiledGraph


def _with_dtypes(leaves):
    return [(name, from_table(dtype), shape) for name, dtype, shape in leaves]


class Graph:
    """A program. Its inputs, parameters and ops are traced arrays; `outputs` lists what it returns.

    Every op of the table is a method: `g.softmax(x, axis=-1)`. Sizes may be symbols: `rlx.Dim("batch")` or "batch".
    str(g) is the text that `rlx.parse` reads back.
    """

    def __init__(self, name="main"):
        self._scope = _core.Scope(checked_name(name), False)
        self._outputs = []

    @classmethod
    def _of(cls, graph):
        g = cls(graph.name)
        g._outputs = g._scope.load(graph)
        return g

    @property
    def name(self):
        return self._scope.name

    def input(self, name, shape, dtype="float32"):
        """A tensor bound by name at each run."""
        return self._scope.input(name, shape, dtype)

    def param(self, name, shape, dtype="float32"):
        """A tensor bound by name once; updates may write it."""
        return self._scope.param(name, shape, dtype)

    def constant(self, value, dtype=None):
        """A tensor known now."""
        return _core.emit_into(self._scope, op.ENTRIES["constant"], (), (asarray(value, dtype),))

    def update(self, param, value):
        """After a run the parameter of this name has this value."""
        if not isinstance(param, str):
            raise UserError("update-target", f"update: a parameter is said by its name, not by {type(param).__name__}")
        self._scope.update(param, value)

    def leaf(self, name):
        """The input or parameter of that name."""
        return self._scope.leaf(name)

    @property
    def outputs(self):
        return list(self._outputs)

    @outputs.setter
    def outputs(self, values):
        values = [values] if isinstance(values, Array) else list(values)
        for v in values:
            if not isinstance(v, Array):
                raise UserError("output-type", f"an output must be an rlx.Array, not {type(v).__name__}")
        self._outputs = values

    def set_outputs(self, *values):
        """The same as assigning to `outputs`."""
        self.outputs = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple)) else values

    @property
    def value(self):
        """The program so far as an immutable value."""
        return self._scope.snapshot(self._outputs)

    @property
    def inputs(self):
        """(name, dtype, shape) of each input."""
        return _with_dtypes(self.value.inputs)

    @property
    def params(self):
        """(name, dtype, shape) of each parameter."""
        return _with_dtypes(self.value.params)

    def _program(self):
        """What is compiled."""
        return self.value

    def inspect(self):
        """The program as a table for people: ops in their short form, labels, what is an output."""
        return self.value.inspect()

    def to_svg(self):
        """The program as a drawing, with blocks as boxes: text of an SVG file."""
        return self.value.to_svg()

    def _repr_svg_(self):
        return self.to_svg()

    def __str__(self):
        return str(self.value)

    def __repr__(self):
        try:
            g = self.value
        except Error as e:
            return f"<rlx.{type(self).__name__} {self.name!r}, unfinished: {e.message}>"
        return f"<rlx.{type(self).__name__} {g.name!r}: {g.nodes} nodes, {len(g.inputs)} inputs, {len(g.params)} params>"

    def __eq__(self, other):
        return self.value == other.value if isinstance(other, Graph) else NotImplemented

    def __hash__(self):
        return hash(self.value)

    # ---- transforms: new graphs

    def bind(self, **sizes):
        """With sizes in the place of symbols."""
        return Graph._of(self.value.bind(sizes))

    def recognised(self):
        """With what is written out in primitives as the ops that it defines: before differentiating, for better gradients."""
        return Graph._of(self.value.recognised())

    def value_and_grad(self, wrt, zero_missing=False, output=0):
        """Outputs: all outputs, then the gradients of one of them by the leaves `wrt`."""
        return Graph._of(self.value.value_and_grad(list(wrt), zero_missing, output))

    def grad(self, wrt, zero_missing=False, output=0):
        """Outputs: the gradients."""
        return Graph._of(self.value.grad(list(wrt), zero_missing, output))

    def vjp(self, wrt, zero_missing=False):
        """Takes cotangents as inputs ("d_output", or "d_0".. for several outputs); outputs all outputs, then theirs."""
        return Graph._of(self.value.vjp(list(wrt), zero_missing))

    def jvp(self, wrt):
        """Takes tangents as inputs ("tangent_x"); outputs all outputs, then their tangents."""
        return Graph._of(self.value.jvp(list(wrt)))

    def hvp(self, wrt):
        """Hessian-vector products, forward over reverse."""
        return Graph._of(self.value.hvp(list(wrt)))

    def vmap(self, axes, size, out_axis=0):
        """For a batch: {leaf: axis} says which leaves carry it, and where."""
        return Graph._of(self.value.vmap(dict(axes), size, out_axis))

    def mixed_precision(self, precision="bf16"):
        """With products in f16 or bf16; leaves and outputs keep their dtypes. A policy's name or a `PrecisionPolicy`."""
        return Graph._of(self.value.mixed_precision(as_policy(precision)))

    def to_bytes(self):
        """The program in the binary form that `rlx.from_bytes` reads: versioned and checksummed."""
        return self.value.to_bytes()

    def __reduce__(self):
        return from_bytes, (self.to_bytes(),)

    def save(self, path):
        """Writes the text, and constants larger than 1 KiB beside it (path.<hash>.consts)."""
        self.value.save(file_name(path))

    def compile(self, device=None, **options):
        """The same as `rlx.compile(g)`."""
        return compile(self, device, **options)


def _method(entry):
    space = {"_emit": _core.emit_into, "_entry": entry, "__name__": __name__} | _s.HELPERS
    exec(_s.definition(entry, "_emit(self._scope, _entry", first="self, "), space)
    method = space[_s.python_name(entry.name)]
    method.__doc__ = _s.docstring(entry)
    return method


def __getattr__(self, name):
    """Methods of ops are made when they are first used."""
    entry = op.ENTRIES.get(name.rstrip("_"))
    if entry is None or entry.kind == "leaf":
        raise AttributeError(f"rlx.Graph has no method {name!r}, and the table has no op of that name")
    setattr(Graph, name, _method(entry))
    return getattr(self, name)


Graph.__getattr__ = __getattr__
Graph.__dir__ = lambda self: sorted({*object.__dir__(self), *op.FUNCTIONS})
del __getattr__


class Session:
    """Compiles graphs for a device."""

    def __init__(self, device=None, **options):
        self.device, self._options = device or _core.get_backend(), options

    def compile(self, graph, **options):
        return compile(graph, self.device, **{**self._options, **options})


def _hint(min=None, max=None, multiple_of=1):
    return min, max, multiple_of


def compile(
    graph, device=None, *, threads=0, dims=None, hints=None, fast_math=False, precision="f32", fuse=True, memory_budget=0
):
    """A `CompiledGraph`. threads 0 means all of the machine; fast_math allows algebra that changes values.

    Sizes that are symbols arrive with the inputs: it runs at any size. dims makes numbers of some of them; set_sizes()
    says those that no input has. hints say what is known of sizes, {name: (min, max)} or (min, max, multiple_of), None
    for no limit: less code is made, and other sizes raise "dim-hint". precision says what is computed in 16 bits: a
    policy's name or a `PrecisionPolicy`; parameters and results keep their dtypes.

    memory_budget: bytes that the values of a run may take at once, parameters, inputs and results apart; values that do
    not fit are computed again where they are read, with the same bits. Raises "memory-budget" with the least that can
    be. 0: as many as there are."""
    value = graph._program() if isinstance(graph, Graph) else graph
    hints = {name: _hint(*hint) for name, hint in (hints or {}).items()}
    device, policy = device or _core.get_backend(), as_policy(precision)
    memory_budget = checked_budget("compile", memory_budget)
    return _core.compile(value, device, threads, dims or {}, hints, fast_math, policy, fuse, memory_budget)


def parse(text):
    """The graph of a text, as str(graph) prints it."""
    return Graph._of(_core.parse(text))


def from_bytes(data):
    """The graph that Graph.to_bytes wrote."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise UserError("bytes", f"from_bytes: takes bytes, not {type(data).__name__}")
    return Graph._of(_core.from_bytes(bytes(data)))


def load_graph(path):
    """The graph that Graph.save wrote."""
    return Graph._of(_core.load_graph(file_name(path)))
