"""What rounding can do to a result: PyTorch's ops in float64 with noise wherever an implementation may round."""

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils._python_dispatch import TorchDispatchMode

# Elementwise ops that add terms; every other one is held to its own result.
ADDING = ("aten.lerp", "aten.addcmul", "aten.addcdiv", "aten.logaddexp2")
# What a kernel computes, op by op.
FORMULAS = core_aten_decompositions() | get_decompositions(
    [torch.ops.aten._softmax, torch.ops.aten._log_softmax, torch.ops.aten.logsumexp]
)


def is_float(x):
    return isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex())


class Rounding(TorchDispatchMode):
    """Each element that an op makes moves by `result` of itself, up or down. The operands of ops that add terms (sums,
    products of matrices, transforms, factorisations) move by `term`: so each of the terms does; and so does what is
    computed inside those of which PyTorch has the formula. What an op only moves from one place to another, chooses or
    negates is not rounded and stays."""

    def __init__(self, result, term, seed):
        super().__init__()
        self.result, self.term = result, term
        self.generator = torch.Generator().manual_seed(seed)

    def factors(self, x, by):
        signs = torch.randint(0, 2, x.shape, generator=self.generator).to(x.device) * 2 - 1
        return 1 + by * signs.to(torch.float64)

    def moved(self, x, by):
        if isinstance(x, float):
            return x * self.factors(torch.zeros(()), by).item()
        return (x * self.factors(x, by)).to(x.dtype) if is_float(x) else x

    def rounded(self, x, operands):
        """x with noise on the elements that are not among those of the operands."""
        if not is_float(x) or x.is_sparse:
            return x
        return torch.where(torch.isin(magnitudes(x), operands), x, self.moved(x, self.result))

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if op is torch.ops.aten._efficientzerotensor.default:  # has no elements to look at
            return torch.zeros(*args, **kwargs)
        if op.is_view:
            return op(*args, **kwargs)
        leaves, spec = tree_flatten((args, kwargs))
        if op.overloadpacket is torch.ops.aten.linspace:  # the ends are terms, be they whole or not
            leaves[:2] = [x.to(torch.float64) if isinstance(x, torch.Tensor) else float(x) for x in leaves[:2]]
        operands = [magnitudes(t).flatten() for t in leaves if isinstance(t, torch.Tensor)]
        operands = torch.cat([torch.zeros(1, dtype=torch.float64), *operands])
        if op._schema.is_mutable:
            results = op(*args, **kwargs)
            for x in tree_flatten(results)[0]:
                if is_float(x):
                    x.copy_(self.rounded(x, operands))
            return results
        state = torch.get_rng_state()
        results, made = tree_flatten(op(*args, **kwargs))
        adds = torch.Tag.pointwise not in op.tags or str(op).startswith(ADDING)
        if adds and any(is_float(x) and not torch.isin(magnitudes(x), operands).all() for x in results):
            args, kwargs = tree_unflatten([self.moved(x, self.term) for x in leaves], spec)
            torch.set_rng_state(state)
            results = tree_flatten(self.inside(op, args, kwargs))[0]
        return tree_unflatten([self.rounded(x, operands) for x in results], made)

    def inside(self, op, args, kwargs):
        if op not in FORMULAS:
            return op(*args, **kwargs)
        with Rounding(self.term, self.term, int(torch.randint(2**31, (), generator=self.generator))):
            return FORMULAS[op](*args, **kwargs)


def magnitudes(x):
    return torch.abs(x).to(torch.float64) if x.dtype != torch.bool else x.to(torch.float64)
