"""Runs the blocks of pages in order, each page in an empty folder, and records what they print.

`python docs/record.py docs/tutorials/*.md` runs every block, and writes the output where the page shows it: beneath
the `$` lines of `console` blocks, and in a `text` block that directly follows a `python` block. A figure that the page
shows, and that its blocks draw into a file of the same name, is written where the page has it, but for those of the
gallery, which `gallery.py` draws smaller. `--check` only runs them. A command that fails ends the run with exit code 1,
and leaves its page as it was.

Blocks of a page share one namespace and one folder, so a command can read what code wrote. In an output, a line `…`
stands for lines left out; the numbers of lines before and after it are kept. Two comments are for this script:
`<!-- data: NAME … -->` names files of the data folder (RRJAX_DATA, or shared/data beside the repository) that the page
needs, and a comment that begins with `python` holds code that the page does not show. A block whose first line is a
comment with the name of a file (`# rrjax/tempered.py`) belongs into that file, and is not run here.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("RRJAX_DATA", ROOT.parent / "shared" / "data"))
WIDTH = 96
PROGRESS = re.compile(r" \(\d+ s so far\)$")
"""The end of a line of progress, which a slow machine prints."""
ELISION = "…"
_FENCE = re.compile(r"( *)(```+)(\S*).*")
_FILE = re.compile(r"# (\w+/\S+\.py)(?:, (.+))?")


@dataclass
class Block:
    """A fenced block of a page, or a comment that holds code.

    Attributes:
        language: What follows the fence; of a directive in braces.
        start: Number of its first line in the page, from 0.
        lines: Its lines, without indentation.
        indent: The indentation.
        after: Number of the line after the block.
    """

    language: str
    start: int
    lines: list[str]
    indent: str
    after: int

    @property
    def part_of(self) -> tuple[str, str | None] | None:
        """The file that it belongs into, and where in it (None: it is all of it); None where it is to be run."""
        found = _FILE.fullmatch(self.lines[0]) if self.lines else None
        return None if found is None else (found[1], found[2])


def blocks(text: str) -> list[Block]:
    """All blocks of a page, in order."""
    found, lines, place = [], text.split("\n"), 0
    while place < len(lines):
        fence = _FENCE.fullmatch(lines[place])
        hidden = lines[place].strip() == "<!-- python"
        if fence or hidden:
            indent, end = (fence[1], fence[2]) if fence else ("", "-->")
            after = next(i for i in range(place + 1, len(lines)) if lines[i].strip() == end)
            inner = [line.removeprefix(indent) for line in lines[place + 1 : after]]
            found.append(Block(fence[3] if fence else "python", place + 1, inner, indent, after + 1))
            place = after
        place += 1
    return found


def needed(text: str) -> list[str]:
    """The files of the data folder that a page needs."""
    return [name for names in re.findall(r"<!-- data: (.*?) -->", text) for name in names.split()]


def record(page: Path) -> tuple[str, dict[Path, bytes]]:
    """Runs a page.

    Args:
        page: A file in Markdown.

    Returns:
        The page with what came out, and what is in the figures of the page that were drawn.

    Raises:
        SystemExit: A command failed. What code raises is raised here.
    """
    text = page.read_text(encoding="utf-8")
    lines, shift = text.split("\n"), 0
    module = types.ModuleType("page")
    sys.modules["page"] = module  # where dataclasses look for what annotations mean
    found = blocks(text)
    with _folder(needed(text)) as run:
        for block, following in zip_longest(found, found[1:]):
            shown, fresh = None, []
            if block.language == "python" and block.part_of is None:
                fresh = _executed(block, page, module)
                between = [] if following is None else text.split("\n")[block.after : following.start - 1]
                if following is not None and following.language == "text" and not "".join(between).strip():
                    shown = following
            elif block.language == "console":
                shown, fresh = block, _session(block, page, run)
            if shown is not None and fresh:
                fresh = elided(shown.lines, fresh) if shown is following else fresh
                begin = shown.start + shift
                lines[begin : begin + len(shown.lines)] = [(shown.indent + line).rstrip() for line in fresh]
                shift += len(fresh) - len(shown.lines)
        linked = [page.parent / link for link in re.findall(r"!\[[^\]]*\]\((\S+)\)", text)]
        own = (figure for figure in linked if figure.parent.name != "gallery" and Path(figure.name).is_file())
        figures = {figure: Path(figure.name).read_bytes() for figure in own}
    return "\n".join(lines), figures


def elided(before: list[str], now: list[str]) -> list[str]:
    """What came out now, with lines left out where they were left out before."""
    if ELISION not in before:
        return now
    head = before.index(ELISION)
    tail = len(before) - head - 1
    if head + tail >= len(now) and (head, tail) != (0, 0):
        return now
    return [*now[:head], ELISION, *now[len(now) - tail :]]


def _executed(block: Block, page: Path, module: types.ModuleType) -> list[str]:
    """Runs code, and returns the lines that it printed."""
    # Blank lines before it make the numbers in a traceback those of the page.
    code = compile("\n" * block.start + "\n".join(block.lines), str(page), "exec", dont_inherit=True)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, module.__dict__)
    return printed.getvalue().rstrip("\n").split("\n") if printed.getvalue() else []


def _session(block: Block, page: Path, run: Callable[[str], subprocess.CompletedProcess[str]]) -> list[str]:
    """Runs the commands of a console block, and returns the block as it is now."""
    now, place = [], 0
    while place < len(block.lines):
        if not block.lines[place].startswith("$ "):
            sys.exit(f"{page}:{block.start + place + 1}: a console block has a `$` line before what is printed")
        command = [block.lines[place]]
        while command[-1].endswith("\\"):
            place += 1
            command.append(block.lines[place])
        before = []
        while place + 1 < len(block.lines) and not block.lines[place + 1].startswith("$ "):
            place += 1
            before.append(block.lines[place])
        done = run("\n".join(command).removeprefix("$ "))
        if done.returncode:
            sys.exit(f"{page}:{block.start + 1}: {command[0]}\nexit code {done.returncode}\n{done.stdout}")
        blank = [""] if place + 1 < len(block.lines) and before and not before[-1] else []
        while before and not before[-1]:
            before.pop()
        printed = done.stdout.rstrip("\n").split("\n") if done.stdout.strip() else []
        printed = [line for line in printed if not PROGRESS.search(line)]
        now += [*command, *elided(before, printed), *blank]
        place += 1
    return now


@contextlib.contextmanager
def _folder(data: list[str]):
    """An empty folder with the data, in which commands run and `rrjax` is that of this repository."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as programs:
        folder = Path(name)
        for file in data:
            (folder / file).symlink_to((DATA / file).resolve(strict=True))
        script = Path(programs) / "rrjax"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rrjax "$@"\n')
        script.chmod(0o755)
        environment = os.environ | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "COLUMNS": str(WIDTH),
        }

        def run(command: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["bash", "-c", command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )

        os.chdir(folder)
        try:
            yield run
        finally:
            os.chdir(here)


def main() -> None:
    """Records the pages that the command names, or runs them only."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE")
    parser.add_argument("--check", action="store_true", help="run the pages, and leave them as they are")
    given = parser.parse_args()
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    for page in given.pages:
        now, figures = record(page.resolve())
        if not given.check:
            page.write_text(now, encoding="utf-8")
            for file, figure in figures.items():
                file.write_bytes(figure)


if __name__ == "__main__":
    main()
