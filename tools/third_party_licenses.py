#!/usr/bin/env python3
"""Prints the license texts of the crates that the program contains, each text once. Their licenses demand that a binary
comes with them.

It fails if a crate names no license. Crates without a file of their own are listed with the name of their license.
"""
import json
import os
import pathlib
import re
import subprocess
import sys

TEXT = re.compile(r"^(un)?(licen[sc]e|copying|notice|copyright)", re.IGNORECASE)


def main():
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--locked", "--format-version", "1", "--filter-platform", host()]
    metadata = json.loads(subprocess.check_output(command))
    packages = {package["id"]: package for package in metadata["packages"]}
    own = set(metadata["workspace_members"])
    used = linked(metadata["resolve"])
    crates = sorted((packages[one] for one in used - own), key=lambda package: (package["name"], package["version"]))

    # By the words of the text: copies differ in line breaks.
    by_words, without_text = {}, []
    for crate in crates:
        if not crate["license"] and not crate["license_file"]:
            sys.exit(f"error: {title(crate)} names no license\nhint: exclude it, or add its license here")
        texts = license_texts(pathlib.Path(crate["manifest_path"]).parent)
        for text in texts:
            by_words.setdefault(re.sub(r"\W+", " ", text.lower()), (text, []))[1].append(title(crate))
        if not texts:
            without_text.append(title(crate))

    print(f"quotabell contains {len(crates)} crates of others, and the standard library of Rust (MIT OR Apache-2.0).")
    print("Their licenses follow, each text below the crates that it belongs to.")
    print("\nThese packages have no license text of their own; the name of the license is in brackets:")
    print_list(without_text)
    for text, titles in sorted(by_words.values(), key=lambda entry: (entry[1], entry[0])):
        print(f"\n{'=' * 80}")
        print_list(sorted(set(titles)))
        print(f"{'-' * 80}\n\n{text}")


def host():
    lines = subprocess.check_output([os.environ.get("RUSTC", "rustc"), "-vV"], text=True).splitlines()
    return next(line.removeprefix("host: ") for line in lines if line.startswith("host: "))


def linked(resolve):
    """Packages that the program contains: those for tests and for build scripts are not in it."""
    nodes = {node["id"]: node for node in resolve["nodes"]}
    found, waiting = set(), [resolve["root"]]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            normal = (dep for dep in nodes[one]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"]))
            waiting.extend(dep["pkg"] for dep in normal)
    return found


def license_texts(folder):
    """Also those of C code below the folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and TEXT.match(file.name))
    texts = (file for file in files if file.suffix.lower() not in {".rs", ".py", ".html", ".json"})
    return sorted({tidy(file.read_text(encoding="utf-8", errors="replace")) for file in texts} - {""})


def tidy(text):
    lines = [line.rstrip() for line in text.expandtabs().splitlines()]
    return "\n".join(lines).strip("\n\f\ufeff")


def title(crate):
    return f"{crate['name']} {crate['version']} ({crate['license'] or 'see its text'})"


def print_list(titles):
    for one in titles:
        print(f"  {one}")


main()
