"""Quantisation: weights and products of float programs in fewer bits."""

import json

from rlx import _core
from rlx._errors import UserError
from rlx._graph import Graph
from rlx._graph import compile as _compile
from rlx._transforms import _argument, _check_function, trace
from rlx._tree import flatten, tree_flatten_with_path, unflatten


class Quantised:
    """What `quantise` and `convert_qat` give: `graph`, `params` by name, `layers` (a dict each), the table as str(q).

    Of a function it is called like it, without the parameters: `q(x)`; `q.compile()` is the program with them set.
    """

    def __init__(self, graph, params, report, text, out_tree=None):
        self.graph, self.params, self.report, self._text = graph, params, report, text
        self._out_tree, self._program = out_tree, None

    @property
    def layers(self):
        return self.report["layers"]

    def compile(self, device=None, **options):
        f = _compile(self.graph, device, **options)
        for name, value in self.params.items():
            f.set_param(name, value)
        return f

    def __call__(self, *args):
        if self._out_tree is None:
            raise TypeError("a quantised rlx.Graph is run by what compile() gives")
        if self._program is None:
            self._program = self.compile()
        leaves, _ = flatten(args)
        names = [n for n, _, _ in self.graph.inputs]
        if len(leaves) != len(names):
            raise UserError("argnums", f"{len(leaves)} arrays given for {len(names)} of the function")
        return unflatten(self._out_tree, self._program.run(dict(zip(names, leaves))))

    def __str__(self):
        return self._text

    def __repr__(self):
        return (
            f"<rlx.Quantised {self.graph.name!r}: {self.report['bytes_before']} -> {self.report['bytes_after']} bytes>"
        )


def _choices(names):
    return [(str(k), str(v)) for k, v in dict(names or {}).items()]


def _calibration(method, percentile, asymmetric, weight_method, per_channel):
    return {
        "method": method,
        "percentile": float(percentile),
        "asymmetric": bool(asymmetric),
        "weight_method": weight_method,
        "per_channel": bool(per_channel),
    }


def _named(tree):
    """The leaves of a tree by their paths."""
    leaves, _ = tree_flatten_with_path(tree)
    return {path or "params": leaf for path, leaf in leaves}


def _batches_of_args(data):
    return [tuple(batch) if isinstance(batch, (tuple, list)) else (batch,) for batch in data]


def quantise(
    f,
    params,
    data=(),
    *,
    format="int8",
    layers=None,
    ops=None,
    method="min_max",
    percentile=99.99,
    asymmetric=False,
    weight_method="min_max",
    per_channel=True,
    measure=True,
):
    """A float program with weights and products in fewer bits.

    f is a Graph, params its parameters by name and data batches of its inputs by name; or a function
    f(params, *inputs), params a tree and data batches of its inputs, each an array or a tuple of them (at least one,
    which also says their types).

    format: "int8" calibrates with the data and makes integer products; a scheme ("q4_0", "q8_0", "int4/32", ..) stores
    weights alone. layers and ops say another format, or "float", for some: {"head*": "float"}, {"conv": "int4/32"}. A
    layer is called after its weight. method: "min_max", "percentile", "entropy" or "mse", of activations;
    asymmetric spends all codes between the lowest and the highest value. Returns a Quantised; print it for a table of
    sizes and errors.
    """
    calibration = _calibration(method, percentile, asymmetric, weight_method, per_channel)
    if isinstance(f, Graph):
        graph, values, batches, out_tree = f.value, dict(params), [dict(b) for b in data], None
    else:
        _check_function("quantise", f)
        rows = _batches_of_args(data)
        if not rows:
            raise UserError("calibration-data", "quantise: a function needs a batch of inputs, for their types")
        values = _named(params)
        args = (params, *rows[0])
        leaves, tree = flatten((args, {}))
        traced = trace(f, [_argument(x) for x in leaves], tree)
        kept = len(leaves) - len(values)
        graph = _core.with_params(traced.graph, list(values), kept, traced.captured)
        batches = [{f"x{i}": x for i, x in enumerate(flatten(row)[0])} for row in rows]
        out_tree = traced.out_tree
    result = _core.quantise(graph, values, batches, format, _choices(ops), _choices(layers), calibration, measure)
    return Quantised(Graph._of(result[0]), result[1], json.loads(result[2]), result[3], out_tree)


class CalibrationEntry:
    """Scales and zero points of a value: one for all, or one for each index along an axis."""

    __slots__ = ("axis", "scales", "zero_points")

    def __init__(self, axis=None, scales=(1.0,), zero_points=None):
        self.axis, self.scales = axis, [float(s) for s in scales]
        self.zero_points = [0] * len(self.scales) if zero_points is None else [int(z) for z in zero_points]

    @classmethod
    def per_tensor(cls, scale):
        return cls(None, [scale])

    @classmethod
    def per_channel(cls, axis, scales):
        return cls(axis, scales)

    def __eq__(self, other):
        return isinstance(other, CalibrationEntry) and self._key() == other._key()

    def __hash__(self):
        return hash(str(self._key()))

    def _key(self):
        return self.axis, self.scales, self.zero_points

    def __repr__(self):
        return f"CalibrationEntry(axis={self.axis}, scales={self.scales}, zero_points={self.zero_points})"


class CalibrationRecord(dict):
    """Entries by what they are of: the name of an input or parameter, or the number of a node; (node, result) where it is
    not the first result."""


def calibrate(
    graph,
    params,
    data,
    taps=(),
    *,
    method="min_max",
    percentile=99.99,
    asymmetric=False,
    weight_method="min_max",
    per_channel=True,
):
    """Scales for the operands of all products and convolutions of a Graph, or for the inputs and parameters
    named in taps.

    params and data are as for quantise. The record goes to rlx.opt.insert_q_dq.
    """
    g = graph.value
    found = _core.calibrate(
        g,
        dict(params),
        [dict(b) for b in data],
        _calibration(method, percentile, asymmetric, weight_method, per_channel),
        [taps] if isinstance(taps, str) else list(taps),
    )
    names = {node: name for name, node in _core.leaf_values(g).items()}
    return CalibrationRecord(
        {
            (node, result) if result else names.get(node, node): CalibrationEntry(axis, scales, zeros)
            for node, result, axis, scales, zeros in found
        }
    )


def insert_q_dq(graph, record):
    """Each value of the record becomes i8 codes and back: a new Graph, whose products compiling makes integer ones."""
    g = graph.value
    leaves = _core.leaf_values(g)
    rows = []
    for tap, e in record.items():
        node, result = tap if isinstance(tap, tuple) else (leaves.get(tap, -1) if isinstance(tap, str) else tap, 0)
        if node < 0:
            raise UserError("calibration-tap", f'insert_q_dq: "{g.name}" has no value "{tap}"')
        rows.append((int(node), int(result), e.axis, e.scales, e.zero_points))
    return Graph._of(_core.insert_q_dq(g, rows))


def quant_propagate(graph):
    """(the graph without fake quantisation that was done already, how many nodes it had of it)"""
    g, gone = _core.quant_propagate(graph.value)
    return Graph._of(g), gone


def prepare_qat(
    graph,
    params,
    *,
    weight_bits=8,
    activation_bits=8,
    learned=False,
    ste="clipped_identity",
    layers=None,
    ops=None,
    data=(),
):
    """Training with rounding: (graph, params, names of those to be trained).

    Fake quantisation stands in front of every product: of weights per output channel, of activations with a running
    scale, which the program updates; learned: with scales that are trained. activation_bits=0 leaves activations alone.
    """
    g, values, trained = _core.prepare_qat(
        graph.value,
        dict(params),
        weight_bits,
        activation_bits,
        learned,
        ste,
        _choices(ops),
        _choices(layers),
        [dict(b) for b in data],
    )
    return Graph._of(g), values, trained


def convert_qat(graph, params):
    """What prepare_qat made of the network, with the parameters that were trained, as it runs: a Quantised."""
    g, values, report, text = _core.convert_qat(graph.value, dict(params))
    return Quantised(Graph._of(g), values, json.loads(report), text)
