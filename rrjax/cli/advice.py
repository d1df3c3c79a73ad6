"""Which estimate to report and why, and a sentence to publish."""

from __future__ import annotations

import numpy as np

import rrjax
from rrjax import inference
from rrjax.cli.estimates import Estimate, ShareIntervals, too_large
from rrjax.cli.interrupt import ending_at_once
from rrjax.estimators.catalogue import CLOSEST, CLOSEST_IN_ORDER, LIKELIEST, MAXIMIZER
from rrjax.reports import form
from rrjax.reports.reports import Reports

PLAIN = {CLOSEST: "closest", CLOSEST_IN_ORDER: "closest", LIKELIEST: "likeliest", MAXIMIZER: "likeliest"}
"""Headings of the columns if no estimator is named."""
NO_DIFFERENCE = 0.25
"""Limit of a difference between two estimates, in standard errors, below which it does not matter which is reported."""
ROUNDING = 1e-9
"""Limit of a difference between two shares that rounding explains."""


def heading(estimate: Estimate) -> str:
    """The heading of an estimate that runs by default; the closest is called so only if the reports determine it."""
    return estimate.title if estimate.undetermined else PLAIN[estimate.estimator.name]


def advice(collection: Reports, estimates: list[Estimate], headings: list[str]) -> str:
    """A sentence that says which of the leading estimates to report, and why."""
    closest, name = estimates[0], headings[0]
    size, noise = collection.num_categories, collection.standard_error
    because = (
        f"the noise of a share is {form.percent(noise)} ({collection.mechanism.name}, ε = {collection.epsilon:.4g}) "
        f"and an average share {form.percent(1 / size)} (K = {size:,})"
    )
    if closest.undetermined:
        return f"Report this: the intervals, not an estimate, because {because}."
    if len(estimates) == 1:
        return f"Report this: {name}, because {because}; likeliest is not computed: {too_large(collection)}."
    apart = float(np.max(np.abs(closest.theta - estimates[1].theta)))
    if apart <= NO_DIFFERENCE * noise:
        differ = f"differ by at most {form.percent(apart)}" if apart > ROUNDING else "agree"
        return f"Report this: {name} or {headings[1]}, which {differ}; {because}."
    return (
        f"Report this: {name}, because {because}; {headings[1]} follows the noise, and differs by up to "
        f"{form.percent(apart)}."
    )


@ending_at_once()
def publication(collection: Reports, estimate: Estimate, intervals: ShareIntervals) -> str:
    """A sentence to publish with a simultaneous interval: on the largest category or, of yes and no, on yes."""
    yes_or_no = collection.design is not None and collection.num_categories == 2
    place = 0 if yes_or_no else int(np.argmax(estimate.theta))
    limits: tuple[np.ndarray, np.ndarray] = (intervals.lower, intervals.upper)
    if not intervals.simultaneous:  # the largest was picked after looking
        found = inference.intervals(*collection.marginal, intervals.level, simultaneous="bonferroni")
        limits = np.asarray(found.lower), np.asarray(found.upper)
    interval = form.between(limits[0][place], limits[1][place])
    about = "an unknown share" if estimate.undetermined else form.share(estimate.theta[place])
    note = "" if collection.design is None else f" ({collection.design.note})"
    users = f"{collection.num_reports:,} {'simulated ' if collection.simulated else ''}users"
    return (
        f"{about} of these {users} have {form.printable(collection.labels[place])} as {collection.counted.column} "
        f"({form.in_full(intervals.level)} confidence interval {interval}, simultaneous for all "
        f"{collection.num_categories:,} categories; it holds for the population too, if the users are a random sample "
        f"of it). Each value was randomized by {collection.mechanism.name}{note} with ε = {collection.epsilon:.4g}; "
        f"the estimate is that of {estimate.estimator.name} in rrjax {rrjax.__version__}."
    )
