"""Whether regressions from two samples keep their word: maxima beside scipy's, bias, coverage, size of the test.

Respondents have a normal and a binary covariate, on which the share of yes depends; the second share is the same for
all. Scipy maximizes the likelihood as `SETTINGS` write it, with no probability from rrjax, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from rrjax import mechanisms
from rrjax.models import fit
from validation.designs import words
from validation.runner import Table, error, run

N = 1000
"""Respondents in each sample."""
TRUE = np.array([-0.3, 0.7, 0.5])
"""Log-odds of a yes: intercept, normal and binary covariate."""
DIRECT = 4
PROFILES = 60
"""Surveys of each setting whose profiles are computed."""


def complying(share: Any, second: Any, have: Any, lack: Any, other: Any) -> Any:
    """P(yes) where some do not follow the rule, whatever they have."""
    return (1 - second) * (share * have + (1 - share) * lack) + second * other


def lying(share: Any, second: Any, have: Any, lack: Any, other: Any) -> Any:
    """P(yes) where some of those with the attribute do not follow the rule."""
    return share * ((1 - second) * have + second * other) + (1 - share) * lack


def unrelated(share: Any, second: Any, have: Any, lack: Any, other: Any) -> Any:
    """P(yes) to one of two questions, `have` and `lack` being their probabilities."""
    return have * share + lack * second + 0 * other


class Setting(NamedTuple):
    """A design, its law as it is told to respondents, P(yes) by sample of the three kinds, and the second share."""

    design: Any
    law: Callable[..., Any]
    yes: list[list[float]]
    second: float


SETTINGS = [
    Setting(mechanisms.CheatingDetection(np.array([0.25, 0.75])), complying, [[1, 0.25, 0], [1, 0.75, 0]], 0.2),
    Setting(mechanisms.CheatingDetection(np.array([0.1, 0.6]), np.array([0.2, 0.1])), complying,
            [[0.8, 0.1, 0], [0.9, 0.6, 0]], 0.2),
    Setting(mechanisms.StochasticLieDetector(np.array([5 / 6, 1 / 6])), lying, [[1, 1 / 6, 0], [1, 5 / 6, 0]], 0.3),
    Setting(mechanisms.AnchoredCrosswise(0.15, 0.15), complying, [[0.15, 0.85, 0.5], [0.85, 0.85, 0.5]], 0.2),
    Setting(mechanisms.SelfProtection(np.array([0.9, 0.4]), 0.7), complying, [[0.97, 0.07, 0], [0.82, 0.42, 0]], 0.2),
    Setting(mechanisms.UnrelatedQuestionTwoSamples(np.array([0.8, 0.2])), unrelated,
            [[0.8, 0.2, 0], [0.2, 0.8, 0]], 0.4),
]  # fmt: skip
SAMPLE = np.repeat([0, 1], N)


def survey(key: jax.Array, place: int, second: Any) -> tuple[jax.Array, jax.Array]:
    """Covariates and answers (0 is yes) of one survey."""
    setting, dtype = SETTINGS[place], jnp.float32
    for_normal, for_binary, for_answers = jax.random.split(key, 3)
    normal = jax.random.normal(for_normal, (2 * N,), dtype)
    covariates = jnp.stack([normal, jax.random.bernoulli(for_binary, 0.4, (2 * N,)).astype(dtype)], axis=1)
    share = jax.nn.sigmoid(TRUE[0].astype(dtype) + covariates @ TRUE[1:].astype(dtype))
    chance = setting.law(share, jnp.asarray(second, dtype), *jnp.asarray(setting.yes, dtype)[SAMPLE].T)
    return covariates, (jax.random.uniform(for_answers, (2 * N,), dtype) >= chance).astype(jnp.int32)


@partial(jax.jit, static_argnums=(1, 3))
def many(keys: jax.Array, place: int, second: Any, profiles: bool) -> tuple[jax.Array, ...]:
    """Log-odds of a yes, standard errors, second share, p-value and convergence, or profile intervals, of each key."""

    def one(key):
        found: Any = fit(*survey(key, place, second), SETTINGS[place].design, sample=SAMPLE)
        if profiles:
            return (found.profile_intervals(),)
        errors = found.standard_errors[:, 0]
        return -found.coefficients[:, 0], errors, found.nuisance, found.p_value, found.converged

    return jax.lax.map(one, keys)  # side by side they would all take the steps of the slowest


def directly(covariates: np.ndarray, answers: np.ndarray, setting: Setting) -> np.ndarray:
    """Log-odds of a yes, and of the second share, by scipy."""
    x, yes = np.column_stack([np.ones(2 * N), covariates]), np.asarray(setting.yes)[SAMPLE].T

    def value(flat):  # complex, too: its imaginary part is the exact derivative
        chance = setting.law(1 / (1 + np.exp(-x @ flat[:3])), 1 / (1 + np.exp(-flat[3])), *yes)
        return -np.mean(np.log(np.where(answers == 0, chance, 1 - chance)))

    def slope(flat):
        return np.array([value(flat + 1e-30j * each).imag for each in np.eye(4)]) / 1e-30

    start = np.append(TRUE, np.log(setting.second / (1 - setting.second)))
    near = optimize.minimize(value, start, jac=slope, method="BFGS", options={"gtol": 1e-8}).x
    return optimize.root(slope, near, tol=1e-13).x


def difference(place: int, number: int) -> float:
    """Largest difference from scipy, in float64."""
    worst, setting = 0.0, SETTINGS[place]
    for key in jax.random.split(jax.random.fold_in(jax.random.key(1), place), number):
        covariates, answers = (np.asarray(each) for each in survey(key, place, setting.second))
        with jax.enable_x64(True):
            found: Any = fit(covariates.astype(float), answers, setting.design, sample=SAMPLE)
            ours = np.append(-np.asarray(found.coefficients)[:, 0], np.asarray(found.nuisance_coefficients))
        worst = max(worst, float(np.abs(ours - directly(covariates.astype(float), answers, setting)).max()))
    return worst


def setting_of(place: int, number: int, quick: bool) -> dict[str, Any]:
    """Bias, coverage, and how often the test that all comply rejects where they do."""
    setting = SETTINGS[place]
    keys = jax.random.split(jax.random.fold_in(jax.random.key(0), place), number)
    estimates, errors, second, _, converged = (
        np.asarray(each, float) for each in many(keys, place, setting.second, False)
    )
    kept = converged > 0
    (limits,) = many(keys[: 2 if quick else PROFILES], place, setting.second, True)
    limits = np.asarray(limits, float)[:, :, ::-1] * np.array([-1, -1, -1, 1])[:, None]
    limits[:, 3] = limits[:, 3, ::-1]  # log-odds of the second share keep their sign
    true = np.append(TRUE, np.log(setting.second / (1 - setting.second)))
    rejected = None
    if setting.law is not unrelated:
        rejected = np.mean(np.asarray(many(keys, place, 0.0, False)[3]) <= 0.05)
    deviations = estimates[kept].std(0, ddof=1)
    return {
        "design": setting.design.name, "surveys": number, "converged": int(kept.sum()),
        # A survey without a maximum has no interval, so it does not cover.
        "coverage": ((np.abs(estimates - TRUE) <= 1.959964 * errors) & kept[:, None]).mean(0),
        "profile": ((limits[..., 0] <= true) & (true <= limits[..., 1])).mean(0), "profiles": len(limits),
        "bias": (estimates[kept].mean(0) - TRUE) / deviations, "deviations": deviations,
        "second": second[kept].mean() - setting.second, "second_error": second[kept].std() / np.sqrt(kept.sum()),
        "rejected": rejected, "from_scipy": difference(place, 1 if quick else DIRECT),
    }  # fmt: skip


def listed(values: np.ndarray, digits: int) -> str:
    return " ".join(f"{each:.{digits}f}" for each in values)


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    found = [setting_of(place, options.number, options.quick) for place in range(1 if options.quick else len(SETTINGS))]
    number = found[0]["surveys"]
    rows = [
        [
            words(SETTINGS[place].design), f"{row['converged']:,}", listed(row["deviations"], 2),
            listed(row["bias"], 2),
            f"{row['second']:+.4f} ± {row['second_error']:.4f}", listed(row["coverage"], 3), listed(row["profile"], 2),
            "–" if row["rejected"] is None else f"{row['rejected']:.3f}", f"{row['from_scipy']:.0e}",
        ]
        for place, row in enumerate(found)
    ]  # fmt: skip
    profiles = found[0]["profiles"]
    note = (
        f"{number:,} surveys of {N:,} respondents in each sample, in float32. Lists: intercept, normal and binary "
        "covariate; of profiles also the log-odds of the second share. Deviation: of the estimates. Bias: their mean "
        f"less the truth, in deviations, with a standard error of {1 / np.sqrt(number):.3f}. Second share: mean less "
        f"truth. Coverage of 95 % Wald intervals (standard error {error(0.95, number):.4f}), and of profile intervals "
        f"({profiles} surveys, {error(0.95, profiles):.3f}). Rejected: by the test at 5 % that everybody follows the "
        "rule, where all do. From scipy: largest difference of the coefficients of both shares, in float64. The second "
        "design can force a no, too, with another ratio in each sample."
    )
    titles = ["design", "converged", "deviation", "bias", "second share", "Wald", "profile", "rejected", "from scipy"]
    return [Table("Regressions from two samples", titles, rows, note)], {"settings": found}


if __name__ == "__main__":
    run(study, "Regressions from two samples", ("surveys", 400, 4))
