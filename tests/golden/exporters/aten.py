"""torch.export's programs, node by node in our primitives."""

import operator

import numpy as np
import torch

from program import DTYPES, Program, Value

aten = torch.ops.aten

# What the core ATen ops still hold together, and PyTorch itself takes apart.
COMPOSITES = [aten.native_layer_norm, aten._softmax, aten.gelu, aten.silu, aten.addmm,
              aten._native_batch_norm_legit_no_training, aten._native_batch_norm_legit, aten.native_batch_norm]

MAPS = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "pow": "pow", "le": "le", "lt": "lt", "ge": "ge",
        "gt": "gt", "eq": "eq", "ne": "ne", "logical_and": "logical_and", "logical_not": "logical_not", "exp": "exp",
        "rsqrt": "rsqrt", "sqrt": "sqrt", "erf": "erf", "tanh": "tanh", "sigmoid": "sigmoid", "neg": "neg",
        "sin": "sin", "cos": "cos", "relu": "relu", "reciprocal": "reciprocal"}
FOLDS = {"amax": "reduce_max", "sum": "reduce_sum", "mean": "reduce_mean", "any": "any"}
SAME = ("clone", "alias", "detach", "lift_fresh_copy")


def dtype_of(d):
    return DTYPES[str(d).removeprefix("torch.")]


def decomposed(layer, inputs, dynamic=None):
    program = torch.export.export(layer, tuple(inputs.values()), dynamic_shapes=dynamic).run_decompositions()
    return program.run_decompositions(torch._decomp.get_decompositions(COMPOSITES))


class FromAten:
    def __init__(self, name, exported):
        self.p, self.values, self.exported = Program(name), {}, exported
        signature, state = exported.graph_signature, exported.state_dict | exported.constants
        leaves = signature.inputs_to_parameters | signature.inputs_to_buffers | signature.inputs_to_lifted_tensor_constants
        trained = set(signature.inputs_to_parameters.values())
        for node in exported.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self.leaf(node, leaves.get(node.name), state, trained)
            elif node.op == "call_function":
                self.values[node] = self.call(node)
            elif node.op == "output":
                self.p.returned = self.values[node.args[0][0]]

    def leaf(self, node, target, state, trained):
        shape = [self.size(d) for d in node.meta["val"].shape]
        dtype = dtype_of(node.meta["val"].dtype)
        if target is None:
            return self.p.leaf("input", node.name, shape, dtype)
        if target in trained or "running_" in target:
            return self.p.leaf("param", target, shape, dtype)
        return self.p.constant(state[target].numpy()) if node.users else None

    @staticmethod
    def size(d):
        return d.node.expr if isinstance(d, torch.SymInt) and not d.node.expr.is_number else int(d)

    def get(self, a):
        """An argument: nodes become values, or numbers where they are sizes."""
        if isinstance(a, torch.fx.Node):
            if isinstance(a.meta.get("val"), (torch.SymInt, int)):
                return self.size(a.meta["val"])
            return self.values[a]
        return [self.get(b) for b in a] if isinstance(a, (list, tuple)) else a

    def call(self, node):
        if isinstance(node.meta.get("val"), (torch.SymInt, torch.SymBool, torch.SymFloat, int)):
            return None  # the arithmetic of sizes
        args = [self.get(a) for a in node.args]
        if node.target is operator.getitem:
            return args[0][args[1]]
        if "assert" in str(node.target) or "sym_constrain" in str(node.target):
            return None
        name = node.target._schema.name.split("::")[1]
        if name in SAME:
            return args[0]
        out = node.meta["val"]
        if name in MAPS:
            args = [self.typed(a, out, name) for a in args]
            return self.checked(self.p.map(MAPS[name], *args), out)
        if name in FOLDS:
            axes = args[1] if len(args) > 1 else range(args[0].rank)
            axes = [axes] if isinstance(axes, int) else axes
            return self.checked(self.p.reduce(FOLDS[name], args[0], axes, len(args) > 2 and args[2]), out)
        return self.checked(getattr(self, "do_" + name.lstrip("_"))(node, out, *args), out)

    def typed(self, a, out, name):
        """Operands of one dtype, as PyTorch promotes them."""
        if isinstance(a, Value):
            if name in ("le", "lt", "ge", "gt", "eq", "ne") or out.dtype == torch.bool:
                return a
            return self.p.cast(a, dtype_of(out.dtype))
        return a

    def checked(self, v, out):
        if isinstance(v, Value):
            assert [str(d) for d in v.shape] == [str(self.size(d)) for d in out.shape], (v.shape, out.shape)
            assert v.dtype == dtype_of(out.dtype), (v.dtype, out.dtype)
        return v

    def shape(self, out):
        return [self.size(d) for d in out.shape]

    def do_view(self, node, out, x, _):
        return self.p.reshape(x, self.shape(out))

    do_unsafe_view = do_reshape = do_view

    def do_unsqueeze(self, node, out, x, _):
        return self.p.reshape(x, self.shape(out))

    do_squeeze = do_unsqueeze

    def do_permute(self, node, out, x, perm):
        return self.p.transpose(x, [i % x.rank for i in perm])

    def do_expand(self, node, out, x, _):
        return self.p.broadcast(x, self.shape(out))

    def do_mm(self, node, out, a, b):
        return self.p.matmul(a, b)

    do_bmm = do_mm

    def do_cat(self, node, out, xs, axis=0):
        return self.p.concat(xs, axis)

    def do_slice(self, node, out, x, axis=0, start=0, limit=None, stride=1):
        axis %= x.rank
        n, start = x.shape[axis], start or 0
        if not isinstance(n, int):
            assert start == 0 and limit in (None, 2**63 - 1)
            return self.p.slice(x, axis, 0, n, stride)
        start = start + n if start < 0 else start
        limit = n if limit is None else min(limit + n if limit < 0 else limit, n)
        return self.p.slice(x, axis, start, limit, stride)

    def do_select(self, node, out, x, axis, index):
        axis, n = axis % x.rank, x.shape[axis % x.rank]
        index = index % n
        return self.p.reshape(self.p.slice(x, axis, index, index + 1), self.shape(out))

    def do_split_with_sizes(self, node, out, x, sizes, axis=0):
        parts, start = [], 0
        for n in sizes:
            parts.append(self.p.slice(x, axis, start, start + n))
            start += n
        return parts

    def do_where(self, node, out, condition, a, b):
        return self.p.map("select", condition, a, b, dtype=dtype_of(out.dtype))

    def do_full(self, node, out, shape, value, **_):
        v = self.p.constant(np.array(value), dtype_of(out.dtype))
        return self.p.broadcast(v, self.shape(out)) if len(out.shape) else v

    def do_full_like(self, node, out, x, value):
        return self.do_full(node, out, None, value)

    def do_scalar_tensor(self, node, out, value):
        return self.p.constant(np.array(value), dtype_of(out.dtype))

    def do_arange(self, node, out, start, end, step=1):
        assert start == 0 and step == 1
        return self.p.iota(self.shape(out), 0, dtype_of(out.dtype))

    def do_to_copy(self, node, out, x):
        return self.p.cast(x, dtype_of(out.dtype))

    def do_embedding(self, node, out, table, indices, *_):
        return self.p.gather(table, indices)

    def do_convolution(self, node, out, x, w, bias, stride, padding, dilation, transposed, output_padding, groups):
        assert not transposed and all(d == 1 for d in dilation)
        y = self.p.conv(x, w, stride, padding, groups)
        if bias is None:
            return y
        return self.p.map("add", y, self.p.reshape(bias, (bias.shape[0],) + (1,) * (x.rank - 2)))

    def do_var_mean(self, node, out, x, axes, unbiased=False, keepdims=False):
        keepdims = node.kwargs.get("keepdim", keepdims)
        correction = node.kwargs.get("correction", int(unbiased))
        more = {"correction": correction} if correction else {}
        return [self.p.reduce("variance", x, axes, keepdims, **more), self.p.reduce("reduce_mean", x, axes, keepdims)]
