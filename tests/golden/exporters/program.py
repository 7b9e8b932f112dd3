"""Programs in the text language of docs/text.md, written node by node; every node's type is inferred, as a check."""

import re

import numpy as np

DTYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
          "bool": "bool"}


class Value:
    def __init__(self, at, shape, dtype, known=None):
        self.at, self.shape, self.dtype, self.known = at, tuple(shape), dtype, known  # known: the value of a constant

    @property
    def rank(self):
        return len(self.shape)


def dim(d):
    """A size as text: symbols of PyTorch are s0, s27, .."""
    return re.sub(r"\b(s\d+)\b", r"?\1", str(d)).replace("**", "^").replace(" ", "")


def dims(shape):
    return "[" + ", ".join(dim(d) for d in shape) + "]"


def number(v):
    if isinstance(v, (bool, np.bool_)):
        return "1" if v else "0"
    if np.isinf(v):
        return "inf" if v > 0 else "-inf"
    text = repr(v.item() if v.dtype != np.float32 else float(str(v))) if isinstance(v, np.generic) else repr(v)
    return text[:-2] if text.endswith(".0") else text


def words(flags):
    return "true" if flags is True else "false" if flags is False else str(flags)


def broadcast(*shapes):
    rank = max(len(s) for s in shapes)
    out = []
    for column in zip(*[(1,) * (rank - len(s)) + tuple(s) for s in shapes]):
        sizes = [d for d in column if not (isinstance(d, int) and d == 1)]
        assert all(str(d) == str(sizes[0]) for d in sizes), shapes
        out.append(sizes[0] if sizes else 1)
    return tuple(out)


class Program:
    def __init__(self, name):
        self.name, self.lines, self.returned = name, [], None

    def emit(self, op, operands, attrs, *types):
        at = f"%{len(self.lines)}"
        braces = " {" + ", ".join(f"{k}={words(v)}" for k, v in attrs.items()) + "}" if attrs else ""
        shown = ", ".join(f"{dims(s)} {d}" for s, d in types)
        self.lines.append(f"  {at} = {op}({', '.join(v.at for v in operands)}){braces} : {shown}")
        results = [Value(at if i == 0 else f"{at}:{i}", s, d) for i, (s, d) in enumerate(types)]
        return results[0] if len(results) == 1 else results

    def text(self, comments):
        head = "".join(f"// {c}\n" for c in comments)
        return f'{head}graph @"{self.name}" {{\n' + "\n".join(self.lines) + f"\n  return {self.returned.at}\n}}\n"

    # leaves

    def leaf(self, op, name, shape, dtype="f32"):
        attrs = {"name": f'"{name}"'} | ({} if dtype == "f32" else {"dtype": dtype}) | {"shape": dims(shape)}
        return self.emit(op, [], attrs, (shape, dtype))

    def constant(self, array, dtype=None):
        array = np.asarray(array)
        dtype = dtype or DTYPES[str(array.dtype)]
        flat = array.astype(np.float32) if dtype == "f32" else array
        text = f"{dtype}{dims(array.shape)}{{{', '.join(number(v) for v in flat.reshape(-1))}}}"
        v = self.emit("constant", [], {"value": text}, (array.shape, dtype))
        v.known = array
        return v

    # primitives

    def map(self, op, *xs, dtype=None):
        """An elementwise op; comparisons give bool."""
        xs = [x if isinstance(x, Value) else None for x in xs] if all(isinstance(x, Value) for x in xs) else [
            x if isinstance(x, Value) else self.constant(np.array(x), self.like(xs)) for x in xs]
        out = dtype or ("bool" if op in ("le", "lt", "ge", "gt", "eq", "ne") else xs[-1].dtype)
        return self.emit(op, xs, {}, (broadcast(*(x.shape for x in xs)), out))

    @staticmethod
    def like(xs):
        return next(x.dtype for x in reversed(xs) if isinstance(x, Value) and x.dtype != "bool")

    def cast(self, x, to):
        return x if x.dtype == to else self.emit("cast", [x], {} if to == "f32" else {"to": to}, (x.shape, to))

    def matmul(self, a, b, transpose_b=False):
        rows = b.shape[:-2] + (b.shape[-1], b.shape[-2]) if transpose_b else b.shape
        shape = broadcast(a.shape[:-2], rows[:-2]) + (a.shape[-2], rows[-1])
        return self.emit("matmul", [a, b], {"transpose_b": True} if transpose_b else {}, (shape, a.dtype))

    def reduce(self, op, x, axes, keepdims, **more):
        axes = sorted(a % x.rank for a in axes)
        shape = [1 if i in axes else d for i, d in enumerate(x.shape) if keepdims or i not in axes]
        attrs = {"axes": dims(axes)} | ({"keepdims": True} if keepdims else {}) | more
        return self.emit(op, [x], attrs, (shape, x.dtype))

    def reshape(self, x, shape):
        return self.emit("reshape", [x], {"shape": dims(shape)}, (shape, x.dtype))

    def transpose(self, x, perm):
        return self.emit("transpose", [x], {"perm": dims(perm)}, ([x.shape[p] for p in perm], x.dtype))

    def broadcast(self, x, shape):
        return self.emit("broadcast", [x], {"shape": dims(shape)}, (shape, x.dtype))

    def slice(self, x, axis, start, limit, stride=1):
        axis %= x.rank
        low, high = [0] * x.rank, list(x.shape)
        low[axis], high[axis] = start, limit
        shape = list(x.shape)
        shape[axis] = (limit - start + stride - 1) // stride if stride != 1 else limit - start
        attrs = {"start": dims(low), "limit": dims(high)}
        if stride != 1:
            attrs["stride"] = dims([stride if i == axis else 1 for i in range(x.rank)])
        return self.emit("slice", [x], attrs, (shape, x.dtype))

    def concat(self, xs, axis):
        axis %= xs[0].rank
        shape = list(xs[0].shape)
        shape[axis] = sum(x.shape[axis] for x in xs)
        return self.emit("concat", xs, {"axis": axis} if axis else {}, (shape, xs[0].dtype))

    def gather(self, x, indices, axis=0):
        shape = x.shape[:axis] + indices.shape + x.shape[axis + 1 :]
        return self.emit("gather", [x, indices], {"axis": axis} if axis else {}, (shape, x.dtype))

    def iota(self, shape, axis=0, dtype="i64"):
        attrs = ({} if dtype == "i64" else {"dtype": dtype}) | {"shape": dims(shape)} | ({"axis": axis} if axis else {})
        return self.emit("iota", [], attrs, (shape, dtype))

    def conv(self, x, w, stride, padding, groups=1):
        sizes = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(x.shape[2:], padding, w.shape[2:], stride)]
        attrs = {"stride": dims(stride), "low": dims(padding), "high": dims(padding)}
        attrs |= {"groups": groups} if groups != 1 else {}
        return self.emit("conv", [x, w], attrs, ((x.shape[0], w.shape[0], *sizes), x.dtype))

    def softmax(self, x, axis):
        axis %= x.rank
        return self.emit("softmax", [x], {} if axis == x.rank - 1 else {"axis": axis}, (x.shape, x.dtype))
