"""What the benchmarks against other programs share: processes that take turns, ratios, and sections of RESULTS.md.

    worker = Worker([sys.executable, "peer.py"], threads=2)
    worker.ask("load", "softmax")                # a line to its standard input, a line of JSON back
    middle, low, high = spread(ratios)           # the median and the quartiles
    write_section("peers", text)                 # between its two markers in bench/RESULTS.md

Two libraries in one process wait for each other's threads, so each has its own, and while one runs the others sleep.
"""

import json
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "RESULTS.md"
SETTLE_SECONDS = 0.3  # threads of the process that ran last stop spinning: those of OpenMP take up to 0.2


class Worker:
    """A process that answers lines of words with lines of JSON; what else it prints is passed over."""

    def __init__(self, command, threads, environment=None):
        settings = dict(
            os.environ,
            OMP_NUM_THREADS=str(threads),
            MKL_NUM_THREADS=str(threads),
            OPENBLAS_NUM_THREADS=str(threads),
            PYTHONWARNINGS="ignore",
            RLX_CACHE="0",
            **(environment or {}),
        )
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=settings, cwd=ROOT
        )

    def tell(self, *words):
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # what it said last tells why

    def answer(self):
        """The next line of JSON; None when the process has ended."""
        return next((json.loads(line) for line in self.process.stdout if line.startswith("{")), None)

    def last_words(self):
        self.log.seek(0)
        return self.log.read().strip() or "no word"

    def ask(self, *words):
        self.tell(*words)
        answer = self.answer()
        return {"missing": "the process ended: " + self.last_words().splitlines()[-1]} if answer is None else answer

    def end(self):
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def spread(numbers):
    """Median, first and third quartile."""
    low, middle, high = statistics.quantiles(numbers, n=4) if len(numbers) > 1 else numbers * 3
    return middle, low, high


def cpu():
    """The CPU's name and what it has of the instructions that matter."""
    name, flags = platform.processor() or "unknown", set()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = line.split(":", 1)[1].strip()
        if line.startswith("flags"):
            flags = set(line.split())
            break
    wanted = {"avx2": "AVX2", "avx512f": "AVX-512", "avx512_vnni": "VNNI", "avx512_bf16": "AVX512-BF16", "amx_tile": "AMX"}
    return f"{name} ({', '.join(v for k, v in wanted.items() if k in flags) or 'none of AVX2, AVX-512'})"


def write_section(name, text):
    """Replaces what stands between the section's markers, or appends it."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    section = f"{begin}\n{text.strip()}\n{end}\n"
    old = RESULTS.read_text() if RESULTS.exists() else "# Benchmark results\n"
    if begin in old:
        head, rest = old.split(begin, 1)
        section = head + section + rest.split(end, 1)[1].lstrip("\n")
    else:
        section = old.rstrip("\n") + "\n\n" + section
    RESULTS.write_text(section)
