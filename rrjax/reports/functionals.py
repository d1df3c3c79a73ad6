"""Estimates of means, shares of groups and quantiles: of all users, of each level, of a difference, of a population."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from rrjax import inference
from rrjax.inference.intervals import within
from rrjax.reports import form
from rrjax.reports.public_columns import Part
from rrjax.reports.reports import Reports

About: TypeAlias = Literal["users", "difference", "population"]
REPORTS_AT_ONCE = 1 << 16


@dataclasses.dataclass(frozen=True, eq=False)
class Functional:
    """A number of a distribution: c·θ, or a quantile."""

    name: str
    kind: str
    """One of mean, share and quantile."""
    values: np.ndarray | None
    """`[K]`, c; None for a quantile."""
    probability: float = math.nan


@dataclasses.dataclass(frozen=True)
class FunctionalEstimate:
    """The estimate of a functional, for some users."""

    functional: Functional
    level: str
    """Whose it is: all, a level of the public column, a difference of two, or the population."""
    num_reports: int
    value: Any
    standard_error: float
    lower: Any
    upper: Any
    about: About = "users"

    @property
    def impossible(self) -> bool:
        """Whether the estimate is one that no users have, such as a negative share."""
        if self.functional.values is None:
            return False
        least, most = float(self.functional.values.min()), float(self.functional.values.max())
        return abs(self.value) > most - least if self.about == "difference" else not least <= self.value <= most

    @property
    def contradicted(self) -> bool:
        """Whether there is no interval, because no distribution explains the reports."""
        return self.lower is None or self.lower != self.lower

    def facts(self) -> dict[str, Any]:
        """As fields of a JSON object."""
        kept = {name: getattr(self, name) for name in ("value", "standard_error", "lower", "upper")}
        name, kind = self.functional.name, self.functional.kind
        return {"statement": name, "kind": kind, "of": self.level, "num_reports": self.num_reports} | kept

    def texts(self) -> tuple[str, str, str]:
        """The value, its standard error and its interval, for people."""
        if self.functional.kind == "quantile":
            if self.contradicted:
                return "–", "", "–"
            return form.printable(self.value), "", f"{form.printable(self.lower)} – {form.printable(self.upper)}"
        known = math.isfinite(self.standard_error)
        if self.functional.kind == "share":
            error = form.percent(self.standard_error) if known else ""
            return form.percent(self.value), error, form.between(self.lower, self.upper)
        digits = form.decimals(self.standard_error)
        limits = "–" if self.contradicted else f"{self.lower:,.{digits}f} – {self.upper:,.{digits}f}"
        return f"{self.value:,.{digits}f}", f"{self.standard_error:,.{digits}f}" if known else "", limits


def estimates_of(
    reports: Reports,
    functional: Functional,
    parts: list[Part],
    level: float,
    *,
    normal: bool = False,
    weighted: bool = False,
    shares: np.ndarray | None = None,
) -> list[FunctionalEstimate]:
    """Estimates a functional for all users and for each level; of two levels also their difference."""
    tallied, mechanism = reports.tallied is not None, reports.mechanism
    epsilon, kind = (None, mechanism) if tallied else (reports.epsilon, None)
    if functional.kind == "quantile":
        return _quantiles(reports, functional, parts, epsilon, kind, level)
    values = np.asarray(functional.values, np.float64)
    how: dict[str, Any] = {"values": values, "level": level}
    if weighted:
        found = [inference.weighted_functional(part.data, reports.epsilon, **how) for part in parts]
        return _rows(functional, parts, found)
    by_reports = normal and not mechanism.names_one
    how |= {"method": "normal" if normal else None, "mechanism": kind}
    if by_reports:
        found = [_normal(reports, part, values, level) for part in parts]
    elif tallied:
        found = [inference.linear_functional(part.data, **how) for part in parts]
    else:
        counts = jnp.stack([jnp.asarray(part.data) for part in parts])
        batch = jax.vmap(lambda each: inference.linear_functional(each, epsilon, **how))(counts)
        found = [jax.tree.map(lambda leaf, place=place: leaf[place], batch) for place in range(len(parts))]
    rows = _rows(functional, parts, found)
    levels = parts[1:]
    if len(levels) == 2:
        first, second = levels
        if by_reports:
            each = _normal_sum(found[1:], np.array([1, -1]), values, level)
        else:
            each = inference.difference(first.data, second.data, epsilon, **how)
        both = Part(f"{first.level} less {second.level}", first.num_reports + second.num_reports, None)
        rows += _rows(functional, [both], [each], "difference")
    if shares is not None:
        if by_reports:
            each = _normal_sum(found[1:], shares, values, level)
        else:
            strata = [part.data for part in levels]
            each = inference.stratified(strata if tallied else np.stack(strata), epsilon, shares=shares, **how)
        rows += _rows(functional, [dataclasses.replace(parts[0], level="population")], [each], "population")
    return rows


def _quantiles(reports, functional, parts, epsilon, mechanism, level):
    data = [part.data if mechanism is not None else jnp.asarray(part.data) for part in parts]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *data)
    found = jax.vmap(
        lambda each: inference.quantile(each, epsilon, functional.probability, mechanism=mechanism, level=level)
    )(together)
    labels = np.full(reports.num_categories + 1, None)  # −1 stands for no quantile
    labels[:-1] = reports.labels
    ends = [labels[np.asarray(each)].tolist() for each in found]
    return [
        FunctionalEstimate(functional, part.level, part.num_reports, value, math.nan, lower, upper)
        for part, value, lower, upper in zip(parts, *ends, strict=True)
    ]


def _rows(functional, parts, found, about: About = "users"):
    rows = []
    for part, each in zip(parts, found, strict=True):
        value, error, lower, upper = map(float, each)
        rows.append(FunctionalEstimate(functional, part.level, part.num_reports, value, error, lower, upper, about))
    return rows


def _normal(reports: Reports, part: Part, values: np.ndarray, level: float) -> inference.Estimate:
    """The mean of the unbiased values of the reports, with its normal interval within the range of the values.

    The unbiased shares of most mechanisms do not add up to one. So the values are taken about a centre, which is not
    estimated: their mean, or the value of all categories but one.
    """
    mechanism, rows = reports.mechanism, part.rows
    assert rows is not None
    ends = [end for end in (values.min(), values.max()) if (values == end).sum() == len(values) - 1]
    centre = ends[0] if ends else values.mean()
    chunks = [rows[start : start + REPORTS_AT_ONCE] for start in range(0, len(rows), REPORTS_AT_ONCE)]
    scores = np.concatenate([np.asarray(mechanism.debias(chunk)) @ (values - centre) for chunk in chunks])
    alike = (scores == scores[0]).all()  # then they do not tell their error
    error = math.nan if alike else scores.std(ddof=1) / math.sqrt(len(scores))
    return _limits(centre + scores.mean(), error, level, values.min(), values.max())


def _normal_sum(
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
