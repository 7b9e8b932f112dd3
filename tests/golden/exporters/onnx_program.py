"""Programs of the old ONNX exporter, node by node in our primitives."""

import io

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from program import DTYPES, Program, Value

MAPS = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Pow": "pow", "Sqrt": "sqrt", "Exp": "exp",
        "Erf": "erf", "Tanh": "tanh", "Sigmoid": "sigmoid", "Neg": "neg", "Relu": "relu", "Cos": "cos", "Sin": "sin",
        "Where": "select", "Reciprocal": "reciprocal", "Equal": "eq", "LessOrEqual": "le"}
# What is computed of constants alone: shapes and indices.
KNOWN = {"Concat": lambda xs, a: np.concatenate(xs, a["axis"]),
         "Unsqueeze": lambda xs, a: np.expand_dims(xs[0], tuple(xs[1])),
         "Gather": lambda xs, a: np.take(xs[0], xs[1], a.get("axis", 0)),
         "Mul": lambda xs, a: xs[0] * xs[1],
         "Cast": lambda xs, a: xs[0].astype(onnx.helper.tensor_dtype_to_np_dtype(a["to"])), "Div": lambda xs, a: xs[0] // xs[1],
         "Equal": lambda xs, a: xs[0] == xs[1], "Where": lambda xs, a: np.where(*xs),
         "ConstantOfShape": lambda xs, a: np.full(xs[0], numpy_helper.to_array(a["value"])[0]),
         "Slice": lambda xs, a: xs[0][int(xs[1][0]):int(xs[2][0])]}


def exported(layer, inputs):
    out = io.BytesIO()
    torch.onnx.export(layer, tuple(inputs.values()), out, dynamo=False, opset_version=13, input_names=list(inputs))
    return onnx.load_from_string(out.getvalue()).graph


class FromOnnx:
    """Initialisers that are parameters, or their transposes, are called so; others are constants."""

    def __init__(self, name, graph, state):
        self.p, self.values, self.numbers = Program(name), {}, {}
        for i in graph.input:
            t = i.type.tensor_type
            dtype = DTYPES[str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)))]
            self.values[i.name] = self.p.leaf("input", i.name, [d.dim_value for d in t.shape.dim], dtype)
        # Weights with what followed a convolution folded in have names of their own.
        self.folded = {n.input[i]: f"{n.name.split('/')[1]}.{('weight', 'bias')[i - 1]}"
                       for n in graph.node if n.op_type == "Conv" for i in range(1, len(n.input))}
        for t in graph.initializer:
            self.initialiser(t, state)
        for node in graph.node:
            attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            self.node(node, attrs)
        self.p.returned = self.get(graph.output[0].name)

    def initialiser(self, tensor, state):
        array = numpy_helper.to_array(tensor)
        for name, known in state:
            for turned in (known.numpy(), known.numpy().T):
                if turned.shape == array.shape and np.array_equal(turned, array):
                    self.values[tensor.name] = self.p.leaf("param", name, array.shape)
                    return
        if tensor.name in self.folded:
            self.values[tensor.name] = self.p.leaf("param", self.folded[tensor.name], array.shape)
            return
        self.numbers[tensor.name] = array

    def get(self, name):
        if name not in self.values:
            self.values[name] = self.p.constant(self.numbers[name])
        return self.values[name]

    def node(self, node, attrs):
        names, out, kind = list(node.input), node.output[0], node.op_type
        if kind == "Constant":
            self.numbers[out] = numpy_helper.to_array(attrs["value"])
        elif kind == "Identity":
            (self.numbers if names[0] in self.numbers else self.values)[out] = self.numbers.get(names[0], self.values.get(names[0]))
        elif kind == "Shape":
            self.numbers[out] = np.array(self.get(names[0]).shape)
        elif kind in KNOWN and all(n in self.numbers for n in names):
            self.numbers[out] = KNOWN[kind]([self.numbers[n] for n in names], attrs)
        elif kind in MAPS:
            self.values[out] = self.p.map(MAPS[kind], *[self.get(n) for n in names])
        else:
            results = getattr(self, "do_" + kind)(names, attrs)
            for name, v in zip(node.output, results if isinstance(results, list) else [results]):
                self.values[name] = v

    def ints(self, name):
        return [int(i) for i in self.numbers[name]]

    def do_MatMul(self, names, attrs):
        return self.p.matmul(self.get(names[0]), self.get(names[1]))

    def do_Gemm(self, names, attrs):
        a, b, c = (self.get(n) for n in names)
        assert attrs.get("alpha", 1) == 1 and attrs.get("beta", 1) == 1 and not attrs.get("transA")
        return self.p.map("add", self.p.matmul(a, b, bool(attrs.get("transB"))), c)

    def do_Softmax(self, names, attrs):
        return self.p.softmax(self.get(names[0]), attrs["axis"])

    def do_ReduceMean(self, names, attrs):
        return self.p.reduce("reduce_mean", self.get(names[0]), attrs["axes"], bool(attrs.get("keepdims", 1)))

    def do_Reshape(self, names, attrs):
        x, shape = self.get(names[0]), self.ints(names[1])
        shape = [x.shape[i] if d == 0 else d for i, d in enumerate(shape)]
        rest = int(np.prod(x.shape)) // int(np.prod([d for d in shape if d != -1]))
        return self.p.reshape(x, [rest if d == -1 else d for d in shape])

    def do_Unsqueeze(self, names, attrs):
        x = self.get(names[0])
        return self.p.reshape(x, np.expand_dims(np.empty(x.shape), tuple(self.ints(names[1]))).shape)

    def do_Squeeze(self, names, attrs):
        x = self.get(names[0])
        return self.p.reshape(x, np.squeeze(np.empty(x.shape), tuple(self.ints(names[1]))).shape)

    def do_Transpose(self, names, attrs):
        return self.p.transpose(self.get(names[0]), attrs["perm"])

    def do_Expand(self, names, attrs):
        x = self.get(names[0])
        return self.p.broadcast(x, np.broadcast_shapes(x.shape, tuple(self.ints(names[1]))))

    def do_Concat(self, names, attrs):
        return self.p.concat([self.get(n) for n in names], attrs["axis"])

    def do_Slice(self, names, attrs):
        x, (start, limit, axes) = self.get(names[0]), (self.ints(n) for n in names[1:4])
        assert len(axes) == 1 and (len(names) < 5 or self.ints(names[4]) == [1])
        n = x.shape[axes[0]]
        low = start[0] + n if start[0] < 0 else start[0]
        high = limit[0] + n if limit[0] < 0 else min(limit[0], n)
        return self.p.slice(x, axes[0], low, high)

    def do_Split(self, names, attrs):
        parts, start, x = [], 0, self.get(names[0])
        for n in self.ints(names[1]):
            parts.append(self.p.slice(x, attrs["axis"], start, start + n))
            start += n
        return parts

    def do_Gather(self, names, attrs):
        x, axis = self.get(names[0]), attrs.get("axis", 0)
        if names[1] in self.numbers and self.numbers[names[1]].ndim == 0:
            i = int(self.numbers[names[1]])
            return self.p.reshape(self.p.slice(x, axis, i, i + 1), x.shape[:axis] + x.shape[axis + 1:])
        return self.p.gather(x, self.get(names[1]), axis)

    def do_Cast(self, names, attrs):
        return self.p.cast(self.get(names[0]), DTYPES[str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(attrs["to"])))])

    def do_Conv(self, names, attrs):
        x, w = self.get(names[0]), self.get(names[1])
        pads = attrs["pads"]
        assert pads[: len(pads) // 2] == pads[len(pads) // 2:]
        y = self.p.conv(x, w, attrs["strides"], pads[: len(pads) // 2], attrs["group"])
        if len(names) < 3:
            return y
        bias = self.get(names[2])
        return self.p.map("add", y, self.p.reshape(bias, (bias.shape[0],) + (1,) * (x.rank - 2)))
