"""What a case is.

`every` is a function of a library's module and the arrays, for libraries that spell it alike; `only` has those that
spell it otherwise, by library ("torch-compile" takes torch's), None where one does not take part. `weights` are arrays that do not
change from run to run; `inputs` may. flops and bytes are the least that the work needs; of bytes none
where all of it may lie in a cache.
"""

import dataclasses
import zlib
from typing import Any, Callable

import numpy as np


@dataclasses.dataclass
class Case:
    group: str
    name: str
    inputs: list
    weights: list = dataclasses.field(default_factory=list)
    every: Callable | None = None
    only: dict = dataclasses.field(default_factory=dict)
    flops: float = 0
    bytes: float = 0
    reads: bool = False  # nearly all bytes are read; else the limit is that of copying
    tolerance: float = 1e-4  # of the largest of the values that are compared
    program: str = ""  # RLX's side is this program of bench/, not the Python package: what takes a few microseconds

    def function_of(self, library) -> Any:
        key = "torch" if library == "torch-compile" and "torch-compile" not in self.only else library
        if key in self.only:
            return self.only[key]
        return self.every if library in ("rlx", "torch", "torch-compile", "jax") else None

    def prepare(self, python, environment):
        """What must lie there before any library can start."""

    def start(self, library, name):
        """A function without arguments that does the work."""
        operands, weights = ([library.array(x) for x in part] for part in self.arrays())
        return library.prepare(self.function_of(name), operands, weights)

    def arrays(self):
        random = np.random.default_rng(zlib.crc32(self.name.encode()))
        return [[make(random) for make in part] for part in (self.inputs, self.weights)]


def f32(*shape):
    return lambda r: r.standard_normal(shape, dtype=np.float32)


def positive(*shape):
    return lambda r: r.random(shape, dtype=np.float32) + 0.1


def small(*shape):
    return lambda r: 0.05 * r.standard_normal(shape, dtype=np.float32)


def integers(high, *shape):
    return lambda r: r.integers(0, high, shape)


def spd(*shape):
    def make(r):
        a = r.standard_normal(shape).astype(np.float32)
        return a @ a.swapaxes(-1, -2) / shape[-1] + np.eye(shape[-1], dtype=np.float32)

    return make


CASES: list[Case] = []


def case(group, name, inputs, kind=Case, **options):
    CASES.append(kind(group, name, inputs, **options))
