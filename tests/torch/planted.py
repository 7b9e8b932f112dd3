"""Errors planted in our results, each of which compare.py must find: --planted.

Of every op below, in each dtype and stage, the results of two samples are made wrong in three ways. One at least must be
found out, and nine of ten in all: an element that cancels to nearly nothing may hide in its rounding.
"""

import numpy as np
import rlx

OPS = """add exp lgamma sum cumsum softmax:with_dtype logsumexp matmul lerp nn.functional.linear nn.functional.conv2d
    nn.functional.layer_norm linalg.solve fft.fft""".split()
DTYPES = "float16,float32,float64"
SAMPLES = 2  # per op, dtype and stage


def scaled(x, tolerance):
    """Each element off by twice what is allowed of it."""
    return x * (1 + 2 * tolerance)


def one_off(x, tolerance):
    """The largest element off by twice what is allowed."""
    y = x.copy()
    if y.size:
        place = np.unravel_index(np.argmax(np.where(np.isfinite(y), np.abs(y), -1)), y.shape)
        y[place] *= 1 + 2 * tolerance
    return y


def without_smallest(x, tolerance):
    """The smallest element that is not 0 is lost."""
    y = x.copy()
    sizes = np.where(np.isfinite(y) & (y != 0), np.abs(y), np.inf)
    if y.size and np.isfinite(sizes.min()):
        y[np.unravel_index(np.argmin(sizes), y.shape)] = 0
    return y


PLANTS = [scaled, one_off, without_smallest]


def with_error(plant, results, tolerances):
    """Our results with the error; None where it changes nothing."""
    changed, out = False, []
    for x, tolerance in zip(results, tolerances):
        wide = np.asarray(x.astype("f64") if x.dtype.kind == "floating" else x)
        wrong = plant(wide, tolerance) if tolerance else wide
        out.append(rlx.array(wrong).astype(x.dtype))
        narrow = np.asarray(out[-1].astype("f64") if x.dtype.kind == "floating" else out[-1])
        changed |= bool((np.isfinite(wide) & (narrow != wide)).any())
    return out if changed else None
