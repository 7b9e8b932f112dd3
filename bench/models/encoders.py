"""Encoders of the model benchmark: BERT-base and MiniLM-L6 as `transformers` defines them, random weights from a fixed seed.

What `conv_nets.py` has, for them: `make(name)`, `operands(name, batch, length)`, `to_rlx(name, module, operands)`.
"""

import numpy as np

NAMES = {
    "bert_base": {},
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
}


def make(name):
    import torch
    from transformers import BertConfig, BertModel

    class Hidden(torch.nn.Module):
        """From two tensors to one, as exporters want it."""

        def __init__(self):
            super().__init__()
            self.bert = BertModel(BertConfig(**NAMES[name]), add_pooling_layer=False)

        def forward(self, ids, mask):
            return self.bert(input_ids=ids, attention_mask=mask).last_hidden_state

    torch.manual_seed(0)
    module = Hidden().eval()
    for parameter in module.parameters():  # biases and gains that a kernel cannot leave out
        if parameter.dim() == 1:
            parameter.data.add_(0.1 * torch.randn(parameter.shape))
    return module


def operands(name, batch, length):
    """The last sequence has two tokens less than the others."""
    mask = np.ones((batch, length), "i8")
    mask[-1, -2:] = 0
    return {"ids": np.random.default_rng(1).integers(0, 30000, (batch, length)), "mask": mask}


def to_rlx(name, module, operands):
    import rlx

    config, g, weights = module.bert.config, rlx.Graph(name), {}
    state = {k.removeprefix("bert."): v for k, v in module.state_dict().items()}

    def param(path):
        weights[path] = np.ascontiguousarray(state[path].numpy())
        return g.param(path, weights[path].shape)

    def dense(x, path):
        return g.add(g.matmul(x, param(path + ".weight"), transpose_b=True), param(path + ".bias"))

    def norm(x, path):
        return g.layer_norm(x, param(path + ".weight"), param(path + ".bias"), eps=config.layer_norm_eps)

    batch, length = operands["ids"].shape
    ids, mask = (g.input(n, (batch, length), "int64") for n in ("ids", "mask"))
    mask = g.cast(mask, to="float32")
    x = g.gather(param("embeddings.word_embeddings.weight"), ids, axis=0)
    for table, rows in (("token_type", 1), ("position", length)):
        rows = g.slice(param(f"embeddings.{table}_embeddings.weight"), limit=(rows, config.hidden_size))
        x = g.add(x, rows)
    x = norm(x, "embeddings.LayerNorm")
    for i in range(config.num_hidden_layers):
        layer = f"encoder.layer.{i}."
        q, k, v = (dense(x, f"{layer}attention.self.{part}") for part in ("query", "key", "value"))
        heads = config.num_attention_heads
        h = g.attention(q, k, v, mask, num_heads=heads, num_kv_heads=heads, has_mask=True)
        h = h[0] if isinstance(h, (tuple, list)) else h
        x = norm(g.add(x, dense(h, layer + "attention.output.dense")), layer + "attention.output.LayerNorm")
        h = g.gelu(dense(x, layer + "intermediate.dense"))
        x = norm(g.add(x, dense(h, layer + "output.dense")), layer + "output.LayerNorm")
    g.outputs = [x]
    return g, weights
