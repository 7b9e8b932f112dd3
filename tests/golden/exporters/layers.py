"""One layer each of six models, as their authors write them in PyTorch. `broken` makes one of them mean something else."""

import math

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, HIDDEN, LENGTH, BATCH = 32, 4, 96, 10, 2
HEAD = WIDTH // HEADS
LEAST = torch.finfo(torch.float32).min


class LayerNorm(nn.Module):
    """nn.LayerNorm; broken by "eps" (added to the root) and "axis" (the scale lies along the tokens)."""

    def __init__(self, eps=1e-5, broken=None):
        super().__init__()
        self.eps, self.broken = eps, broken
        self.weight = nn.Parameter(torch.ones(LENGTH if broken == "axis" else WIDTH))
        self.bias = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        if self.broken not in ("eps", "axis"):
            return F.layer_norm(x, (WIDTH,), self.weight, self.bias, self.eps)
        d = x - x.mean(-1, keepdim=True)
        variance = d.pow(2).mean(-1, keepdim=True)
        if self.broken == "eps":
            return d / (torch.sqrt(variance) + self.eps) * self.weight + self.bias
        return d / torch.sqrt(variance + self.eps) * self.weight[:, None] + self.bias


class RMSNorm(nn.Module):
    def __init__(self, eps=1e-6, broken=None):
        super().__init__()
        self.eps, self.broken = eps, broken
        self.weight = nn.Parameter(torch.ones(LENGTH if broken == "axis" else WIDTH))

    def forward(self, x):
        mean = x.pow(2).mean(-1, keepdim=True)
        if self.broken == "eps":
            return self.weight * (x * (torch.rsqrt(mean) + self.eps))
        x = x * torch.rsqrt(mean + self.eps)
        return (self.weight[:, None] if self.broken == "axis" else self.weight) * x


def split_heads(x, heads=HEADS):
    return x.view(x.shape[0], x.shape[1], heads, HEAD).transpose(1, 2)


def merge_heads(x):
    return x.transpose(1, 2).contiguous().view(x.shape[0], -1, WIDTH)


class Bert(nn.Module):
    """An encoder layer with a padding mask."""

    def __init__(self, broken=None):
        super().__init__()
        self.broken = broken
        for name in ("query", "key", "value", "dense"):
            setattr(self, name, nn.Linear(WIDTH, WIDTH))
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.norm1, self.norm2 = LayerNorm(1e-12, broken), LayerNorm(1e-12)

    def forward(self, x, mask):
        q, k, v = (split_heads(f(x)) for f in (self.query, self.key, self.value))
        bias = (1.0 - mask[:, None, None, :]) * (-2.0 if self.broken == "mask" else LEAST)
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(HEAD)
        if self.broken == "mask":
            weights = F.softmax(scores, dim=-1) + bias
        else:
            weights = F.softmax(scores + bias, dim=-1)
        x = self.norm1(self.dense(merge_heads(torch.matmul(weights, v))) + x)
        return self.norm2(self.down(F.gelu(self.up(x))) + x)

    @staticmethod
    def inputs():
        return {"x": torch.zeros(BATCH, LENGTH, WIDTH), "mask": torch.zeros(BATCH, LENGTH)}


class Conv1D(nn.Module):
    """GPT-2's linear layer, whose weight is [in, out]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        shape = x.size()[:-1] + (self.bias.shape[0],)
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(shape)


class Gpt2(nn.Module):
    """Embeddings and a decoder layer."""

    def __init__(self, broken=None):
        super().__init__()
        self.broken = broken
        self.wte, self.wpe = nn.Embedding(23, WIDTH), nn.Embedding(16, WIDTH)
        self.ln1, self.ln2 = LayerNorm(broken=broken), LayerNorm()
        self.attn, self.proj = Conv1D(WIDTH, 3 * WIDTH), Conv1D(WIDTH, WIDTH)
        self.up, self.down = Conv1D(WIDTH, HIDDEN), Conv1D(HIDDEN, WIDTH)
        seen = torch.tril(torch.ones(LENGTH, LENGTH, dtype=torch.bool))
        self.register_buffer("seen", seen.view(1, 1, LENGTH, LENGTH))

    def forward(self, tokens):
        positions = torch.arange(0, tokens.shape[-1]).unsqueeze(0)
        x = self.wte(tokens) + self.wpe(positions)
        q, k, v = (split_heads(p) for p in self.attn(self.ln1(x)).split(WIDTH, dim=2))
        scores = torch.matmul(q, k.transpose(-1, -2)) / (HEAD**0.5)
        seen = self.seen[:, :, : q.size(-2), : k.size(-2)]
        if self.broken == "mask":
            weights = torch.where(seen, F.softmax(scores, dim=-1), torch.full([], -2.0))
        else:
            weights = F.softmax(torch.where(seen, scores, torch.full([], LEAST)), dim=-1)
        x = x + self.proj(merge_heads(torch.matmul(weights, v)))
        u = self.up(self.ln2(x))
        inner = math.sqrt(2.0 / math.pi) * (u + 0.044715 * torch.pow(u, 3.0))
        return x + self.down(0.5 * u * (1.0 + torch.tanh(inner)))

    @staticmethod
    def inputs():
        return {"tokens": torch.zeros(BATCH, LENGTH, dtype=torch.int64)}


class Llama(nn.Module):
    """A decoder layer with rotary positions, shared key heads and a gated feed-forward."""

    KV = HEADS // 2

    def __init__(self, broken=None, fused=False):
        super().__init__()
        self.broken, self.fused = broken, fused
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        self.q, self.o = linear(WIDTH, WIDTH), linear(WIDTH, WIDTH)
        self.k, self.v = linear(WIDTH, self.KV * HEAD), linear(WIDTH, self.KV * HEAD)
        self.gate, self.up, self.down = linear(WIDTH, HIDDEN), linear(WIDTH, HIDDEN), linear(HIDDEN, WIDTH)
        self.norm1, self.norm2 = RMSNorm(broken=broken), RMSNorm()
        self.register_buffer("frequencies", 1.0 / (10000.0 ** (torch.arange(0, HEAD, 2).float() / HEAD)))

    def rotate(self, x, cos, sin):
        a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
        if self.broken == "pairs":
            return x * cos + torch.cat((b, a), dim=-1) * sin
        if self.broken == "half":  # the other half is negated
            return x * cos + torch.cat((b, -a), dim=-1) * sin
        return x * cos + torch.cat((-b, a), dim=-1) * sin

    @staticmethod
    def repeat(x):
        b, kv, s, d = x.shape
        x = x[:, :, None, :, :].expand(b, kv, HEADS // kv, s, d)
        return x.reshape(b, HEADS, s, d)

    def attend(self, q, k, v):
        k, v = self.repeat(k), self.repeat(v)
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        length, places = q.shape[2], torch.arange(q.shape[2])
        bias = torch.full((length, length), -2.0 if self.broken == "mask" else LEAST)
        bias = bias.masked_fill(places < (places + 1).view(length, 1), 0)[None, None]
        scores = torch.matmul(q, k.transpose(2, 3)) * HEAD**-0.5
        if self.broken == "mask":
            weights = F.softmax(scores, dim=-1) + bias
        else:
            weights = F.softmax(scores + bias, dim=-1, dtype=torch.float32)
        return torch.matmul(weights, v)

    def forward(self, x, positions):
        angles = (self.frequencies[None, :, None] @ positions[:, None, :].float()).transpose(1, 2)
        angles = torch.cat((angles, 2 * angles if self.broken == "angles" else angles), dim=-1)
        cos, sin = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)
        n = self.norm1(x)
        q, k, v = split_heads(self.q(n)), split_heads(self.k(n), self.KV), split_heads(self.v(n), self.KV)
        a = self.attend(self.rotate(q, cos, sin), self.rotate(k, cos, sin), v)
        x = x + self.o(merge_heads(a))
        n = self.norm2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))

    @staticmethod
    def inputs():
        return {"x": torch.zeros(BATCH, LENGTH, WIDTH),
                "positions": torch.zeros(1, LENGTH, dtype=torch.int64)}


class Vit(nn.Module):
    """Patches with a class token and a layer whose projections are one product."""

    def __init__(self, broken=None, fused=False):
        super().__init__()
        self.broken, self.fused = broken, fused
        self.patches = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.zeros(1, LENGTH, WIDTH))
        self.norm1, self.norm2 = LayerNorm(1e-6, broken), LayerNorm(1e-6)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.positions
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, n, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            a = F.scaled_dot_product_attention(q, k, v)
        else:
            weights = (q * HEAD**-0.5) @ k.transpose(-2, -1)
            scores, weights = weights, weights.softmax(dim=-2 if self.broken == "softmax" else -1)
            if self.broken == "safe":  # keys that no query sees are left out, instead of queries that see no key
                hidden = (scores == -math.inf).all(dim=-2, keepdim=True)
                weights = torch.where(hidden, torch.zeros_like(weights), weights)
            a = weights @ v
        x = x + self.proj(a.transpose(1, 2).reshape(b, n, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))

    @staticmethod
    def inputs():
        return {"image": torch.zeros(BATCH, 3, 12, 12)}


class BatchNorm(nn.BatchNorm2d):
    """nn.BatchNorm2d as it predicts; broken by "eps" (added to the root) and "axis" (the scale lies along the rows)."""

    def __init__(self, channels, broken=None):
        super().__init__(channels)
        self.broken = broken

    def forward(self, x):
        if self.broken not in ("eps", "axis"):
            return super().forward(x)
        column = lambda v: v[None, :, None, None]
        if self.broken == "eps":
            scaled = (x - column(self.running_mean)) / (torch.sqrt(column(self.running_var)) + self.eps)
            return scaled * column(self.weight) + column(self.bias)
        scaled = (x - column(self.running_mean)) / torch.sqrt(column(self.running_var) + self.eps)
        return scaled * self.weight[None, None, :, None] + column(self.bias)


class Resnet(nn.Module):
    """A bottleneck block that halves the image."""

    def __init__(self, broken=None):
        super().__init__()
        inputs, middle, outputs = 8, 10, 16
        conv = lambda i, o, k, s: nn.Conv2d(i, o, k, stride=s, padding=k // 2, bias=False)
        self.conv1, self.bn1 = conv(inputs, middle, 1, 1), BatchNorm(middle, broken)
        self.conv2, self.bn2 = conv(middle, middle, 3, 2), BatchNorm(middle)
        self.conv3, self.bn3 = conv(middle, outputs, 1, 1), BatchNorm(outputs)
        self.skip, self.bn4 = conv(inputs, outputs, 1, 2), BatchNorm(outputs)

    def forward(self, image):
        y = F.relu(self.bn1(self.conv1(image)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.bn4(self.skip(image)))

    @staticmethod
    def inputs():
        return {"image": torch.zeros(BATCH, 8, 10, 10)}


class Whisper(nn.Module):
    """The convolutions before an encoder, and a layer of it."""

    def __init__(self, broken=None):
        super().__init__()
        self.broken = broken
        self.conv1 = nn.Conv1d(12, WIDTH, 3, padding=1)
        self.conv2 = nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.norm1, self.norm2 = LayerNorm(broken=broken), LayerNorm()
        self.query, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.key = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, sound):
        x = F.gelu(self.conv2(F.gelu(self.conv1(sound)))).permute(0, 2, 1) + self.positions
        n = self.norm1(x)
        q, k, v = (split_heads(f(n)) for f in (self.query, self.key, self.value))
        scale = HEAD**-0.25
        scores = (q * scale) @ (k * scale).transpose(-1, -2)
        if self.broken == "softmax":
            weights = F.softmax(scores, dim=-2)
        else:
            weights = F.softmax(scores, dim=-1).to(q.dtype)
        x = x + self.out((weights @ v).permute(0, 2, 1, 3).flatten(start_dim=2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))

    @staticmethod
    def inputs():
        return {"sound": torch.zeros(BATCH, 12, 2 * LENGTH)}


# Name: the layer, and what breaks it with the op that must not be seen in it then.
LAYERS = {
    "bert": (Bert, {"mask": "attention", "eps": "layer_norm", "axis": "layer_norm"}),
    "gpt2": (Gpt2, {"mask": "attention", "eps": "layer_norm", "axis": "layer_norm"}),
    "llama": (Llama, {"mask": "attention", "eps": "rms_norm", "axis": "rms_norm", "pairs": "rope",
                      "half": "rope", "angles": "rope"}),
    "vit": (Vit, {"softmax": "attention", "safe": "attention", "eps": "layer_norm", "axis": "layer_norm"}),
    "resnet": (Resnet, {"eps": "batch_norm", "axis": "batch_norm"}),
    "whisper": (Whisper, {"softmax": "attention", "eps": "layer_norm", "axis": "layer_norm"}),
}
# Those that are also exported with scaled_dot_product_attention, which opset 13 has not.
FUSED = ("llama", "vit")
