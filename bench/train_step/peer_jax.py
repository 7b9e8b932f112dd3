"""JAX peer of the training-step benchmark: the whole step is one jitted function with donated buffers."""

import os
import sys

# XLA takes its number of threads from the cores it may use, so the peer restricts those before it loads.
if "--threads" in sys.argv:
    threads = int(sys.argv[sys.argv.index("--threads") + 1])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import peer  # noqa: E402


def fused_parameters(model):
    """The folder's tensors with wq, wk, wv side by side as wqkv [C, 3C]."""
    tensors = {k: jnp.asarray(v) for k, v in model.weights.items()}
    for i in range(model.config["layers"]):
        tensors[f"l{i}.wqkv"] = jnp.concatenate(
            [tensors.pop(f"l{i}.{n}") for n in ("wq", "wk", "wv")], 1
        )
    return tensors


def layer_norm(x, g, b):
    mean = x.mean(-1, keepdims=True)
    centred = x - mean
    return (
        centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + peer.LN_EPS) * g + b
    )


def attention(q, k, v, heads):
    """Causal attention of [B, T, C] operands; jax.nn.dot_product_attention takes as long."""
    batch, block, width = q.shape
    split = lambda t: t.reshape(batch, block, heads, width // heads)
    q, k, v = (split(t).transpose(0, 2, 1, 3) for t in (q, k, v))
    scores = (q @ k.swapaxes(-1, -2)) * (width // heads) ** -0.5
    scores = jnp.where(jnp.tri(block, dtype=bool), scores, -jnp.inf)
    return (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(batch, block, width)


def loss_of(p, x, y, config):
    norm = lambda h, name: layer_norm(h, p[name + ".g"], p[name + ".b"])
    h = p["tok_emb"][x] + p["pos_emb"]
    for i in range(config["layers"]):
        l = f"l{i}."
        q, k, v = jnp.split(norm(h, l + "ln1") @ p[l + "wqkv"], 3, 2)
        h = h + attention(q, k, v, config["heads"]) @ p[l + "wo"]
        f = jax.nn.gelu(norm(h, l + "ln2") @ p[l + "w1"] + p[l + "b1"], approximate=True)
        h = h + f @ p[l + "w2"] + p[l + "b2"]
    logits = norm(h, "lnf") @ p["head"]
    chosen = jnp.take_along_axis(logits, y[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - chosen).mean()


def train_step(params, first, second, x, y, rate, t, *, config):
    loss, grads = jax.value_and_grad(loss_of)(params, x, y, config)
    length = jnp.sqrt(sum(jnp.vdot(g, g) for g in grads.values()))
    scale = jnp.minimum(1.0, peer.CLIP / (length + 1e-6))
    fix1, fix2 = 1 - peer.BETA1**t, 1 - peer.BETA2**t
    out = ({}, {}, {})
    for name, p in params.items():
        g = grads[name] * scale
        m = peer.BETA1 * first[name] + (1 - peer.BETA1) * g
        v = peer.BETA2 * second[name] + (1 - peer.BETA2) * g * g
        decay = peer.WEIGHT_DECAY if peer.decays(name) else 0.0
        p = p * (1 - rate * decay) - rate * (m / fix1) / (jnp.sqrt(v / fix2) + peer.EPS)
        for tree, value in zip(out, (p, m, v)):
            tree[name] = value
    return *out, loss


def make_step(model):
    config = model.config
    params = fused_parameters(model)
    state = [params, *({k: jnp.zeros_like(v) for k, v in params.items()} for _ in range(2))]
    batches = [tuple(jnp.asarray(a) for a in pair) for pair in model.batches]
    jitted = jax.jit(lambda *args: train_step(*args, config=config), donate_argnums=(0, 1, 2))

    def step(i):
        x, y = batches[i % len(batches)]
        rate = jnp.float32(peer.learning_rate(i, config["steps"]))
        *state[:], loss = jitted(*state, x, y, rate, jnp.float32(i + 1))
        jax.block_until_ready(state)
        return float(loss)

    return step


def main():
    args = peer.arguments(__doc__).parse_args()
    versions = {"jax": jax.__version__, "jaxlib": jax.lib.__version__}
    jax.devices()  # the backend is part of the libraries, not of the model
    peer.serve("JAX", versions, make_step, args.dir)


if __name__ == "__main__":
    main()
