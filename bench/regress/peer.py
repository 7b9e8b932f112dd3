"""One build of RLX that runs programs when it is told to: `peer.py FOLDER THREADS`, with that build's package on PYTHONPATH.

Reads lines from standard input and answers each with a line of JSON:

    load NAME       {"compile": seconds} or {"missing": why}
    run NAME SECONDS  {"seconds": median of the runs that fit, "runs": how many}
"""

import json
import statistics
import sys
import time
import zlib

import numpy as np

import rlx


def values(leaf):
    """The same numbers in every build: indices are small, so that they fit every table."""
    name, dtype, shape = leaf
    random = np.random.default_rng(zlib.crc32(name.encode()))
    kind = np.dtype(str(dtype).replace("bool_", "bool")) if "bfloat" not in str(dtype) else np.dtype("float32")
    if kind.kind in "iu":
        return random.integers(0, 4, shape).astype(kind)
    if kind.kind == "b":
        return random.random(shape) < 0.9
    return (0.05 * random.standard_normal(shape)).astype(kind)


class Programs:
    def __init__(self, folder, threads):
        self.folder, self.threads, self.loaded = folder, threads, {}

    def load(self, name):
        try:
            graph = rlx.load_graph(f"{self.folder}/{name}.rlx")
            start = time.perf_counter()
            compiled = rlx.compile(graph, threads=self.threads)
            seconds = time.perf_counter() - start
            compiled.set_params({leaf[0]: values(leaf) for leaf in graph.params})
            inputs = {leaf[0]: rlx.asarray(values(leaf)) for leaf in graph.inputs}
            compiled.run(inputs)
        except rlx.Error as e:  # an op or a version that an earlier build does not know
            return {"missing": str(e).splitlines()[0]}
        self.loaded[name] = compiled, inputs
        return {"compile": seconds}

    def run(self, name, limit):
        compiled, inputs = self.loaded[name]
        times, end = [], time.perf_counter() + float(limit)
        while len(times) < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            compiled.run(inputs)
            times.append(time.perf_counter() - start)
        return {"seconds": statistics.median(times), "runs": len(times)}


def main():
    programs = Programs(sys.argv[1], int(sys.argv[2]))
    for line in sys.stdin:
        command, *arguments = line.split()
        print(json.dumps(getattr(programs, command)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
