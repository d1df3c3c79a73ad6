"""Estimators and metrics by name, for the command line, studies, figures and reports.

An entry here adds one under the same name everywhere; `names.py` repeats the names for what comes without JAX. Entries
of numbers are for `rrjax compare` of numbers, and the first of them for its statements; `of_columns` is for studies.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rrjax.data.mixture import Mixture
from rrjax.estimators import em, in_rows, laplace, metrics, postprocessing
from rrjax.estimators.closed_form import inv, inv_n, inv_p, mle_star, projected_shares
from rrjax.estimators.empirical_bayes import empirical_bayes, ordered_bayes
from rrjax.estimators.in_rows import Collections, Errors, own_in_rows
from rrjax.estimators.likelihood import nll
from rrjax.estimators.maximum_likelihood import mle, naming_law
from rrjax.numerics.sums import accurate_sum

__all__ = ["ESTIMATORS", "METRICS", "Estimator", "Metric"]

IBU_GAP = 1e-10
"""Nats per report that IBU's certificate reaches in double precision."""


class Style(NamedTuple):
    """Colour and markers of an estimator's curve."""

    colour: str
    dash: Any
    marker: str
    size: float
    filled: bool = False


class Estimator(NamedTuple):
    """An estimator with a name.

    Attributes:
        name: Name in files, datasets and on the command line.
        function: `f(counts, epsilon) -> theta`, or `f(key, counts, epsilon) -> theta`; for numbers, `f(mixture)`.
        title: Title in tables and figures.
        style: Style in figures.
        note: A description that may follow its title and a colon; or a function that returns one, of counts, the result
            of `full`, and the gap of the estimate's certificate (nats per report).
        caution: A warning against a wrong reading of its estimates, or a function as for `note`.
        ordered: Whether it is for categories in order whose neighbours have similar shares.
        by_name: Whether it runs only if its name is given, not with all estimators.
        whole_reports: Whether `full` takes the likelihood of whole reports beside a tally, as `mixture`.
        equal_rates: Whether it is only for mechanisms whose rates are equal for all categories.
        needs: Its input from a mechanism: "tally", "mixture", or "counts", which only k-ary randomized response has. Or
            "numbers" (the mixture of their bins) or "columns" (joint counts) for those of `ENTRIES` alone.
        full: `f(counts, epsilon)` to a result with the estimate as its `theta`, if note or caution needs more of it.
        in_rows: The same for many collections: `f(collections) -> [R, W]`; see `rrjax.estimators.in_rows`.
        of_columns: The same for `rrjax.study.JointCounts`, of columns that are randomized apart.
    """

    name: str
    function: Callable[..., Array]
    title: str
    style: Style
    note: str | Callable[[Any, Any, float], str] = ""
    caution: str | Callable[[Any, Any, float], str] = ""
    ordered: bool = False
    by_name: bool = False
    whole_reports: bool = False
    equal_rates: bool = False
    needs: Literal["tally", "mixture", "counts", "numbers", "columns"] = "tally"
    full: Callable[..., Any] | None = None
    in_rows: Callable[[Collections], Array] | None = None
    of_columns: Callable[..., Array] | None = None

    def __call__(self, counts: Any, epsilon: Any) -> Array:
        """The estimate; of an estimator that draws random numbers, with the key 0."""
        key = (jax.random.key(0),) if takes_key(self.function) else ()
        return self.function(*key, counts, epsilon)

    def with_result(self, counts: Any, epsilon: Any, mixture: Any = None) -> tuple[Array, Any]:
        """The estimate, and the result of `full` or None; a mixture is for estimators of `whole_reports`."""
        if self.full is None:
            return self(counts, epsilon), None
        result = self.full(counts, epsilon, **({"mixture": mixture} if self.whole_reports else {}))
        return result.theta, result

    def texts(self, counts: Any, result: Any, gap: float) -> tuple[str, str]:
        """The note and the caution for this result and gap; empty if there is none."""

        def text(given):
            return given if isinstance(given, str) else given(counts, result, gap)

        return text(self.note), text(self.caution)


class Metric(NamedTuple):
    """A metric with a name; smaller is better.

    Attributes:
        name: Name in files, datasets and on the command line.
        measure: `f(estimate, truth, counts, epsilon) -> scalar`; None if it needs all seeds of a study at once.
        label: Label of its mean over collections, on axes.
        short: Short name in titles and tables.
        unit: Unit in words.
        whole_reports: Whether it needs the likelihood of whole reports, which a `Tally` does not have.
        simplex: Whether it is defined for distributions only: shares of at least zero that sum to one.
        in_rows: `f(errors) -> [R]`, the same for many collections, if it has such a function.
    """

    name: str
    measure: Callable[..., Array] | None
    label: str
    short: str
    unit: str
    whole_reports: bool = False
    simplex: bool = False
    in_rows: Callable[[Errors], Array] | None = None


def takes_key(estimator: Callable[..., Any]) -> bool:
    """Whether an estimator draws random numbers: its first argument is called `key`."""
    try:
        parameters = list(inspect.signature(estimator).parameters)
    except (TypeError, ValueError):
        return False
    return bool(parameters) and parameters[0] == "key"


def _theta_of(function: Callable[..., Any]) -> Callable[..., Array]:
    """The function that returns the estimate of a result alone."""

    @wraps(function)
    def theta(*given: Any) -> Array:
        return function(*given).theta

    return theta


def _joint_bayes(counts, epsilon=None):
    return laplace.joint_bayes(counts.mixture, counts.product.shape).theta


def _ordered_bayes_note(counts, result, gap):
    return (
        "empirical Bayes in which neighbouring categories have similar shares, as far as the reports support it; the "
        f"posterior probability that they do is {100 * (1 - float(result.beliefs[0])):.0f}\N{NO-BREAK SPACE}% here"
    )


def _ibu_caution(counts, result, gap):
    return "" if gap <= IBU_GAP else f"IBU stopped before its certificate reached {IBU_GAP:g}."


_IBU_NOTE = (
    "maximum likelihood by iteration (iterative Bayesian update); it has no exact zeros: the smallest shares are below "
    "the tolerance of the last iteration"
)


_MLE_NOTE = "maximum likelihood, the distribution under which these reports are most probable"


def _is_closed(counts):
    return not isinstance(counts, Mixture) or naming_law(counts) is not None


def _mle_note(counts, result, gap):
    return "maximum likelihood, in closed form" if _is_closed(counts) else _IBU_NOTE


def _mle_caution(counts, result, gap):
    return "" if _is_closed(counts) else _ibu_caution(counts, result, gap)


def _empirical_bayes_caution(counts, result, gap):
    if not result.undetermined:
        return ""
    return (
        "The reports hardly distinguish the categories: the estimate rests on general assumptions more than on them. "
        "Either all shares are about equal, or more reports or a larger ε are needed to see how they differ."
    )


_SUM_NOT_ONE = "The shares of {} do not sum to one."


def _named(name, function, title, style, note, caution="", **more):
    return Estimator(name, function, title, style, note, caution.format(title), by_name=True, **more)


def _positive(counts):
    return jnp.maximum(counts.unbiased, 0)


def _of(measure):
    return lambda estimate, truth, counts, epsilon: measure(estimate, truth)


def _of_distributions(metric):
    """The metric; NaN if the shares do not sum to one up to rounding, so that a study does not average it."""

    def measure(estimate, truth, counts, epsilon):
        off = jnp.abs(accurate_sum(estimate) - 1)
        return jnp.where(off <= jnp.sqrt(jnp.finfo(estimate.dtype).eps), metric(estimate, truth), jnp.nan)

    return measure


_CLIPPED_NOTE = "the unbiased estimate, with zero in place of negative shares"

# Markers go from large and hollow to small and filled, so that each shows where estimates coincide.
ENTRIES: tuple[Estimator, ...] = (
    Estimator(
        "mle_star",
        mle_star,
        "MLE*",
        Style("#1b4f8a", "-", "s", 7.5),
        _MLE_NOTE,
        needs="counts",
        in_rows=in_rows.mle_star,
    ),
    Estimator(
        "inv_p",
        inv_p,
        "InvP",
        Style("#d9702b", "--", "o", 5),
        "the distribution nearest to the unbiased estimate (its projection)",
        in_rows=in_rows.inv_p,
        of_columns=lambda counts: projected_shares["newton"](counts.unbiased),
    ),
    Estimator(
        "inv_n",
        inv_n,
        "InvN",
        Style("#3d8b57", "-.", "D", 3.2, filled=True),
        f"{_CLIPPED_NOTE}, scaled to sum to one",
        in_rows=in_rows.inv_n,
        of_columns=lambda counts: _positive(counts) / accurate_sum(_positive(counts)),
    ),
    Estimator(
        "inv",
        inv,
        "Inv",
        Style("#808080", ":", "x", 5),
        "the unbiased estimate, by inverting the randomization; shares may be negative, and then it is not a "
        "distribution",
        in_rows=in_rows.inv,
        of_columns=lambda counts: counts.unbiased,
    ),
    Estimator(
        "empirical_bayes",
        _theta_of(empirical_bayes),
        "Emp. Bayes",
        Style("#b3353f", (0, (3, 1)), "p", 4.5, filled=True),
        "posterior means (empirical Bayes), made for a small squared error; the prior is estimated from the same "
        "reports",
        _empirical_bayes_caution,
        whole_reports=True,
        full=empirical_bayes,
    ),
    Estimator(
        "ordered_bayes",
        _theta_of(ordered_bayes),
        "Ordered Bayes",
        Style("#c08a1e", (0, (3, 1, 1, 1)), "h", 4, filled=True),
        _ordered_bayes_note,
        ordered=True,
        whole_reports=True,
        equal_rates=True,
        full=ordered_bayes,
    ),
    Estimator(
        "ibu",
        _theta_of(em.ibu),
        "IBU",
        Style("#7a6a2f", (0, (8, 2)), "v", 5),
        _IBU_NOTE,
        _ibu_caution,
        needs="mixture",
        of_columns=lambda counts: em.ibu(counts.mixture).theta,
    ),
    Estimator(
        "mle",
        mle,
        "MLE",
        Style("#0f3a6b", (0, (1, 1)), "s", 6),
        _mle_note,
        _mle_caution,
        by_name=True,
        needs="mixture",
        of_columns=lambda counts: mle(counts.mixture),
    ),
    # The list of Wang et al., NDSS 2020, by its names, and the method of Ye et al., NDSS 2025.
    _named(
        "base_pos",
        postprocessing.base_pos,
        "Base-Pos",
        Style("#5b7fa6", "-", "+", 6),
        _CLIPPED_NOTE,
        _SUM_NOT_ONE,
        of_columns=_positive,
    ),
    _named(
        "base_cut",
        postprocessing.base_cut,
        "Base-Cut",
        Style("#3a5a7d", "-.", "1", 6),
        "the unbiased estimate, with zero in place of shares that are not significantly above zero",
        _SUM_NOT_ONE,
    ),
    _named(
        "norm",
        postprocessing.norm,
        "Norm",
        Style("#77773a", ":", "2", 6),
        "the unbiased estimate, with the same amount added to each share so that all sum to one; shares may be "
        "negative",
    ),
    _named(
        "norm_cut",
        postprocessing.norm_cut,
        "Norm-Cut",
        Style("#a65a2e", (0, (4, 1, 1, 1)), "3", 6),
        "the largest shares of the unbiased estimate, as many as sum to at most one",
        _SUM_NOT_ONE,
    ),
    _named(
        "power",
        postprocessing.power,
        "Power",
        Style("#6b4f9e", (0, (6, 2)), "X", 5, filled=True),
        "posterior means under a prior in which shares follow a power law",
        _SUM_NOT_ONE,
    ),
    _named(
        "power_ns",
        postprocessing.power_ns,
        "PowerNS",
        Style("#9b6fc2", (0, (6, 2, 1, 2)), "H", 5),
        "the distribution nearest to the shares of Power",
    ),
    Estimator(
        "mixture_reduction",
        postprocessing.mixture_reduction,
        "MR",
        Style("#2f8f83", (0, (2, 1)), "4", 6),
        "maximum likelihood after small categories are merged; merged categories have equal shares",
        by_name=True,
        needs="counts",
    ),
    Estimator(
        "smooth_bayes",
        _theta_of(laplace.smooth_bayes),
        "Smooth Bayes",
        Style("#b3353f", "-", "d", 5),
        "the most probable smooth distribution, averaged over strengths of smoothing by the probability that each "
        "gives to the reports",
        needs="numbers",
    ),
    Estimator(
        "ems",
        _theta_of(em.ems),
        "EMS",
        Style("#7a6a2f", ":", "v", 5),
        "EM with smoothing after every step",
        needs="numbers",
    ),
    Estimator(
        "mle",
        lambda mixture: em.ibu(mixture, accelerate="newton").theta,
        "MLE",
        Style("#0f3a6b", (0, (1, 1)), "s", 6),
        _MLE_NOTE,
        needs="numbers",
    ),
    Estimator(
        "joint_bayes",
        _joint_bayes,
        "Joint Bayes",
        Style("#c23b6e", (0, (3, 1, 1, 1)), "P", 5),
        "the posterior mean of the joint shares; the reports determine how much the columns interact",
        needs="columns",
        of_columns=_joint_bayes,
    ),
)
"""All estimators."""
ESTIMATORS: dict[str, Estimator] = {
    entry.name: entry
    for entry in sorted(ENTRIES, key=lambda entry: entry.by_name)
    if entry.needs not in ("numbers", "columns")
}
"""The estimators of one answer each, by name: those of `rrjax.estimators.names`, which run only by name last."""


def entry_of(function: Callable[..., Any]) -> Estimator | None:
    """The entry of an estimator; None for functions of one's own."""
    return next((entry for entry in ENTRIES if entry.function is function), None)


def estimator_in_rows(function: Callable[..., Any]) -> Callable[[Collections], Float[Array, "R W"]] | None:
    """The estimator in rows that a function of one collection stands for; None for other functions."""
    entry, own = entry_of(function), own_in_rows(function)
    if entry is not None or own is None:
        return None if entry is None else entry.in_rows
    return lambda given: jnp.where(given.rows.used, own(given), 0)


METRICS: dict[str, Metric] = {
    entry.name: entry
    for entry in (
        Metric(
            "mse",
            _of(metrics.squared_error),
            "mean squared error,\nsummed over categories",
            "MSE",
            "squared probability",
            in_rows=in_rows.squared_error,
        ),
        Metric(
            "nll",
            lambda estimate, truth, counts, epsilon: nll(estimate, counts, epsilon),
            "negative log-likelihood\n(nats per report)",
            "NLL",
            "nats per report",
            whole_reports=True,
            simplex=True,
            in_rows=in_rows.nll,
        ),
        Metric(
            "tv",
            _of(metrics.total_variation),
            "total variation",
            "total variation",
            "probability",
            in_rows=in_rows.total_variation,
        ),
        Metric(
            "max_error",
            _of(metrics.max_error),
            "largest error of a category",
            "largest error",
            "probability",
            in_rows=in_rows.max_error,
        ),
        Metric(
            "kl",
            _of_distributions(metrics.kl_divergence),
            "Kullback–Leibler divergence\n(nats)",
            "KL divergence",
            "nats",
            simplex=True,
        ),
        Metric(
            "wasserstein",
            _of(metrics.wasserstein),
            "Wasserstein distance\n(categories)",
            "Wasserstein distance",
            "categories",
        ),
        Metric("kolmogorov", _of(metrics.kolmogorov), "Kolmogorov distance", "Kolmogorov distance", "probability"),
        Metric("bias2", None, "squared bias,\nsummed over categories", "squared bias", "squared probability"),
        Metric("variance", None, "variance,\nsummed over categories", "variance", "squared probability"),
    )
}
"""All metrics by name."""
