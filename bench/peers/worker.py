"""One library that runs cases when it is told to: `worker.py LIBRARY THREADS CLOCK`.

CLOCK is wall, or cpu for the time that the process had a CPU, on machines that others use at the same time.

Reads lines from standard input and answers each with a line of JSON:

    load NUMBER          {"seconds": until the first result, "values": [..], "version": ".."} or {"missing": why}
    run NUMBER SECONDS   {"seconds": median of the runs that fit (of cpu the least), "runs": how many}
    drop NUMBER          {}

The values are 256 of the result, evenly spaced, for comparison.
"""

import json
import os
import pathlib
import statistics
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cases  # noqa: E402


class NumPy:
    """Also what SciPy and pyFFTW take."""

    def __init__(self, threads):
        self.threads = threads

    version = property(lambda self: f"numpy {np.__version__}")

    def array(self, x):
        return x

    def prepare(self, function, operands, weights):
        return lambda: function(*operands, *weights)

    def numbers(self, result):
        return np.asarray(result)


class SciPy(NumPy):
    def __init__(self, threads):
        super().__init__(threads)
        import scipy.fft

        self.scipy = scipy
        scipy.fft.set_workers(threads).__enter__()

    version = property(lambda self: f"scipy {self.scipy.__version__}")


class FFTW(NumPy):
    def __init__(self, threads):
        super().__init__(threads)
        import pyfftw

        self.fftw = pyfftw

    version = property(lambda self: f"pyfftw {self.fftw.__version__}")

    def prepare(self, function, operands, weights):
        """`function` names the transform; it is planned by measuring, before the case is timed."""
        x = self.fftw.byte_align(operands[0])
        plan = getattr(self.fftw.builders, function[0])(
            x, threads=self.threads, planner_effort="FFTW_MEASURE", overwrite_input=False, **function[1]
        )
        x[...] = operands[0]
        return plan


class Rlx(NumPy):
    def __init__(self, threads):
        super().__init__(threads)
        import rlx

        self.rlx = rlx

    version = property(lambda self: f"rlx {self.rlx.__version__}")

    def array(self, x):
        return self.rlx.asarray(x)

    def prepare(self, function, operands, weights):
        f = self.rlx.jit(lambda *a: function(self.rlx, *a, *weights))
        return lambda: f(*operands)


class Torch(NumPy):
    compiled = False

    def __init__(self, threads):
        super().__init__(threads)
        import torch

        self.torch = torch
        torch.set_num_threads(threads)

    version = property(lambda self: f"torch {self.torch.__version__}")

    def array(self, x):
        return self.torch.from_numpy(np.ascontiguousarray(x))

    def prepare(self, function, operands, weights):
        def f(*a):
            return function(self.torch, *a, *weights)

        run = self.torch.compile(f) if self.compiled else f

        def call():
            with self.torch.no_grad():
                return run(*operands)

        return call

    def numbers(self, result):
        return result.detach().numpy()


class TorchCompile(Torch):
    compiled = True
    version = property(lambda self: "")


class Jax(NumPy):
    def __init__(self, threads):
        super().__init__(threads)
        import jax

        self.jax = jax

    version = property(lambda self: f"jax {self.jax.__version__}")

    def array(self, x):
        return self.jax.numpy.asarray(x)

    def prepare(self, function, operands, weights):
        f = self.jax.jit(lambda *a: function(self.jax.numpy, *a))
        return lambda: f(*operands, *weights).block_until_ready()


class OnnxRuntime(NumPy):
    """Runs files; so does OpenVINO."""

    def __init__(self, threads):
        super().__init__(threads)
        import onnxruntime

        self.runtime = onnxruntime

    version = property(lambda self: f"onnxruntime {self.runtime.__version__}")

    def open(self, path, feeds):
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        session = self.runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()][:1]
        return lambda: session.run(names, feeds)[0]


class OpenVino(NumPy):
    def __init__(self, threads):
        super().__init__(threads)
        import openvino

        self.openvino = openvino

    version = property(lambda self: f"openvino {self.openvino.__version__.split('-')[0]}")

    def open(self, path, feeds):
        core = self.openvino.Core()
        config = {"INFERENCE_NUM_THREADS": self.threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        request = core.compile_model(core.read_model(path), "CPU", config).create_infer_request()
        return lambda: request.infer(feeds, share_inputs=True, share_outputs=True)[0]


class LlamaCpp(NumPy):
    def __init__(self, threads):
        super().__init__(threads)
        import llama_cpp

        self.llama_cpp = llama_cpp

    version = property(lambda self: f"llama-cpp-python {self.llama_cpp.__version__}")

    def open(self, path, context, batch):
        both = {"n_threads": self.threads, "n_threads_batch": self.threads}
        return self.llama_cpp.Llama(str(path), n_ctx=context, n_batch=batch, n_ubatch=batch, verbose=False, **both)

    def logits(self, model):
        return np.ctypeslib.as_array(self.llama_cpp.llama_get_logits_ith(model.ctx, -1), (model.n_vocab(),)).copy()


LIBRARIES = {
    "rlx": Rlx,
    "torch": Torch,
    "torch-compile": TorchCompile,
    "jax": Jax,
    "numpy": NumPy,
    "scipy": SciPy,
    "fftw": FFTW,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "llama-cpp": LlamaCpp,
}


class Cases:
    def __init__(self, name, threads, clock):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])  # some libraries take all there are
        self.name, self.library, self.loaded = name, LIBRARIES[name](threads), {}
        self.now, self.of_round = (time.process_time, min) if clock == "cpu" else (time.perf_counter, statistics.median)

    def load(self, number):
        case = cases.CASES[int(number)]
        try:
            start = time.perf_counter()
            call = case.start(self.library, self.name)
            result = call()
            seconds = time.perf_counter() - start
            result = result[0] if isinstance(result, (tuple, list)) else result
            flat = np.asarray(self.library.numbers(result)).ravel()
        except Exception as e:  # what the library lacks is said in the table
            return {"missing": f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"[:200]}
        self.loaded[number] = call
        picked = flat[np.linspace(0, flat.size - 1, min(256, flat.size)).astype(int)]
        if np.iscomplexobj(picked):
            picked = np.concatenate([picked.real, picked.imag])
        return {"seconds": seconds, "values": [float(v) for v in picked], "size": int(flat.size), "version": self.library.version}

    def run(self, number, limit):
        call, times, end = self.loaded[number], [], time.perf_counter() + float(limit)
        call()
        while len(times) < 3 or time.perf_counter() < end:
            start = self.now()
            call()
            times.append(self.now() - start)
        return {"seconds": self.of_round(times), "runs": len(times)}

    def drop(self, number):
        self.loaded.pop(number, None)
        return {}


def main():
    loaded = Cases(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    for line in sys.stdin:
        command, *arguments = line.split()
        print(json.dumps(getattr(loaded, command)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
