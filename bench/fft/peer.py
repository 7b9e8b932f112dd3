"""A peer of bench/fft: `peer.py NAME FOLDER THREADS`, NAME one of mkl, fftw, pocketfft. Speaks fft_case.cc's protocol.

Each gets what makes it fastest: its result array is there before it is timed (pocketfft has no such argument), and FFTW's plan is
measured before the clock starts.
"""

import json
import os
import pathlib
import statistics
import sys
import time

import numpy as np


def mkl(op, x, y, n, threads):
    import torch

    torch.set_num_threads(threads)
    a, out = torch.from_numpy(x), torch.from_numpy(y)
    f = {
        "fft": lambda: torch.fft.fft(a, out=out),
        "fft2": lambda: torch.fft.fft2(a, out=out),
        "rfft": lambda: torch.fft.rfft(a, out=out),
        "irfft": lambda: torch.fft.irfft(a, n=n, out=out),
    }[op]
    return f, {"torch": torch.__version__, "mkl": torch.backends.mkl.is_available()}


def fftw(op, x, y, n, threads):
    import pyfftw

    a, out = pyfftw.empty_aligned(x.shape, x.dtype), pyfftw.empty_aligned(y.shape, y.dtype)
    axes = (-2, -1) if op == "fft2" else (-1,)
    direction = "FFTW_BACKWARD" if op == "irfft" else "FFTW_FORWARD"
    plan = pyfftw.FFTW(a, out, axes=axes, direction=direction, flags=("FFTW_MEASURE",), threads=threads)
    a[...] = x
    # execute() alone does not divide an inverse transform; the others do.
    f = (lambda: plan(normalise_idft=True)) if op == "irfft" else plan.execute
    f()
    y[...] = out
    if op == "irfft":
        a[...] = x
    return f, {"pyfftw": pyfftw.__version__, "fftw": pyfftw.fftw_version}


def pocketfft(op, x, y, n, threads):
    import scipy
    import scipy.fft as s

    f = {
        "fft": lambda: s.fft(x, workers=threads),
        "fft2": lambda: s.fft2(x, workers=threads),
        "rfft": lambda: s.rfft(x, workers=threads),
        "irfft": lambda: s.irfft(x, n=n, workers=threads),
    }[op]
    y[...] = f()
    return f, {"scipy": scipy.__version__}


def main():
    name, folder, threads = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    f = None
    for line in sys.stdin:
        command, *words = line.split()
        if command == "load":
            op, shape = words[0], [int(s) for s in words[1].split("x")]
            n, half = shape[-1], [*shape[:-1], shape[-1] // 2 + 1]
            x = np.fromfile(folder / "in.bin", "f4" if op == "rfft" else "c8").reshape(half if op == "irfft" else shape)
            y = np.empty(half if op == "rfft" else shape, "f4" if op == "irfft" else "c8")
            f, versions = globals()[name](op, x, y, n, threads)
            f()
            y.tofile(folder / f"{name}.bin")
            print(json.dumps({"ready": True, "versions": versions}), flush=True)
        else:
            times, end = [], time.perf_counter() + float(words[0])
            clock = time.thread_time if words[1] == "cpu" else time.perf_counter
            while len(times) < 3 or time.perf_counter() < end:
                start = clock()
                f()
                times.append(clock() - start)
            print(json.dumps({"seconds": statistics.median(times), "least": min(times), "runs": len(times)}), flush=True)


if __name__ == "__main__":
    main()
