"""Figures of answers and plans: what is drawn is what was given, in axes of one's own too."""

import io
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")

from matplotlib.figure import Figure
from refusals import refused

import rrjax
from rrjax import inference
from rrjax.estimators.catalogue import ESTIMATORS, Estimator, Style
from rrjax.figures import (
    association_figure,
    cdf_figure,
    distributions_figure,
    estimate_figure,
    forest_figure,
    joint_figure,
    likelihood_figure,
    overview,
    plan_figure,
    profile_figure,
    save,
    splits_figure,
    tree_figure,
)
from rrjax.figures.estimates import Statements
from rrjax.figures.style import line_at, mechanism_line, shortened, styles_of
from rrjax.mechanisms import MECHANISMS

pytestmark = pytest.mark.once  # nothing here depends on the precision

ESTIMATES = {"MLE*": [0.6, 0.3, 0.1, 0.0], "InvN": [0.5, 0.2, 0.2, 0.1]}
TRUTH = [0.55, 0.25, 0.15, 0.05]
NAMES = ["smokes", "drinks", "$x$"]
V = {("smokes", "drinks"): 0.24, ("$x$", "smokes"): 0.02}
BINS = np.array([0.2, 0.5, 0.3])
PAIRS = {("a", "b"): 0.2}
AGES = (["north", "south"], [38.9, 47.2], [32.6, 41.0], [45.3, 53.1])
ONE_PANEL = {
    "shares": lambda **given: estimate_figure(range(12), {"x": np.full(12, 1 / 12)}, standard_error=0.1, **given),
    "rows": lambda **given: forest_figure({"mean age": AGES}, **given),
    "pairs": lambda **given: association_figure("ab", PAIRS, significant=list(PAIRS), **given),
    "joint": lambda **given: joint_figure("ab", ["xy", "xy"], [[0.5, 0.1], [0.1, 0.3]], **given),
    "tree": lambda **given: tree_figure("ab", PAIRS, **given),
    "likelihood": lambda **given: likelihood_figure(inference.log_likelihood_surface([6, 4], 1.0), **given),
    "profiles": lambda **given: profile_figure({"a": lambda share: -100 * (share - 0.4) ** 2}, **given),
}


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
    assert shown[2] == shortened("l" * 100) == 23 * "l" + "…"


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


def test_each_pair_has_a_cell_and_significant_ones_a_mark(tmp_path):
    figure = association_figure(NAMES, V, significant=[("drinks", "smokes")], title="100 users")
    axes = figure.axes[0]
    texts = {tuple(text.get_position()): text.get_text() for text in axes.texts}
    assert texts == {(0.5, 0.5): "0.24\n●", (0.5, 1.5): "0.02"}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["drinks", r"\$x\$"]
    save(figure, tmp_path / "a.png")
    many = [f"c{k}" for k in range(20)]
    axes = association_figure(many, {("c0", "c19"): 1.0}, significant=[("c0", "c19")]).axes[0]
    assert [text.get_text() for text in axes.texts] == ["●"]


def test_pairs_of_other_columns():
    with refused("names"):
        association_figure(["a"], {})
    with refused("cramers_v"):
        association_figure(NAMES, {("smokes", "age"): 0.1})
    with refused("significant"):
        association_figure(NAMES, V, significant=[("smokes", "smokes")])


@pytest.mark.long
def test_a_joint_table_has_its_largest_categories():
    table = np.diag(np.arange(1.0, 51))[:, :3] / 6
    axes = joint_figure(["a", "b"], [range(50), ["x", "y", "z"]], table).axes[0]
    assert len(axes.get_yticks()) == 40
    assert [label.get_text() for label in axes.get_yticklabels()[:3]] == ["0", "1", "2"]
    assert not len(axes.texts)
    axes = joint_figure(["a", "b"], [["x", "y"], ["no", "yes"]], [[0.4, 0.1], [0.2, 0.3]]).axes[0]
    assert [text.get_position() for text in axes.texts] == [(0.5, 0.5), (1.5, 0.5), (0.5, 1.5), (1.5, 1.5)]
    with refused("shares"):
        joint_figure(["a", "b"], [["x", "y"], ["no", "yes"]], [0.4, 0.6])


def test_a_tree_has_no_crossing_edges():
    names, v = list("abcdefg"), dict.fromkeys(("ab", "bc", "bd", "de", "df", "ag"), 0.5)
    axes = tree_figure(names, {tuple(pair): value for pair, value in v.items()}).axes[0]
    places = {text.get_text(): text.get_position() for text in axes.texts}
    assert places.keys() == {*names, "0.50"}
    assert sorted(places[leaf][1] for leaf in "cefg") == [0, 1, 2, 3]
    assert places["d"][1] == (places["e"][1] + places["f"][1]) / 2
    for edges in ({("a", "b"): 0.1}, {("a", "x"): 0.1}, {("a", "b"): 0.1, ("b", "a"): 0.1}):
        with refused("cramers_v"):
            tree_figure(["a", "b", "c"], edges)


def test_bins_and_integers_with_band():
    band = np.array([0.1, 0.6, 1.0]), np.array([0.3, 0.8, 1.0])
    for low, high in (([0, 10, 20], [10, 20, 30]), ([4, 5, 6], [4, 5, 6])):
        figure = cdf_figure(low, high, BINS, band=band, name="age")
        left, right = figure.axes
        (estimate,) = left.get_lines()
        np.testing.assert_allclose(estimate.get_ydata()[-3:], [0.2, 0.7, 1.0])
        assert len(right.patches) == 3
        assert left.get_xlabel() == "age"


def test_distributions_of_classes_with_bands():
    value = np.array([-0.1, 0.5, 0.4, 1.1])
    lower, upper = np.array([0, 0.3, 0.2, 0.9]), np.array([0.1, 0.7, 0.6, 1])
    classes = {"low": (value, lower, upper), "high": (value / 2, lower, upper)}
    (axes,) = distributions_figure([1, 2, 3, 4], classes, quantiles=[0.25, 0.75], name="time").axes
    curves = {line.get_label(): line for line in axes.lines}
    np.testing.assert_allclose(curves["low"].get_ydata(), [0, 0.5, 0.5, 1])
    assert len(axes.collections) == 2
    assert {line.get_ydata()[0] for line in axes.lines[2:]} == {0.25, 0.75}


def test_lengths_that_differ():
    with refused("shares"):
        cdf_figure([0, 1], [1, 2], BINS)
    with refused("upper"):
        distributions_figure([0, 1], {"low": (BINS[:2], BINS[:2], BINS)})


def test_each_way_has_a_curve_and_each_change_of_the_best_number_a_dot():
    sizes, users = [2, 2, 2], 1000
    left, right = splits_figure(sizes, 2.0, users).axes
    ways = ["1, drawn at random", "2, drawn at random", "all columns", "1, among fake answers"]
    for axes, shown, what in ((left, ways, "share"), (right, ways[1:3], "cell")):
        curves = {line.get_label(): line for line in axes.lines if len(line.get_xdata()) > 2}
        assert list(curves) == shown
        dots = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if len(line.get_xdata()) == 1]
        assert len(dots) == {"share": 2, "cell": 1}[what]
        assert [text.get_text().split(" ")[0] for text in axes.texts] == ["2", "3"][-len(dots) :]
        for number, (epsilon, error) in enumerate(dots, {"share": 1, "cell": 2}[what]):
            rows = [row for row in inference.compare_splits(sizes, users, epsilon) if row.name != "among fakes"]
            errors = {row.number: getattr(row, what) for row in rows}
            assert errors[number] == pytest.approx(errors[number + 1], rel=1e-3)
            assert error == pytest.approx(errors[number], rel=1e-3)


@pytest.mark.parametrize(("sizes", "epsilon"), [([2] * 12, 0.01), ([1000, 2], 300.0)])
def test_many_columns_and_extreme_budgets(sizes, epsilon):
    for axes in splits_figure(sizes, epsilon, 100).axes:
        assert len([line for line in axes.lines if len(line.get_xdata()) > 2]) <= 6
        assert np.isfinite(axes.get_ylim()).all()


def test_one_column():
    with refused("num_categories"):
        splits_figure([3], 1.0, 100)


@pytest.mark.long
@pytest.mark.parametrize("name", ONE_PANEL)
def test_one_panel_is_drawn_into_given_axes(name):
    whole = Figure(layout="constrained")
    before, ax = whole.subplots(1, 2)
    assert ONE_PANEL[name](ax=ax, title="Title") is whole
    assert ax.has_data() or ax.texts
    assert ax.get_title().startswith("Title")
    assert not before.has_data()
    assert not whole.legends
    assert whole.get_suptitle() == whole.get_supxlabel() == ""
    whole.savefig(io.BytesIO(), dpi=40)


@pytest.mark.long  # a plan
def test_several_panels_refuse_axes():
    ax = Figure().subplots()
    with refused("ax"):
        plan_figure(10, 1.0, 1000, ax=ax)
    with refused("ax"):
        overview(None, ax=ax)
    with refused("ax"):
        forest_figure({"mean age": AGES, "median age": AGES}, ax=ax)
    with refused("ax"):
        rrjax.plan(num_categories=10, epsilon=1.0, num_users=1000).figure(ax=ax)


@pytest.mark.full
def test_an_answer_draws_into_given_axes():
    ax = Figure().subplots()
    shares = rrjax.Reports.of_counts([60, 30, 10, 20], 1.0).shares()
    assert shares.figure(ax=ax) is ax.figure


@pytest.mark.full
def test_the_share_of_yes_is_drawn_of_a_design():
    mechanism = rrjax.mechanisms.Warner(truth_probability=0.8)
    (axes,) = rrjax.Reports.of_counts([700, 300], mechanism, ["no", "yes"]).shares().figure().axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["yes"]
    surface = inference.log_likelihood_surface([620, 380], 1.0)
    (axes,) = likelihood_figure(surface, ["no", "yes"]).axes
    assert axes.get_xlabel() == "share of users with yes"
