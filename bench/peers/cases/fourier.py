"""Fourier transforms of c64, and of f32 (rfft); the shape of an irfft is that of its result.

RLX's side is bench/peers/fourier.cc. Each gets what makes it fastest: torch's result array is there before it is timed, and FFTW
measures its plan before the clock starts.
"""

import dataclasses

import numpy as np

from .case import Case, case

LIST = {
    "powers of two": "fft 4096, fft 65536, fft 1048576, fft 16384x64, fft 4096x256, fft 1024x1024, fft 64x16384",
    "3-smooth": "fft 46656, fft 786432, fft 4096x243, fft 1024x768, fft 512x1536",
    "primes": "fft 8191, fft 65537, fft 2048x251, fft 256x1009",
    "along the last two axes": "fft2 512x512, fft2 768x768, fft2 1024x1024, fft2 16x256x256",
    "real": "rfft 1048576, rfft 4096x256, rfft 512x1536, irfft 1024x1024",
}


def operand(op, shape):
    def real(r):
        return r.random(shape, "f4") - np.float32(0.5)

    if op == "rfft":
        return real
    if op == "irfft":
        return lambda r: np.fft.rfft(real(r)).astype("c8")
    return lambda r: (real(r) + 1j * real(r)).astype("c8")


def torch_into(op, options):
    """Into the same result each time."""
    results = []

    def f(m, x):
        transform = getattr(m.fft, op)
        if not results:
            results.append(transform(x, **options))
        return transform(x, out=results[0], **options)

    return f


@dataclasses.dataclass
class Fourier(Case):
    op: str = ""
    shape: tuple = ()

    @property
    def result(self):
        half = (*self.shape[:-1], self.shape[-1] // 2 + 1)
        return ("f4", self.shape) if self.op == "irfft" else ("c8", half if self.op == "rfft" else self.shape)


for line in ", ".join(LIST.values()).split(", "):
    op, text = line.split()
    shape = tuple(int(s) for s in text.split("x"))
    options = {"n": shape[-1]} if op == "irfft" else {}
    points = 1
    for n in shape[-2 if op == "fft2" else -1 :]:
        points *= n
    case(
        "fourier",
        line,
        [operand(op, shape)],
        kind=Fourier,
        op=op,
        shape=shape,
        program="fourier",
        only={
            "rlx": True,
            "torch": torch_into(op, options),
            "torch-compile": None,
            "scipy": lambda x, op=op, options=options: __import__("scipy.fft").fft.__dict__[op](x, **options),
            "fftw": (op, {"n": shape[-1]} if op == "irfft" else {}),
        },
        # By the usual count: 5 N log2 N, half of it for real ones.
        flops=(2.5 if op in ("rfft", "irfft") else 5) * np.prod(shape) * np.log2(points),
        tolerance=2e-6,
    )
