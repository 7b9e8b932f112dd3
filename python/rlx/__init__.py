"""RLX: a compiler and runtime for tensor programs.

    import rlx
    x = rlx.array([[1.0, 2.0], [3.0, 4.0]])
    y = rlx.softmax(x @ x.T, axis=-1)                 # every op of the table is a function
    loss = lambda w: ((x @ w) ** 2).sum()
    g = rlx.grad(loss)(rlx.ones((2, 3)))              # transforms: jit, grad, vjp, jvp, vmap
    step = rlx.jit(lambda w: w - 0.1 * rlx.grad(loss)(w))

rlx.ops() lists the ops; help(rlx.softmax) explains one. A name that NumPy has, too, is called like NumPy's function;
rlx.op.<name> is the op. Ops run on the CPU; rlx.use_backend("reference") chooses another backend. Errors are rlx.Error.
"""

import atexit as _atexit

from rlx import _core
from rlx._errors import (
    DataError,
    DeviceError,
    Error,
    InternalError,
    ResourceError,
    UnsupportedError,
    UserError,
    UserIndexError,
)
from rlx._dtypes import DType, dtype
from rlx import op
from rlx._array import Array, array, asarray, from_dlpack
from rlx._functions import (
    abs,
    arange,
    ceil,
    cholesky,
    clip,
    cross,
    einsum,
    eye,
    floor,
    full,
    heaviside,
    imag,
    inner,
    key,
    linspace,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    lstsq,
    matmul,
    matrix_power,
    norm,
    ones,
    outer,
    qr,
    real,
    round,
    select,
    svd,
    tensordot,
    trunc,
    vdot,
    where,
    zeros,
    zeros_like,
)
from rlx._reductions import (
    all,
    any,
    argmax,
    argmin,
    argsort,
    count_nonzero,
    cumprod,
    cumsum,
    max,
    mean,
    median,
    min,
    nanmean,
    nansum,
    prod,
    quantile,
    searchsorted,
    sort,
    std,
    sum,
    trace,
    var,
)
from rlx._shaping import (
    concat,
    concatenate,
    diagonal,
    expand_dims,
    meshgrid,
    pad,
    repeat,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    tile,
    transpose,
    tril,
    triu,
)
from rlx._spectral import fft, fftn, fftshift, ifft, ifftn, ifftshift, irfft, rfft
from rlx._aliases import ALIASES as _ALIASES
from rlx._graph import CompiledGraph, Dim, Graph, Session, compile, from_bytes, load_graph, parse
from rlx._builder import GraphBuilder, HirModule
from rlx._transforms import (
    force_energy_loss,
    grad,
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    jet,
    jvp,
    linear_transpose,
    linearize,
    stop_gradient,
    value_and_grad,
    vjp,
    vmap,
)
from rlx._precision import PrecisionPolicy, mixed_precision
from rlx._quantise import Quantised, calibrate, convert_qat, prepare_qat, quantise
from rlx import opt
from rlx._jit import jit
from rlx._explain import Explanation, explain
from rlx._control import checkpoint, checkpoint_name, cond, custom_fn, save_names, scan, while_loop
from rlx._loops import associative_scan, fori_loop, switch
from rlx._tree import (
    flatten as tree_flatten,
    register_tree,
    static_field,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_map_with_path,
    tree_structure,
    unflatten as tree_unflatten,
)
from rlx._backend import backends, clear_caches, get_backend, use_backend
from rlx import nn, optim
from rlx._saving import load, save

__version__ = _core.version
float32, float16, bfloat16, float64 = (dtype(n) for n in ("float32", "float16", "bfloat16", "float64"))
int8, int16, int32, int64 = (dtype(n) for n in ("int8", "int16", "int32", "int64"))
uint8, uint32, bool_, complex64 = (dtype(n) for n in ("uint8", "uint32", "bool", "complex64"))
float8_e4m3fn, float8_e5m2 = (dtype(n) for n in ("float8_e4m3fn", "float8_e5m2"))


def ops() -> list[str]:
    """The names of all ops."""
    return list(op.FUNCTIONS)


globals().update(_ALIASES)
for _name, _function in op.FUNCTIONS.items():  # the table's ops, under names that are not taken above
    globals().setdefault(_name, _function)
del _name, _function
_atexit.register(_core.forget)


def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(f"module 'rlx' has no attribute {name!r}")
    import difflib

    import numpy

    near = difflib.get_close_matches(name, [n for n in globals() if not n.startswith("_")], 3, 0.7)
    if callable(getattr(numpy, name, None)):
        hint = f"; numpy.{name} takes an rlx.Array, too"
    else:
        hint = f"; did you mean {' or '.join(near)}?" if near else "; rlx.ops() lists the ops"
    raise AttributeError(f"module 'rlx' has no attribute {name!r}{hint}")
