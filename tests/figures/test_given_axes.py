"""Figures of one panel draw into given axes; those of several panels refuse them."""

import io

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")

from matplotlib.figure import Figure
from refusals import refused

import rrjax
from rrjax import figures, inference

pytestmark = pytest.mark.once  # nothing here depends on the precision

PAIRS = {("a", "b"): 0.2}
AGES = (["north", "south"], [38.9, 47.2], [32.6, 41.0], [45.3, 53.1])
ONE_PANEL = {
    "shares": lambda **given: figures.estimate_figure(
        range(12), {"x": np.full(12, 1 / 12)}, standard_error=0.1, **given
    ),
    "rows": lambda **given: figures.forest_figure({"mean age": AGES}, **given),
    "pairs": lambda **given: figures.association_figure("ab", PAIRS, significant=list(PAIRS), **given),
    "joint": lambda **given: figures.joint_figure("ab", ["xy", "xy"], [[0.5, 0.1], [0.1, 0.3]], **given),
    "tree": lambda **given: figures.tree_figure("ab", PAIRS, **given),
    "likelihood": lambda **given: figures.likelihood_figure(inference.log_likelihood_surface([6, 4], 1.0), **given),
    "profiles": lambda **given: figures.profile_figure({"a": lambda share: -100 * (share - 0.4) ** 2}, **given),
}


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
        figures.plan_figure(10, 1.0, 1000, ax=ax)
    with refused("ax"):
        figures.overview(None, ax=ax)
    with refused("ax"):
        figures.forest_figure({"mean age": AGES, "median age": AGES}, ax=ax)
    with refused("ax"):
        rrjax.plan(num_categories=10, epsilon=1.0, num_users=1000).figure(ax=ax)


@pytest.mark.long
def test_an_answer_draws_into_given_axes():
    ax = Figure().subplots()
    shares = rrjax.Reports.of_counts([60, 30, 10, 20], 1.0).shares()
    assert shares.figure(ax=ax) is ax.figure


@pytest.mark.long
def test_the_share_of_yes_is_drawn_of_a_design():
    mechanism = rrjax.mechanisms.Warner(truth_probability=0.8)
    (axes,) = rrjax.Reports.of_counts([700, 300], mechanism, ["no", "yes"]).shares().figure().axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["yes"]
    surface = inference.log_likelihood_surface([620, 380], 1.0)
    (axes,) = figures.likelihood_figure(surface, ["no", "yes"]).axes
    assert axes.get_xlabel() == "share of users with yes"
