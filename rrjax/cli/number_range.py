"""Flags of numbers that are randomized, and the mechanisms for numbers in words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated

import typer

from rrjax import io
from rrjax.cli.reading import parse_domain
from rrjax.data.errors import UsageError, reworded
from rrjax.io.metadata import Metadata
from rrjax.mechanisms.table import TABLE, names_in
from rrjax.reports import form

PANEL = "Numbers"
NUM_BINS = 32
MOST_VALUES = 1024
"""Largest number of bins, or of integers: an estimate takes a matrix of them."""


@dataclasses.dataclass(frozen=True)
class NumberRange:
    """The flags of a range of numbers."""

    range: Annotated[
        str | None,
        typer.Option(
            metavar="LOW,HIGH",
            help="For --mechanism square-wave: the least and the largest number that is possible, such as 0,100. "
            "Choose it without looking at the values.",
            rich_help_panel=PANEL,
        ),
    ] = None
    bins: Annotated[
        int | None,
        typer.Option(
            help=f"For --mechanism square-wave: the number of bins of equal width, {NUM_BINS} by default. The estimate "
            "is of their shares.",
            rich_help_panel=PANEL,
        ),
    ] = None

    def checked(self, mechanism: str, columns: Sequence[str], domains: Sequence[str]) -> io.Bins | None:
        """The bins of the square wave; None for other mechanisms. Refuses flags that do not apply."""
        waves, noise = names_in("ORDERED")
        given = {"--range": self.range, "--bins": self.bins}
        odd = next((flag for flag, value in given.items() if value is not None), None)
        if mechanism != waves and odd is not None:
            raise UsageError(f"{odd} is for --mechanism {waves}: leave it out", flag=odd, value=given[odd])
        if not TABLE[mechanism].ordered:
            return None
        if len(columns) > 1:
            raise UsageError(
                f"--mechanism {mechanism} randomizes one column of numbers, and --column was given {len(columns)} "
                "times: randomize each apart; the ε of both add up",
                flag="--column",
            )
        if mechanism == noise:
            _check_integers(domains)
            return None
        if domains:
            raise UsageError(
                f"--domain is of categories; --mechanism {waves} takes the range of the numbers: --range LOW,HIGH",
                flag="--domain",
                value=domains[0],
            )
        if self.range is None:
            raise UsageError(
                f"--mechanism {waves} needs --range LOW,HIGH, the least and the largest number that is possible, such "
                "as --range 0,100",
                flag="--range",
            )
        if self.bins is not None and not 2 <= self.bins <= MOST_VALUES:
            limits = f"--bins must be from 2 to {MOST_VALUES:,}, got {self.bins:,}"
            raise UsageError(limits, flag="--bins", value=self.bins)
        try:
            bins = io.Bins(*_ends(self.range), NUM_BINS if self.bins is None else self.bins)
            bins.domain()
        except io.DataError as error:
            flag = f"--{error.argument}"
            raise reworded(error, f"{flag}: {error}", UsageError, flag=flag, value=self.range) from error
        return bins


def _ends(text: str) -> tuple[float, float]:
    parts = text.split(",")
    try:
        low, high = map(float, parts)
    except ValueError:
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UsageError(f"--range {text}: give two numbers, such as --range 0,100", flag="--range", value=text)
    return low, high


def _check_integers(domains: Sequence[str]) -> None:
    """Refuses domains that are no range of integers, as geometric noise needs."""
    waves, noise = names_in("ORDERED")
    domain = parse_domain(domains[0]) if domains else None
    if domain is None or not domain.is_range:
        raise UsageError(
            f"--mechanism {noise} adds noise to integers, and needs their range: --domain FIRST:LAST, such as --domain "
            "0:100",
            flag="--domain",
            value=domains[0] if domains else None,
        )
    if domain.num_categories > MOST_VALUES:
        raise UsageError(
            f"--domain {domains[0]} has {domain.num_categories:,} integers, and --mechanism {noise} takes up to "
            f"{MOST_VALUES:,}: bins of --mechanism {waves} --range may be wide",
            flag="--domain",
            value=domains[0],
        )


def law_in_words(metadata: Metadata) -> str:
    """The law of one report, for people."""
    size, epsilon = metadata.num_categories, metadata.effective_epsilon
    if metadata.range is None:
        ratio = math.exp(-epsilon / (size - 1))
        spread = 2 * ratio / (1 - ratio**2)
        return (
            f"a report is the integer plus noise, cut at both ends; the noise is {spread:.3g} on average, in either "
            f"direction, and 0 with probability {form.percent((1 - ratio) / (1 + ratio))}"
        )
    half_width = int(metadata.mechanism.parameters["half_width"])
    window = 2 * half_width + 1
    near = window / (window + (size - 1) * math.exp(-epsilon))
    width = (metadata.range[1] - metadata.range[0]) / size
    return (
        f"the number is rounded to one of {size:,} bins of width {width:.6g}; its report is within "
        f"{form.number(half_width, 'bin', 'bins')} of it with probability {form.percent(near)}, and any other bin "
        "otherwise"
    )
