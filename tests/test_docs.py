"""The pages of `docs/`: their blocks run, their links lead somewhere, and the site builds of them."""

import html.parser
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import rrjax

pytestmark = pytest.mark.once  # nothing here depends on the precision

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("record", ROOT / "docs" / "record.py")
record = importlib.util.module_from_spec(_spec)
sys.modules["record"] = record
_spec.loader.exec_module(record)

PAGES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts]
LANGUAGES = {"python", "console"}
"""Of blocks that run."""
OTHERS = {"text", "toml"}
"""Of those that are only read."""
SLOW = {
    "choose/estimator",
    "choose/mechanism",
    "guides/analyst",
    "guides/engineer",
    "guides/numbers",
    "guides/other-tools",
    "guides/privacy-engineer",
    "guides/researcher",
    "guides/scale",
    "inference",
    "models",
    "reference/flags",
    "tutorials/adult",
    "tutorials/first-steps",
    "tutorials/kosarak",
    "tutorials/questionnaire",
    "tutorials/several-questions",
    "tutorials/survey",
    "tutorials/timings",
}
"""Pages that run more than five seconds."""


def name_of(page):
    return page.relative_to(ROOT / "docs").with_suffix("").as_posix()


def runs(page):
    return any(block.language in LANGUAGES for block in record.blocks(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page):
    for block in record.blocks(page.read_text(encoding="utf-8")):
        known = block.language in LANGUAGES | OTHERS or block.language.startswith("{")
        assert known, f"{page}:{block.start}: {block.language!r}"


@pytest.mark.long
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=pytest.mark.full if name_of(page) in SLOW else ())
        for page in PAGES
        if runs(page)
    ],
)
@pytest.mark.usefixtures("quick_processes")
def test_every_block_runs(page, tmp_path, monkeypatch):
    for name in ("duckdb", "matplotlib", "narwhals", "polars", "typer", "xarray"):
        pytest.importorskip(name, reason=f"pages need {name} (rrjax[cli] and the group test)")
    missing = [name for name in record.needed(page.read_text(encoding="utf-8")) if not (record.DATA / name).exists()]
    if missing:
        pytest.skip(f"{', '.join(missing)}: shared/data or RRJAX_DATA is not here")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = subprocess.run(
        [sys.executable, record.__file__, "--check", page], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_lines_left_out_stay_left_out():
    assert record.elided(["a", "…", "z"], ["A", "b", "c", "Z"]) == ["A", "…", "Z"]
    assert record.elided(["…"], ["A", "b"]) == ["…"]
    assert record.elided(["a", "…", "z"], ["A", "Z"]) == ["A", "Z"]
    assert record.elided(["a", "b"], ["A", "B", "C"]) == ["A", "B", "C"]


PAGE = """A page.

<!-- python
word = "hidden"
-->

* In a list:

  ```python
  print(word)
  print("more")
  ```

  ```text
  old
  ```

```console
$ echo 1; \\
    echo 2; echo 3
0
…
0
$ echo "of rrjax" > file

$ cat file
```

![It](figures/file) and ![another](other.png)

```text
not of the command
```
"""


def test_a_page_is_recorded(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    (tmp_path / "figures").mkdir()
    done = subprocess.run(
        [sys.executable, record.__file__, page], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    recorded = PAGE.replace("  old\n", "  hidden\n  more\n").replace("0\n…\n0\n", "1\n…\n3\n")
    assert page.read_text() == recorded.replace("$ cat file\n", "$ cat file\nof rrjax\n")
    assert (tmp_path / "figures" / "file").read_text() == "of rrjax\n"
    assert not (tmp_path / "other.png").exists()
    for wrong in ("```console\n$ exit 3\n```\n", "```python\n1 / 0\n```\n", "```console\nno command\n```\n"):
        page.write_text(wrong)
        done = subprocess.run(
            [sys.executable, record.__file__, page], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 1, wrong
        assert page.read_text() == wrong


def public():
    """Full names of all that `__all__` of rrjax and of its public packages name; of a module, what it defines."""
    for name in rrjax.__all__:
        thing = getattr(rrjax, name)
        if not inspect.ismodule(thing):
            yield f"rrjax.{name}"
            continue
        inner = getattr(thing, "__all__", None) or [
            one
            for one, function in inspect.getmembers(thing, inspect.isfunction)
            if function.__module__ == thing.__name__ and not one.startswith("_")
        ]
        yield from (f"rrjax.{name}.{one}" for one in inner)


class _Elements(html.parser.HTMLParser):
    """What a page loads, and images without an alternative."""

    def __init__(self):
        super().__init__()
        self.loaded, self.mute = [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.loaded.append(given.get("src") or "")
        if tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon", "preconnect"):
            self.loaded.append(given.get("href") or "")
        alternative = (given.get("alt") or "").strip()
        if tag == "img" and (not alternative or alternative.endswith((".png", ".svg"))):
            self.mute.append(given.get("src"))


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_the_site(tmp_path):
    for name in ("sphinx", "myst_nb", "furo"):
        pytest.importorskip(name, reason="the site needs the dependency group docs")
    out = tmp_path / "site"
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-c", "docs"]
    done = subprocess.run(
        [*command, "-d", tmp_path / "doctrees", ".", out],
        cwd=ROOT,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = sorted(out.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        elements = _Elements()
        elements.feed(page.read_text(encoding="utf-8"))
        assert not elements.mute, (page, elements.mute)
        elsewhere = [address for address in elements.loaded if re.match(r"(https?:)?//", address)]
        assert not elsewhere, (page, elsewhere)
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        page = (out / "notebooks" / f"{notebook.stem}.html").read_text(encoding="utf-8")
        tables = len(re.findall(r'^ *"\|?(?: ?:?-{3}:? ?\|)+', notebook.read_text(encoding="utf-8"), re.MULTILINE))
        assert page.count("<table") >= tables, notebook
    compressed = (out / "objects.inv").read_bytes().split(b"\n", 4)[4]
    listed = {line.split(" ")[0] for line in zlib.decompress(compressed).decode().splitlines()}
    assert not set(public()) - listed, sorted(set(public()) - listed)
