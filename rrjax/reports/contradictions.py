"""Whether reports contradict their mechanism and ε: the tests, and a warning that says what they found."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from rrjax import inference
from rrjax.data.tally import Tally
from rrjax.io.tallies import as_jax_integers
from rrjax.numerics.programs import program
from rrjax.reports import form
from rrjax.reports.reports import FALSE_ALARM, Reports


def check_contradictions(reports: Reports) -> None:
    """Tests reports against their mechanism and ε, once; adds the tests to them, and a warning if they reject."""
    if not reports.metadata_tests:
        with jax.enable_x64(True):
            _check(reports)


def _check(reports):
    tally, tests = _tally(reports), reports.metadata_tests
    found = inference.contradiction_test(tally, reports.mechanism)
    tests |= {name: _facts(getattr(found, name)) for name in found.parts}
    if reports.tallied is not None and reports.tallied.seeds is not None:
        result = inference.repeated_seed_test(*reports.tallied.seeds)
        tests["repeated_seed"] = {"statistic": float(result.statistic), "p_value": float(result.p_value)}
    p_values = {name: test["p_value"] * len(tests) for name, test in tests.items()}
    names = [name for name, p_value in p_values.items() if p_value <= FALSE_ALARM]
    if names:
        # A category that is impossible alone says enough.
        said = [_contradiction(reports, tally, name) for name in (names[:1] if names[0] == "single" else names)]
        least = min(p_values.values())
        bound = form.at_most(least) if least > 1e-99 else "1e-99"
        reports.warnings.append(
            f"The reports contradict their mechanism: {'; '.join(said)}. Whatever the users hold, this happens by "
            f"chance with probability {bound} at most. Do not use these estimates. {reports.possible_causes}"
        )


def _tally(reports: Reports) -> Tally:
    if reports.tallied is not None:
        return reports.tallied.tally
    number = as_jax_integers(np.asarray(reports.num_reports))
    return _tally_of_counts(as_jax_integers(reports.counts), number, reports.mechanism)


@program
def _tally_of_counts(counts: Any, number: Any, mechanism: Any) -> Tally:
    return Tally(counts, number, rates=mechanism.rates)


def _facts(excess: inference.Excess) -> dict[str, float]:
    return {
        name: float(value) for name, value in zip(("p_value", "size", "statistic", "expected"), excess, strict=True)
    }


def _contradiction(reports: Reports, tally: Tally, name: str) -> str:
    """What one of the tests rejected, in words."""
    test, number = reports.metadata_tests[name], reports.num_reports
    named = "named" if reports.tallied is None or reports.design is not None else "supported"
    if name == "single":
        level = 1 - FALSE_ALARM / len(reports.metadata_tests)
        odd = np.isnan(inference.intervals(*reports.support_arguments, level, simultaneous="bonferroni").lower)
        few = odd & (np.asarray(tally.support) < number * np.asarray(tally.q))
        words = [
            (few, "less often than chance alone allows"),
            (odd & ~few, "more often than if all users held that one"),
        ]
        return " and ".join(
            f"{form.number(int(which.sum()), 'category is', 'categories are')} {named} {how}"
            for which, how in words
            if which.any()
        )
    if name == "sum_of_shares":
        shares = form.percent(test["statistic"])
        return f"the unbiased shares sum to {shares}, and should sum to 100\N{NO-BREAK SPACE}% but for chance"
    if name == "repeated_seed":
        return (
            f"{test['statistic']:,.0f} reports have the same hash seed, and each user must draw one, or categories "
            "that meet in a bucket are not told apart"
        )
    observed, expected, size = (f"{test[key]:,.0f}" for key in ("statistic", "expected", "size"))
    if name == "frequent":
        most = "most frequent category is" if size == "1" else f"{size} most frequent categories are"
        return f"the {most} {named} {observed} times (expected of any distribution: {expected} or fewer)"
    few = "by few reports" if np.ndim(tally.q) else f"by {'no report' if size == '0' else f'{size} or fewer reports'}"
    bound = "or fewer" if name == "rare" else "or more"
    return (
        f"{observed} of {reports.num_categories:,} categories are {named} {few} (expected of any distribution: "
        f"{expected} {bound})"
    )
