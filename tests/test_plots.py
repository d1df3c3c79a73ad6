"""Figures: what is drawn is what was given."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")

from rrjax.plots import estimate_figure

ESTIMATES = {"MLE*": [0.6, 0.3, 0.1, 0.0], "InvN": [0.5, 0.2, 0.2, 0.1]}
TRUTH = [0.55, 0.25, 0.15, 0.05]


def test_the_largest_come_first_and_all_are_ranked(tmp_path):
    figure = estimate_figure("abcd", ESTIMATES, standard_error=0.02, truth=TRUTH, top=3)
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


def test_a_million_categories_are_thinned_for_the_eye_alone():
    theta = np.arange(1_000_000, 0, -1.0)
    figure = estimate_figure(range(1_000_000), {"x": theta / theta.sum()}, standard_error=1e-6)
    (line, _) = figure.axes[1].get_lines()
    assert len(line.get_xdata()) <= 2000
    np.testing.assert_array_equal(line.get_ydata(), (theta / theta.sum())[np.asarray(line.get_xdata()) - 1])


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="4 categories in the first estimate, labels has 3"):
        estimate_figure("abc", ESTIMATES, standard_error=0.1)
    with pytest.raises(ValueError, match="truth has 2"):
        estimate_figure("abcd", ESTIMATES, standard_error=0.1, truth=[0.5, 0.5])


def test_labels_are_shown_not_obeyed():
    labels = ["$x_1$", "a\x1b[31m", "l" * 100, "ok"]
    figure = estimate_figure(labels, {"x": ESTIMATES["MLE*"]}, standard_error=0.1)
    shown = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert shown[0] == r"\$x_1\$"
    assert "\x1b" not in shown[1]
    assert len(shown[2]) == 24
