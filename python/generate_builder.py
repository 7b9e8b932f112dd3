"""Writes the table of GraphBuilder's methods for the Python extension, from their declarations in its header.

    python generate_builder.py src/stages/builders/graph_builder.h OUT

A row for each method that makes nodes: {"matmul", "NodeId lhs, NodeId rhs, const Declared& out_shape = {}", "doc",
&call<&GraphBuilder::matmul>}. The doc is the comment before the declaration. Fails where a declaration has a form that
it does not know, so that none is left out unseen.
"""

import re
import sys
from pathlib import Path

RESULTS = ("NodeId", "NodePair", "Values", "MultiOutputHandle", "std::tuple<NodeId, NodeId, NodeId>")
# rlx.Graph has these itself.
OWN = {"input", "param", "constant", "topo_order", "reverse_topo"}
DECLARATION = re.compile(r"(?P<result>" + "|".join(map(re.escape, RESULTS)) + r") (?P<name>\w+)\((?P<params>.*)\)(?: const)?")


def declarations(source):
    """(comment, text) of each declaration in the public part of the class, without bodies."""
    body = source[source.index("class GraphBuilder {") : source.index("\n private:\n")]
    comment, text, depth = [], "", 0
    for line in body.splitlines()[1:]:
        line = line.strip()
        if depth == 0 and not text and line.startswith("//"):
            comment = [] if line.startswith("// ----") else [*comment, line[2:].strip()]
            continue
        line = re.sub(r"\s*//.*", "", line)
        opened = depth
        depth += line.count("{") - line.count("}")
        if opened == 0 and line:
            text += (" " if text else "") + line
        ends = text.count("(") == text.count(")") and (line.endswith(";") or line.endswith("}") or line.endswith("{"))
        if depth == 0 and text and ends:
            yield " ".join(comment), text
        if depth == 0 and (ends or not line):
            comment, text = [], ""


def without_body(text):
    """The text up to the body of a function: a brace outside of brackets."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "{" and depth == 0:
            return text[:i].strip()
    return text.rstrip(";").strip()


def rows(source):
    for comment, text in declarations(source):
        declaration = without_body(text)
        if not declaration.startswith(RESULTS):
            continue
        match = DECLARATION.fullmatch(declaration)
        if match is None:
            raise SystemExit(f"generate_builder.py: no declaration of a method: {declaration}")
        if match["name"] not in OWN:
            yield match["name"], match["params"], comment


def main(header, out):
    quoted = lambda s: '"' + s.replace("\\", "\\\\").replace('"', '\\"') + '"'  # noqa: E731
    lines = [
        f"{{{quoted(name)}, {quoted(params)}, {quoted(doc)}, &call<&GraphBuilder::{name}>}},"
        for name, params, doc in rows(Path(header).read_text())
    ]
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
