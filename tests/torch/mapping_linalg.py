"""Linear algebra and Fourier transforms: part of mapping.py's table, which see."""

MAPPING = {}
