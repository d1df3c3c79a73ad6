"""The figure of the association of several columns."""

import pytest
from refusals import refused

pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")

from rrjax.figures import association_figure, save

pytestmark = pytest.mark.once
NAMES = ["smokes", "drinks", "$x$"]
V = {("smokes", "drinks"): 0.24, ("$x$", "smokes"): 0.02}


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
