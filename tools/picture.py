#!/usr/bin/env python3
"""Runs the demo and draws what it prints as an SVG: docs/demo.svg, which the README shows.

usage: tools/picture.py PROGRAM OUTPUT

The text is that of a real run of `PROGRAM demo --fast`, in its own colours. Only what differs from run to run and machine to
machine (process ids, ports, the temporary folder) is replaced, and the middle of the final table is left out.
"""

import html
import os
import pty
import re
import subprocess
import sys

COLUMNS_MAX = 96
CHAR_WIDTH, LINE_HEIGHT, MARGIN = 8.4, 19, 20
FONT_SIZE = 14
BACKGROUND, FOREGROUND = "#0d1117", "#e6edf3"
# SGR code -> fill, as the demo uses them.
COLOURS = {"1": "#ffffff", "31": "#ff7b72", "32": "#3fb950", "33": "#d29922", "90": "#8b949e"}
# Sections of the final table in the picture; the others are listed in one line.
FIRST_SECTION = "units counted"
SECTIONS = ("alerts and deliveries",)
FOLDER = re.compile(r"/\S*/quotabell-demo-[0-9a-f]{8}")
# Numbers that are replaced in the order of appearance, and the first new number.
NUMBERED = ((re.compile(r"(?<=pid )\d+"), 101), (re.compile(r"(?<=127\.0\.0\.1:)\d+"), 9001))
SGR = re.compile(r"\x1b\[([0-9;]*)m")


def demo(program):
    """The lines that the demo prints on a terminal. Without a terminal on stderr it draws no bars."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": ""}
    process = subprocess.Popen(
        [program, "demo", "--fast"], stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL, env=environment
    )
    os.close(theirs)
    printed = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # Linux reports the end of a pseudo-terminal as an I/O error.
            break
        if not chunk:
            break
        printed += chunk
    if process.wait() != 0:
        sys.exit(f"error: {program} demo ended with exit {process.returncode}")
    return printed.decode().replace("\r\n", "\n").rstrip("\n").split("\n")


def replaced(lines):
    """The lines without what differs from run to run."""
    lines = [FOLDER.sub("/tmp/quotabell-demo", line) for line in lines]
    for pattern, first in NUMBERED:
        known = {}
        lines = [pattern.sub(lambda found: str(known.setdefault(found[0], first + len(known))), line) for line in lines]
    return lines


def plain(line):
    return SGR.sub("", line)


def shortened(lines):
    """Leaves out sections of the table that are not in SECTIONS, and what follows the result."""
    begins = next(number for number, line in enumerate(lines) if plain(line).startswith(FIRST_SECTION))
    kept, section, left_out = lines[:begins], [], 0
    for line in lines[begins:] + [""]:
        if plain(line):
            section.append(line)
            continue
        text = plain(section[0]) if section else ""
        if text.startswith("all "):
            kept += [f"\x1b[90m... and {left_out} more numbers\x1b[0m", "", *section]
            return kept
        if text.startswith(SECTIONS):
            kept += [*section, ""]
        else:
            left_out += max(len(section) - 1, 0)
        section = []
    sys.exit("error: the demo's last line is not where it is expected")


def spans(line):
    """Pieces of a line, each with its fill."""
    fill, at = FOREGROUND, 0
    for code in SGR.finditer(line):
        if code.start() > at:
            yield fill, line[at : code.start()]
        fill, at = COLOURS.get(code.group(1), FOREGROUND), code.end()
    if at < len(line):
        yield fill, line[at:]


def svg(lines):
    width = COLUMNS_MAX * CHAR_WIDTH + 2 * MARGIN
    height = len(lines) * LINE_HEIGHT + 2 * MARGIN
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" '
        f'role="img" aria-label="What quotabell demo prints">'
    )
    yield f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>'
    yield (
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="{FONT_SIZE}" '
        'xml:space="preserve">'
    )
    for number, line in enumerate(lines):
        y = MARGIN + (number + 1) * LINE_HEIGHT - 5
        column, pieces = 0, []
        for fill, text in spans(line):
            if column + len(text) > COLUMNS_MAX:
                text = text[: max(COLUMNS_MAX - column - 3, 0)] + "..."
            if text.strip():
                # Each piece has a position and a width, so that columns line up in any font.
                x, length = MARGIN + column * CHAR_WIDTH, len(text) * CHAR_WIDTH
                pieces.append(
                    f'<tspan x="{x:.1f}" textLength="{length:.1f}" fill="{fill}">{html.escape(text)}</tspan>'
                )
            column += len(text)
        if pieces:
            yield f'<text y="{y}">{"".join(pieces)}</text>'
    yield "</g>"
    yield "</svg>"


def main():
    program, output = sys.argv[1:]
    lines = replaced(demo(program))
    command = "\x1b[90m$\x1b[0m quotabell demo --fast"
    with open(output, "w", encoding="utf-8") as file:
        file.write("\n".join(svg([command, *shortened(lines)])) + "\n")


main()
