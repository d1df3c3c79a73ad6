"""What is said of the estimators, tested on a study with paired standard errors.

Each claim is about two means over the same simulated collections, so that their difference has a small standard error;
it counts as violated in a configuration where the difference is beyond three of them (and beyond what float32 rounds).
The squared bias has no standard error of its own; there a bound of it is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rrjax.data.errors import ArgumentError

if TYPE_CHECKING:
    import xarray as xr

SIGMAS = 3.0


class Claim(NamedTuple):
    """One claim and how it fared."""

    claim: str
    source: str
    configurations: int
    """For which it could be tested."""
    violated: int
    """In how many of them it is violated beyond the standard errors."""
    worst: str
    """The most blatant violation, in words."""

    @property
    def holds(self) -> bool:
        """Whether it is violated nowhere."""
        return self.violated == 0


def check_claims(dataset: xr.Dataset) -> list[Claim]:
    """Tests what the paper and its repository say of MLE* among InvP and InvN, and what we say of empirical Bayes.

    Args:
        dataset: Of a study of (at least) "mle_star", "inv_p" and "inv_n" with the metrics "mse" and "nll"; with "bias2"
            and "variance", the claim on the bias is tested too, with "empirical_bayes" that it is the closest.

    Returns:
        The claims that can be tested.

    Raises:
        ValueError: An estimator or metric is missing.

    Example:
        >>> from rrjax.study import Study
        >>> from rrjax.study.claims import check_claims
        >>> result = Study(
        ...     estimators=["mle_star", "inv_p", "inv_n"],
        ...     num_categories=20,
        ...     num_users=1000,
        ...     epsilon=1.0,
        ...     zipf=1.3,
        ...     num_seeds=20,
        ... ).run()
        >>> check_claims(result)[0].holds
        True
    """
    if not _testable(dataset):
        raise ArgumentError(
            "the claims are about mle_star, inv_p and inv_n, and take the metrics mse and nll", argument="dataset"
        )
    resolution = 1e-5  # relative: nothing smaller is called a difference

    def difference(metric, first, second):
        pair = {"estimator": first, "versus": second}
        scale = np.abs(dataset[metric].sel(estimator=first)) * resolution
        return dataset[f"{metric}_difference"].sel(pair), SIGMAS * dataset[f"{metric}_difference_se"].sel(pair) + scale

    def above(metric, first, second):
        mean, margin = difference(metric, first, second)
        return mean > margin

    def above_times(limit, other, name="mle_star"):
        """Whether the MSE of one is above limit times that of another, by the paired variance of one − limit·other."""
        ours, theirs = (dataset["mse_se"].sel(estimator=each, drop=True) for each in (name, other))
        apart = dataset["mse_difference_se"].sel({"estimator": name, "versus": other}, drop=True)
        common = (ours**2 + theirs**2 - apart**2) / 2
        error = np.sqrt(np.maximum(ours**2 + limit**2 * theirs**2 - 2 * limit * common, 0))
        first, second = (dataset["mse"].sel(estimator=each, drop=True) for each in (name, other))
        return first - limit * second > SIGMAS * error + resolution * first

    def report(claim, source, violated, ratio):
        violated, ratio = violated.reset_coords(drop=True), ratio.where(violated).reset_coords(drop=True)
        worst = ""
        if bool(violated.any()):
            at = ratio.argmax(...)
            point = ratio.isel(at)
            # Coordinates of the point, in the words of the grid.
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
        # The plug-in bias holds a share 1/n of the variance.
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


def claims_table(dataset: xr.Dataset) -> list[tuple[str, str, dict[str, list[str]]]]:
    """The claims and how they fared, as `write_report` takes tables.

    Example:
        >>> import xarray as xr
        >>> from rrjax.study.claims import claims_table
        >>> claims_table(xr.Dataset(coords={"estimator": ["mle_star"]}))
        []
    """
    if not _testable(dataset):
        return []
    claims = check_claims(dataset)
    columns = {
        "claim": [claim.claim for claim in claims],
        "source": [claim.source for claim in claims],
        "holds": ["yes" if claim.holds else "no" for claim in claims],
        "violated": [f"{claim.violated} of {claim.configurations}" for claim in claims],
        "worst": [claim.worst for claim in claims],
    }
    caption = "What is said of the estimators, tested with paired standard errors: violated where a difference is "
    return [("Claims", f"{caption}beyond three of them.", columns)]


def _testable(dataset: xr.Dataset) -> bool:
    there = set(dataset["estimator"].values.tolist())
    return {"mle_star", "inv_p", "inv_n"} <= there and {"mse", "nll"} <= set(dataset.data_vars)
