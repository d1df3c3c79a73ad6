"""Results on the terminal: tables and sentences from rich, or one JSON object."""

from __future__ import annotations

import decimal
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rrjax import io
from rrjax.cli import work
from rrjax.cli.confidence import Confidence
from rrjax.cli.interrupt import INTERRUPTED, MESSAGE, unwinding

USAGE, BAD_DATA = 2, 3


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """The reader of our output has gone (`rrjax … | head`): no error, and nothing for the exit to flush."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0)


out = _Console(highlight=False)
err = Console(stderr=True, highlight=False)


@contextmanager
def reporting() -> Iterator[None]:
    """Turns what can go wrong into a sentence on the standard error and an exit code."""
    try:
        with unwinding():
            yield
    except work.UsageError as error:
        _fail(str(error), USAGE)
    except io.DataError as error:
        _fail(str(error), BAD_DATA)
    except BrokenPipeError:  # from --json
        out.on_broken_pipe()
    except MemoryError:
        _fail("there is not enough memory; is the domain really that large?", BAD_DATA)
    except OSError as error:
        _fail(f"cannot write: {error.strerror}", BAD_DATA)
    except KeyboardInterrupt:
        _fail(MESSAGE, INTERRUPTED)


def _fail(message: str, code: int) -> None:
    err.print(Text("rrjax: ", style="bold red").append(message, style="not bold default"))
    raise SystemExit(code)


def warn(warnings: list[str]) -> None:
    """Prints warnings on the standard error."""
    for warning in warnings:
        err.print(Text("Warning: ", style="bold yellow").append(warning, style="not bold default"))


def record(result: Mapping[str, Any]) -> None:
    """Prints one JSON object. Infinity is a text there, and what is undefined null."""
    print(json.dumps(_plain(result), ensure_ascii=False, indent=2, allow_nan=False), flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, float) and math.isnan(value):
        return None
    return value


def summary(collection: work.Collection, name: str = "") -> None:
    """One paragraph: what was counted, and in which file where there are several."""
    counted = collection.counted
    file = f"{printable(name)}: " if name else ""
    out.print(
        f"{file}{collection.num_reports:,} reports in column {counted.column!r}; domain: {counted.domain.describe()}; "
        f"ε = {collection.epsilon:.6g} nats",
        markup=False,
    )


def top_table(
    collection: work.Collection,
    estimates: list[work.Estimate],
    top: int,
    truth: np.ndarray | None = None,
    sure: Confidence | None = None,
) -> None:
    """The largest categories by the first estimate."""
    labels, counts = collection.counted.domain.labels(), collection.counted.counts
    largest = order(estimates[0].theta)[:top]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("category", overflow="ellipsis", no_wrap=True, max_width=40)
    titles = ["reports", "of all", *(work.TITLES[estimate.name] for estimate in estimates)]
    if sure is not None:
        titles.append(f"{100 * sure.level:.12g}\N{NO-BREAK SPACE}% interval")
    for title in titles if truth is None else [*titles, "truth"]:
        table.add_column(title, justify="right", no_wrap=True)
    if sure is not None:
        table.add_column("", no_wrap=True)
    bars = len(estimates) == 1
    if bars:
        table.add_column("", no_wrap=True)
    width = 24 if sure is None else 16
    widest = max(float(estimates[0].theta[largest[0]]), 1e-300)
    for index in largest:
        cells = [Text(printable(labels[index])), f"{counts[index]:,}", percent(counts[index] / collection.num_reports)]
        cells += [percent(estimate.theta[index]) for estimate in estimates]
        if sure is not None:
            cells += [between(sure.lower[index], sure.upper[index]), "●" if sure.found[index] else ""]
        if truth is not None:
            cells.append(percent(truth[index]))
        if bars:
            cells.append("█" * round(width * max(float(estimates[0].theta[index]), 0) / widest))
        table.add_row(*cells)
    out.print(table)
    left = collection.num_categories - len(largest)
    if left:
        rest = 1 - float(estimates[0].theta[largest].sum())
        noun = "category" if left == 1 else "categories"
        out.print(f"… and {left:,} more {noun} with {percent(rest)} together", style="dim")


def printable(label: object) -> str:
    """A label without what a terminal or a figure would obey instead of showing: control and format characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(label))


def order(theta: np.ndarray) -> np.ndarray:
    """Category numbers from the largest share to the smallest, ties in domain order."""
    return np.argsort(-theta, kind="stable")


def percent(share: float | np.ndarray) -> str:
    """A share for a person, two decimals or two digits: 12.34 %, 0.0042 %."""
    value = 100 * float(share)
    return f"{value:.2f}\N{NO-BREAK SPACE}%" if abs(value) >= 0.1 else f"{value:.2g}\N{NO-BREAK SPACE}%"


def at_most(bound: float, digits: int = 1) -> str:
    """A bound for a person, rounded up so that it stays one: 3e-16."""
    rounded = decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING).create_decimal(decimal.Decimal(bound))
    return f"{rounded:.{digits - 1}e}"


def between(lower: float | np.ndarray, upper: float | np.ndarray) -> str:
    """Two limits for a person: 12.34 – 13.45 %."""
    return f"{percent(lower)[:-2]} – {percent(upper)}"


def sureness(collection: work.Collection, estimate: work.Estimate, sure: Confidence) -> None:
    """How many categories are there, what the intervals are, and where the estimate contradicts them."""
    number, size = int(sure.found.sum()), collection.num_categories
    rest = "" if number == size else "; of the others the reports do not tell"
    out.print(
        f"● {number:,} of {size:,} categories {'is' if number == 1 else 'are'} there, at a false discovery rate of "
        f"{percent(sure.fdr)}{rest}."
    )
    level = f"{100 * sure.level:.12g}\N{NO-BREAK SPACE}% confidence"
    if sure.at_once:
        out.print(f"Intervals are exact, at zero too, and hold all at once with {level}.")
    else:
        out.print(
            f"Intervals are exact, at zero too, and hold each one with {level}; of those that are picked because they "
            "came out largest, fewer hold: --at-once is for them."
        )
    outside = sure.misses(estimate.theta)
    if outside.any():
        out.print(
            f"{work.TITLES[estimate.name]} lies outside the interval of {int(outside.sum()):,} of "
            f"{collection.num_categories:,} categories, {int((outside & sure.found).sum()):,} of those that are there: "
            "an interval is about one category, an estimate makes all of them fit together, and with many categories "
            "that costs bias. For a share that was named beforehand believe the interval."
        )


def verdict(collection: work.Collection, estimate: work.Estimate) -> None:
    """The certificate in words, and how noisy the collection is."""
    certificate = estimate.certificate
    out.print(
        f"{work.TITLES[estimate.name]}: {estimate.num_positive:,} of {collection.num_categories:,} categories have a "
        f"positive share; negative log-likelihood {estimate.nll:.6f} nats per report."
    )
    if certificate["simplex_violation"] > 1e-9:
        out.print("No certificate: this estimate is not a distribution (it has negative shares).")
    else:
        out.print(
            f"Certificate: log-likelihood within {at_most(certificate['gap'])} of the maximum (nats per report); total "
            f"variation at most {at_most(min(certificate['l1_bound'] / 2, 1))} from the maximum likelihood estimate."
        )
    out.print(
        f"Noise: a category that nobody holds is estimated with a standard error of "
        f"{percent(collection.standard_error)} (unbiased inversion)."
    )
    if estimate.note:
        out.print(estimate.note)


def comparison(estimates: list[work.Estimate], errors: list[dict[str, float]] | None) -> None:
    """A row an estimator: likelihood, certificate, and errors where the truth is known."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    titles = ["> 0", "< 0", "NLL", "gap"]
    if errors is not None:
        titles += ["squared", "TV", "KL", "max"]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for row, estimate in enumerate(estimates):
        proper = estimate.certificate["simplex_violation"] <= 1e-9
        cells = [
            work.TITLES[estimate.name],
            f"{estimate.num_positive:,}",
            f"{int((estimate.theta < 0).sum()):,}",
            f"{estimate.nll:.6f}",
            at_most(estimate.certificate["gap"], 2) if proper else "–",
        ]
        if errors is not None:
            cells += [
                "–" if math.isnan(value) else "∞" if math.isinf(value) else f"{value:.3g}"
                for value in errors[row].values()
            ]
        table.add_row(*cells)
    out.print(table)
    notes = "> 0, < 0: categories with a positive or negative share. NLL: negative log-likelihood, nats per report. "
    notes += "gap: at most this far above the smallest NLL of a distribution."
    if errors is not None:
        notes += " Errors: squared, summed over the categories; total variation; Kullback–Leibler divergence, "
        notes += "nats; largest of a category."
    notes = " ".join([notes, *(estimate.note for estimate in estimates if estimate.note)])
    out.print(notes, style="dim")


def command(line: str) -> None:
    """Prints a command line as one would type it."""
    out.print()
    out.print(Text("$ " + line, style="bold cyan"), soft_wrap=True)


def written(what: str, path: object) -> None:
    """Says where something was written."""
    out.print(f"{what}: {path}", style="dim", markup=False)
