"""The optimizer under the names of its documents: passes, derivatives and what a backend makes of a program, over graphs.

g = rlx.Graph("mlp"); ...
h = rlx.opt.run_passes(g, [rlx.opt.FuseMatMulBiasAct(), rlx.opt.DeadCodeElimination()])
k = rlx.opt.grad_with_loss(h, ["w"])
graph, report = rlx.opt.prepare_graph_for_backend_with_report(g, "npu", ["matmul", "add", "input", "param"])
print(report)

Every function takes `rlx.Graph`s and gives new ones. Functions of arrays have `rlx.grad`, `rlx.vmap` and their like.
"""

import json as _json

from rlx import _core
from rlx._graph import Graph
from rlx._quantise import CalibrationEntry, CalibrationRecord, insert_q_dq, quant_propagate  # noqa: F401

_opt = _core.opt


def _new(graph):
    return Graph._of(graph)


class Pass:
    """A pass with its options: `p.run(g)` is a new graph."""

    def __init__(self, name, text, fast_math=False):
        self.name, self._text, self._fast_math = name, text, fast_math

    def run(self, graph):
        return _new(_opt.run_passes(graph.value, self._text, self._fast_math))

    def __repr__(self):
        return f"<rlx.opt pass {self.name}>"


_PASSES = _opt.named_passes()  # by class: name, text, doc


def _named(cls):
    """A pass without arguments."""
    name, text, doc = _PASSES[cls]

    def __init__(self):
        Pass.__init__(self, name, text)

    return type(cls, (Pass,), {"__init__": __init__, "__doc__": doc, "__module__": __name__})


ConstantFolding = _named("ConstantFolding")
DeadCodeElimination = _named("DeadCodeElimination")
LegalizeBroadcast = _named("LegalizeBroadcast")
LowerControlFlow = _named("LowerControlFlow")
LowerDotGeneral = _named("LowerDotGeneral")
FuseResidualLN = _named("FuseResidualLN")
FuseResidualRmsNorm = _named("FuseResidualRmsNorm")
FuseRmsNormReshape = _named("FuseRmsNormReshape")
FuseSwiGLUDualMatmul = _named("FuseSwiGLUDualMatmul")
FuseSharedInputMatMul = _named("FuseSharedInputMatMul")
FuseSwiGLU = _named("FuseSwiGLU")
UnfuseElementwiseRegions = _named("UnfuseElementwiseRegions")


def _with(cls, arguments):
    name, text, _ = _PASSES[cls]
    return name, f"{text.partition('(')[0]}({arguments})"


class AlgebraicSimplify(Pass):
    """Local identities; without fast_math only those that keep NaN, infinity and -0."""

    def __init__(self, fast_math=True):
        super().__init__(*_PASSES["AlgebraicSimplify"][:2], fast_math)


class FuseMatMulBiasAct(Pass):
    """A product, its bias and one of these activations."""

    def __init__(self, epilogues=("gelu", "silu")):
        super().__init__(*_with("FuseMatMulBiasAct", f"epilogues={'|'.join(epilogues)}"))


class FuseAttentionBlock(Pass):
    """Attention between two linear layers, for at most `threshold` rows."""

    def __init__(self, threshold=64):
        super().__init__(*_with("FuseAttentionBlock", f"threshold={threshold}"))


class FuseTransformerLayer(Pass):
    """A whole layer, for at most `threshold` rows."""

    def __init__(self, threshold=64):
        super().__init__(*_with("FuseTransformerLayer", f"threshold={threshold}"))


class MarkElementwiseRegions(Pass):
    """Elementwise nodes that only each other read, up to so many nodes and operands."""

    def __init__(self, steps=32, inputs=16):
        super().__init__("mark_elementwise_regions", f"mark_elementwise_regions(steps={steps},inputs={inputs})")


def run_passes(graph, passes):
    """One after the other."""
    for p in passes:
        graph = p.run(graph)
    return graph


# ---- single passes


def cse(graph):
    """Equal expressions once; the name gets the ending "_cse"."""
    return _new(_opt.cse(graph.value))


def algebraic_simplify(graph):
    return AlgebraicSimplify().run(graph)


def fuse_elementwise(graph):
    return MarkElementwiseRegions().run(graph)


def inline_if(graph):
    """Every cond computes both bodies and selects."""
    return _new(_opt.inline_if(graph.value))


def unroll_while(graph):
    """Every while is its bound's number of steps; one without a bound raises "while-unbounded"."""
    return _new(_opt.unroll_while(graph.value))


def unfuse_fused_for_autodiff(graph):
    """Fused ops and regions become what they are made of."""
    return _new(_opt.unfuse(graph.value))


def promote_params_to_inputs(graph, names):
    """Parameters of these names become inputs."""
    return _new(_opt.promote(graph.value, list(names)))


def specialize_params(graph, values):
    """Parameters become constants: {name: array}."""
    from rlx._array import asarray

    return _new(_opt.specialize(graph.value, {name: asarray(v) for name, v in values.items()}))


# ---- derivatives


def grad_with_loss(graph, wrt, zero_missing_wrt=False):
    """Outputs: all outputs, the first of which is the loss, then its gradients by the leaves `wrt`."""
    return _new(_opt.grad_with_loss(graph.value, list(wrt), zero_missing_wrt))


def grad(graph, wrt):
    """Outputs: the gradients alone."""
    return _new(_opt.grad(graph.value, list(wrt)))


def grad_subgraph(graph, wrt):
    """grad_with_loss without ops that are called backward."""
    return _new(_opt.grad_subgraph(graph.value, list(wrt)))


def jvp(graph, tangent_for):
    """Takes "tangent_x" for each leaf x; outputs all outputs, then their tangents."""
    return graph.jvp(tangent_for)


def hvp(graph, wrt):
    """Hessian-vector products: outputs [loss, gradients.., <gradients, v>, H v..]."""
    return graph.hvp(wrt)


def vmap(graph, batched_inputs, batch_size):
    """For a batch: these leaves gain an axis in front."""
    return graph.vmap({name: 0 for name in batched_inputs}, batch_size)


def nth_order_grad(graph, wrt, order, fuse_elementwise=False):
    """The order-th derivative by a scalar leaf."""
    return _new(_opt.nth_order_grad(graph.value, wrt, order, fuse_elementwise))


def directional_nth_grad(graph, wrt, directions):
    """The derivative along each direction in turn; directions name new inputs."""
    return _new(_opt.directional_nth_grad(graph.value, wrt, list(directions)))


def prepare_graph_for_ad(graph):
    """Without fused ops, regions, dot_general, cond, bounded while and functions without derivatives of their own."""
    return _new(_opt.prepare_graph_for_ad(graph.value))


def prepare_grad_graph_for_jvp(graph):
    """Without ops that are called backward, and with ones for an input "d_output"."""
    return _new(_opt.prepare_grad_graph_for_jvp(graph.value))


def decompose_backward_for_ad(graph, wrt_index):
    """The same of what grad_with_loss made, with the one gradient as its output."""
    return _new(_opt.decompose_backward(graph.value, wrt_index))


def convert_scans_for_ad(graph):
    """Checkpointed scans and sweeps of scans become scans."""
    return _new(_opt.convert_scans_for_ad(graph.value))


def inline_custom_fn_for_autodiff(graph):
    """Functions that state neither derivative become their bodies."""
    return _new(_opt.inline_custom_fn(graph.value))


# ---- training


class CompiledTraining:
    """The two programs of `compile_training` on a device, over one memory for the weights. One thread at a time."""

    def __init__(self, value):
        self._value = value

    def set_params(self, values):
        """{name: array}, those of the optimiser too; all or none."""
        from rlx._array import asarray

        self._value.set_params({name: asarray(v) for name, v in values.items()})

    def params(self):
        """{name: array}, as the last step left them."""
        return self._value.params()

    def forward(self, inputs):
        """The program's own outputs; what the backward reads stays on the device."""
        from rlx._array import asarray

        return self._value.forward({name: asarray(v) for name, v in inputs.items()})

    def backward(self, inputs=None):
        """Of the last forward: the gradients in the order of wrt, or with an optimiser what that reports."""
        from rlx._array import asarray

        return self._value.backward({name: asarray(v) for name, v in (inputs or {}).items()})


class TrainingCompileResult:
    """forward and backward: their LIR as text; joint: both in one, a `Graph`; weights: {name: (offset, bytes)} in the
    memory that both share; saved: how many values the forward keeps for the backward; state: first values of the
    optimiser's own parameters. `program()` runs them."""

    def __init__(self, value):
        self._value = value
        self.forward, self.backward, self.joint = value.forward, value.backward, _new(value.joint)
        self.weights, self.saved, self.state = value.weights, value.saved, value.state

    def program(self):
        """A `CompiledTraining` with the optimiser's first state set."""
        made = CompiledTraining(self._value.program())
        made.set_params(self.state)
        return made


def compile_training(graph, wrt, device=None, optimizer=None, clip_norm=0.0, **options):
    """A forward that keeps what its backward reads, and a backward that computes nothing again, over one memory for the
    weights. Output 0 of the graph is the loss, wrt are its leaves by name.

    optimizer: "sgd", "adam", "adamw" or "lion", with the options of `rlx.optim`'s function of that name (rate a
    number): the backward then writes the parameters in place, and returns no gradients.

    f = rlx.opt.compile_training(graph, ["w"]).program()
    f.set_params({"w": w})
    loss = f.forward({"x": x})[0]
    dw = f.backward()[0]
    """
    from rlx import optim

    step = None
    if optimizer is not None:
        step = optim.cpp_options(optimizer, options), float(clip_norm)
    elif options or clip_norm:
        raise TypeError("compile_training: clip_norm and options belong to an optimizer")
    return TrainingCompileResult(_opt.compile_training(graph.value, list(wrt), device or _core.get_backend(), step))


# ---- targets and backends


class Report(dict):
    """A report as a dict; str() is the text for people."""

    def __init__(self, json, text):
        super().__init__(_json.loads(json))
        self._text = text

    def __str__(self):
        return self._text


def fusion_report(before, after=None):
    """What the named passes fused, and what they could have and why not."""
    return Report(*_opt.fusion_report(before.value, (after or before).value))


def supported_for_target(target):
    """The ops that a target of this process ("cpu") runs without rewriting."""
    return _opt.supported_for_target(target)


def supports_op(claim, op):
    """Whether a list of ops claims this one, by its name or kind; an empty list claims all."""
    return _opt.supports_op(list(claim), op)


def fusion_passes(target, skip_fusion=False, unfuse_elementwise_regions=False):
    """The names of the fusion passes that a target gets, in order."""
    return _opt.fusion_passes(target, [], skip_fusion, unfuse_elementwise_regions)


def fusion_passes_for_supported(claim, skip_fusion=False, unfuse_elementwise_regions=False):
    """The same for a list of ops."""
    return _opt.fusion_passes(None, list(claim), skip_fusion, unfuse_elementwise_regions)


def legalize_for_backend(graph, claim):
    """(where, op) of every node that is not claimed."""
    return _opt.legalize(graph.value, list(claim))


def rewrite_for_backend(graph, claim, policy="PreferNative", force_common_kinds=(), force_native_kinds=()):
    """What is not claimed becomes its definition. policy: PreferNative, ForceCommon, ForceNative."""
    return _new(_opt.rewrite(graph.value, list(claim), policy, list(force_common_kinds), list(force_native_kinds)))


def analyze_dispatch(graph, backend, claim, policy="PreferNative", force_common_kinds=(), force_native_kinds=()):
    """A `Report` on the graph as it stands."""
    lists = list(force_common_kinds), list(force_native_kinds)
    return Report(*_opt.analyze_dispatch(graph.value, backend, list(claim), policy, *lists))


def prepare_graph_for_backend_with_report(
    graph, backend, claim, policy="PreferNative", force_common_kinds=(), force_native_kinds=()
):
    """The rewritten graph, and a `Report` on what became of each op."""
    lists = list(force_common_kinds), list(force_native_kinds)
    new, json, text = _opt.prepare_for_backend(graph.value, backend, list(claim), policy, *lists)
    return _new(new), Report(json, text)
