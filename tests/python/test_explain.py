"""explain: what was made of a function, from Python."""

import html
import json
import re

import numpy as np
import pytest

import rlx

CPU = "cpu" in rlx.backends()
pytestmark = pytest.mark.skipif(not CPU, reason="the reference device has no kernels to explain")


def loss(w, x):
    return rlx.tanh(x @ w).sum()


W = np.linspace(-1, 1, 70 * 9, dtype=np.float32).reshape(70, 9)
X = np.linspace(-1, 1, 13 * 70, dtype=np.float32).reshape(13, 70)


def test_a_function_is_explained_and_not_changed():
    e = rlx.explain(rlx.grad(loss), limits=(100, 10), runs=2)(W, X)
    data = json.loads(e.json)
    assert data == e.data and data["format"] == "rlx.explain" and data["version"] == 1
    assert [s["stage"] for s in data["stages"]] == ["mir", "optimised", "fused"]
    products = [n for n in data["stages"][0]["graph"]["nodes"] if n["op"] == "matmul"]
    assert len(products) == 2
    assert data["measured"]["runs"] == 2 and data["measured"]["made_up"] == []
    assert all(launch["seconds"] >= 0 and launch["limit_seconds"] > 0 for launch in data["program"]["launches"])
    flops = sum(launch["flops"] for launch in data["program"]["launches"])
    assert flops >= 2 * 2 * 13 * 70 * 9
    assert "steps" in repr(e)
    np.testing.assert_allclose(rlx.grad(loss)(W, X), X.T @ (1 - np.tanh(X @ W) ** 2), rtol=2e-4, atol=1e-4)


def test_what_a_function_captures_and_jit_are_part_of_it():
    x = rlx.array(X)
    plain = rlx.explain(lambda w: rlx.tanh(x @ w), measure=False)(W).data
    jitted = rlx.explain(rlx.jit(lambda w: rlx.tanh(x @ w)), measure=False)(W).data
    assert plain["measured"] is None and plain["limits"] is None
    assert [n["op"] for n in plain["stages"][0]["graph"]["nodes"]] == ["input", "input", "matmul", "tanh"]
    assert [s["kernel"] for s in plain["program"]["steps"]] == [s["kernel"] for s in jitted["program"]["steps"]]


def test_a_graph_is_explained_by_names():
    g = rlx.Graph("mlp")
    x, w = g.input("x", ("n", 70)), g.param("w", (70, 9))
    g.outputs = g.tanh(x @ w)
    e = rlx.explain(g, runs=1, limits=(100, 10))(x=X)
    assert e.data["environment"]["sizes"] == {"n": 13} and e.data["measured"]["made_up"] == ["w"]
    assert rlx.explain(g, measure=False, dims={"n": 5})().data["environment"]["sizes"] == {"n": 5}
    for code, bad in {
        "unbound-dim": lambda: rlx.explain(g)(),
        "input-unknown": lambda: rlx.explain(g)(y=X),
        "limits": lambda: rlx.explain(g, limits=(0, 1))(x=X),
        "runs": lambda: rlx.explain(g, runs=0)(x=X),
        "stage": lambda: rlx.explain(g, device="reference")(x=X),
    }.items():
        with pytest.raises(rlx.Error) as error:
            bad()
        assert error.value.code == code
    with pytest.raises(TypeError):
        rlx.explain(3)


def test_pages_are_saved_and_shown(tmp_path):
    e = rlx.explain(loss, measure=False)(W, X)
    e.save(tmp_path / "report.html")
    e.save(str(tmp_path / "report.json"))
    assert (tmp_path / "report.json").read_text() == e.json
    page = (tmp_path / "report.html").read_text()
    assert page == e.html and page.startswith("<!DOCTYPE html>")
    inline = re.search(r'id="data">(.*?)</script>', page, re.S).group(1)
    assert json.loads(inline) == e.data
    shown = e._repr_html_()  # one frame, whose page is this one and can do nothing to the notebook
    inner = re.fullmatch(r'<iframe srcdoc="([^"]*)" sandbox="allow-scripts" [^<>]*></iframe>', shown, re.S)
    assert html.unescape(inner.group(1)) == page


def test_files_of_any_name(tmp_path):
    e = rlx.explain(loss)(W, X)
    e.save(str(tmp_path / "a.html").encode())
    assert (tmp_path / "a.html").read_text() == e.html
    with pytest.raises(rlx.UserError, match="file-open"):
        e.save("x\0y.html")
