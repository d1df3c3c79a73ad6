"""Pages in a browser: no error of axe-core's in either scheme, and nothing wider than a phone.

Needs Chromium, and axe.min.js of the npm package axe-core, at RRJAX_AXE or in node_modules.
"""

import json
import os
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="the command line needs rrjax[cli]")
pytest.importorskip("typer", reason="the command line needs rrjax[cli]")

from rrjax import io

ROOT = Path(__file__).parents[2]
BROWSER = os.environ.get("RRJAX_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
AXE = Path(os.environ.get("RRJAX_AXE") or ROOT / "node_modules" / "axe-core" / "axe.min.js")

pytestmark = [
    pytest.mark.once,  # nothing here depends on the precision
    pytest.mark.long,
    pytest.mark.skipif(BROWSER is None, reason="Chromium is not here (RRJAX_CHROMIUM)"),
    pytest.mark.skipif(not AXE.exists(), reason="axe-core is not here (RRJAX_AXE, or npm install axe-core)"),
]

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--virtual-time-budget=60000", "--dump-dom"),
)
FOUND = re.compile(r'<pre id="found">(.*?)</pre>', re.DOTALL)
CHECK = """
axe.run(document, {resultTypes: ["violations"]}).then(found => {
  const told = found.violations.map(each => [each.id, each.impact, each.nodes.map(node => node.html.slice(0, 200))]);
  const rules = found.passes.length;
  document.body.innerHTML = '<pre id="found"></pre>';
  document.getElementById("found").textContent = JSON.stringify({told, rules});
});
"""
MEASURE = """
const page = document.querySelector("iframe").contentDocument.documentElement;
document.getElementById("found").textContent = JSON.stringify([page.clientWidth, page.scrollWidth]);
"""


def seen(folder, source):
    """What a script leaves in <pre id="found"> of a page."""
    (folder / "seen.html").write_text(source, encoding="utf-8")
    done = subprocess.run(
        [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", (folder / "seen.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = FOUND.search(done.stdout)
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(unescape(found.group(1)))


def checked(folder, source):
    """What axe-core finds."""
    scripts = f"<script>{AXE.read_text('utf-8')}</script><script>{CHECK}</script></body>"
    return seen(folder, source.replace("</body>", scripts))


@pytest.fixture
def source(invoke):
    """A page with every part that there is."""
    rng = np.random.default_rng(0)
    age = rng.integers(0, 100, 3000)
    io.write_table("s.csv", {"age": age, "region": np.array(["north", "<south>"], object)[age % 2]})
    line = ("s.csv", "--column", "age", "--epsilon", "2", "--group", "young=0:29", "--mean", "--by", "region")
    code, _, complaint = invoke("report", *line, "--ordered")
    assert code == 0, complaint
    return Path("s-report.html").read_text("utf-8").replace("<details>", "<details open>")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(tmp_path, source, scheme):
    dark = "@media screen and (prefers-color-scheme: dark)"
    assert dark in source
    source = source.replace(dark, "@media screen" if scheme == "dark" else "@media not all")
    found = checked(tmp_path, source)
    assert found["told"] == []
    assert found["rules"] > 20
    # It would find something.
    spoilt = source.replace("color: var(--ink)", "color: #888888").replace(' lang="en"', "").replace(' role="img"', "")
    assert {each[0] for each in checked(tmp_path, spoilt)["told"]} >= {"color-contrast", "html-has-lang"}


@pytest.mark.parametrize("width", [320, 360, 1280])
def test_nothing_is_wider_than_the_screen(tmp_path, source, width):
    frame = f'<iframe width="{width}" height="800" style="border:0" srcdoc="{escape(source, quote=True)}"></iframe>'
    script = f"<script>window.onload = () => {{ {MEASURE} }}</script>"
    visible, needed = seen(tmp_path, f'<!DOCTYPE html><body>{frame}<pre id="found"></pre>{script}</body>')
    assert width - 20 <= visible <= width  # less a scroll bar
    assert needed <= visible
