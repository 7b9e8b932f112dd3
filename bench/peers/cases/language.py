"""A language model of a billion weights in ggml's blocks beside llama.cpp: the same file for both (bench/models/llama.py)."""

import dataclasses
import pathlib
import subprocess
import sys

import numpy as np

from .case import Case, case

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODELS = ROOT / "bench" / "models"


def llama():
    if str(MODELS) not in sys.path:
        sys.path.insert(0, str(MODELS))
    import llama

    return llama


def start_rlx(library, path, kind, decodes):
    """The weights of both programs are the same arrays; the prompt's leaves the cache that decoding goes on with."""
    m, model = library.rlx, llama()
    weights = {name: m.asarray(w) for name, w in model.read(path).items()}
    prompt, tokens = (np.asarray(part, np.int32) for part in model.prompt())
    cache = [f"cache.{part}.{i}" for i in range(model.LAYERS) for part in "kv"]

    def program(name, count):
        f = m.compile(model.graph(name, weights, kind, count), threads=library.threads)
        f.set_params(weights | {name: m.zeros((1, model.CONTEXT, model.KV_HEADS * model.HEAD)) for name in cache})
        return f

    prefill, start = program("prefill", model.PROMPT), np.int32(0)
    fill = lambda: prefill.run({"tokens": prompt, "position": start})[0]
    if not decodes:
        return fill
    fill()
    decode = program("decode", 1)
    decode.set_params({name: prefill.param(name) for name in cache})
    del prefill

    def run():
        for i, token in enumerate(tokens):
            logits = decode.run({"tokens": token[None], "position": np.int32(model.PROMPT + i)})[0]
        return logits

    return run


def start_llama_cpp(library, path, kind, decodes):
    prompt, tokens = (part.tolist() for part in llama().prompt())
    model = library.open(path, llama().CONTEXT, llama().PROMPT)

    def run():
        model.n_tokens = len(prompt) if decodes else 0
        for part in [[t] for t in tokens] if decodes else [prompt]:
            model.eval(part)
        return library.logits(model)

    if decodes:
        model.eval(prompt)
    return run


@dataclasses.dataclass
class LanguageModel(Case):
    blocks: str = ""
    decodes: bool = False

    @property
    def path(self):
        return ROOT / "build" / "models" / f"llama-{self.blocks}" / "model.gguf"

    def prepare(self, python, environment):
        if not self.path.exists():
            command = [python, str(MODELS / "llama.py"), self.blocks, str(self.path.parent)]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                raise SystemExit(f"{self.name} could not be prepared:\n{done.stdout[-3000:]}")

    def start(self, library, name):
        return self.function_of(name)(library, self.path, self.blocks, self.decodes)


def language_model(blocks, decodes, text, **work):
    # Both round x to 8 bits, each a little differently, and sixteen layers of random weights carry that on.
    ways = {"rlx": start_rlx, "llama-cpp": start_llama_cpp}
    case("language model", f"Llama 1B {blocks}, {text}", [], kind=LanguageModel, blocks=blocks, decodes=decodes, only=ways, tolerance=0.1, **work)


# What every token meets: all matrices but the table, of which rows are looked up.
WEIGHTS = sum(rows * columns for name, (rows, columns) in llama().matrices() if name != "token_embd")
for blocks, bits in (("q4_0", 4.5), ("q8_0", 8.5), ("q4_k", 4.5)):
    language_model(blocks, True, "128 tokens behind 512", bytes=128 * WEIGHTS * bits / 8, reads=True)
    language_model(blocks, False, "a prompt of 512")
