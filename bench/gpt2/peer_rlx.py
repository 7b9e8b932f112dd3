"""RLX from Python: one compiled step that writes parameters and moments in place; with --copy as many new ones."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train_step"))
import model as m  # noqa: E402
import peer  # noqa: E402

import rlx  # noqa: E402
from rlx import op, optim  # noqa: E402


def loss_of(p, x, y, config):
    h = rlx.take(p["wte"], x, axis=0) + p["wpe"]
    for i in range(config["layers"]):
        w = p["layers"][i]
        a = rlx.layer_norm(h, w["ln1.g"], w["ln1.b"]) @ w["qkv.w"] + w["qkv.b"]
        q, k, v = rlx.split(a, 3, axis=-1)
        a, _ = op.attention(q, k, v, num_heads=config["heads"], mask="causal")
        h = h + a @ w["proj.w"] + w["proj.b"]
        f = rlx.gelu_tanh(rlx.layer_norm(h, w["ln2.g"], w["ln2.b"]) @ w["fc.w"] + w["fc.b"])
        h = h + f @ w["out.w"] + w["out.b"]
    logits = rlx.layer_norm(h, p["lnf.g"], p["lnf.b"]) @ p["wte"].T
    return rlx.cross_entropy(logits.reshape(-1, config["vocab"]), y.reshape(-1))


def tree(weights, layers):
    """The weights by name, those of a layer together."""
    whole = {k: rlx.array(v) for k, v in weights.items() if "." not in k or k.startswith("lnf")}
    split = lambda i: {k.partition(".")[2]: rlx.array(v) for k, v in weights.items() if k.startswith(f"l{i}.")}
    return whole | {"layers": [split(i) for i in range(layers)]}


def make_training(config, donate=True):
    """(the compiled step, its first arguments)."""
    optimizer = optim.adamw(m.RATE, beta1=m.BETA1, beta2=m.BETA2, eps=m.EPS, weight_decay=m.DECAY, decays=optim.is_matrix)

    @rlx.jit(donate_argnums=(0, 1) if donate else ())
    def step(params, state, x, y):
        value, gradients = rlx.value_and_grad(lambda p: loss_of(p, x, y, config))(params)
        params, state = optimizer.update(gradients, state, params)
        return params, state, value

    params = tree(m.weights(config), config["layers"])
    return step, params, optimizer.init(params)


def make_step(config, donate):
    step, params, state = make_training(config, donate)
    batches = [tuple(map(rlx.array, m.batch(config, i))) for i in range(m.BATCHES)]

    def run(i):
        nonlocal params, state
        params, state, value = step(params, state, *batches[i % m.BATCHES])
        return value.item()

    return run


def main():
    parser = peer.arguments(__doc__)
    parser.add_argument("--copy", action="store_true", help="without donation")
    args = parser.parse_args()
    peer.LOSS_STEPS = m.LOSS_STEPS
    name = "RLX, not in place" if args.copy else "RLX"
    peer.serve(name, {"rlx": rlx.__version__}, lambda read: make_step(read.config, not args.copy), args.dir)


if __name__ == "__main__":
    main()
