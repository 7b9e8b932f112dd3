"""A language model of Llama's shape (that of Llama 3.2 1B with a vocabulary of 32,000): random weights in ggml's blocks.

    python bench/models/llama.py q4_0 build/models/llama-q4_0      # writes model.gguf

`write(path, kind)` makes the file that llama.cpp reads, with a vocabulary that says nothing. `decode_graph` and `prefill_graph`
are RLX's programs over the same blocks: x is rounded to 8 bits before each product as llama.cpp does, keys and values are
updated parameters that a run appends to in place.

    token -> rows of the table
    each layer: x += (attention of rope(q), rope(k), v over the cache) wo;   q, k, v = rms_norm(x) wq, wk, wv
                x += (silu(h gate) * (h up)) down;                            h = rms_norm(x)
    logits of the last token = rms_norm(x) output

Needs the packages gguf and rlx.
"""

import pathlib
import sys

import numpy as np

WIDTH, LAYERS, HEADS, KV_HEADS, HEAD, HIDDEN, VOCAB = 2048, 16, 32, 8, 64, 8192, 32000
EPS, BASE = 1e-5, 500000.0
CONTEXT, PROMPT, DECODED = 640, 512, 128
KINDS = {"q4_0": "gguf_q4_0", "q8_0": "gguf_q8_0", "q4_k": "gguf_q4k"}  # gguf's name and ours


def matrices():
    """Name and [rows, columns] of what is kept in blocks."""
    yield "token_embd", (VOCAB, WIDTH)
    for i in range(LAYERS):
        yield f"blk.{i}.attn_q", (HEADS * HEAD, WIDTH)
        yield f"blk.{i}.attn_k", (KV_HEADS * HEAD, WIDTH)
        yield f"blk.{i}.attn_v", (KV_HEADS * HEAD, WIDTH)
        yield f"blk.{i}.attn_output", (WIDTH, HEADS * HEAD)
        yield f"blk.{i}.ffn_gate", (HIDDEN, WIDTH)
        yield f"blk.{i}.ffn_up", (HIDDEN, WIDTH)
        yield f"blk.{i}.ffn_down", (WIDTH, HIDDEN)
    yield "output", (VOCAB, WIDTH)


def norms():
    yield "output_norm"
    for i in range(LAYERS):
        yield f"blk.{i}.attn_norm"
        yield f"blk.{i}.ffn_norm"


def write(path, kind):
    import gguf
    import rlx

    random = np.random.default_rng(1)
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(2048)
    out.add_embedding_length(WIDTH)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(HIDDEN)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KV_HEADS)
    out.add_rope_dimension_count(HEAD)
    out.add_rope_freq_base(BASE)
    out.add_layer_norm_rms_eps(EPS)
    out.add_vocab_size(VOCAB)
    out.add_tokenizer_model("llama")
    out.add_token_list([f"<{i}>".encode() for i in range(VOCAB)])
    out.add_token_scores([0.0] * VOCAB)
    out.add_token_types([gguf.TokenType.UNKNOWN if i == 0 else gguf.TokenType.CONTROL if i < 3 else gguf.TokenType.NORMAL for i in range(VOCAB)])
    out.add_unk_token_id(0)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    for name, (rows, columns) in matrices():
        w = random.standard_normal((rows, columns), np.float32) * np.float32(columns**-0.5)
        blocks = np.asarray(rlx.op.quantise_blocks(rlx.array(w), scheme=KINDS[kind]))
        out.add_tensor(name + ".weight", blocks, raw_dtype=getattr(gguf.GGMLQuantizationType, kind.upper()))
    for name in norms():
        out.add_tensor(name + ".weight", (1 + 0.1 * random.standard_normal(WIDTH)).astype(np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def read(path):
    """The tensors of a file by name: bytes [rows, bytes of a row] or f32."""
    import gguf

    return {t.name.removesuffix(".weight"): np.ascontiguousarray(t.data) for t in gguf.GGUFReader(path).tensors}


def tables():
    """Cosines and sines [CONTEXT, HEAD / 2]."""
    angles = np.arange(CONTEXT)[:, None] * BASE ** (-np.arange(0, HEAD, 2) / HEAD)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def graph(name, weights, kind, tokens):
    """Appends `tokens` tokens at `position` to the cache; gives the logits of the last one."""
    import rlx

    g, scheme = rlx.Graph(name), KINDS[kind]
    ids, position = g.input("tokens", (tokens,), "int32"), g.input("position", (), "int32")
    cos, sin = (g.constant(t) for t in tables())
    zero = g.constant(np.zeros(WIDTH, np.float32))
    positions = g.add(g.constant(np.arange(tokens, dtype=np.int32)), position)
    # What token i sees, where the cache is read: keys up to its own.
    if tokens == 1:
        seen = g.cast(g.le(g.constant(np.arange(CONTEXT, dtype=np.int32)), position), to="float32")[None]

    def param(path):
        w = weights[path]
        return g.param(path, w.shape, w.dtype)

    def dense(x, path):
        return g.dequant_matmul(x, param(path), scheme=scheme, activations="q8")

    def norm(x, path):
        return g.rms_norm(x, param(path), zero, eps=EPS)

    def turn(x):
        return g.rope_at(x, cos, sin, positions, head_dim=HEAD, n_rot=HEAD, interleaved=True)

    rows = g.gather(param("token_embd"), ids, axis=0)
    x = g.dequantise_blocks(rows, scheme=scheme, shape=(1, tokens, WIDTH))
    for i in range(LAYERS):
        path = f"blk.{i}."
        h = norm(x, path + "attn_norm")
        q, k, v = (dense(h, path + "attn_" + part) for part in "qkv")
        q, k = turn(q), turn(k)
        seen_rows = []
        for part, new in (("k", k), ("v", v)):
            cache = g.param(f"cache.{part}.{i}", (1, CONTEXT, KV_HEADS * HEAD))
            whole = g.kv_cache_append(cache, new, position, axis=1)
            g.update(f"cache.{part}.{i}", whole)
            seen_rows.append(whole)
        if tokens == 1:
            h = g.attention(q, *seen_rows, seen, num_heads=HEADS, num_kv_heads=KV_HEADS, has_mask=True)[0]
        else:  # a prompt, from position 0
            h = g.attention(q, k, v, num_heads=HEADS, num_kv_heads=KV_HEADS, mask="causal")[0]
        x = g.add(x, dense(h, path + "attn_output"))
        h = norm(x, path + "ffn_norm")
        x = g.add(x, dense(g.swiglu(dense(h, path + "ffn_gate"), dense(h, path + "ffn_up")), path + "ffn_down"))
    last = g.slice(x, start=(0, tokens - 1, 0), limit=(1, tokens, WIDTH))
    g.outputs = [dense(norm(last, "output_norm"), "output").reshape(VOCAB)]
    return g


def prompt():
    """The tokens of the prompt, then those that are decoded."""
    all_of_them = np.random.default_rng(2).integers(3, VOCAB, PROMPT + DECODED)
    return all_of_them[:PROMPT], all_of_them[PROMPT:]


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "model.gguf", sys.argv[1])
