"""Figures of a study that other processes draw: as if they had been drawn here."""

import base64
import multiprocessing
import os
import re
import subprocess
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")
pytest.importorskip("xarray", reason="studies need xarray")

from matplotlib.figure import Figure

from rrjax.study.drawings import Drawing, picture_of, pictures
from rrjax.study.report import write_figures, write_report

pytestmark = pytest.mark.once  # nothing here depends on the precision


def waiting(name, here, folder):
    """A figure that says who draws it. Who is `here` waits for another process to have begun, and that for us."""
    flag, other = ("here", "there") if os.getpid() == here else ("there", "here")
    (folder / flag).touch()
    wait_for(folder / other)
    figure = plain(name)
    figure.axes[0].set_xlabel(flag)
    warnings.warn(f"{name} was drawn {flag}", UserWarning, stacklevel=2)
    return figure


def plain(name):
    figure = Figure(figsize=(2, 2), layout="constrained")
    figure.subplots().set_title(name)
    return figure


def breaking(name, here, folder):
    """A process beside this one ends, as if it had been killed; this one waits for that."""
    if os.getpid() != here:
        (folder / "broken").touch()
        os._exit(1)
    wait_for(folder / "broken")
    return plain(name)


def wait_for(file):
    end = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def no_program(process):
    raise FileNotFoundError(2, "No such file or directory", "/nowhere/python")


def failing(name):
    raise ValueError(f"{name} cannot be drawn")


def drawings(draw, *given, number=4):
    return [Drawing(f"f{place}", f"F{place}", "", partial(draw, f"F{place}", *given)) for place in range(number)]


@pytest.fixture
def started(monkeypatch):
    """The numbers of processes that were asked for."""
    found = []

    class Remembering(ProcessPoolExecutor):
        def __init__(self, number, *given, **named):
            found.append(number)
            super().__init__(number, *given, **named)

    monkeypatch.setattr("rrjax.study.drawings.ProcessPoolExecutor", Remembering)
    yield found
    assert multiprocessing.active_children() == []


@pytest.mark.full
def test_another_process_draws_the_same(tmp_path, started):
    begun = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        given = drawings(waiting, os.getpid(), tmp_path)
        found = list(pictures(given, lambda number, drawing: begun.append((number, drawing.title)), processes=1))
    assert started == [1]
    who = [picture.words[1].removeprefix("Horizontal: ") for picture in found]
    assert set(who) == {"here", "there"}
    for place, picture in enumerate(found):
        assert picture.words[0] == f"Panels: F{place}"
        figure = plain(f"F{place}")
        figure.axes[0].set_xlabel(who[place])
        assert picture.files == picture_of(lambda figure=figure: figure, "pdf", dpi=130).files
    assert [str(warning.message) for warning in caught] == [f"F{place} was drawn {by}" for place, by in enumerate(who)]
    assert {title for _, title in begun} == {f"F{place}" for place, by in enumerate(who) if by == "here"}
    numbers = [number for number, _ in begun]
    assert numbers == sorted(numbers)
    assert set(numbers) <= {1, 2, 3, 4}


@pytest.mark.full
def test_what_a_process_that_broke_was_to_draw_is_drawn_here(tmp_path, started):
    found = list(pictures(drawings(breaking, os.getpid(), tmp_path), processes=1))
    assert [picture.words for picture in found] == [[f"Panels: F{place}"] for place in range(4)]
    assert started == [1]


@pytest.mark.full
@pytest.mark.parametrize("trouble", ["no program", "not to be pickled"])
def test_without_processes_all_is_drawn_here(trouble, monkeypatch, started):
    given = drawings(plain)
    if trouble == "no program":
        monkeypatch.setattr("multiprocessing.context.SpawnProcess.start", no_program)
    else:
        given = [drawing._replace(draw=lambda drawing=drawing: drawing.draw()) for drawing in given]
    assert [picture.words for picture in pictures(given, processes=2)] == [[f"Panels: F{n}"] for n in range(4)]


@pytest.mark.long
def test_few_figures_need_no_other_process(started):
    assert len(list(pictures(drawings(plain, number=3)))) == 3
    assert started == []


@pytest.mark.full
def test_what_cannot_be_drawn_is_told_here(started):
    with pytest.raises(ValueError, match=r"F\d cannot be drawn"):
        list(pictures(drawings(failing), processes=1))
    assert started == [1]


@pytest.mark.long
def test_a_report_holds_the_bytes_of_the_files(tmp_path):
    import xarray as xr

    def page(drawn):
        return write_report(
            tmp_path / "r.html", title="x", summary={}, datasets=xr.Dataset(), figures=drawn
        ).read_text()

    whole = page(write_figures(tmp_path / "figures", drawings(plain, number=2)))
    files = [(tmp_path / "figures" / f"f{place}.png").read_bytes() for place in range(2)]
    assert [base64.b64decode(found) for found in re.findall(r"base64,([^\"]*)", whole)] == files
    # Of a figure that is not drawn yet, the words are the same.
    told = r'alt="([^"]*)"'
    assert re.findall(told, whole) == ["F0. Panels: F0.", "F1. Panels: F1."]
    assert re.findall(told, page([(f"F{place}", "", plain(f"F{place}")) for place in range(2)])) == re.findall(
        told, whole
    )


@pytest.mark.full
def test_an_interrupt_leaves_whole_files_and_no_process(tmp_path, started, monkeypatch):
    monkeypatch.setattr("rrjax.study.drawings.num_cores", lambda: 2)
    drawn = write_figures(tmp_path / "figures", drawings(plain, number=6))
    title, _, first = next(drawn)
    assert title == "F0"
    with pytest.raises(KeyboardInterrupt):
        drawn.throw(KeyboardInterrupt)
    assert started == [1]
    assert sorted(file.name for file in (tmp_path / "figures").iterdir()) == ["f0.pdf", "f0.png"]
    assert (tmp_path / "figures" / "f0.png").read_bytes() == first.files["png"]


UNGUARDED = """
from functools import partial
from rrjax.figures import plan_figure
from rrjax.study.drawings import Drawing, pictures

print("begun")
given = [Drawing(f"f{place}", f"F{place}", "", partial(plan_figure, 4 + place, 1.0, 1000)) for place in range(4)]
print(len(list(pictures(given, processes=1))))
"""


@pytest.mark.full
@pytest.mark.usefixtures("quick_processes")
def test_the_script_of_the_user_is_not_run_again(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(UNGUARDED)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["begun", "4"]
    assert "Traceback" not in done.stderr
