"""Fourier transforms, named as in numpy.fft and with its arguments.

Real numbers count as complex ones with no imaginary part. The norm "backward" (the default), "ortho" or "forward" says
where 1/n goes.

`rlx.op.<name>` is the op of the table, which also takes complex numbers as blocks of real ones. All transforms run in
complex64.
"""

from rlx import op
from rlx._array import Array, asarray
from rlx._errors import UserError
from rlx._reductions import axes_of

_COMPLEX = "complex64"
_NORMS = {None: "backward", "backward": "backward", "ortho": "ortho", "forward": "forward"}


def _norm(norm):
    """The table's name of NumPy's norm."""
    if norm not in _NORMS:
        raise UserError("attribute", f'the norm is "backward", "ortho" or "forward", not {norm!r}')
    return _NORMS[norm]


def _sized(x, n, axis):
    """x with n elements along the axis: cut off, or followed by zeros."""
    (axis,) = axes_of(x, axis)
    if n is None or n == x.shape[axis]:
        return x
    return op.pad(
        x, asarray(0).astype(x.dtype), low=[0] * x.ndim, high=[n - s if a == axis else 0 for a, s in enumerate(x.shape)]
    )


def fft(x, /, n=None, axis=-1, norm=None, *, inverse=False):
    """The Fourier transform along an axis, of n elements; with inverse the inverse one."""
    x = _sized(asarray(x).astype(_COMPLEX), n, axis)
    return op.fft(x, inverse=inverse, norm=_norm(norm), axis=axis)


def ifft(x, /, n=None, axis=-1, norm=None):
    """The inverse of fft."""
    return fft(x, n, axis, norm, inverse=True)


def fftn(x, /, s=None, axes=None, norm=None, *, inverse=False, axis=None):
    """The Fourier transform along axes (by default all), of s elements each."""
    x = asarray(x).astype(_COMPLEX)
    axes = axis if axes is None else axes
    if axes is None and s is not None:
        axes = range(x.ndim - len(s), x.ndim)
    axes = axes_of(x, axes)
    for n, a in zip(s or (), axes):
        x = _sized(x, None if n == -1 else n, a)
    return op.fftn(x, axes=axes, inverse=inverse, norm=_norm(norm))


def ifftn(x, /, s=None, axes=None, norm=None):
    """The inverse of fftn."""
    return fftn(x, s, axes, norm, inverse=True)


def rfft(x, /, n=None, axis=-1, norm=None):
    """The Fourier transform of real numbers along an axis: the first half of the bins, n // 2 + 1."""
    x = asarray(x)
    if x.dtype.kind == "complex":
        raise UserError("dtype", "rfft: takes real numbers; fft takes complex ones")
    x = _sized(x.astype("float32"), n, axis)
    return op.rfft(x, norm=_norm(norm), axis=axis)


def irfft(x, /, n=None, axis=-1, norm=None):
    """The inverse of rfft, n real numbers; by default an even number of them."""
    x = asarray(x).astype(_COMPLEX)
    n = 2 * (x.shape[axis] - 1) if not n else n
    x = _sized(x, n // 2 + 1, axis)
    return op.irfft(x, n=n, norm=_norm(norm), axis=axis)


def fftshift(x, /, axes=None, *, axis=None):
    """Moves frequency 0 to the middle of the axes, by default of all."""
    x = asarray(x)
    return op.fftshift(x, axes=axes_of(x, axis if axes is None else axes))


def ifftshift(x, /, axes=None, *, axis=None):
    """The inverse of fftshift."""
    x = asarray(x)
    return op.ifftshift(x, axes=axes_of(x, axis if axes is None else axes))


METHODS = (fft, ifft, fftn, ifftn, rfft, irfft, fftshift, ifftshift)
for _method in METHODS:
    setattr(Array, _method.__name__, _method)
