"""Writes src/quant/grids.cc: the codebooks of ggml's IQ formats, as numbers taken from the PyPI package `gguf`.

    python scripts/make_iq_grids.py        # needs gguf and numpy

A codeword is a vector of 8 (IQ1, IQ2) or 4 (IQ3) small integers out of 3 or 8 levels. It is kept as one 16-bit number: element i's
level index in bits [w * i, w * i + w), w = 2 for 3 levels and 3 for 8.
"""

import pathlib

import numpy as np
from gguf import quants

# our name, class, elements, what is in it
BOOKS = [
    ("kIq1", "IQ1_S", 8, "IQ1_S, IQ1_M"),
    ("kIq2xxs", "IQ2_XXS", 8, "IQ2_XXS"),
    ("kIq2xs", "IQ2_XS", 8, "IQ2_XS"),
    ("kIq2s", "IQ2_S", 8, "IQ2_S"),
    ("kIq3xxs", "IQ3_XXS", 4, "IQ3_XXS"),
    ("kIq3s", "IQ3_S", 4, "IQ3_S"),
]


def packed(name, elements):
    book = getattr(quants, name)
    book.init_grid()
    levels = sorted(set(int(v) for v in book.grid_map))
    words = book.grid.reshape(-1, elements).astype(int)
    width = 2 if len(levels) == 3 else 3
    codes = sum(np.searchsorted(levels, words[:, i]) << (width * i) for i in range(elements))
    return levels, codes


def main():
    text = "// Written by scripts/make_iq_grids.py, which says what the numbers are.\n"
    text += "// clang-format off\n"
    text += '#include "rlx/quant/grids.h"\n\nnamespace rlx::quant {\nnamespace {\n'
    tables = ""
    for ours, theirs, elements, note in BOOKS:
        levels, codes = packed(theirs, elements)
        text += f"\n// {note}: {len(codes)} words of {elements}\nconstexpr uint16_t {ours}Codes[] = {{\n"
        for row in range(0, len(codes), 14):
            text += "    " + ", ".join(f"{c}" for c in codes[row : row + 14]) + ",\n"
        text += "};\n"
        listed = ", ".join(str(v) for v in levels)
        tables += f"constinit const Grid<{elements}, {len(codes)}> {ours} = expand<{elements}, {len(codes)}>({ours}Codes, {{{listed}}});\n"
    text += "\n}  // namespace\n\n" + tables + "\n}  // namespace rlx::quant\n"
    root = pathlib.Path(__file__).resolve().parent.parent
    (root / "src/quant/grids.cc").write_text(text)


if __name__ == "__main__":
    main()
