"""The work of mutate.sh, which says what it does.

A mutant is a block of scripts/mutants.txt:

    stale-pack: set_param leaves the packed weight as it was
    src/backend/cpu/executable.cc
    runtime_test Runtime.SetParamAfterARun
    - packed_[k]->ready = false;
    + packed_[k]->ready = true;

its name and what it breaks, the file, the test program (or pytest and a file) with a filter (fuzz_*: number of inputs and
seed), and the text before and after.
Blanks and line breaks in the text match any. The text must stand in the file exactly once; where that takes more of it
than is to be replaced, <<< and >>> enclose the part. What ends in ; or } is a statement, all else an expression; both forms
are compiled, and the variable RLX_MUTANT chooses.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "mutants"
TREE = WORK / "src"
LIMIT = 60  # seconds for a mutant's tests; with a mutant five times what they take without, as some never end
SWITCH = """#ifndef RLX_MUTANT_SWITCH
#define RLX_MUTANT_SWITCH
#include <cstdlib>
namespace rlx {
inline bool mutant(int n) {
  static const int chosen = [] {
    const char* text = std::getenv("RLX_MUTANT");
    return text ? std::atoi(text) : 0;
  }();
  return chosen == n;
}
}  // namespace rlx
#endif
"""


def has_bare_comma(text):
    """Whether there is one outside of all brackets; those of templates count as such."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c in "([{" or (c == "<" and text[i - 1 : i].isalnum())) - (c in ")]}" or (c == ">" and text[i - 1] != "-"))
        if c == "," and depth <= 0:
            return True
    return False


@dataclasses.dataclass
class Mutant:
    number: int
    name: str
    what: str
    file: str
    program: str
    filter: str
    before: str
    after: str

    def pattern(self):
        """Three groups: what stands in front, the part to replace, what follows."""
        front, _, rest = self.before.rpartition("<<<")
        part, _, behind = rest.partition(">>>")

        def spaced(text):
            return r"\s+".join(re.escape(word) for word in text.split())

        gaps = [r"\s*" if t.strip() else "" for t in (front, behind)]
        return re.compile(f"({spaced(front)}{gaps[0]})({spaced(part)})({gaps[1]}{spaced(behind)})")

    def plant(self, match):
        return match[1] + self.both(match[2]) + match[3]

    def is_statement(self, text):
        return text.endswith((";", "}"))

    def both(self, before):
        if self.file.endswith(".py"):
            chosen = f'__import__("os").environ.get("RLX_MUTANT") == "{self.number}"'
            return f"(({self.after}) if {chosen} else ({before}))"
        chosen = f"::rlx::mutant({self.number})"
        if self.is_statement(before):
            return f"{{ if ({chosen}) {{ {self.after} }} else {{ {before} }} }}"
        return f"({chosen} ? ({self.after}) : ({before}))"


    def fault(self):
        """Why neither form can be compiled; what a compiler alone can tell is left to it."""
        part = self.before.rpartition("<<<")[2].partition(">>>")[0]
        if self.file.endswith(".py"):
            return None
        for text in (part, self.after):
            if not text:
                return "nothing stands in its place"
            bare = re.sub(r"'(\\.|[^'\\])'|\"(\\.|[^\"\\])*\"", "", text)
            if any(bare.count(a) != bare.count(b) for a, b in ("()", "[]", "{}")):
                return f"brackets without their fellows: {text}"
            if re.match(r"(\|\||&&|[+/%<>=,?:]( |$))", bare) or bare.count("?") > len(re.findall(r"(?<!:):(?!:)", bare)):
                return f"a part of an expression: {text}"
            if text == part and not text.endswith((";", "}")) and has_bare_comma(bare):
                return f"several expressions: {text}"
        if not part.endswith((";", "}")) and re.match(r"(if|for|while|return|const)\b", part):
            return f"neither a statement nor an expression: {part}"
        return None


def read_mutants():
    text = (ROOT / "scripts" / "mutants.txt").read_text()
    blocks = [b for b in re.split(r"\n\s*\n", text) if b.strip() and not all(l.startswith("#") for l in b.splitlines())]
    for block in blocks:
        lines = [line for line in block.splitlines() if not line.startswith("#") and line.strip()]
        name, what = lines[0].split(": ", 1)
        program, _, chosen = lines[2].partition(" ")
        before = "\n".join(line[2:] for line in lines[3:] if line.startswith("- "))
        after = "\n".join(line[2:] for line in lines[3:] if line.startswith("+ "))
        number = zlib.crc32(name.encode()) >> 1  # of its own, so that a new mutant changes no other file
        yield Mutant(number, name, what, lines[1], program, chosen, before, after)


def without_tests(mutants):
    """What is wrong with the tests that the table names."""
    sources = {p.stem for p in (ROOT / "tests").rglob("*.cc")}
    for m in mutants:
        if m.program == "pytest":
            path = m.filter.split()[0].split("::")[0]
            if not (ROOT / "tests" / path).is_file():
                yield f"{m.name}: there is no tests/{path}"
        elif m.program not in sources:
            yield f"{m.name}: there is no test program {m.program}"


def plant(files, mutants):
    """The files with all mutants in them; what is wrong with the table."""
    wrong = []
    for m in mutants:
        if m.file not in files:
            wrong.append(f"{m.name}: there is no {m.file}")
            continue
        if fault := m.fault():
            wrong.append(f"{m.name}: {fault}")
            continue
        places = list(m.pattern().finditer(files[m.file]))
        if len(places) != 1:
            wrong.append(f"{m.name}: {m.file} has the text {len(places)} times")
            continue
        in_front = re.sub(r"//[^\n]*", "", files[m.file][: places[0].start(2)]).rstrip()
        if m.is_statement(places[0][2]) and not m.file.endswith(".py") and not in_front.endswith((";", "{", "}", ")", ":", "else", "do", ">")):
            wrong.append(f"{m.name}: what ends in ; or }} is a statement, and stands behind: {in_front[-20:]}")
            continue
        files[m.file] = m.pattern().sub(m.plant, files[m.file])
    for name in {m.file for m in mutants if not m.file.endswith(".py")} & files.keys():
        files[name] = SWITCH + files[name]
    if len({m.number for m in mutants}) != len(mutants):
        wrong.append("two mutants have one name")
    return wrong


def copy_tree(mutants):
    """The tree with its mutants; only files that changed are written, so that a second build is short."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout.decode()
    names = [n for n in listed.split("\0") if n and (ROOT / n).is_file()]
    mutated = {m.file: (ROOT / m.file).read_text() for m in mutants if (ROOT / m.file).is_file()}
    wrong = plant(mutated, mutants)
    if wrong:
        sys.exit("\n".join(wrong))
    for old in [p for p in TREE.rglob("*") if p.is_file() and "build" not in p.relative_to(TREE).parts]:
        if str(old.relative_to(TREE)) not in names:
            old.unlink()
    for name in names:
        content = mutated[name].encode() if name in mutated else (ROOT / name).read_bytes()
        target = TREE / name
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod((ROOT / name).stat().st_mode)


def build(mutants, python, jobs):
    cmake = os.environ.get("CMAKE", "cmake")
    extension = [f"-DRLX_PYTHON={'ON' if python else 'OFF'}"] + ([f"-DPython_EXECUTABLE={python}"] if python else [])
    targets = sorted({m.program for m in mutants} - {"pytest"}) + (["rlx_python"] if python else [])
    with open(WORK / "build.log", "w") as log:
        for command in (
            [cmake, "--preset", "release", "--log-level=WARNING", *extension],
            [cmake, "--build", "build/release", f"-j{jobs}", "--target", *targets, "--", "-k", "0"],  # all errors at once
        ):
            if subprocess.run(command, cwd=TREE, stdout=log, stderr=log).returncode:
                sys.exit(f"{' '.join(command)} failed: {WORK / 'build.log'}")


def run(m, number, python, limit=LIMIT):
    """Whether the mutant's tests pass with that mutant chosen, and in how many seconds. A crash and a time over the
    limit are failures; so is a filter that chooses no test."""
    environment = os.environ | {"RLX_MUTANT": str(number), "RLX_CACHE": "0", "RLX_VERIFY": "1"}
    if m.program == "pytest":
        command = [python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *m.filter.split()]
        environment |= {"PYTHONPATH": str(TREE / "build/release/python"), "PYTHONDONTWRITEBYTECODE": "1"}
    elif m.program.startswith("fuzz_"):
        command = [str(TREE / "build/release/tests" / m.program), *m.filter.split()]
    else:
        *settings, chosen = m.filter.split(" ")
        environment |= dict(s.split("=", 1) for s in settings)
        command = [str(TREE / "build/release/tests" / m.program), f"--gtest_filter={chosen}"]
    start = time.monotonic()
    with open(WORK / f"{m.name}{'' if number else '.plain'}.log", "w") as log:
        try:
            status = subprocess.run(
                command,
                cwd=TREE / "tests",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=limit,
            ).returncode
        except subprocess.TimeoutExpired:
            status = -1
    text = (WORK / f"{m.name}{'' if number else '.plain'}.log").read_text(errors="replace")
    if "[  PASSED  ] 0 tests" in text:
        status = -2
    return status == 0, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of mutants, separated by commas")
    parser.add_argument("--check", action="store_true", help="only see that the places to break and their tests are there")
    options = parser.parse_args()
    everything = list(read_mutants())
    if options.check:
        files = {m.file: (ROOT / m.file).read_text() for m in everything if (ROOT / m.file).is_file()}
        wrong = plant(files, everything) + list(without_tests(everything))
        print("\n".join(wrong) or f"{len(everything)} mutants: all places and tests are there")
        return bool(wrong)
    jobs = int(os.environ.get("JOBS", os.cpu_count() or 1))
    venv = pathlib.Path(os.environ.get("RLX_PYTHON_VENV", ROOT / "build" / "python-venv"))
    python = str(venv / "bin" / "python") if (venv / "bin" / "python").exists() else None
    wanted = set(filter(None, options.only.split(",")))
    chosen = [m for m in everything if (not wanted or m.name in wanted) and (python or m.program != "pytest")]
    WORK.mkdir(parents=True, exist_ok=True)
    copy_tree(everything)
    build(chosen, python if any(m.program == "pytest" for m in chosen) else None, jobs)

    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        plain, limits, failing = {}, {}, 0
        for m in chosen:
            plain.setdefault((m.program, m.filter), m)
        for m, (passes, seconds) in zip(plain.values(), pool.map(lambda m: run(m, 0, python), plain.values())):
            limits[m.program, m.filter] = min(LIMIT, 15 + 5 * seconds)
            if not passes:
                print(f"{m.program} {m.filter} fails without a mutant: {WORK / m.name}.plain.log")
                failing += 1
        if failing:
            return 1
        survivors = 0
        print(f"{'mutant':28} {'file':44} {'test':52} outcome")
        runs = pool.map(lambda m: run(m, m.number, python, limits[m.program, m.filter]), chosen)
        for m, (passes, seconds) in zip(chosen, runs):
            survivors += passes
            outcome = "SURVIVED" if passes else "noticed"
            print(f"{m.name:28} {m.file:44} {m.program + ' ' + m.filter:52} {outcome} in {seconds:.1f} s", flush=True)
    left_out = len(everything) - len(chosen) if not wanted else 0
    print(
        f"{len(chosen)} mutants, {len(chosen) - survivors} noticed, {time.monotonic() - start:.0f} s after the build"
        + (f"; {left_out} of the Python package left out: there is no {venv}" if left_out else "")
    )
    return survivors > 0


if __name__ == "__main__":
    sys.exit(main())
