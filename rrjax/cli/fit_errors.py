"""The reasons why there is no regression, with names of columns and flags that help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rrjax import io
from rrjax.data.errors import UsageError
from rrjax.reports import form

if TYPE_CHECKING:
    from rrjax.models import FitError


def told(error: FitError, file: str, columns: list[str], labels: list[str]) -> io.DataError | UsageError:
    """The reason why there is no regression, with the names of covariates and categories, and flags that help."""
    names = ["the intercept" if number < 0 else f"covariate {columns[number]!r}" for number in error.columns]
    column = next((columns[number] for number in error.columns if number >= 0), None)
    listed, name = ", ".join(names), names[0] if names else "a coefficient"
    number = 0 if error.number is None else error.number
    of = "" if error.category is None else f" of category {labels[error.category]!r}"
    said = {
        "missing": f"{name} has a value that is no finite number; {form.number(int(number), 'row', 'rows')} in all. "
        "Correct them, or leave them out as missing values",
        "scale": f"{name} has values up to {number:.3g}, at the end of what floats hold: give it in another unit",
        "constant": f"{name} is the same for everybody: leave it out of --covariates",
        "dependent": f"covariates depend on each other linearly ({listed}): leave one of them out of --covariates",
        "users": f"{form.number(int(number), 'row', 'rows')} are fewer than coefficients: leave covariates out",
        "weights": f"the --weights count as {number:.3g} users of equal weight, too few for "
        f"{form.number(len(columns), 'column', 'columns')} and {len(labels)} categories: trim the weights, or leave "
        "covariates out",
        "unbounded": f"{name}{of} runs off or is hardly determined. A covariate may separate the reports, no report "
        "may speak for a category, or the reports may say next to nothing at this ε: merge categories, leave the "
        "covariate out, or give a prior, such as --ridge 0.1",
        "steps": f"no maximum was found in {int(number)} steps: give a prior, such as --ridge 0.1",
    }
    if error.reason == "clusters":
        return UsageError(
            f"--clusters: {int(number)} clusters are too few for {(error.needed or 1) - 1:.0f} coefficients; there "
            "must be more clusters than coefficients. Leave covariates out, or give smaller clusters",
            flag="--clusters",
            value=number,
        )
    message = said.get(error.reason, str(error))
    return io.DataError(f"{file}: {message}", file=file, column=column, value=error.value)
