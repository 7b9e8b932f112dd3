"""The layers of layers.py with our composites. Weights of linear layers lie as the exporter leaves them: turned [out, in]."""

import numpy as np

from layers import BATCH, HEAD, HEADS, HIDDEN, LEAST, LENGTH, WIDTH
from program import Program


class Composites:
    def __init__(self, exporter):
        self.turned, self.folded = exporter == "torch", exporter == "onnx"
        self.p = None

    def layer(self, name):
        self.p = Program(name)
        self.p.returned = getattr(self, name)()
        return self.p

    # parts

    def input(self, name, shape, dtype="f32"):
        return self.p.leaf("input", name, shape, dtype)

    def param(self, name, *shape):
        return self.p.leaf("param", name, shape)

    def linear(self, x, name, width, bias=True):
        inputs = x.shape[-1]
        w = self.param(name + ".weight", *((width, inputs) if self.turned else (inputs, width)))
        y = self.p.matmul(x, w, self.turned)
        return self.p.map("add", y, self.param(name + ".bias", width)) if bias else y

    def conv1d_of_gpt2(self, x, name, width):
        y = self.p.matmul(x, self.param(name + ".weight", x.shape[-1], width))
        return self.p.map("add", y, self.param(name + ".bias", width))

    def norm(self, x, name, eps):
        g, b = self.param(name + ".weight", WIDTH), self.param(name + ".bias", WIDTH)
        return self.p.emit("layer_norm", [x, g, b], {} if eps == 1e-5 else {"eps": eps}, (x.shape, x.dtype))

    def rms(self, x, name):
        g, b = self.param(name + ".weight", WIDTH), self.p.constant(np.zeros(WIDTH, np.float32))
        return self.p.emit("rms_norm", [x, g, b], {"eps": 1e-06}, (x.shape, x.dtype))

    def one(self, op, x):
        return self.p.emit(op, [x], {}, (x.shape, x.dtype))

    def heads(self, x, n=HEADS):
        x = self.p.reshape(x, (BATCH, LENGTH, n, HEAD))
        return self.p.transpose(x, (0, 2, 1, 3))

    def merged(self, x):
        return self.p.reshape(self.p.transpose(x, (0, 2, 1, 3)), (BATCH, LENGTH, WIDTH))

    def attention(self, q, k, v, bias=None, causal=False):
        attrs = {"num_heads": HEADS, "num_kv_heads": k.shape[1]} | ({"mask": "causal"} if causal else {})
        attrs |= {"has_bias": True} if bias else {}
        operands = [q, k, v] + ([bias] if bias else [])
        return self.p.emit("attention", operands, attrs | {"layout": "head_major"}, (q.shape, "f32"), (q.shape[:3], "f32"))[0]

    def conv(self, x, name, width, kernel, stride, padding, bias=True):
        w = self.param(name + ".weight", width, x.shape[1], *kernel)
        y = self.p.conv(x, w, stride, padding)
        if not bias:
            return y
        b = self.p.reshape(self.param(name + ".bias", width), (width,) + (1,) * len(kernel))
        return self.p.map("add", y, b)

    # layers

    def bert(self):
        p, x, mask = self.p, self.input("x", (BATCH, LENGTH, WIDTH)), self.input("mask", (BATCH, LENGTH))
        q, k, v = (self.heads(self.linear(x, n, WIDTH)) for n in ("query", "key", "value"))
        bias = p.map("mul", p.map("sub", 1.0, p.reshape(mask, (BATCH, 1, 1, LENGTH))), LEAST)
        # No row is without keys: the largest bias of each is 0.
        bias = p.map("sub", bias, p.reduce("reduce_max", bias, [3], True))
        a = self.merged(self.attention(q, k, v, bias))
        x = self.norm(p.map("add", self.linear(a, "dense", WIDTH), x), "norm1", 1e-12)
        m = self.linear(self.one("gelu", self.linear(x, "up", HIDDEN)), "down", WIDTH)
        return self.norm(p.map("add", m, x), "norm2", 1e-12)

    def gpt2(self):
        p, tokens = self.p, self.input("tokens", (BATCH, LENGTH), "i64")
        counted = np.arange(LENGTH).reshape(1, LENGTH)
        positions = p.constant(counted) if self.folded else p.reshape(p.iota((LENGTH,)), (1, LENGTH))
        x = p.map("add", p.gather(self.param("wte.weight", 23, WIDTH), tokens),
                  p.gather(self.param("wpe.weight", 16, WIDTH), positions))
        joined = self.conv1d_of_gpt2(self.norm(x, "ln1", 1e-5), "attn", 3 * WIDTH)
        q, k, v = (self.heads(p.slice(joined, 2, i * WIDTH, (i + 1) * WIDTH)) for i in range(3))
        x = p.map("add", x, self.conv1d_of_gpt2(self.merged(self.attention(q, k, v, causal=True)), "proj", WIDTH))
        u = self.one("gelu_tanh", self.conv1d_of_gpt2(self.norm(x, "ln2", 1e-5), "up", HIDDEN))
        return p.map("add", x, self.conv1d_of_gpt2(u, "down", WIDTH))

    def llama(self):
        p, x, positions = self.p, self.input("x", (BATCH, LENGTH, WIDTH)), self.input("positions", (1, LENGTH), "i64")
        frequencies = 1.0 / (10000.0 ** (np.arange(0, HEAD, 2, dtype=np.float32) / np.float32(HEAD)))
        angles = p.matmul(p.constant(frequencies.reshape(1, HEAD // 2, 1).astype(np.float32)),
                          p.cast(p.reshape(positions, (1, 1, LENGTH)), "f32"))
        angles = p.transpose(angles, (0, 2, 1))
        cos, sin = (p.reshape(self.one(op, angles), (LENGTH, HEAD // 2)) for op in ("cos", "sin"))
        rope = lambda v: p.emit("rope", [v, cos, sin], {"head_dim": HEAD, "n_rot": HEAD}, (v.shape, "f32"))
        n = self.rms(x, "norm1")
        kv = HEADS // 2
        q = self.heads(self.linear(n, "q", WIDTH, False))
        k = self.heads(self.linear(n, "k", kv * HEAD, False), kv)
        v = self.heads(self.linear(n, "v", kv * HEAD, False), kv)
        a = self.attention(rope(q), rope(k), v, causal=True)
        x = p.map("add", x, self.linear(self.merged(a), "o", WIDTH, False))
        n = self.rms(x, "norm2")
        gate, up = self.linear(n, "gate", HIDDEN, False), self.linear(n, "up", HIDDEN, False)
        gated = p.emit("swiglu", [gate, up], {}, (gate.shape, "f32"))
        return p.map("add", x, self.linear(gated, "down", WIDTH, False))

    def vit(self):
        p = self.p
        patches = self.conv(self.input("image", (BATCH, 3, 12, 12)), "patches", WIDTH, (4, 4), (4, 4), (0, 0))
        x = p.transpose(p.reshape(patches, (BATCH, WIDTH, LENGTH - 1)), (0, 2, 1))
        token = p.broadcast(self.param("token", 1, 1, WIDTH), (BATCH, 1, WIDTH))
        x = p.map("add", p.concat([token, x], 1), self.param("positions", 1, LENGTH, WIDTH))
        joined = self.linear(self.norm(x, "norm1", 1e-6), "qkv", 3 * WIDTH)
        q, k, v = (self.heads(p.slice(joined, 2, i * WIDTH, (i + 1) * WIDTH)) for i in range(3))
        x = p.map("add", x, self.linear(self.merged(self.attention(q, k, v)), "proj", WIDTH))
        m = self.linear(self.one("gelu", self.linear(self.norm(x, "norm2", 1e-6), "up", HIDDEN)), "down", WIDTH)
        return p.map("add", x, m)

    def block(self, x, conv, norm, width, kernel, stride):
        sizes = ((kernel, kernel), (stride, stride), (kernel // 2, kernel // 2))
        y = self.conv(x, conv, width, *sizes, bias=self.folded)
        if self.folded:
            return y
        parts = [self.param(f"{norm}.{n}", width) for n in ("weight", "bias", "running_mean", "running_var")]
        return self.p.emit("batch_norm", [y, *parts], {}, (y.shape, y.dtype))

    def resnet(self):
        image = self.input("image", (BATCH, 8, 10, 10))
        y = self.one("relu", self.block(image, "conv1", "bn1", 10, 1, 1))
        y = self.one("relu", self.block(y, "conv2", "bn2", 10, 3, 2))
        y, skip = self.block(y, "conv3", "bn3", 16, 1, 1), self.block(image, "skip", "bn4", 16, 1, 2)
        return self.one("relu", self.p.map("add", y, skip))

    def whisper(self):
        p = self.p
        x = self.one("gelu", self.conv(self.input("sound", (BATCH, 12, 2 * LENGTH)), "conv1", WIDTH, (3,), (1,), (1,)))
        x = self.one("gelu", self.conv(x, "conv2", WIDTH, (3,), (2,), (1,)))
        x = p.map("add", p.transpose(x, (0, 2, 1)), self.param("positions", LENGTH, WIDTH))
        n = self.norm(x, "norm1", 1e-5)
        q, k, v = (self.heads(self.linear(n, name, WIDTH, name != "key")) for name in ("query", "key", "value"))
        x = p.map("add", x, self.linear(self.merged(self.attention(q, k, v)), "out", WIDTH))
        m = self.linear(self.one("gelu", self.linear(self.norm(x, "norm2", 1e-5), "up", HIDDEN)), "down", WIDTH)
        return p.map("add", x, m)
