"""Normal intervals of means and groups from single reports, of mechanisms whose reports name several categories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import jax.numpy as jnp
import numpy as np

from rrjax import inference
from rrjax.cli.public_columns import Part
from rrjax.inference.intervals import within
from rrjax.reports.reports import Reports

REPORTS_AT_ONCE = 1 << 16


def normal_estimate(collection: Reports, part: Part, values: np.ndarray, level: float) -> inference.Estimate:
    """The mean of the unbiased values of the reports, with its normal interval within the range of the values.

    The unbiased shares of most mechanisms do not add up to one. So the values are taken about a centre, which is not
    estimated: their mean, or the value of all categories but one.
    """
    mechanism, reports = collection.mechanism, part.rows
    assert reports is not None
    ends = [end for end in (values.min(), values.max()) if (values == end).sum() == len(values) - 1]
    centre = ends[0] if ends else values.mean()
    chunks = [reports[start : start + REPORTS_AT_ONCE] for start in range(0, len(reports), REPORTS_AT_ONCE)]
    scores = np.concatenate([np.asarray(mechanism.debias(chunk)) @ (values - centre) for chunk in chunks])
    alike = (scores == scores[0]).all()  # then they do not tell their error
    error = math.nan if alike else scores.std(ddof=1) / math.sqrt(len(scores))
    return _limits(centre + scores.mean(), error, level, values.min(), values.max())


def normal_sum(
    found: Sequence[inference.Estimate], weights: np.ndarray, values: np.ndarray, level: float
) -> inference.Estimate:
    """The weighted sum of estimates from different users, with its normal interval within its range."""
    weighted = list(zip(weights.tolist(), found, strict=True))
    value = sum(weight * float(each.value) for weight, each in weighted)
    error = math.hypot(*(weight * float(each.standard_error) for weight, each in weighted))
    ends = weights * values.min(), weights * values.max()
    return _limits(value, error, level, np.minimum(*ends).sum(), np.maximum(*ends).sum())


def _limits(value: float, error: float, level: float, least: float, most: float) -> inference.Estimate:
    half = math.inf if math.isnan(error) else NormalDist().inv_cdf((1 + level) / 2) * error  # of a single report
    ends = within(value - half, value + half, least, most)
    return inference.Estimate(jnp.asarray(value), jnp.asarray(error), *ends)
