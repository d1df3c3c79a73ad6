"""The error of a regression that cannot be fitted: what is wrong, as data."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from rrjax.data.errors import ArgumentError

Reason: TypeAlias = Literal[
    "missing", "constant", "scale", "dependent", "users", "weights", "clusters", "unbounded", "steps", "groups", ""
]
MOST_RIDGE = 1e12
"""Precision of the prior, on standardized coefficients: beyond it nothing is left of what the reports say."""
INTERCEPT = -1
"""The number of the intercept among the columns of covariates."""


class FitError(ArgumentError):
    """A regression that cannot be fitted. Programs read the attributes, people the message.

    Attributes:
        reason: "missing", a value of covariates that is no number (`row`, `columns`); "constant", a covariate that is
            the same for everybody; "scale", one in a unit at the end of floats; "dependent", covariates that determine
            each other (`columns`); "users", fewer of them than coefficients; "weights", a weight that is none (`row`),
            or too few users who have a say; "clusters", no more of them than coefficients; "unbounded", a coefficient
            that runs off or is hardly determined (`columns` and `category`, where they are known); "steps", no maximum
            within them; "groups", groups that the covariates tell apart.
        row: Number of the row of the array, from 0.
        columns: Numbers of the columns of covariates, from 0; −1 is the intercept.
        category: Number of the category whose coefficient it is, or None.
        number: How many there are of what is too few, or of rows that are like this one; or None.
        needed: How many it takes at least, or None.
    """

    def __init__(
        self,
        message: str = "",
        *,
        reason: Reason = "",
        columns: tuple[int, ...] = (),
        category: int | None = None,
        number: float | None = None,
        needed: float | None = None,
        **where: Any,
    ) -> None:
        """Keeps the message as the only positional argument, so that the error can be pickled."""
        super().__init__(message, **where)
        self.reason = reason
        self.columns = columns
        self.category = category
        self.number = number
        self.needed = needed
