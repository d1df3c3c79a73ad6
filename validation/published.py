"""Published figures of designs that differ by respondent, and of RAPPOR's decoder, beside those of rrjax.

The figures are those of R packages and papers (GLMMRR's pooled crosswise model, the extended crosswise model, direct
against indirect questioning); of RAPPOR they are non-negative least squares by SciPy.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from scipy import optimize

import rrjax
from rrjax.mechanisms import ByRespondent, Crosswise, Direct
from rrjax.mechanisms.longitudinal import Rappor, bloom_filters
from validation.runner import Table, run

SIZES = 8, 300, 128
"""Cohorts, candidates and bits of RAPPOR."""


def both(yes: Any, number: Any) -> np.ndarray:
    """Counts of yes and no."""
    return np.stack([np.asarray(yes), np.asarray(number) - np.asarray(yes)], axis=-1)


def mixed(parameters: Any) -> ByRespondent:
    return ByRespondent([Crosswise(each) for each in parameters], np.zeros(1, int))


def crosswise() -> list[list[Any]]:
    """What was estimated, published and found."""
    pooled = mixed((0.167, 0.197, 0.202, 0.230, 0.260, 0.304))
    mixture = pooled.mixture_of_counts(both([105, 81, 43, 91, 91, 41], [153, 136, 66, 150, 144, 72]))
    share, error = rrjax.mle(mixture)[0], rrjax.inference.standard_errors(mixture)[0]
    rows: list[list[Any]] = [["pooled crosswise, share", 0.270528, share], ["its standard error", 0.0318, error]]
    extended, number = mixed((1 / 6, 1 / 4, 3 / 4, 5 / 6)), [172, 172, 170, 192]
    for yes, published in (
        ([114, 104, 72, 71], 0.2941),
        ([137, 136, 53, 44], 0.0590),
        ([141, 136, 39, 43], 0.0213),
    ):
        found = rrjax.inference.design_fit_test(both(yes, number), extended)
        fit = f"G² = {found.statistic:.3f} on {found.degrees} df, p = {found.p_value:.3f}"
        rows.append([f"extended crosswise, share ({fit})", published, found.theta[0]])
    for yes, asked, published in (
        (198, 7, {"first": 0.2226, "second": 0.0729, "difference": 0.1497, "standard_error": 0.061, "p_value": 0.014}),
        (230, 1, {"first": 0.0161, "second": 0.0104}),
    ):
        sides = [(both(yes, 310), Crosswise(0.25)), (both(asked, 96), Direct(2))]
        answers = [rrjax.Reports.of_counts(counts, design, ["yes", "no"]) for counts, design in sides]
        columns = rrjax.reports.test_difference(*answers).columns
        rows += [
            [f"crosswise {yes} of 310, direct {asked} of 96: {name.replace('_', ' ')}", value, columns[name][0]]
            for name, value in published.items()
        ]
    return rows


def rappor(number: int) -> list[list[Any]]:
    """Shares against least squares of SciPy, and standard errors against simulations."""
    cohorts, size, bits = SIZES
    filters = bloom_filters([f"word-{each}" for each in range(size)], bits, 2, cohorts)
    decoder, random = Rappor(filters, 2, f=0.0, p=0.25, q=0.75), np.random.default_rng(0)
    theta = np.exp(-np.arange(size) / 15)
    theta /= theta.sum()
    shares, errors, apart = [], [], 0.0
    for place in range(number):
        users = random.multinomial(100_000, np.full(cohorts, 1 / cohorts))
        counts = np.zeros((cohorts, bits), int)
        for cohort, each in enumerate(users):
            held = random.multinomial(each, theta)
            for word in np.flatnonzero(held):
                counts[cohort] += random.binomial(held[word], np.where(filters[cohort, word], 0.75, 0.25))
        found = decoder.regression((users, counts), num_steps=20_000 if place == 0 else 4000).theta
        if place == 0:
            root = np.sqrt(users / users.sum())[:, None]
            design = (filters * root[:, None]).transpose(0, 2, 1).reshape(-1, size)
            best, _ = optimize.nnls(design, ((counts / users[:, None] - 0.25) / 0.5 * root).ravel())
            apart = float(np.abs(np.asarray(found) - best).sum())
        shares.append(np.asarray(found))
        errors.append(np.asarray(decoder.standard_errors((users, counts), found)))
    large = theta > 0.02
    ratio = np.mean(errors, axis=0)[large] / np.std(shares, axis=0, ddof=1)[large]
    words = f"RAPPOR, {cohorts} cohorts, {size} candidates: "
    return [
        [f"{words}L1 from non-negative least squares", 0.0, apart],
        [
            f"{words}standard errors over those of {number} simulations, {large.sum()} shares above .02",
            1.0,
            ratio.mean(),
        ],
    ]


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    with jax.enable_x64(True):
        found = [[name, value, float(each)] for name, value, each in [*crosswise(), *rappor(options.number)]]
    rows = [[name, f"{value:g}", f"{each:.6f}", f"{abs(each - value):.1e}"] for name, value, each in found]
    note = "Published figures are rounded; in double precision."
    return [Table("Published and found", ["figure", "published", "rrjax", "apart"], rows, note)], {"figures": found}


if __name__ == "__main__":
    run(study, "Published figures", ("collections", 200, 4))
