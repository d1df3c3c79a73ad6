"""The figure of the ways to spend ε on several columns."""

import numpy as np
import pytest
from refusals import refused

pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")

from rrjax.figures import splits_figure
from rrjax.inference import compare_splits

pytestmark = pytest.mark.once


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
            rows = [row for row in compare_splits(sizes, users, epsilon) if row.name != "among fakes"]
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
