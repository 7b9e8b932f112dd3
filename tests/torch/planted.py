"""Errors planted in our results, each of which compare.py must find: --planted.

Of every op below, in each dtype and stage, the results of two samples are made wrong in three ways. One at least must be
found out, and nine of ten in all: an element that cancels to nearly nothing may hide in its rounding. A sample whose
results are all 0 or have no such element has nothing to plant an error in, and another takes its place.
"""

import numpy as np
import rlx

OPS = """add exp lgamma sum cumsum softmax:with_dtype logsumexp matmul lerp nn.functional.linear nn.functional.conv2d
    nn.functional.layer_norm linalg.solve fft.fft""".split()
DTYPES = "float16,float32,float64"
SAMPLES = 2  # per op, dtype and stage
TRIED = 8  # for those


def scaled(x, tolerance, tiny):
    """Each element off by twice what is allowed of it."""
    return x * (1 + 2 * tolerance)


def one_off(x, tolerance, tiny):
    """The largest element off by twice what is allowed."""
    y = x.copy()
    if y.size:
        place = np.unravel_index(np.argmax(np.where(np.isfinite(y), np.abs(y), -1)), y.shape)
        y[place] *= 1 + 2 * tolerance
    return y


def without_smallest(x, tolerance, tiny):
    """The smallest normal number is lost; smaller ones are no more than a few units in the last place."""
    y = x.copy()
    sizes = np.where(np.isfinite(y) & (np.abs(y) >= tiny), np.abs(y), np.inf)
    if y.size and np.isfinite(sizes.min()):
        y[np.unravel_index(np.argmin(sizes), y.shape)] = 0
    return y


PLANTS = [scaled, one_off, without_smallest]


def with_error(plant, results, limits):
    """Our results with the error; None where it changes nothing. limits: what is allowed of each, relative to itself,
    and the smallest normal number."""
    changed, out = False, []
    for x, (tolerance, tiny) in zip(results, limits):
        wide = np.asarray(x.astype("f64") if x.dtype.kind == "floating" else x)
        wrong = plant(wide, tolerance, tiny) if tolerance else wide
        out.append(rlx.array(wrong).astype(x.dtype))
        narrow = np.asarray(out[-1].astype("f64") if x.dtype.kind == "floating" else out[-1])
        changed |= bool((np.isfinite(wide) & (narrow != wide)).any())
    return out if changed else None
