"""Tests whether reports fit a given distribution or, without one, any distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rrjax import inference
from rrjax.reports.contradictions import check_contradictions
from rrjax.reports.least_p_values import least_of_any, least_of_fit, least_of_one
from rrjax.reports.reading import in_float64
from rrjax.reports.reports import Reports
from rrjax.reports.testing import UNSUSPICIOUS, Outcome, Simulation, Test, check_size, label_of
from rrjax.reports.truth import true_shares

if TYPE_CHECKING:
    from rrjax.reports.truth import Truth


@in_float64
def fit_of(reports: Reports, theta: Truth | None, simulation: Simulation) -> Test:
    """See `Reports.test_fit`."""
    check_size(reports.num_reports)
    check_contradictions(reports)
    if theta is not None:
        theta = true_shares(theta, reports.counted.domain, reports.shares_in, "theta")
    if reports.tallied is not None:
        return Test([_of_tally(reports, theta, simulation)], simulation, [reports])
    simulation, notes = simulation.bounded(reports.num_categories)
    counts, key, arguments = (reports.counts, reports.epsilon), simulation.key, simulation.arguments
    pearson = inference.goodness_of_fit_test(key, *counts, theta, **arguments)
    if theta is None:
        outcome = simulation.outcome(
            "Can randomized response at this ε have made these reports, of any distribution?",
            pearson,
            "No: some categories are named less often than chance alone would name them. Is ε right, are reports "
            "missing, was another mechanism used?",
            f"{UNSUSPICIOUS} (An ε that is too large makes no category too rare, and is not noticed.)",
            least_of_any(reports),
        )
        return Test([outcome], simulation, [reports], notes)
    ratio, least = inference.likelihood_ratio_test(key, *counts, theta, **arguments), least_of_one(reports, theta)
    asked = "Do the users come from the given distribution?", "No: the users come from another distribution."
    looked = "Do the reports look like it?", "No."
    outcomes = [
        simulation.outcome(question, result, if_so, UNSUSPICIOUS, least)
        for (question, if_so), result in ((asked, ratio), (looked, pearson))
    ]
    return Test(outcomes, simulation, [reports], notes)


def _of_tally(reports: Reports, theta: np.ndarray | None, simulation: Simulation) -> Outcome:
    """Tests every support count."""
    result = inference.goodness_of_fit_test(
        simulation.key, reports.tally(), theta=theta, mechanism=reports.mechanism, **simulation.arguments
    )
    label = label_of(reports, result)
    if theta is None:
        question = f"Can {reports.mechanism.name} have made these reports, of any distribution?"
        way = "fewer" if float(result.statistic) < 0 else "more"
        found = f"{label} has {way} supporting reports than"
        if label is None:
            found = "all categories together are farther from any distribution than"
        if_so = f"No: {found} chance allows. {reports.possible_causes}"
    else:
        question = "Do the users come from the given distribution?"
        if_so = f"No: the users come from another distribution; most different is {label}."
    least = least_of_fit(reports, theta)
    return simulation.outcome(question, result, if_so, UNSUSPICIOUS, least, category=label, simulated=False)
