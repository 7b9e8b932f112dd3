"""Convolutional networks of the model benchmark as torch modules, and what becomes of them elsewhere.

`make(name)` gives a module in eval mode with random weights from a fixed seed (architectures by name from torchvision; the U-Net
is below); `operands(name, batch)` what it is run on, by name; `to_rlx(name, module, operands)` walks its torch.fx graph and writes
the same operations as an rlx.Graph, a parameter per tensor.
"""

import operator

import numpy as np

NAMES = {"resnet50": 224, "mobilenet_v3": 224, "unet": 256, "resnet18": 224}


def make(name):
    import torch
    import torchvision.models as tv

    torch.manual_seed(0)
    if name == "resnet50":
        module = tv.resnet50(weights=None)
    elif name == "resnet18":
        module = tv.resnet18(weights=None)
    elif name == "mobilenet_v3":
        module = tv.mobilenet_v3_large(weights=None)
    elif name == "unet":
        module = unet()
    else:
        raise SystemExit(f"no network {name}; there are {', '.join(NAMES)}")
    # Statistics as a trained net has them: nothing vanishes or overflows.
    for m in module.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.8, 1.2)
            m.weight.data.uniform_(0.5, 0.9)
            m.bias.data.normal_(0, 0.1)
    return module.eval()


def unet(base=32, classes=2):
    """Four levels of two 3x3 convolutions with batch norm, max pools, transposed convolutions, joins along channels."""
    import torch
    from torch import nn

    def block(i, o):
        return nn.Sequential(
            *(m for c in (i, o) for m in (nn.Conv2d(c, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU()))
        )

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            widths = [base << i for i in range(5)]
            self.down = nn.ModuleList(block(i, o) for i, o in zip([3] + widths[:-1], widths))
            self.pool = nn.MaxPool2d(2)
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[-2::-1])
            self.join = nn.ModuleList(block(2 * w, w) for w in widths[-2::-1])
            self.head = nn.Conv2d(base, classes, 1)

        def forward(self, x):
            kept = []
            for i, level in enumerate(self.down):
                x = level(x if i == 0 else self.pool(x))
                kept.append(x)
            for up, join, skip in zip(self.up, self.join, kept[-2::-1]):
                x = join(torch.cat([skip, up(x)], 1))
            return self.head(x)

    return UNet()


def operands(name, batch):
    return {"x": np.random.default_rng(1).standard_normal((batch, 3, NAMES[name], NAMES[name])).astype("f4")}


def pair(v):
    return list(v) if isinstance(v, (tuple, list)) else [v, v]


class Translation:
    """A torch.fx graph as an rlx.Graph; `weights` has the values of its parameters."""

    def __init__(self, name, traced, shape):
        import rlx

        self.g, self.weights, self.modules = rlx.Graph(name), {}, dict(traced.named_modules())
        values = {}
        for node in traced.graph.nodes:
            args = [values[a] if a in values else a for a in node.args] if node.op != "output" else node.args
            if node.op == "placeholder":
                values[node] = self.g.input("x", tuple(shape))
            elif node.op == "call_module":
                values[node] = self.module(node.target, args[0])
            elif node.op == "call_function":
                values[node] = self.function(node, [[values[v] for v in a] if isinstance(a, list) else a for a in args])
            elif node.op == "output":
                self.g.outputs = [values[node.args[0]]]
            else:
                raise NotImplementedError(f"{node.op} {node.target}")

    def param(self, name, tensor):
        self.weights[name] = np.ascontiguousarray(tensor.detach().numpy())
        return self.g.param(name, self.weights[name].shape)

    def beside(self, v, like):
        return self.g.reshape(v, shape=[1, v.shape[0]] + [1] * (len(like.shape) - 2))

    def module(self, path, x):
        from torch import nn

        g, m = self.g, self.modules[path]
        if isinstance(m, (nn.Identity, nn.Dropout)):
            return x
        if isinstance(m, nn.ConvTranspose2d):
            y = g.conv_transpose(
                x,
                self.param(path + ".weight", m.weight),
                stride=pair(m.stride),
                low=pair(m.padding),
                high=pair(m.padding),
                groups=m.groups,
            )
            return g.add(y, self.beside(self.param(path + ".bias", m.bias), y)) if m.bias is not None else y
        if isinstance(m, nn.Conv2d):
            y = g.conv(
                x,
                self.param(path + ".weight", m.weight),
                stride=pair(m.stride),
                dilation=pair(m.dilation),
                low=pair(m.padding),
                high=pair(m.padding),
                groups=m.groups,
            )
            return g.add(y, self.beside(self.param(path + ".bias", m.bias), y)) if m.bias is not None else y
        if isinstance(m, nn.BatchNorm2d):
            names = ("weight", "bias", "running_mean", "running_var")
            return g.batch_norm(x, *(self.param(f"{path}.{n}", getattr(m, n)) for n in names), eps=m.eps)
        if isinstance(m, nn.Linear):
            y = g.matmul(x, self.param(path + ".weight", m.weight), transpose_b=True)
            return g.add(y, self.param(path + ".bias", m.bias))
        if isinstance(m, nn.MaxPool2d):
            padding = pair(m.padding)
            return g.pool(x, kind="max", kernel=pair(m.kernel_size), stride=pair(m.stride), low=padding, high=padding)
        if isinstance(m, nn.AdaptiveAvgPool2d) and m.output_size in (1, (1, 1)):
            return g.global_avg_pool(x)
        for kind, op in ((nn.ReLU, "relu"), (nn.Hardswish, "hard_swish"), (nn.Hardsigmoid, "hard_sigmoid")):
            if isinstance(m, kind):
                return getattr(g, op)(x)
        raise NotImplementedError(f"module {path}: {m}")

    def function(self, node, args):
        import torch

        g, f = self.g, node.target
        if f in (operator.add, operator.iadd, torch.add):
            return g.add(*args)
        if f in (operator.mul, torch.mul):
            return g.mul(*args)
        if f is torch.cat:
            return g.concat(args[0], axis=args[1] if len(args) > 1 else node.kwargs["dim"])
        if f is torch.flatten:
            x = args[0]
            return g.reshape(x, shape=[x.shape[0], int(np.prod(x.shape[1:]))])
        raise NotImplementedError(f"function {f}")


def to_rlx(name, module, operands):
    import torch

    t = Translation(name, torch.fx.symbolic_trace(module), operands["x"].shape)
    return t.g, t.weights
