"""What is timed, one row per case: the same work for each library that has it. A module per group, in the order of the tables."""

from . import products, streaming, tables, images, networks, fourier, linear_algebra, sequences, language  # noqa: F401
from .case import CASES  # noqa: F401
