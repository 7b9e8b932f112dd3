"""PyTorch: --mode eager (autograd and the fused AdamW kernel) or compile (the loss is one compiled graph)."""

import os
import pathlib
import sys
import tempfile

# A cold compiler each time: the benchmark reports compile time.
os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
CACHE = tempfile.TemporaryDirectory(prefix="gpt2_inductor_")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = CACHE.name
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train_step"))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import model as m  # noqa: E402
import peer  # noqa: E402


def loss_of(p, x, y, config):
    batch, block, width, heads = (config[k] for k in ("batch", "block", "width", "heads"))
    norm = lambda h, name: F.layer_norm(h, (width,), p[name + ".g"], p[name + ".b"])
    linear = lambda h, name: F.linear(h, p[name + ".w"].t(), p[name + ".b"])
    h = F.embedding(x, p["wte"]) + p["wpe"]
    for i in range(config["layers"]):
        l = f"l{i}."
        q, k, v = (
            t.view(batch, block, heads, width // heads).transpose(1, 2)
            for t in linear(norm(h, l + "ln1"), l + "qkv").split(width, 2)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + linear(a.transpose(1, 2).reshape(batch, block, width), l + "proj")
        h = h + linear(F.gelu(linear(norm(h, l + "ln2"), l + "fc"), approximate="tanh"), l + "out")
    return F.cross_entropy(F.linear(norm(h, "lnf"), p["wte"]).view(batch * block, -1), y.view(-1))


def make_step(config, mode):
    params = {k: torch.from_numpy(v).requires_grad_() for k, v in m.weights(config).items()}
    groups = [
        {"params": [p for p in params.values() if p.ndim == 2], "weight_decay": m.DECAY},
        {"params": [p for p in params.values() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=m.RATE, betas=(m.BETA1, m.BETA2), eps=m.EPS, fused=True)
    batches = [tuple(map(torch.from_numpy, m.batch(config, i))) for i in range(m.BATCHES)]
    loss = lambda p, x, y: loss_of(p, x, y, config)
    if mode == "compile":
        loss = torch.compile(loss, fullgraph=True, dynamic=False)

    def run(i):
        value = loss(params, *batches[i % m.BATCHES])
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return value.item()

    return run


def main():
    parser = peer.arguments(__doc__)
    parser.add_argument("--mode", choices=["eager", "compile"], required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    peer.LOSS_STEPS = m.LOSS_STEPS
    name = "PyTorch eager" if args.mode == "eager" else "torch.compile"
    peer.serve(name, {"torch": torch.__version__}, lambda read: make_step(read.config, args.mode), args.dir)


if __name__ == "__main__":
    main()
