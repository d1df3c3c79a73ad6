"""Figures: what is drawn is what was given."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")

from matplotlib.figure import Figure
from refusals import refused

from rrjax.estimators.catalogue import ESTIMATORS, Estimator, Style
from rrjax.figures import estimate_figure, forest_figure, save
from rrjax.figures.estimates import Statements
from rrjax.figures.style import line_at, mechanism_line, styles_of
from rrjax.mechanisms import MECHANISMS

pytestmark = pytest.mark.once  # nothing here depends on the precision

ESTIMATES = {"MLE*": [0.6, 0.3, 0.1, 0.0], "InvN": [0.5, 0.2, 0.2, 0.1]}
TRUTH = [0.55, 0.25, 0.15, 0.05]


def test_the_largest_come_first_and_all_are_ranked(tmp_path):
    estimates = {name: np.r_[theta, np.zeros(6)] for name, theta in ESTIMATES.items()}
    truth = np.r_[TRUTH, np.zeros(6)]
    figure = estimate_figure("abcdefghij", estimates, standard_error=0.02, truth=truth, top=3)
    left, right = figure.axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["a", "b", "c"]
    drawn = {line.get_label(): line.get_xdata() for line in left.get_lines()}
    np.testing.assert_array_equal(drawn["MLE*"], [0.6, 0.3, 0.1])
    np.testing.assert_array_equal(drawn["InvN"], [0.5, 0.2, 0.2])
    np.testing.assert_array_equal([bar.get_width() for bar in left.patches if bar.get_height() == 0.75], TRUTH[:3])
    ranked = {line.get_label(): line.get_ydata() for line in right.get_lines()}
    np.testing.assert_array_equal(ranked["MLE*"], [0.6, 0.3, 0.1])  # zeros have no place on a logarithmic axis
    np.testing.assert_array_equal(ranked["truth"], TRUTH)
    assert {line.get_linestyle() for line in right.get_lines()} >= {"-", "--"}  # told apart without colour
    figure.savefig(tmp_path / "figure.png")
    (alone,) = estimate_figure("abcd", ESTIMATES, standard_error=0.02).axes  # few need no panel by rank
    assert len(alone.get_yticklabels()) == 4


def test_a_million_categories_are_thinned_for_the_eye_alone():
    theta = np.arange(1_000_000, 0, -1.0)
    figure = estimate_figure(range(1_000_000), {"x": theta / theta.sum()}, standard_error=1e-6)
    (line, _) = figure.axes[1].get_lines()
    assert len(line.get_xdata()) <= 2000
    np.testing.assert_array_equal(line.get_ydata(), (theta / theta.sum())[np.asarray(line.get_xdata()) - 1])


def test_lengths_must_agree():
    with refused("labels"):
        estimate_figure("abc", ESTIMATES, standard_error=0.1)
    with refused("truth"):
        estimate_figure("abcd", ESTIMATES, standard_error=0.1, truth=[0.5, 0.5])


def test_labels_are_shown_not_obeyed():
    labels = ["$x_1$", "a\x1b[31m", "l" * 100, "ok"]
    figure = estimate_figure(labels, {"x": ESTIMATES["MLE*"]}, standard_error=0.1)
    shown = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert shown[0] == r"\$x_1\$"
    assert "\x1b" not in shown[1]
    assert len(shown[2]) == 24


def marks(figure):
    """Label → colour, marker and the fill of the marker, of the left panel."""
    return {
        str(line.get_label()): (line.get_color(), line.get_marker(), line.get_markerfacecolor())
        for line in figure.axes[0].get_lines()
    }


def test_an_estimator_of_the_catalogue_has_its_title_and_colour(monkeypatch):
    style = Style("#123456", (0, (7, 1)), "h", 4)
    monkeypatch.setitem(ESTIMATORS, "halfway", Estimator("halfway", lambda counts, epsilon: counts, "Half way", style))
    theta = [*ESTIMATES["InvN"], *[0.0] * 6]
    figure = estimate_figure("abcdefghij", dict.fromkeys(["halfway", "mle_star", "inv_p"], theta), standard_error=0.1)
    assert marks(figure) == {
        "Half way": ("#123456", "h", "#123456"),
        "MLE*": (ESTIMATORS["mle_star"].style.colour, "s", "white"),
        "InvP": (ESTIMATORS["inv_p"].style.colour, "o", "white"),
    }
    drawn = {line.get_label(): line.get_color() for line in figure.axes[1].get_lines()}
    assert drawn["Half way"] == "#123456"


def test_any_other_name_is_drawn_as_it_is_and_apart_from_the_rest():
    names = [*ESTIMATORS, "MLE*", *"abcdefg"]  # a title is no name
    figure = estimate_figure("abcd", dict.fromkeys(names, ESTIMATES["InvN"]), standard_error=0.1)
    labels = [line.get_label() for line in figure.axes[0].get_lines()]
    assert labels == [*(entry.title for entry in ESTIMATORS.values()), "MLE*", *"abcdefg"]
    styles = styles_of(names)
    assert len({(style.colour, style.marker) for style in styles.values()}) == len(names)
    assert len({(str(style.dash), style.marker) for style in styles.values()}) == len(names)  # and in grey
    assert len({str(line_at(place)) for place in range(64)}) == 64
    lines = [mechanism_line(name) for name in MECHANISMS]
    assert [len({str(line[part]) for line in lines}) for part in ("color", "linestyle", "marker")] == [8, 8, 8]


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg", ".PNG"])
def test_one_file_is_written_where_a_suffix_says_which(tmp_path, suffix):
    path = tmp_path / f"figure{suffix}"

    def write():
        figure = estimate_figure("abcd", ESTIMATES, standard_error=0.1)
        assert save(figure, path) == (path,)
        assert figure.get_layout_engine() is not None
        return path.read_bytes()

    start = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}[suffix.lower()]
    assert write().startswith(start)
    assert write() == write()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_script_that_the_font_lacks_does_not_stop_a_figure(tmp_path):
    with warnings.catch_warnings():  # tests/figures/test_figures_labels.py is about them
        warnings.simplefilter("ignore")
        save(estimate_figure(["日本", "b", "c", "d"], ESTIMATES, standard_error=0.1), tmp_path / "figure.png", dpi=40)


def test_dots_per_inch_are_those_asked_for(tmp_path):
    for name, options, dots in (("a", {}, 150), ("b", {"dpi": 130}, 130)):
        (png, _) = save(Figure(figsize=(2, 1)), tmp_path / name, **options)
        assert int.from_bytes(png.read_bytes()[16:20], "big") == 2 * dots


@pytest.mark.long
def test_matplotlib_is_loaded_by_drawing_alone():
    code = (
        "import sys, rrjax.figures, rrjax.study, rrjax.study.drawings, rrjax.study.report\n"
        "assert 'matplotlib' not in sys.modules\n"
        "rrjax.figures.tree_figure('ab', {('a', 'b'): 0.5})\n"
        "assert not [name for name in sys.modules if name.startswith(('matplotlib.pyplot', 'rrjax.cli'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_statements_are_drawn_where_their_names_stand():
    first = Statements(["north", "south"], [38.9, 47.2], [32.6, 41.0], [45.3, 53.1], mark=40)
    second = Statements(["south"], [0.2], [0.1], [0.3], are_shares=True)
    figure = forest_figure({"age": first, "young": second}, level=0.9)
    left, right = figure.axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["north", "south"]
    points = [line for line in right.get_lines() if line.get_marker() == "o"]
    assert (list(points[0].get_xdata()), list(points[0].get_ydata())) == ([0.2], [1])
    assert (left.get_title(), right.get_title()) == ("age", "young")
    assert [list(line.get_xdata()) for line in left.get_lines() if line.get_linestyle() == "--"] == [[40, 40]]
    assert "90 % interval" in figure.get_supxlabel()
    with refused("panels", value="age"):
        forest_figure({"age": first._replace(values=[1])})
    with refused("panels"):
        forest_figure({})
