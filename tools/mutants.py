#!/usr/bin/env python3
"""Plants the bugs of tests/mutants/*.toml, one at a time, and runs the tests that shall catch each.

    tools/mutants.py [NAME ...]    only those whose name, file or list holds one of these

Works on a copy of the tree in target/mutants, which keeps what it has built. A bug in a script is planted in the binaries themselves,
where scripts stand as they are written: nothing has to be built for it, and its replacement may not be longer than its text. Fails
when a bug is not caught, when its text is not found exactly once, when it does not build, and when a test that shall catch one fails
without it.
"""

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "target" / "mutants"
TREE = PLACE / "tree"
BUILD = PLACE / "build"
# A test that hangs on a planted bug has found it.
TEST_MAX_S = 120
# Histories per simulation. Some bugs show only in one of five, and a test plays four.
HISTORIES = 40
CARGO = os.environ.get("CARGO", "cargo")


def main():
    mutants = read_list(sys.argv[1:])
    copy_tree()
    binaries = build(targets_of(mutants))
    if isinstance(binaries, str):
        sys.exit(f"error: the tree does not build\n{binaries}")
    tests = sorted({test for mutant in mutants for test in mutant["caught_by"]})
    broken = [test for test in tests if not passes(binaries, test)]
    if broken:
        sys.exit("error: these fail without any planted bug: " + ", ".join(broken))
    print(f"{len(mutants)} mutants; the {len(tests)} tests that shall catch them pass without them", flush=True)
    failures = [mutant["name"] for mutant in mutants if not is_caught(mutant, binaries)]
    print(f"{len(mutants) - len(failures)} of {len(mutants)} mutants caught")
    if failures:
        sys.exit("error: not caught: " + "; ".join(failures))


def read_list(words):
    """The mutants, those of each list in its order. Each text must stand exactly once in its file."""
    mutants, faults = [], []
    for path in sorted((ROOT / "tests" / "mutants").glob("*.toml")):
        for mutant in tomllib.loads(path.read_text())["mutant"]:
            where = f"{mutant['name']} {mutant['file']} {path.stem}"
            if words and not any(word in where for word in words):
                continue
            found = (ROOT / mutant["file"]).read_text().count(mutant["text"])
            if found != 1:
                faults.append(f"{path.name}: {mutant['name']}: its text is found {found} times in {mutant['file']}")
            if is_script(mutant) and len(mutant["replacement"].encode()) > len(mutant["text"].encode()):
                faults.append(f"{path.name}: {mutant['name']}: its replacement is longer than its text")
            mutants.append(mutant)
    if faults:
        sys.exit("error: " + "\nerror: ".join(faults))
    if not mutants:
        sys.exit(f"error: no mutant is named {words}")
    return mutants


def copy_tree():
    """Brings the copy up to date; what is the same keeps its time, so that little is built again."""
    if not BUILD.exists() and (ROOT / "target" / "debug").exists():
        # Copies the built dependencies: that takes seconds, building them minutes.
        BUILD.mkdir(parents=True)
        subprocess.run(["cp", "-a", ROOT / "target" / "debug", BUILD / "debug"], check=True)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True
    )
    names = {name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        source, copy = ROOT / name, TREE / name
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
    for copy in [path for path in TREE.rglob("*") if path.is_file()]:
        if str(copy.relative_to(TREE)) not in names:
            copy.unlink()


def targets_of(mutants):
    """What cargo is to build for the tests that shall catch them, as `lib` or the name of a test binary."""
    return sorted({test.split(" ")[0] for mutant in mutants for test in mutant["caught_by"]})


def build(targets):
    """Builds test binaries: their paths by target, or what the compiler said."""
    words = [word for target in targets for word in (["--lib"] if target == "lib" else ["--test", target])]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(BUILD), "CARGO_TERM_COLOR": "never"}
    done = subprocess.run(
        [CARGO, "test", "--locked", "--no-run", *words], cwd=TREE, env=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        return done.stderr
    found = re.findall(r"Executable (?:unittests src/(lib)\.rs|tests/(\w+)(?:/main)?\.rs) \((.+)\)", done.stderr)
    # The library of crates/throttle has no planted bug that its unit tests catch.
    found = [names for names in found if "/quotabell_throttle-" not in names[2]]
    return {lib or test: TREE / path for lib, test, path in found}


def passes(binaries, test):
    """Whether a test passes: `it e2e_log::a_line`, or `torture network` for a scenario."""
    target, name = test.split(" ", 1)
    words = [name] if target == "torture" else ["--exact", name]
    try:
        done = subprocess.run(
            [binaries[target], *words],
            cwd=TREE,
            env={**os.environ, "INSTA_UPDATE": "no", "RUST_BACKTRACE": "0", "QUOTABELL_TEST_HISTORIES": str(HISTORIES)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TEST_MAX_S,
        )
    except subprocess.TimeoutExpired:
        return False
    # A name without a test would always pass.
    if target != "torture" and "1 passed" not in done.stdout and "1 failed" not in done.stdout:
        sys.exit(f"error: there is no test {test}")
    return done.returncode == 0


def is_script(mutant):
    return mutant["file"].endswith(".lua")


def is_caught(mutant, binaries):
    """Plants it, runs the tests in their order until one fails, and takes it back."""
    began = time.monotonic()
    planted = plant_in_binaries if is_script(mutant) else plant_in_source
    with planted(mutant, binaries) as binaries:
        if isinstance(binaries, str):
            print(f"DOES NOT BUILD {mutant['name']} ({mutant['file']})\n{binaries}", flush=True)
            return False
        catcher = next((test for test in mutant["caught_by"] if not passes(binaries, test)), None)
    took = time.monotonic() - began
    what = f"caught by {catcher}" if catcher else "SURVIVES"
    print(f"{what}: {mutant['name']} ({mutant['file']}, {took:.0f} s)", flush=True)
    return catcher is not None


@contextmanager
def plant_in_source(mutant, _):
    """Gives the binaries that were built with it, or what the compiler said."""
    file = TREE / mutant["file"]
    original = file.read_text()
    try:
        file.write_text(original.replace(mutant["text"], mutant["replacement"]))
        yield build(targets_of([mutant]))
    finally:
        file.write_text(original)


@contextmanager
def plant_in_binaries(mutant, binaries):
    """Gives the binaries again, after writing it into them; what is missing to the length of its text becomes spaces."""
    text = mutant["text"].encode()
    replacement = mutant["replacement"].encode().ljust(len(text))
    # Most tests also run the daemon.
    paths = {binaries[target] for target in targets_of([mutant])} | {BUILD / "debug" / "quotabell"}
    originals = {path: path.read_bytes() for path in paths}
    originals = {path: original for path, original in originals.items() if text in original}
    if not originals:
        sys.exit(f"error: {mutant['name']}: its text does not stand in any binary")
    try:
        for path, original in originals.items():
            replace_file(path, original.replace(text, replacement))
        yield binaries
    finally:
        for path, original in originals.items():
            replace_file(path, original)


def replace_file(path, content):
    """Writes a new file in its place: a binary that still runs somewhere can't be written to."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    shutil.copymode(path, new)
    # Cargo compares times and must recognize its own file.
    times = path.stat()
    os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))
    new.replace(path)


if __name__ == "__main__":
    main()
