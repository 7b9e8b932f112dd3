"""Linear algebra and Fourier transforms: part of mapping.py's table, which see.

Where PyTorch's results have freedom (signs of vectors, their completion) or its samples need preparation, both sides
are given the same.
"""

import functools
import math

import numpy as np
import rlx
import torch
from helpers import Both, as_list, axes_of
from mapping_fft import MAPPING as FFT


def _eye(n, like):
    return rlx.eye(n, n).astype(like.dtype)


def _mh(x):
    """The Hermitian transpose of matrices."""
    return rlx.conj(x.mT) if x.dtype == "c64" else x.mT


def _modulus(x):
    return rlx.complex_abs(x) if x.dtype == "c64" else rlx.op.abs(x)


def _hermitian(x):
    return x + (x.mH if isinstance(x, torch.Tensor) else _mh(x))


def _of_hermitian(op, x, *args, **kwargs):
    return op(_hermitian(x), *args, **kwargs)


def _first(op, *args, **kwargs):
    return as_list(op(*args, **kwargs))[0]


def _no_errors(x):
    """The code of each matrix: 0, as what cannot be done raises."""
    return rlx.zeros(x.shape[:-2]).astype("i32")


# ---- factorisations and their freedom


def _qr(x, mode="reduced"):
    q, r = rlx.op.qr(x, complete=mode == "complete")
    k = min(x.shape[-2:])
    return q[..., :, : 0 if mode == "r" else k], r


def _their_qr(op, x, mode="reduced"):
    """R's diagonal real and not negative; of Q only what A determines."""
    q, r = op(x, mode=mode)
    k = min(x.shape[-2:])
    diagonal = torch.diagonal(r, dim1=-2, dim2=-1)
    phase = torch.where(diagonal == 0, torch.ones_like(diagonal), torch.sgn(diagonal)).detach()
    rows = torch.nn.functional.pad(phase, (0, r.shape[-2] - k), value=1)
    columns = phase if mode != "r" else phase[..., :0]
    return q[..., :, : columns.shape[-1]] * columns.unsqueeze(-2), r * rows.conj().unsqueeze(-1)


def _svd(x, full_matrices=True):
    """What does not depend on the choice of vectors."""
    u, s, vh = rlx.op.svd(x, full_matrices=full_matrices)
    k = s.shape[-1]
    u, vh = u[..., :, :k], vh[..., :k, :]
    return _modulus(u), s, _modulus(vh), (u * s.expand_dims(-2).astype(u.dtype)) @ vh


def _their_svd(op, x, **options):
    u, s, v = op(x, **options)
    vh = v.mH if "some" in options else v
    k = s.shape[-1]
    u, vh = u[..., :, :k], vh[..., :k, :]
    return u.abs(), s, vh.abs(), (u * s.unsqueeze(-2)) @ vh


def _eig(x):
    w, v = rlx.eig(x)
    return w, rlx.complex_abs(v)


def _ordered(w):
    """The order of our eigenvalues."""
    return torch.argsort(w.real + w.imag / 4, dim=-1)


def _their_eig(op, x):
    w, v = op(x)
    order = _ordered(w)
    return w.gather(-1, order), v.abs().gather(-1, order.unsqueeze(-2).expand(v.shape))


def _their_eigvals(op, x):
    w = op(x)
    return w.gather(-1, _ordered(w))


def _eigh(x, UPLO="L"):
    w, v = rlx.eigh(_hermitian(x))
    return w, _modulus(v)


def _their_eigh(op, x, UPLO="L"):
    w, v = op(_hermitian(x), UPLO)
    return w, v.abs()


def _lu_factor(x, pivot=True):
    lu, pivots, _ = rlx.lu(x)
    return lu, pivots.astype("i32") + 1


def _lu(x, pivot=True):
    lu, _, permutation = rlx.lu(x)
    return _unpacked(lu, permutation)


def _unpacked(lu, permutation):
    m, n = lu.shape[-2:]
    k = min(m, n)
    moved = rlx.one_hot(permutation, depth=m).astype(lu.dtype).mT
    lower = rlx.op.tril(lu[..., :, :k], k=-1) + rlx.eye(m, k).astype(lu.dtype)
    return moved, lower, rlx.op.triu(lu[..., :k, :])


def _permutation(pivots, rows):
    """The rows' order after the swaps that the pivots (from 1) name."""
    pivots = np.asarray(pivots)
    order = np.broadcast_to(np.arange(rows), [*pivots.shape[:-1], rows]).copy()
    if not pivots.size:
        return rlx.array(order)
    for line, swaps in zip(order.reshape(-1, rows), pivots.reshape(-1, pivots.shape[-1])):
        for i, j in enumerate(swaps - 1):
            line[[i, j]] = line[[j, i]]
    return rlx.array(order)


def _lu_solve(lu, pivots, b, left=True, adjoint=False):
    if not left:
        return _mh(_lu_solve(lu, pivots, _mh(b), adjoint=not adjoint))
    order = rlx.one_hot(_permutation(pivots, lu.shape[-1]), depth=lu.shape[-1]).astype(lu.dtype)  # P^T
    steps = [{"lower": True, "unit_diagonal": True}, {"lower": False}]
    if not adjoint:
        y = rlx.triangular_solve(lu, order @ b, **steps[0])
        return rlx.triangular_solve(lu, y, **steps[1])
    upper = _mh(lu)
    y = rlx.triangular_solve(upper, b, lower=True)
    return order.mT @ rlx.triangular_solve(upper, y, lower=False, unit_diagonal=True)


# ---- solvers and functions


def _solve(a, b, left=True):
    return rlx.dense_solve(a, b) if left else rlx.dense_solve(a.mT, b.mT).mT


def _solve_triangular(a, b, upper, left=True, unitriangular=False):
    return rlx.triangular_solve(a, b, left=left, lower=not upper, unit_diagonal=unitriangular)


def _triangular_solve(b, a, upper=True, transpose=False, unitriangular=False):
    return rlx.triangular_solve(a, b, lower=not upper, transpose=transpose, unit_diagonal=unitriangular)


def _lstsq(a, b, driver=None):
    return rlx.lstsq(a, b)


def _cholesky(x, upper=False):
    return rlx.op.cholesky(_hermitian(x), lower=not upper)


def _triangle(x, upper):
    """A Cholesky factor of x's triangle: its diagonal real and positive, as the samples' op wants it."""
    triangle = torch.triu if upper else torch.tril
    if isinstance(x, torch.Tensor):
        diagonal = torch.diag_embed(torch.diagonal(x, dim1=-2, dim2=-1).abs())
        return triangle(x, 1 if upper else -1) + diagonal
    rest = rlx.op.triu(x, k=1) if upper else rlx.op.tril(x, k=-1)
    n = x.ndim
    return rest + rlx.diag_embed(_modulus(rlx.op.diagonal(x, axis1=n - 2, axis2=n - 1)).astype(x.dtype))


def _cholesky_solve(b, factor, upper=False):
    return rlx.cholesky_solve(_triangle(factor, upper), b, lower=not upper)


def _cholesky_inverse(factor, upper=False):
    n = factor.shape[-1]
    identity = rlx.broadcast(_eye(n, factor), shape=factor.shape)
    return rlx.cholesky_solve(_triangle(factor, upper), identity, lower=not upper)


def _matrix_sqrt(x):
    w, v = rlx.eigh(x)
    return (v * rlx.sqrt(w).expand_dims(-2).astype(x.dtype)) @ _mh(v)


def _polar(x):
    u, s, vh = rlx.op.svd(x)
    return u @ vh, (_mh(vh) * s.expand_dims(-2).astype(x.dtype)) @ vh


def _cond(x):
    s = rlx.op.svd(x)[1]
    return s[..., 0] / s[..., -1]


def _rank(x, atol=None, rtol=None, hermitian=False):
    """Absolute tolerances, and one for each matrix, are by hand."""
    if atol is None and not isinstance(rtol, rlx.Array):
        return rlx.matrix_rank(x, rtol=rtol)
    s = rlx.op.svd(x)[1]
    absolute, relative = (v.expand_dims(-1) if isinstance(v, rlx.Array) else v or 0.0 for v in (atol, rtol))
    return rlx.op.count_nonzero(s > rlx.maximum(s[..., :1] * relative, absolute), axes=[-1])


def _pinv(x, rtol=None, hermitian=False):
    return rlx.pinv(_hermitian(x) if hermitian else x, rtol=rtol.item() if isinstance(rtol, rlx.Array) else rtol)


def _vander(x, N=None):
    x = x if x.ndim else x.reshape(1)
    n = x.shape[-1] if N is None else N
    if x.dtype.kind == "integer":
        x = x.astype("i64")
    first = rlx.broadcast(rlx.array(1).astype(x.dtype), shape=[*x.shape, 1])
    rest = rlx.broadcast(x.expand_dims(-1), shape=[*x.shape, n - 1])
    return rlx.op.cumprod(rlx.op.concat(first, rest, axis=x.ndim), axis=-1)


def _tensorinv(x, ind=2):
    rows = math.prod(x.shape[:ind])
    return rlx.inverse(x.reshape(rows, -1)).reshape([*x.shape[ind:], *x.shape[:ind]])


def _tensorsolve(a, b, dims=None):
    if dims is not None:
        a = rlx.move_axis(a, source=list(dims), destination=[a.ndim - len(dims) + i for i in range(len(dims))])
    rest = a.shape[b.ndim :]
    return rlx.dense_solve(a.reshape(b.size, -1), b.reshape(-1)).reshape(rest)


# ---- norms


def _vector_norm(x, ord=2, dim=None, keepdim=False, dtype=None):
    if x.ndim == 0:
        return rlx.op.norm(x.reshape(1), axes=[0], ord=float(ord)).reshape(())
    return rlx.op.norm(x, axes=axes_of(x, dim), keepdims=keepdim, ord=float(ord))


def _matrix_norm(x, ord="fro", dim=(-2, -1), keepdim=False, dtype=None):
    rows, columns = (d % x.ndim for d in dim)
    a = rlx.move_axis(x, source=[rows, columns], destination=[x.ndim - 2, x.ndim - 1])
    names = {"fro": "fro", "nuc": "nuc", 1: "one", math.inf: "inf", 2: "two"}
    if ord in names:
        y = rlx.matrix_norm(a, ord=names[ord])
    elif ord == -2:
        y = rlx.reduce_min(rlx.op.svd(a)[1], axes=[-1])
    else:  # the smallest sum of columns or of rows
        y = rlx.reduce_min(rlx.reduce_sum(_modulus(a), axes=[-2 if ord == -1 else -1]), axes=[-1])
    return y.reshape([1 if i in (rows, columns) else s for i, s in enumerate(x.shape)]) if keepdim else y


def _norm(x, ord=None, dim=None, keepdim=False, dtype=None):
    matrix = dim is not None and not isinstance(dim, int) and len(dim) == 2
    if ord is None:
        return _vector_norm(x, 2, dim, keepdim)
    if matrix or (dim is None and x.ndim == 2):
        return _matrix_norm(x, ord, dim or (0, 1), keepdim)
    return _vector_norm(x, ord, dim, keepdim)


def _torch_norm(x, p="fro", dim=None, keepdim=False, dtype=None):
    """torch.norm: numbers are norms of vectors, over all axes by default."""
    if p == "nuc":
        return _matrix_norm(x, "nuc", dim or (0, 1), keepdim)
    return _vector_norm(x, 2 if p in ("fro", None) else p, dim, keepdim)


def _renorm(x, p, dim, maxnorm):
    dim %= x.ndim
    size = rlx.op.norm(x, axes=[i for i in range(x.ndim) if i != dim], ord=float(p), keepdims=True)
    return x * rlx.where(size > maxnorm, maxnorm / (size + 1e-7), rlx.array(1.0).astype(x.dtype))


MAPPING = {
    **FFT,
    "linalg.cholesky": Both(_cholesky, _of_hermitian),
    "linalg.cholesky_ex": Both(lambda x, upper=False: (_cholesky(x, upper), _no_errors(x)), _of_hermitian),
    "cholesky_solve": Both(
        _cholesky_solve, lambda op, b, factor, upper=False: op(b, _triangle(factor, upper), upper=upper)
    ),
    "cholesky_inverse": Both(
        _cholesky_inverse, lambda op, factor, upper=False: op(_triangle(factor, upper), upper=upper)
    ),
    "linalg.cond": _cond,
    "linalg.cross": lambda x, y, dim=-1: rlx.op.cross(x, y, axis=dim),
    "linalg.det": rlx.determinant,
    "linalg.diagonal": lambda x, offset=0, dim1=-2, dim2=-1: rlx.op.diagonal(x, offset=offset, axis1=dim1, axis2=dim2),
    "linalg.eig": Both(_eig, _their_eig),
    "linalg.eigvals": Both(lambda x: rlx.eig(x)[0], _their_eigvals),
    "linalg.eigh": Both(_eigh, _their_eigh),
    "linalg.eigvalsh": Both(lambda x, UPLO="L": _eigh(x)[0], _of_hermitian),
    "linalg.inv": rlx.inverse,
    "linalg.inv_ex": lambda x: (rlx.inverse(x), _no_errors(x)),
    **{f"linalg.lstsq{v}": Both(_lstsq, _first) for v in ("", ":grad_oriented")},
    "linalg.lu": _lu,
    "linalg.lu_factor": _lu_factor,
    "linalg.lu_factor_ex": lambda x, pivot=True: (*_lu_factor(x), _no_errors(x)),
    "linalg.lu_solve": _lu_solve,
    "lu": lambda x, pivot=True, get_infos=False: (*_lu_factor(x), *([_no_errors(x)] if get_infos else [])),
    "lu_unpack": lambda lu, pivots: _unpacked(lu, _permutation(pivots, lu.shape[-2])),
    "lu_solve": lambda b, lu, pivots: _lu_solve(lu, pivots, b),
    "linalg.matrix_norm": _matrix_norm,
    "linalg.matrix_power": lambda x, n: rlx.op.matrix_power(x, n=n),
    "linalg.matrix_rank": _rank,
    "linalg.matrix_rank:hermitian": _rank,
    "linalg.matrix_sqrth": _matrix_sqrt,
    "matrix_exp": rlx.expm,
    "linalg.multi_dot": lambda xs: functools.reduce(rlx.matmul, xs),
    "linalg.norm": _norm,
    "linalg.norm:subgradients_at_zero": _norm,
    **{name: _torch_norm for name in ("norm", "norm:nuc", "norm:fro", "norm:inf")},
    "renorm": _renorm,
    "linalg.pinv": _pinv,
    "linalg.pinv:hermitian": Both(_pinv, _of_hermitian),
    "linalg.pinv:singular": lambda a, b: rlx.pinv(a @ b.mT),
    "pinverse": lambda x, rcond=1e-15: rlx.pinv(x, rtol=rcond),
    "linalg.polar": _polar,
    "linalg.qr": Both(_qr, _their_qr),
    "linalg.slogdet": rlx.slogdet,
    "logdet": rlx.logdet,
    "linalg.solve": _solve,
    "linalg.solve_ex": lambda a, b, left=True: (_solve(a, b, left), _no_errors(a)),
    "linalg.solve_triangular": _solve_triangular,
    "triangular_solve": Both(_triangular_solve, _first),
    "linalg.svd": Both(_svd, _their_svd),
    "svd": Both(lambda x, some=True: _svd(x, not some), _their_svd),
    "linalg.svdvals": lambda x: rlx.op.svd(x)[1],
    "linalg.tensorinv": _tensorinv,
    "linalg.tensorsolve": _tensorsolve,
    "linalg.vander": _vander,
    "linalg.vecdot": lambda x, y, dim=-1: (rlx.conj(x) * y).sum(dim),
    "linalg.vector_norm": _vector_norm,
}
