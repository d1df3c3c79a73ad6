"""The figure of a distribution of numbers."""

import numpy as np
import pytest
from refusals import refused

pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")

from rrjax.figures import cdf_figure

pytestmark = pytest.mark.once
SHARES = np.array([0.2, 0.5, 0.3])


def test_bins_and_integers_with_band_and_truth():
    band = np.array([0.1, 0.6, 1.0]), np.array([0.3, 0.8, 1.0])
    for low, high in (([0, 10, 20], [10, 20, 30]), ([4, 5, 6], [4, 5, 6])):
        figure = cdf_figure(low, high, SHARES, band=band, truth=SHARES[::-1], name="age")
        left, right = figure.axes
        truth, estimate = (line.get_ydata() for line in left.get_lines())
        np.testing.assert_allclose(estimate[-3:], [0.2, 0.7, 1.0])
        np.testing.assert_allclose(truth[-3:], [0.3, 0.8, 1.0])
        assert len(right.patches) == 6
        assert left.get_xlabel() == "age"


def test_lengths_that_differ():
    with refused("shares"):
        cdf_figure([0, 1], [1, 2], SHARES)
