#!/usr/bin/env python3
"""Lists the public names of the documents that RLX is built from, one file for each: graph.txt, special.txt, module.txt,
optimizer.txt, tracer.txt beside this script. Run it when a document changes: extract.py FOLDER, the folder of the documents.

A name is what a reader could call: types with their fields and variants, functions, methods, traits and what implements
them, modules, and the tests that stand in a document. Rust's auto and blanket traits, Debug and the markers Copy and Eq
are left out.
"""
import pathlib
import re
import sys

MARKERS = {"Debug", "Copy", "Eq", "Freeze", "RefUnwindSafe", "Send", "Sync", "Unpin", "UnsafeUnpin", "UnwindSafe"}


def trait(text):
    return re.sub(r"^(?:std|serde)::(?:\w+::)*", "", text.replace(" ", ""))


def page(text):
    """A documentation page of one type."""
    names = ["Graph", "Graph::name", "Graph::outputs"]
    here = ""
    for line in text.splitlines():
        if match := re.match(r"impl(?:<.*?>)? (.+) for Graph$", line):
            here = trait(match[1])
            if here not in MARKERS and not here.startswith("Deserialize"):
                names.append(here)
        elif re.match(r"impl Graph$", line):
            here = ""
        elif re.match(r"impl<", line):
            here = "blanket"
        elif match := re.match(r"pub fn (\w+)", line):
            names.append(f"Graph::{match[1]}")
        elif here == "GraphExt" and (match := re.match(r"fn (\w+)\(", line)):
            names.append(f"GraphExt::{match[1]}")
    names.append("Deserialize")
    return names


def source(text):
    """A source file."""
    names, here, derived, depth, body = [], "", [], 0, None
    in_tests = False
    for line in text.splitlines():
        if line.startswith("mod tests"):
            in_tests = True
        if in_tests:
            if match := re.match(r"    fn (\w+)\(\) \{", line):
                names.append(f"test {match[1]}")
            continue
        if match := re.match(r"#\[derive\((.*)\)\]", line):
            derived = [d.strip() for d in match[1].split(",")]
        elif match := re.match(r"pub (struct|enum) (\w+)", line):
            names.append(match[2])
            names += [f"{match[2]}: {d}" for d in derived if d not in MARKERS]
            body, derived = (match[1], match[2]), []
        elif re.match(r"(struct|enum) ", line):
            derived = []
        elif body and line == "}":
            body = None
        elif body and (match := re.match(r"    pub (\w+):" if body[0] == "struct" else r"    (\w+),", line)):
            names.append(f"{body[1]}::{match[1]}")
        elif match := re.match(r"impl (.+) for (&?\w+) \{", line):
            names.append(f"{match[2]}: {trait(match[1])}")
            here = ""
        elif match := re.match(r"impl (\w+) \{", line):
            here = match[1]
        elif match := re.match(r"impl_ref_binop!\((\w+),", line):
            names.append(f"&TracedTensor: {match[1]}")
        elif match := re.match(r"    pub fn (\w+)", line):
            names.append(f"{here}::{match[1]}")
        elif match := re.match(r"pub fn (\w+)", line):
            names.append(match[1])
    return names


def index(text):
    """The front page of a crate: sections of names, each perhaps with a sentence. Long names come in pieces."""
    text = text.replace("ForAutodiff Passwrapper", "ForAutodiff - Pass wrapper")  # a space is missing there
    names = [f"crate {n}" for n in re.findall(r"pub use (\w+);", text)]
    names += [f"feature {n}" for n in ("compile", "training", "full")]
    sections = re.split(r"^(\w[\w ]*)§\n", text, flags=re.M)
    for title, content in zip(sections[1::2], sections[2::2]):
        if title not in ("Modules", "Structs", "Enums", "Traits", "Functions", "Type Aliases"):
            continue
        for chunk in re.split(r"(?:^|[\s.])- ", " ".join(content.split("\n"))):
            words = chunk.split()
            if title in ("Modules", "Functions"):
                is_name = all(w.endswith("_") for w in words[:-1]) and re.fullmatch(r"[a-z0-9_]+", "".join(words))
            else:
                is_name = all(re.fullmatch(r"[A-Z][A-Za-z]*", w) for w in words)
            if words and is_name:
                names.append(("mod " if title == "Modules" else "") + "".join(words))
    return names


READERS = {"000": ("graph", page), "001": ("special", source), "002": ("module", source), "003": ("optimizer", index),
           "004": ("tracer", source)}


def main():
    here = pathlib.Path(__file__).parent
    for number, (name, reader) in READERS.items():
        text, = pathlib.Path(sys.argv[1]).glob(f"{number}_*")
        names = list(dict.fromkeys(reader(text.read_text())))
        (here / f"{name}.txt").write_text("".join(n + "\n" for n in names))
        print(f"{name}: {len(names)} names")


if __name__ == "__main__":
    main()
