"""A training step of GPT-2 (124 million parameters, f32, AdamW) from Python: RLX in place against PyTorch, interleaved.

    python bench/gpt2/run.py [--python /path/to/venv/bin/python] [--layers 2 --width 64 --vocab 999] [--skip torch-compile]

bench/gpt2/model.py is the definition; processes, protocol, figures and columns are those of bench/train_step. RLX is the package
in build/release/python, for the interpreter that it was built with; PyTorch that of --python. With the sizes of GPT-2 the
section goes to bench/RESULTS.md, unless --no-write is said.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SIZES = {"vocab": 50257, "width": 768, "layers": 12, "heads": 12, "block": 256, "batch": 4}
spec = importlib.util.spec_from_file_location("train_step", HERE.parent / "train_step" / "run.py")
train_step = importlib.util.module_from_spec(spec)
spec.loader.exec_module(train_step)
from rounds import ROOT, cpu, write_section  # noqa: E402


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter that has torch and numpy")
    parser.add_argument("--rlx-python", default=str(ROOT / "build" / "python-venv" / "bin" / "python"))
    for name, size in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3, help="measured steps per round")
    parser.add_argument("--starts", type=int, default=1, help="starts per peer, for the compile time")
    parser.add_argument("--skip", action="append", default=[], help="leave a peer out (repeatable)")
    parser.add_argument("--no-write", action="store_true", help="print only; leave RESULTS.md alone")
    return parser.parse_args()


def commands(args, folder):
    common = ["--dir", folder, "--threads", str(args.threads)]
    rlx, torch = [args.rlx_python, str(HERE / "peer_rlx.py")], [args.python, str(HERE / "peer_torch.py")]
    table = {
        "rlx": [*rlx, *common],
        "rlx-copy": [*rlx, "--copy", *common],
        "torch-compile": [*torch, "--mode", "compile", *common],
        "torch-eager": [*torch, "--mode", "eager", *common],
    }
    if unknown := set(args.skip) - set(table):
        raise SystemExit(f"--skip: no peer {sorted(unknown)}; there are {sorted(table)}")
    return {k: v for k, v in table.items() if k not in args.skip}


def report(peers, worst, args, config):
    base = peers[0]
    versions = {k: v for p in peers for k, v in p.events["ready"].get("versions", {}).items()}
    return "\n".join([
        "## Training step of GPT-2",
        "",
        f"{config['layers']} layers, width {config['width']}, {config['heads']} heads, vocabulary {config['vocab']:,}, "
        f"{config['batch']}x{config['block']} tokens, AdamW, f32; definition in `bench/gpt2/model.py`. {cpu()}, {args.threads} threads, "
        f"{time.strftime('%Y-%m-%d')}; {args.rounds} interleaved rounds of {args.steps} steps. Ratios are to {base.name} "
        f"(above 1: {base.name} is better). Memory is the peak above the libraries alone, weights, compiling and the first step included; "
        "'running' leaves compiling out.",
        "",
        "| | step ms (median) | IQR | min | ratio | compile s | ratio | peak MiB | ratio | running MiB |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(train_step.row(p, base) for p in peers),
        "",
        f"{len(base.events['losses']['losses'])} losses agree within {worst:.1e} (relative). Versions: "
        + ", ".join(f"{k} {v}" for k, v in sorted(versions.items())) + ".",
    ])  # fmt: skip


def main():
    args = parse_args()
    config = {name: getattr(args, name) for name in SIZES} | {"seed": 1, "batches": 0}  # peers draw their own
    os.environ["PYTHONPATH"] = str(ROOT / "build" / "release" / "python")
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        peers = [train_step.start(key, command, args) for key, command in commands(args, folder).items()]
        worst = train_step.check_losses(peers)
        for _ in range(args.rounds):
            for peer in peers:
                time.sleep(train_step.SETTLE_SECONDS)
                peer.measure(args.steps)
        for peer in peers:
            peer.quit()
    section = report(peers, worst, args, config)
    print(section)
    if not args.no_write and all(config[name] == size for name, size in SIZES.items()):
        write_section("gpt2", section)


if __name__ == "__main__":
    main()
