"""torch.fft.*, stft and windows: part of mapping_linalg.py's table. A transform is given its size by cutting or zeros,
and runs in complex64, as there is no complex128."""

import rlx
from helpers import axes_of, dtype_of, floats

_SWAPPED = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def _sized(x, n, axis):
    """x with n elements along the axis."""
    axis %= x.ndim
    amount = [n - s if i == axis else 0 for i, s in enumerate(x.shape)]
    return x if n == x.shape[axis] else rlx.op.pad(x, rlx.zeros(()).astype(x.dtype), low=[0] * x.ndim, high=amount)


def _complex(x):
    return x if x.dtype == "c64" else floats(lambda v: v)(x).astype("c64")


def _axes(x, s, dim):
    """The axes and their sizes. Sizes alone name the last axes, nothing names all of them."""
    dims = axes_of(x, dim) if dim is not None or s is None else list(range(-len(s), 0))
    s = list(s) if isinstance(s, (list, tuple)) else [-1] * len(dims) if s is None else [s]
    return dims, [x.shape[d] if n == -1 else n for d, n in zip(dims, s)]


def _fft(inverse):
    def call(x, s=None, dim=None, norm=None):
        dims, s = _axes(x, s, dim)
        z = _complex(x)
        for n, d in zip(s, dims):
            z = _sized(z, n, d)
        return rlx.op.fftn(z, axes=dims, inverse=inverse, norm=norm or "backward")

    return call


def _rfft(x, s=None, dim=None, norm=None):
    dims, s = _axes(x, s, dim)
    x = floats(lambda v: v)(x)
    if x.dtype != "f32":
        raise NotImplementedError("complex128")
    for n, d in zip(s, dims):
        x = _sized(x, n, d)
    z = rlx.op.rfft(x, axis=dims[-1], norm=norm or "backward")
    return _fft(False)(z, s[:-1], dims[:-1], norm) if dims[:-1] else z


def _irfft(x, s=None, dim=None, norm=None):
    if x.dtype == "f64":
        raise NotImplementedError("complex128")
    dims, sizes = _axes(x, s, dim)
    if s is None or (isinstance(s, (list, tuple)) and s[-1] == -1):
        sizes[-1] = 2 * (x.shape[dims[-1]] - 1)
    z = _complex(x)
    if dims[:-1]:
        z = _fft(True)(z, sizes[:-1], dims[:-1], norm)
    z = _sized(z, sizes[-1] // 2 + 1, dims[-1])
    return rlx.op.irfft(z, n=sizes[-1], axis=dims[-1], norm=norm or "backward")


def _hfft(x, s=None, dim=None, norm=None):
    if x.dtype == "f64":
        raise NotImplementedError("complex128")
    return _irfft(rlx.conj(_complex(x)), s, dim, _SWAPPED[norm])


def _ihfft(x, s=None, dim=None, norm=None):
    return rlx.conj(_rfft(x, s, dim, _SWAPPED[norm]))


def _one(f):
    return lambda x, n=None, dim=-1, norm=None: f(x, n, dim, norm)


def _two(f):
    return lambda x, s=None, dim=(-2, -1), norm=None: f(x, s, dim, norm)


def _shift(f):
    return lambda x, dim=None: f(x, axes=axes_of(x, dim))


def _window(window, n_fft, win_length):
    """A window of n_fft: ones by default, in the middle of zeros when it is shorter."""
    w = rlx.ones((win_length or n_fft,)) if window is None else window
    low = (n_fft - w.shape[0]) // 2
    return rlx.op.pad(w, rlx.zeros(()).astype(w.dtype), low=[low], high=[n_fft - w.shape[0] - low])


def _stft(
    x, n_fft, hop_length=None, win_length=None, window=None, center=True, pad_mode="reflect", normalized=False,
    onesided=None, return_complex=None, align_to_window=None,
):  # fmt: skip
    if x.dtype != "f32" or onesided is False:
        raise NotImplementedError("complex128, or a complex signal")
    if center:
        amount = [0] * (x.ndim - 1) + [n_fft // 2]
        x = rlx.pad_mode(x, low=amount, high=amount, mode=pad_mode)
    norm = "ortho" if normalized else "backward"
    z = rlx.stft(x, _window(window, n_fft, win_length), hop=hop_length or n_fft // 4, norm=norm)
    return z if return_complex else rlx.stack([rlx.op.real(z), rlx.op.imag(z)], z.ndim)


def _istft(
    z, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, onesided=None,
    length=None, return_complex=False,
):  # fmt: skip
    if return_complex:
        raise NotImplementedError("a complex signal")
    norm, hop = "ortho" if normalized else "backward", hop_length or n_fft // 4
    y = rlx.istft(z[..., : n_fft // 2 + 1, :], _window(window, n_fft, win_length), hop=hop, norm=norm)
    start = n_fft // 2 if center else 0
    end = start + length if length else y.shape[-1] - start
    return _sized(y[..., start:end], end - start, -1)


def _cosine_window(*coefficients):
    def call(size, sym=True, dtype=None, a=None, alpha=None, **placement):
        own = a or ([alpha, 1 - alpha] if alpha else coefficients)
        return rlx.general_cosine_window(size=size, coefficients=own, periodic=not sym, dtype=dtype_of(dtype))

    return call


_WINDOWS = {
    "hann": [0.5, 0.5],
    "hamming": [0.54, 0.46],
    "blackman": [0.42, 0.5, 0.08],
    "nuttall": [0.3635819, 0.4891775, 0.1365995, 0.0106411],
    "general_cosine": [],
    "general_hamming": [],
}
_TRANSFORMS = {"fft": _fft(False), "ifft": _fft(True), "rfft": _rfft, "irfft": _irfft, "hfft": _hfft, "ihfft": _ihfft}

MAPPING = {
    **{f"fft.{n}": _one(f) for n, f in _TRANSFORMS.items()},
    **{f"fft.{n}2": _two(f) for n, f in _TRANSFORMS.items()},
    **{f"fft.{n}n": f for n, f in _TRANSFORMS.items()},
    **{f"signal.windows.{n}": _cosine_window(*c) for n, c in _WINDOWS.items()},
    "stft": _stft,
    "istft": _istft,
    "fft.fftshift": _shift(rlx.op.fftshift),
    "fft.ifftshift": _shift(rlx.op.ifftshift),
}
