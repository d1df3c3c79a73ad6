"""`rrjax randomize`."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rrjax import io
from rrjax.cli import randomization, show
from rrjax.cli.design import Randomizer
from rrjax.cli.interrupt import finishing
from rrjax.cli.longitudinal import Rounds, make_round, show_round
from rrjax.cli.options import Json, flags, split
from rrjax.cli.paths import READS, Paths
from rrjax.cli.reading import Files, Reading, parse_domain
from rrjax.data.errors import UsageError, reworded
from rrjax.data.number_text import plain
from rrjax.io.metadata import Metadata
from rrjax.io.write import REPORTS, check_reports_name, creating, kind_of
from rrjax.mechanisms.table import RANDOMIZED_RESPONSE, TABLE, names_in
from rrjax.reports import form
from rrjax.reports.parameters import check_epsilon

NUMBERS = "Numbers"
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
            rich_help_panel=NUMBERS,
        ),
    ] = None
    bins: Annotated[
        int | None,
        typer.Option(
            help=f"For --mechanism square-wave: the number of bins of equal width, {NUM_BINS} by default. The estimate "
            "is of their shares.",
            rich_help_panel=NUMBERS,
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
            problem = f"is of categories; --mechanism {waves} takes the range of the numbers: --range LOW,HIGH"
            raise UsageError.about("--domain", problem, value=domains[0])
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
        low, high = (float(plain(part)) for part in parts)
    except ValueError:
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UsageError.about("--range", f"{text}: give two numbers, such as --range 0,100", value=text)
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
        raise UsageError.about(
            "--domain",
            f"{domains[0]} has {domain.num_categories:,} integers, and --mechanism {noise} takes up to "
            f"{MOST_VALUES:,}: bins of --mechanism {waves} --range may be wide",
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


WRITTEN = "What is written"


@flags(without=("probability", "column", "domain", "counts", "num_users"))
def randomize(
    values: Annotated[list[str], typer.Argument(metavar="VALUES", help="Files of true values; globs work."), READS],
    *,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Privacy parameter ε, in nats: the smaller, the more private (0.5 to 8 is common)."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The .parquet file of reports to write."), Paths("writes", over=REPORTS)],
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="Column to read: its name, or its number (from 1) where there is no header. Twice: the pairs of the "
            "two columns are randomized as one, with ε for the pair.",
        ),
    ] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(
            help="All categories: a range such as 0:99, both ends included, or a file of labels, one a line. Of two "
            "columns once for each, in their order.",
        ),
        READS,
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**63 - 1,
            help="Simulate, reproducibly. Without it the system's secure random numbers are used.",
            rich_help_panel="Simulation",
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Columns to write beside the reports, separated by commas, such as age,region: `--by` and `rrjax "
            "regress` use them. They are written as they are: nothing protects them.",
            rich_help_panel=WRITTEN,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Replace the reports in the file of --out; no other file is replaced. Reports cannot be made again "
            "without spending ε again: the ε of values that are randomized twice add up.",
            rich_help_panel=WRITTEN,
        ),
    ] = False,
    json: Json = False,
    randomizer: Randomizer,
    numbers: NumberRange,
    rounds: Rounds,
    apart: randomization.SeparateColumnFlags,
    reading: Reading,
) -> None:
    """Randomize true values into a file of reports that carries its mechanism, ε, K and domain.

    rrjax randomize values.csv --column city --epsilon 2 --domain cities.txt --out reports.parquet

    rrjax randomize values.csv --column smokes --column income --epsilon 2 --out pairs.parquet

    rrjax randomize values.csv --column city --epsilon 2 --mechanism subset-selection --out reports.parquet

    rrjax randomize people.csv --column answer --keep age,region --epsilon 1 --out reports.parquet

    rrjax randomize survey.csv --column smokes --column income --column age --apart --epsilon 3 --out survey.parquet

    rrjax randomize people.csv --column age --mechanism square-wave --range 0,100 --epsilon 1 --out ages.parquet

    rrjax randomize monday.csv --column app --user id --mechanism longitudinal-randomized-response --epsilon 4
    --first-epsilon 2 --memo secret.parquet --out monday.parquet

    rrjax randomize answers.csv --column answer --domain yesno.txt --mechanism forced-response --parameter truth=2/3
    --parameter forced=1/2,1/2 --out reports.parquet

    ε protects one row. A user with m rows is protected by m·ε only. The reports keep the order of the rows; rows
    without a value are left out. Columns of --keep are NOT protected, and may identify who answered, alone or together.
    """
    try:
        check_reports_name(out)
    except io.DataError as error:
        raise reworded(error, f"--out {error}", UsageError, flag="--out", value=out) from error
    columns, domains = column or [], domain or []
    bins = numbers.checked(randomizer.name, columns, domains)
    others = {"mechanism": randomizer.mechanism, "design": randomizer.design, **vars(rounds)}
    each_apart = apart.check(columns, domains, others)
    pair = None if each_apart else _pair(columns, domains)
    if pair is None:
        given = {"column": next(iter(columns), None), "domain": next(iter(domains), None)}
        reading = dataclasses.replace(reading, **given)
    files = Files(values, reading, true_values=True)
    if force and out.exists() and kind_of(out) not in REPORTS:
        raise UsageError.about(
            "--force", f"replaces reports only, and {out} holds none: write to another file", value=out
        )
    if not force and os.path.lexists(out):
        raise UsageError.about(
            "--out",
            f"{out} is there already. Reports cannot be made again without spending ε again: of values that are "
            "randomized twice, the two ε add up. Write to another file, or replace it with --force",
            value=out,
        )
    randomizer.check_epsilon(epsilon)
    name = randomizer.name
    written = contextlib.nullcontext() if force else creating(out)
    if each_apart and epsilon is not None:
        epsilons = apart.epsilons(check_epsilon(epsilon), len(columns))
        with show.status("Randomizing …"), written:
            kept = () if keep is None else tuple(split("--keep", keep))
            made = randomization.make_apart(files, out, columns, domains, epsilons, seed, apart.columns_per_user, kept)
        randomization.show_apart(*made, out, json)
        return
    if epsilon is not None and rounds.check(name):
        if pair is not None or keep is not None:
            flag = "--keep" if pair is None else "--column"
            raise UsageError(f"{flag}: {name} takes one column of values, and that of --user", flag=flag)
        with show.status("Randomizing …"), written:
            check_epsilon(epsilon)
            randomization.check_values(files)
            read = io.read_values(files.source, files.domain)
            made = make_round(files, read, out, rounds, name, epsilon, seed)
        with finishing():  # an interrupt would say that nothing was done
            show_round(made, rounds, out, randomization.cautions(read, None, seed), json)
        return
    with show.status("Randomizing …"), written:
        kept = () if keep is None else tuple(split("--keep", keep))
        made = randomization.make_reports(files, out, epsilon, seed, randomizer, pair, kept, bins)
    show_made(made, out, json)


def _pair(columns: list[str], domains: list[str]) -> randomization.Pair | None:
    """The two columns that are randomized as one value; None if fewer are named."""
    if len(columns) < 2:
        if len(domains) > 1:
            raise UsageError.about("--domain", f"was given {len(domains)} times for one column; give it once")
        return None
    if len(columns) > 2:
        raise UsageError.about(
            "--column",
            f"was given {len(columns)} times ({', '.join(columns)}): one column is randomized, or the pairs "
            "of two. For more make one column of them first, or randomize each apart: who is in m files is protected "
            "by the sum of their ε",
        )
    if columns[0] == columns[1]:
        raise UsageError.about("--column", f"{columns[0]} was given twice; name two different columns, or one")
    if len(domains) not in (0, 2):
        raise UsageError.about(
            "--domain",
            f"was given {form.number(len(domains), 'time', 'times')} for two columns; give it once for each, "
            "in their order, or not at all",
        )
    first, second = domains or (None, None)
    return (columns[0], columns[1]), (first, second)


def show_made(made: randomization.Randomized, out: Path, json: bool) -> None:
    """Prints what was written."""
    from rrjax.io.tallies import mechanism_of
    from rrjax.mechanisms import Design
    from rrjax.reports.parameters import known_yes, said

    metadata = made.metadata
    mechanism = mechanism_of(metadata, str(out))
    # The rates of a survey design may differ by category.
    of_numbers = mechanism.name in names_in("ORDERED")
    rates = None if isinstance(mechanism, Design) or of_numbers else mechanism.rates_by(math.expm1)
    if json:
        show.record(
            {
                "command": "randomize",
                "out": out,
                "num_reports": made.num_reports,
                "num_missing": made.num_missing,
                "column": metadata.column,
                "columns": metadata.columns,
                "kept": made.kept,
                "mechanism": metadata.mechanism.name,
                "num_categories": metadata.num_categories,
                "epsilon": metadata.epsilon,
                "effective_epsilon": metadata.effective_epsilon,
                "simulated": metadata.simulated,
                "parameters": metadata.mechanism.parameters,
                "range": metadata.range,
                "p": None if rates is None else float(rates.p),
                "q": None if rates is None else float(rates.q),
                "warnings": made.warnings,
            }
        )
        return
    show.warn(made.warnings)
    epsilon = f"ε = {metadata.effective_epsilon:.12g} nats"
    if not isinstance(mechanism, Design):
        epsilon = f"ε = {metadata.epsilon:g} nats asked for, {metadata.effective_epsilon:.12g} delivered"
    reports = form.number(made.num_reports, "report", "reports")
    yes = said(metadata.domain, known_yes(metadata.domain, mechanism if isinstance(mechanism, Design) else None))
    show.say(f"{reports} {randomization.randomness(metadata)}; domain: {metadata.domain.describe()}{yes}; {epsilon}.")
    if rates is None:
        show.say(f"By {described(metadata)}: {law_in_words(metadata)}." if of_numbers else f"By {described(metadata)}.")
        show.show_files({"Reports": out})
        return
    one = "category" if metadata.columns is None else "pair"
    p, q = form.percent(float(rates.p)), form.percent(float(rates.q))
    if metadata.mechanism.name == RANDOMIZED_RESPONSE:
        show.say(f"A report is the truth with probability {p} and any one other {one} with {q}.")
    else:
        show.say(
            f"By {described(metadata)}: a report supports its user's {one} with probability {p} and any one other "
            f"with {q}."
        )
    show.show_files({"Reports": out})


def described(metadata: Metadata) -> str:
    """A mechanism with the parameters that ε chose."""
    chosen = {
        name.replace("_", " "): value
        for name, value in metadata.mechanism.parameters.items()
        if name not in ("num_categories", "epsilon", "yes_category")
    }
    texts = {
        name: " and ".join(f"{each:.6g}" for each in value) if isinstance(value, list | tuple) else f"{value:,}"
        for name, value in chosen.items()
    }
    more = ", ".join(f"{name} {text}" for name, text in texts.items())
    return metadata.mechanism.name + (f" ({more})" if more else "")
