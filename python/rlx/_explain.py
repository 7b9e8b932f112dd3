"""explain: what was made of a function or a graph, and why, as JSON and as a page.

    rlx.explain(step)(params, x)                     # in a notebook: the page
    e = rlx.explain(step)(params, x)
    e.save("report.html"), e.save("report.json")

docs/explain.md says what stands in the JSON.
"""

import functools
import html
import json
import os

from rlx import _core
from rlx._errors import file_name
from rlx._graph import Graph
from rlx._transforms import _arguments, _check_function, trace


class Explanation:
    """What was made of a program: `.json` is the document's text, `.data` the same as dicts and lists, `.html` a page that
    shows it, in one file that asks nothing of any network."""

    def __init__(self, text):
        self.json = text

    @functools.cached_property
    def data(self):
        return json.loads(self.json)

    @functools.cached_property
    def html(self):
        return _core.explanation_html(self.json)

    def save(self, path):
        """Writes the page, or for a name that ends in .json the document."""
        path = file_name(path)
        text = self.json if os.fsdecode(path).endswith(".json") else self.html
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def _repr_html_(self):
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" sandbox="allow-scripts" '
            'style="width:100%;height:720px;border:1px solid #8888"></iframe>'
        )

    def __repr__(self):
        program = self.data["program"]
        return (
            f"<explanation of {self.data['name']!r}: {len(program['steps'])} steps, "
            f"{program['arena_bytes']} bytes of arena>"
        )


def explain(f, *, measure=True, runs=5, limits=None, device=None, threads=0, dims=None, fast_math=False, fuse=True):
    """A function that returns the Explanation of f on its arguments, instead of f's result.

    f is a function, which is traced, or an rlx.Graph, whose inputs and parameters are given by name. With measure the program
    is run `runs` times, and kernels have the time of their best run; a graph's leaves that are not given are made up. limits
    is what the machine can do, (1e9 f32 operations, 1e9 bytes) a second; None: it is measured, too.
    """

    def made(graph, inputs, params, on):
        return Explanation(
            _core.explain(graph, on, inputs, params, dims or {}, measure, runs, limits, threads, fast_math, fuse)
        )

    if isinstance(f, Graph):

        def of_graph(**leaves):
            graph = f._program()
            names = {name for name, _, _ in graph.params}
            params = {n: x for n, x in leaves.items() if n in names}
            inputs = {n: x for n, x in leaves.items() if n not in names}
            return made(graph, inputs, params, device or _core.get_backend())

        return of_graph

    _check_function("explain", f)

    @functools.wraps(f)
    def wrapped(*args, **kwargs):
        leaves, tree = _arguments(args, kwargs, ())
        traced = trace(f, leaves, tree)
        arrays = leaves + traced.captured
        inputs = {name: x for (name, _, _), x in zip(traced.graph.inputs, arrays)}
        return made(traced.graph, inputs, {}, device or _core.device_for(arrays))

    return wrapped
