"""Figures of several columns: all pairs, the joint table of two, a tree."""

import numpy as np
import pytest
from refusals import refused

pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")

from rrjax.figures import association_figure, joint_figure, save, tree_figure

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
