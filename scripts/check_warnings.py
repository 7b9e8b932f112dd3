"""Every source by itself: does it state its own includes, and does the compiler have nothing to say of it?

    check_warnings.py BUILD [JOBS]      BUILD is a configured folder whose warnings are errors (preset dev)

The compiler's front end alone runs, which takes two fifths of the time of making objects. What only its optimiser warns of is
seen by the sanitizer builds, where warnings are errors too.
"""

import concurrent.futures
import json
import pathlib
import re
import shlex
import subprocess
import sys


def check(entry):
    words = shlex.split(entry["command"])
    compiler = next(i for i, w in enumerate(words) if re.search(r"(^|/)(c|g|clang)\+\+[^/]*$", w))  # behind ccache
    words[words.index("-o") + 1] = "/dev/null"
    result = subprocess.run(
        words[compiler:] + ["-fsyntax-only"], cwd=entry["directory"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return result.returncode, result.stdout


def main():
    entries = json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text())
    entries = [e for e in entries if e["file"].endswith(".cc")]  # not those of packages from elsewhere
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(sys.argv[2]) if len(sys.argv) > 2 else 1) as pool:
        for n, (entry, (status, said)) in enumerate(zip(entries, pool.map(check, entries)), 1):
            failed += status != 0
            if said:
                print(said, end="", flush=True)
            elif sys.stdout.isatty():
                print(f"\r{n} of {len(entries)}", end="", flush=True)
    if sys.stdout.isatty():
        print("\r", end="")
    print(f"warnings: {failed} of {len(entries)} files" if failed else f"warnings: fine, {len(entries)} files")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
