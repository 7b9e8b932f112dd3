"""What a long-lived process sees: memory, interrupts, the interpreter lock."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import rlx


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_memory_stays_flat():
    """100,000 mixed calls: ops, numbers, conversions, jit, errors, new programs that push old ones out."""
    x, big = rlx.ones((4, 4)), np.ones((64, 64), np.float32)
    f = rlx.jit(lambda a: {"y": a @ a + 1.0})

    def round_of_calls(n):
        for i in range(n):
            y = (x + 1.0) * x - i
            rlx.softmax(y, axis=-1).numpy()
            f(y)["y"].dtype
            rlx.array(big)[1:3].tolist() if i % 10 == 0 else y[0]
            if i % 50 == 0:
                with pytest.raises(rlx.Error):
                    rlx.softmax(y, axis=7)
                memoryview(y), np.from_dlpack(y)
                with rlx.use_backend("reference"):
                    rlx.add(x, rlx.ones((4, 1)))
            if i % 500 == 0:
                rlx.grad(lambda w: (w * y).sum())(x)

    def new_programs(n, start):
        for i in range(n):
            rlx.add(rlx.zeros(start + i), 1.0)

    round_of_calls(2000)
    new_programs(50, 1000)
    before = resident()
    round_of_calls(15000)  # 7 calls each
    new_programs(50, 1000)
    assert resident() - before < 32 << 20


def test_the_cache_of_programs_is_bounded():
    cache_limit = 1024
    with rlx.use_backend("reference"):  # compiles nothing, so this is quick
        for i in range(cache_limit + 200):
            rlx.add(rlx.zeros(i + 1), 1.0)
    rlx.clear_caches()
    assert rlx.add(rlx.zeros(2), 1.0).tolist() == [1, 1]


SLOW = """
import rlx, sys
x = rlx.ones((400, 400))
f = rlx.jit(lambda x: rlx.scan(lambda c, _: (rlx.tanh(c @ x), None), x, length=1000000)[0])
print("ready", flush=True)
try:
    f(x)
except KeyboardInterrupt:
    print("interrupted", rlx.add(1.0, 2.0).item(), flush=True)
"""


def test_keyboard_interrupt_stops_a_run():
    process = subprocess.Popen([sys.executable, "-c", SLOW], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout.readline().strip() == "ready"
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    try:
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert out.strip() == "interrupted 3.0"


HANDLED = """
import os, signal, threading
import rlx

seen, answered = [], threading.Semaphore(0)

def stop_later(number, frame):  # as training loops have it
    seen.append(number)
    if len(seen) == 3:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # stays so
    answered.release()

def ask():
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGINT)
        answered.acquire()

signal.signal(signal.SIGINT, stop_later)
x = rlx.ones((64, 64)) / 64
f = rlx.jit(lambda x: rlx.scan(lambda c, _: (rlx.tanh(c @ x), None), x, length=3000)[0])
g = rlx.Graph("g")
g.outputs = [g.scan(g.input("x", (64, 64)), body=f.graph(x).value, length=1, num_carries=1, num_xs=0)[0]]
h = rlx.compile(g)
want = f(x).tolist()
asker = threading.Thread(target=ask, daemon=True)
asker.start()
while len(seen) < 3:
    assert f(x).tolist() == want
    assert h.run({"x": x})[0].tolist() == want
asker.join()
os.kill(os.getpid(), signal.SIGINT)
f(x)
print("done", len(seen), flush=True)
"""


def test_a_handler_that_raises_nothing_lets_the_run_go_on():
    done = subprocess.run([sys.executable, "-c", HANDLED], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "done 3", done.stderr


def test_the_lock_is_free_while_running():
    x = rlx.ones((300, 300))
    f = rlx.jit(lambda x: rlx.scan(lambda c, _: (rlx.tanh(c @ x), None), x, length=300)[0])
    f(x)
    ticks, running = [], threading.Event()

    def run():
        running.set()
        f(x)
        running.clear()

    t = threading.Thread(target=run)
    t.start()
    running.wait()
    start = time.perf_counter()
    while running.is_set():
        ticks.append(1)
    t.join()
    assert time.perf_counter() - start < 0.02 or len(ticks) > 1000


def test_a_tiny_op_is_quick():
    x = rlx.ones((2, 2))
    rlx.add(x, x)
    best = min(_seconds(lambda: rlx.add(x, x)) for _ in range(20))
    assert best < 100e-6  # measured: 2 microseconds


def _seconds(f, n=200):
    start = time.perf_counter()
    for _ in range(n):
        f()
    return (time.perf_counter() - start) / n
