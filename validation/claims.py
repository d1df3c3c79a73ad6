"""What is said of MLE*, tested on the paper's whole grid: 750 configurations with 100 collections each.

Every claim is about two means over the same collections; it counts as violated where their difference is beyond three
of its standard errors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from rrjax.data.errors import ArgumentError
from rrjax.study import paper
from validation import runner

SIGMAS = 3.0
"""Standard errors of the paired difference beyond which a claim is violated."""


class Claim(NamedTuple):
    """A claim, and the number of configurations that violate it."""

    claim: str
    source: str
    configurations: int
    """Number of configurations."""
    violated: int
    """Number of configurations that violate it by more than `SIGMAS` standard errors."""
    worst: str
    """The largest violation, in words."""

    @property
    def holds(self) -> bool:
        """Whether no configuration violates it."""
        return self.violated == 0


def check_claims(dataset: xr.Dataset) -> list[Claim]:
    """Tests of the claims of the paper and its repository on MLE*, InvP and InvN, and of ours on empirical Bayes.

    A claim is violated in a configuration where the paired difference of two means is beyond three of its standard
    errors (and beyond what float32 rounds). The squared bias has no standard error; a bound takes its place.

    Args:
        dataset: Dataset of a study of (at least) "mle_star", "inv_p" and "inv_n" with the metrics "mse" and "nll";
            "bias2" and "variance" add the claim on the bias, "empirical_bayes" the claim that it is the closest.

    Returns:
        The claims that can be tested.

    Raises:
        ArgumentError: An estimator or metric is missing.
    """
    if not _testable(dataset):
        raise ArgumentError(
            "the claims are about mle_star, inv_p and inv_n, and take the metrics mse and nll", argument="dataset"
        )
    resolution = 1e-5  # relative: smaller differences do not count

    def difference(metric, first, second):
        pair = {"estimator": first, "versus": second}
        scale = np.abs(dataset[metric].sel(estimator=first)) * resolution
        return dataset[f"{metric}_difference"].sel(pair), SIGMAS * dataset[f"{metric}_difference_se"].sel(pair) + scale

    def above(metric, first, second):
        mean, margin = difference(metric, first, second)
        return mean > margin

    def above_times(limit, other, name="mle_star"):
        """Whether the MSE of one is above limit times that of another, by the paired variance of one − limit·other."""
        error_one, error_other = (dataset["mse_se"].sel(estimator=each, drop=True) for each in (name, other))
        paired = dataset["mse_difference_se"].sel({"estimator": name, "versus": other}, drop=True)
        covariance = (error_one**2 + error_other**2 - paired**2) / 2
        error = np.sqrt(np.maximum(error_one**2 + limit**2 * error_other**2 - 2 * limit * covariance, 0))
        first, second = (dataset["mse"].sel(estimator=each, drop=True) for each in (name, other))
        return first - limit * second > SIGMAS * error + resolution * first

    def report(claim, source, violated, ratio):
        violated, ratio = violated.reset_coords(drop=True), ratio.where(violated).reset_coords(drop=True)
        worst = ""
        if bool(violated.any()):
            at = ratio.argmax(...)
            point = ratio.isel(at)
            place = ", ".join(f"{ratio[name].dims[0]} = {ratio[name].values[index]}" for name, index in at.items())
            worst = f"{float(point):.4g} times, at {place}"
        return Claim(claim, source, int(violated.size), int(violated.sum()), worst)

    mse = dataset["mse"]
    mle, inv_p, inv_n = (mse.sel(estimator=name, drop=True) for name in ("mle_star", "inv_p", "inv_n"))
    best = np.minimum(np.minimum(inv_p, inv_n), mle)
    claims = [
        report(
            "MLE* has the least NLL of the three",
            "its definition",
            above("nll", "mle_star", "inv_p") | above("nll", "mle_star", "inv_n"),
            dataset["nll"].sel(estimator="mle_star", drop=True) / dataset["nll"].sel(estimator="inv_p", drop=True),
        ),
        report(
            "The MSE of MLE* is never above those of both InvP and InvN",
            "the paper's repository",
            above("mse", "mle_star", "inv_p") & above("mse", "mle_star", "inv_n"),
            mle / np.maximum(inv_p, inv_n),
        ),
        report(
            "The MSE of MLE* is never below those of both InvP and InvN",
            "the paper's repository: it lies between them",
            above("mse", "inv_p", "mle_star") & above("mse", "inv_n", "mle_star"),
            np.minimum(inv_p, inv_n) / mle,
        ),
    ]
    for limit in (1.5, 10.0):
        clear = above_times(limit, "inv_p") | above_times(limit, "inv_n")
        text = f"MLE* is close to the best everywhere: its MSE is at most {limit:g} times the least of the three"
        claims.append(report(text, "reported of the paper; what 'close' means is our reading", clear, mle / best))
    if "empirical_bayes" in dataset["estimator"].values:
        ratio = mse.sel(estimator="empirical_bayes", drop=True) / best
        for limit in (1.0, 1.5):
            clear = above_times(limit, "mle_star", "empirical_bayes")
            for other in ("inv_p", "inv_n"):
                clear = clear | above_times(limit, other, "empirical_bayes")
            most = "at most" if limit == 1 else f"at most {limit:g} times"
            text = f"The MSE of empirical Bayes is {most} the least of MLE*, InvP and InvN"
            claims.append(report(text, "ours: it is the closest", clear, ratio))
    if {"bias2", "variance"} <= set(dataset.data_vars):
        number = int(dataset.attrs["num_seeds"])
        # The plug-in squared bias contains a share 1/n of the variance.
        bias2 = dataset["bias2"] - dataset["variance"] / (number - 1)
        noise = dataset["variance"] / number
        b, p, n = (bias2.sel(estimator=name, drop=True) for name in ("mle_star", "inv_p", "inv_n"))
        # Of |b + e|², with a mean error b and noise e of total variance `noise`, the deviation is at most 2·|b|·√noise
        # and about `noise`.
        slack = SIGMAS * (noise + 2 * np.sqrt(np.maximum(bias2, 0) * noise)).max("estimator")
        outside = (b > np.maximum(p, n) + slack) | (b < np.minimum(p, n) - slack)
        claims.append(
            report(
                "The squared bias of MLE* lies between those of InvP and InvN",
                "the paper's repository; here beyond three times a bound of the error of the squared biases",
                outside,
                b / np.maximum(np.maximum(p, n), 1e-300),
            )
        )
    return claims


def _testable(dataset: xr.Dataset) -> bool:
    estimators = set(dataset["estimator"].values.tolist())
    return {"mle_star", "inv_p", "inv_n"} <= estimators and {"mse", "nll"} <= set(dataset.data_vars)


def study(options: Any) -> tuple[list[runner.Table], dict[str, Any]]:
    made = paper.study(num_seeds=4, figures=[1]) if options.quick else paper.study()
    assert made is not None
    claims = check_claims(made.run(seed=0))
    table = runner.Table(
        f"{len(made.configurations()):,} configurations × {made.num_seeds} collections",
        ["claim", "whose", "configurations", "violated", "the most blatant violation"],
        [[each.claim, each.source, f"{each.configurations:,}", f"{each.violated:,}", each.worst] for each in claims],
        "Violated: beyond three standard errors of the paired difference, and beyond what float32 rounds.",
    )
    return [table], {"num_seeds": made.num_seeds, "claims": [each._asdict() for each in claims]}


if __name__ == "__main__":
    runner.run(study, "What is said of the estimators")
