"""PyTorch's ops in terms of ours: OpInfo name (with its variant, "div:floor_rounding") to a function of the sample.

The functions take rlx arrays where PyTorch's take tensors and return an array, or several; a `Both` also says what of
PyTorch's answer is compared. To add an op, add a line to the table of its kind.
"""

import mapping_linalg
import mapping_math
import mapping_nn
import mapping_reduce
import mapping_shape

TABLES = [m.MAPPING for m in (mapping_math, mapping_reduce, mapping_shape, mapping_nn, mapping_linalg)]
MAPPING = {name: f for table in TABLES for name, f in table.items()}
if len(MAPPING) != sum(map(len, TABLES)):
    raise SystemExit("an op is mapped twice: " + ", ".join(n for n in MAPPING if sum(n in t for t in TABLES) > 1))
