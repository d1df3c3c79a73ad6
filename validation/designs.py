"""Whether regressions of survey designs keep their word: their maxima beside scipy's, and coverage of Wald intervals.

Respondents have two covariates, a normal and a binary one. Their answers depend on both: two answers in each of the
eight designs, and three in the designs that can have more. Scipy maximizes the likelihood as `LAWS` writes it, with no
probability from rrjax, by BFGS and by a root of its slope, in float64.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from rrjax import mechanisms
from rrjax.models import fit
from validation.runner import Table, error, run

N = 2000
COEFFICIENTS = {2: [[0.8], [-0.7], [0.5]], 3: [[0.3, -0.2], [0.6, -0.4], [-0.4, 0.5]]}
"""Log-odds of all answers but the first; the intercept, then the normal and the binary covariate."""
LEVEL = 1.959964
GOAL = (0.94, 0.96)
MORE = 10
"""How many times more surveys tell a coverage outside of the goal from chance."""
BATCH = 20
"""Surveys that are fitted side by side."""
DIRECT = 20
"""Surveys of each design that scipy fits, too."""


class Case(NamedTuple):
    """A design, and its law as it is told to respondents: row = truth, column = answer."""

    design: Any
    law: list[list[float]]


LAWS = [
    Case(mechanisms.Warner(0.75), [[0.75, 0.25], [0.25, 0.75]]),
    Case(mechanisms.ForcedResponse(2 / 3, np.array([1 / 2, 1 / 2])), [[5 / 6, 1 / 6], [1 / 6, 5 / 6]]),
    Case(mechanisms.UnrelatedQuestion(0.7, np.array([0.25, 0.75])), [[0.775, 0.225], [0.075, 0.925]]),
    Case(mechanisms.Coin(2, 0.4), [[0.8, 0.2], [0.2, 0.8]]),
    Case(mechanisms.NegativeQuestion(2, 0.2), [[0.2, 0.8], [0.8, 0.2]]),
    Case(mechanisms.Crosswise(0.2), [[0.2, 0.8], [0.8, 0.2]]),
    Case(mechanisms.Triangular(0.25), [[1.0, 0.0], [0.25, 0.75]]),
    Case(mechanisms.Kuk(0.75, 0.1), [[0.75, 0.25], [0.1, 0.9]]),
    Case(mechanisms.Mangat(0.7), [[1.0, 0.0], [0.3, 0.7]]),
    Case(mechanisms.ForcedResponse(0.7, np.array([0.4, 0.3, 0.3])),
         [[0.82, 0.09, 0.09], [0.12, 0.79, 0.09], [0.12, 0.09, 0.79]]),
    Case(mechanisms.UnrelatedQuestion(0.7, np.array([0.5, 0.3, 0.2])),
         [[0.85, 0.09, 0.06], [0.15, 0.79, 0.06], [0.15, 0.09, 0.76]]),
    Case(mechanisms.NegativeQuestion(3, 0.0), [[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]]),
]  # fmt: skip


def survey(key: jax.Array, design: Any) -> tuple[jax.Array, jax.Array]:
    """Covariates and answers of one survey."""
    coefficients = jnp.asarray(COEFFICIENTS[design.num_categories], jnp.float32)
    for_normal, for_binary, for_values, for_reports = jax.random.split(key, 4)
    normal = jax.random.normal(for_normal, (N, 1), jnp.float32)
    covariates = jnp.concatenate([normal, jax.random.bernoulli(for_binary, 0.4, (N, 1)).astype(jnp.float32)], axis=1)
    logits = coefficients[0] + covariates @ coefficients[1:]
    values = jax.random.categorical(for_values, jnp.concatenate([jnp.zeros_like(logits[:, :1]), logits], axis=1))
    return covariates, design.randomize(for_reports, values)


@partial(jax.jit, static_argnums=1)
def many(keys: jax.Array, place: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Coefficients, standard errors and whether there is a maximum, of one survey for each key."""
    design = LAWS[place].design

    def one(key):
        found = fit(*survey(key, design), design)
        return found.coefficients, found.standard_errors, found.converged

    return jax.lax.map(one, keys, batch_size=BATCH)


def directly(covariates: np.ndarray, answers: np.ndarray, law: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and standard errors by scipy, `[3, K − 1]` each."""
    x = np.column_stack([np.ones(N), covariates])
    shape = x.shape[1], len(law) - 1
    chances = law[:, answers].T

    def loss_and_slope(flat):
        logits = np.column_stack([np.zeros(N), x @ flat.reshape(shape)])
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares = odds / odds.sum(axis=1, keepdims=True)
        likelihood = (shares * chances).sum(axis=1)
        moved = shares * (chances / likelihood[:, None] - 1)
        return -np.log(likelihood).mean(), -(x.T @ moved[:, 1:]).ravel() / N

    start = optimize.minimize(loss_and_slope, np.zeros(shape).ravel(), jac=True, method="BFGS", options={"gtol": 1e-8})
    found = optimize.root(lambda flat: loss_and_slope(flat)[1], start.x, tol=1e-13).x
    step = 1e-5 * np.eye(len(found))
    curvature = [(loss_and_slope(found + each)[1] - loss_and_slope(found - each)[1]) / 2e-5 for each in step]
    errors = np.sqrt(np.diag(np.linalg.inv(N * np.array(curvature))))
    return found.reshape(shape), errors.reshape(shape)


def differences(key: jax.Array, case: Case, number: int) -> tuple[float, float, float]:
    """Largest differences from scipy: of coefficients in float64 and in float32, and of standard errors, relative."""
    worst = np.zeros(3)
    for each in jax.random.split(key, number):
        covariates, answers = (np.asarray(part) for part in survey(each, case.design))
        coefficients, errors = directly(covariates.astype(np.float64), answers, np.array(case.law))
        with jax.enable_x64(True):
            wide = fit(covariates.astype(np.float64), answers, case.design)
            found, claimed = np.asarray(wide.coefficients), np.asarray(wide.standard_errors)
        short = np.asarray(fit(covariates, answers, case.design).coefficients)
        away = [np.abs(each).max() for each in (found - coefficients, short - coefficients, claimed / errors - 1)]
        worst = np.maximum(worst, away)
    return float(worst[0]), float(worst[1]), float(worst[2])


def words(design: Any) -> str:
    """The design with its parameters."""
    values = {field.name: getattr(design, field.name) for field in dataclasses.fields(design)}
    return f"{type(design).__name__}({', '.join(_number(value) for value in values.values())})"


def _number(value: Any) -> str:
    return f"{value:.3g}" if np.ndim(value) == 0 else f"[{', '.join(f'{each:.3g}' for each in value)}]"


def coverage(place: int, number: int, again: bool = False) -> dict[str, Any]:
    """Coverage of the intervals, deviations and biases of the coefficients over so many surveys."""
    case = LAWS[place]
    true = np.asarray(COEFFICIENTS[case.design.num_categories])
    keys = jax.random.split(jax.random.fold_in(jax.random.key(2 * again), place), number)
    estimates, errors, converged = (np.asarray(each, float) for each in many(keys, place))
    kept = converged > 0
    # A survey without a maximum has no interval, so it does not cover.
    inside = (np.abs(estimates - true) <= LEVEL * errors) & kept[:, None, None]
    deviations = estimates[kept].std(0, ddof=1)
    return {
        "design": words(case.design), "surveys": number, "converged": int(kept.sum()), "true": true,
        "coverage": inside.mean(axis=0), "deviations": deviations, "standard_errors": errors[kept].mean(0),
        "bias": (estimates[kept].mean(0) - true) / deviations,
    }  # fmt: skip


def outside(found: dict[str, Any]) -> int:
    """The number of coefficients whose coverage is not as wanted."""
    return int(((found["coverage"] < GOAL[0]) | (found["coverage"] > GOAL[1])).sum())


def covered(found: list[dict[str, Any]], title: str) -> Table:
    number = found[0]["surveys"]
    rows = []
    for row in found:
        epsilon = row["epsilon"]
        lists = ((row["coverage"], 3), (row["deviations"], 2), (row["bias"], 2))
        cells = [" ".join(f"{each:.{digits}f}" for each in values.ravel()) for values, digits in lists]
        rows.append([
            row["design"], "∞" if epsilon == "infinite" else f"{epsilon:.2f}", f"{row['converged']:,}",
            f"{row['coverage'].mean():.4f}", *cells,
        ])  # fmt: skip
    coefficients = sum(row["coverage"].size for row in found)
    note = (
        f"{number:,} surveys of N = {N:,} respondents each, in float32. A coverage has a standard error of "
        f"{error(0.95, number):.4f}; {sum(map(outside, found))} of {coefficients} coefficients lie outside "
        f"of {GOAL[0]:.2f} to {GOAL[1]:.2f}. Lists: by covariate (intercept, normal, binary), within it by answer. "
        "Deviation: of the estimates. Bias: their mean less the truth, in deviations, with a standard error of "
        f"{1 / np.sqrt(number):.3f}."
    )
    return Table(
        title, ["design", "ε", "converged", "coverage", "of each coefficient", "deviation", "bias"], rows, note
    )


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    number, directs, more = options.number, 1 if options.quick else DIRECT, 0 if options.quick else MORE
    first, second, equal = [], [], []
    for place, case in enumerate(LAWS):
        epsilon = float(case.design.epsilon)
        facts = {"epsilon": epsilon if np.isfinite(epsilon) else "infinite"}
        first.append(coverage(place, number) | facts)
        if more and outside(first[-1]):
            second.append(coverage(place, more * number, again=True) | facts)
        far = differences(jax.random.fold_in(jax.random.key(1), place), case, directs)
        first[-1]["from_scipy"] = far
        equal.append([words(case.design), *(f"{each:.1g}" for each in far)])
    tables = [covered(first, "95 % Wald intervals")]
    if second:
        tables.append(covered(second, f"Those outside, with other surveys, {more} times as many"))
    tables.append(Table(
        "Largest differences from scipy",
        ["design", "coefficients, float64", "coefficients, float32", "standard errors, relative"],
        equal,
        f"Of {directs} surveys for each design. Standard errors in float64; scipy's are of differences of slopes.",
    ))  # fmt: skip
    return tables, {"designs": first, "again": second}


if __name__ == "__main__":
    run(study, "Regressions of survey designs", ("surveys", 2000, 60))
