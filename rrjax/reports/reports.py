"""Reports with everything that is needed to use them: how they were made, and whether they contradict it."""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
import unicodedata
from decimal import Context, Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

import rrjax
from rrjax.data.arguments import float_dtype
from rrjax.data.errors import DataError, for_commands, option, refusal
from rrjax.data.mechanism_parameters import Rates
from rrjax.data.mixture import Mixture
from rrjax.data.number_text import NUMBER, plain
from rrjax.data.tally import Tally
from rrjax.estimators.catalogue import Estimator
from rrjax.estimators.whole_reports import MAX_CATEGORIES
from rrjax.io.database import spelling
from rrjax.io.domain import Domain
from rrjax.io.labels import MISSING
from rrjax.io.read import CountedReports
from rrjax.io.rounds import time_of
from rrjax.io.rows import maybe_thousands, read_rows
from rrjax.io.scan import column_names
from rrjax.io.source import FrameSource, Source, changed
from rrjax.io.tallies import MAX_CELLS, Tallied, as_jax_integers, read_reports
from rrjax.mechanisms import Design, SupportMechanism
from rrjax.reports import form
from rrjax.reports.kind import ColumnQuestions
from rrjax.reports.parameters import known_yes, said

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jaxtyping import ArrayLike

    from rrjax.io.labels import Labels

MOST_LISTED = 100_000
"""Categories up to which they are searched for such labels."""
FALSE_ALARM = 0.01
"""Level of all tests of reports against their mechanism and ε together."""


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Reports(ColumnQuestions):
    """Counted reports with everything that is needed to use them: mechanism, ε, domain, and what is odd about them.

    Made by `rrjax.read`, `Reports.of_counts` and `Reports.of_tally`. Methods are questions, which compute in float64
    and change no setting. Reports of one mechanism, ε and domain add up: `first + second`.

    Example:
        >>> import rrjax
        >>> reports = rrjax.Reports.of_counts([600, 250, 150], 2.0, ["red", "green", "blue"])
        >>> reports.num_reports, reports.mechanism.name, reports.contradicted
        (1000, 'randomized-response', False)
    """

    called_kind: ClassVar[str] = "reports of one column"
    instead: ClassVar[str] = "`rrjax randomize --apart` makes files of several"

    counted: CountedReports
    epsilon: float
    tallied: Tallied | None = None
    source: Source | None = None
    """The files; None of a data frame or a table of counts."""
    from_counts: bool = False
    """Whether the files hold counts."""
    warnings: list[str] = dataclasses.field(default_factory=list)
    metadata_tests: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    """Whether the reports contradict their mechanism and ε, by test: statistic, what is expected, and p-value."""
    frame: FrameSource | None = None
    """The data frame that they were counted in."""
    beside: tuple[Source, ...] = ()
    """Files of reports that were added to those of no file."""

    @property
    def inputs(self) -> list[Source]:
        return [*super().inputs, *self.beside, *self.counted.domain.sources]

    @classmethod
    def of_counts(
        cls,
        counts: ArrayLike | Mapping[Any, int],
        epsilon_or_mechanism: float | SupportMechanism | None = None,
        domain: Labels | None = None,
        *,
        probability: float | None = None,
        column: str = "report",
    ) -> Reports:
        """The reports of a table of counts.

        Args:
            counts: `[K]`, whole numbers: how many reports name each category. A mapping, a series of pandas such as
                those of `value_counts`, or an array of xarray is taken by its labels. A series that pandas numbers from
                0 has none: it is in the order of `domain`.
            epsilon_or_mechanism: ε of randomized response, nats; or randomized response itself, or a survey design.
            domain: The labels of the K categories; None is 0 … K − 1.
            probability: In place of ε, the probability that a report is the true category, in (1/K, 1).
            column: What was asked, for sentences and figures.

        Returns:
            `Reports`.

        Raises:
            ArgumentError: Counts that are not whole numbers of at least zero, or a domain of another size.

        Example:
            >>> import rrjax
            >>> rrjax.Reports.of_counts([600, 400], 1.0, ["no", "yes"]).num_reports
            1000
        """
        from rrjax.reports.reading import of_counts

        return of_counts(counts, epsilon_or_mechanism, domain, probability, column)

    @classmethod
    def of_tally(
        cls, tally: Tally, mechanism: SupportMechanism, domain: Labels | None = None, *, column: str = "report"
    ) -> Reports:
        """The reports of a tally of support counts, without the likelihood of whole reports.

        Args:
            tally: Of one collection.
            mechanism: The mechanism that made the reports.
            domain: The labels of the K categories; None is those that the tally knows, or 0 … K − 1.
            column: What was asked, for sentences and figures.

        Returns:
            `Reports`.

        Raises:
            ArgumentError: A mechanism or a domain of another size, rates, or labels.

        Example:
            >>> import rrjax
            >>> oue = rrjax.mechanisms.OptimizedUnaryEncoding(3, epsilon=2.0)
            >>> tally = rrjax.Tally([300, 250, 150], 600, rates=oue.rates)
            >>> rrjax.Reports.of_tally(tally, oue).num_reports
            600
        """
        from rrjax.reports.reading import of_tally

        return of_tally(tally, mechanism, domain, column)

    def tally(self) -> Tally:
        """The support counts with the rates of the mechanism, for functions of arrays."""
        if self.tallied is not None:  # whose numbers may have another precision than the one at hand
            leaves, kinds = jax.tree.map(np.asarray, self.tallied.tally), {"f": float_dtype()}
            return jax.tree.map(lambda leaf: jnp.asarray(leaf, kinds.get(leaf.dtype.kind)), leaves)
        return Tally(as_jax_integers(self.counts), self.num_reports, rates=self.mechanism.rates)

    def __add__(self, other: Reports) -> Reports:
        """The reports of both, for different people's reports of one mechanism, ε and domain.

        Of mechanisms whose reports do not name one category the support counts alone are added.

        Raises:
            ArgumentError: They were made or are read otherwise, are the same, or are rounds of the same users.
        """
        if not isinstance(other, Reports):
            return NotImplemented
        from rrjax.reports.reading import added

        return added(self, other)

    def __radd__(self, other: Any) -> Reports:
        """The reports for `sum`, which starts at 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    @property
    def files(self) -> Source:
        """The files of the reports, or their data frame."""
        source = self.source or self.frame
        if source is None:
            raise refusal("data", "single reports are needed, and these were counted: read their file")
        return source

    @property
    def contradicted(self) -> bool:
        """Whether the tests of `check_contradictions` reject, all of them together at one level; tested once."""
        from rrjax.reports.testing import check_contradictions

        check_contradictions(self)
        return any(test["p_value"] * len(self.metadata_tests) <= FALSE_ALARM for test in self.metadata_tests.values())

    @property
    def counts(self) -> np.ndarray:
        """How many reports name, or support, each category, `[K]`."""
        return self.counted.counts

    @property
    def num_reports(self) -> int:
        return self.counted.num_rows - self.counted.num_missing

    @property
    def support_arguments(self) -> tuple[Any, float | None]:
        """Arguments of functions of single categories: counts and ε, or a tally and None."""
        return (self.counts, self.epsilon) if self.tallied is None else (self.tallied.tally, None)

    @property
    def likelihood_arguments(self) -> tuple[Any, float | None] | None:
        """Arguments of the likelihood: counts and ε, or a mixture and None; None if the mixture would be too large."""
        if self.tallied is None:
            return self.counts, self.epsilon
        return None if self.tallied.mixture is None else (self.tallied.mixture, None)

    def arguments_for(self, entry: Estimator) -> tuple[Any, float | None] | None:
        """Arguments of an estimator; None if it cannot be run on these reports."""
        if self.design is not None and entry.equal_rates:
            return None
        if self.tallied is None or entry.needs == "tally":
            return self.support_arguments
        return self.likelihood_arguments if entry.needs == "mixture" else None

    @property
    def whole(self) -> Mixture | None:
        """The likelihood of whole reports, where an estimator of single categories can use it."""
        return None if self.tallied is None or self.num_categories > MAX_CATEGORIES else self.tallied.mixture

    def reports(self, what: str) -> np.ndarray:
        """All reports in the order of their rows, as their mechanism takes them; −1 for a missing label."""
        counted, metadata = self.counted, self.counted.metadata
        if self.from_counts:
            counts = for_commands(": leave out --counts") or ", and these were counted"
            raise refusal("counts", f"{what} needs a row for each report{counts}")
        if self.tallied is None or self.design is not None or metadata is None:
            values = read_rows(dataclasses.replace(self.files, column=counted.column), counted.domain).indices
            counts = np.bincount(values[values >= 0], minlength=self.num_categories)
            return self._unchanged(values, (counts == self.counts).all())
        if self.num_reports * self.num_categories > MAX_CELLS:
            raise refusal(
                "data",
                f"{what} needs every report, and {self.num_reports:,} reports × {self.num_categories:,} categories are "
                f"more than the limit of {MAX_CELLS:,}",
                flag="REPORTS",
            )
        return self._unchanged(read_reports(self.files, metadata, getattr(self.mechanism, "subset_size", None)))

    def _unchanged(self, rows: np.ndarray, same: bool = True) -> np.ndarray:
        """The rows; `DataError` where they are not those that were counted."""
        self.files.check_unchanged()
        if not same or len(rows) != self.counted.num_rows:
            raise changed(self.files.files()[0])
        return rows

    @property
    def possible_causes(self) -> str:
        """A question about reports that contradict their mechanism and ε."""
        if self.tallied is None:
            return "Is ε right, are reports missing, was it another mechanism?" + for_commands(" See `rrjax test fit`.")
        if self.design is not None:
            return "Are the parameters right, are answers missing, did some respondents not follow the rules?"
        return "Are reports missing, or was the file changed after it was written?"

    def without_interval(self, number: int, one: str, several: str, miss: float, where: str) -> str:
        """A sentence about rows or categories whose limits are NaN, which has the probability `miss` by chance."""
        have = form.number(number, f"{one} has", f"{several} have")
        return (
            f"{have} no interval: no distribution explains so few or so many reports. By chance this happens with "
            f"probability {form.percent(miss)} at most, {where}. {self.possible_causes}"
        )

    @property
    def design(self) -> Design | None:
        """The survey design of the answers, if it is one."""
        return self.mechanism if isinstance(self.mechanism, Design) else None

    @property
    def yes(self) -> int | None:
        """The category number of yes, for answers to a survey design of which one is the yes."""
        return known_yes(self.counted.domain, self.design)

    def check_counts(self, what: str) -> None:
        """Refuses reports of other mechanisms for methods that exist for randomized response only."""
        if self.tallied is not None:
            raise refusal(
                "data",
                f"{self.name} was made by {self.mechanism.name}, and only reports of "
                f"{rrjax.RandomizedResponse.name} can be used for {what}. `rrjax estimate` takes both; collect with "
                f"{rrjax.RandomizedResponse.name} if you need this",
                flag="REPORTS",
            )

    @property
    def simulated(self) -> bool:
        return self.counted.metadata is not None and self.counted.metadata.simulated

    @property
    def num_categories(self) -> int:
        """K."""
        return self.counted.domain.num_categories

    @cached_property
    def labels(self) -> np.ndarray:
        """The names of the categories, `[K]`."""
        return self.counted.domain.labels()

    @property
    def mechanism(self) -> SupportMechanism:
        """The mechanism that made the reports."""
        if self.tallied is not None:
            return self.tallied.mechanism
        return rrjax.RandomizedResponse(self.num_categories, self.epsilon)

    def mechanism_of(self, kept: np.ndarray) -> SupportMechanism:
        """The mechanism of some rows, booleans `[N]`: that of all."""
        return self.mechanism

    @property
    def precision(self) -> float:
        """The inverse of the variance of an unbiased share, of equal shares: its weight in `surveys.groups.inv`."""
        return self.num_reports / float(np.mean(self.rates.variance_of_drawn(self.num_categories)))

    @property
    def rates(self) -> Rates:
        """The rates of the mechanism, as Python numbers: JAX would compile a program for every operation on them."""
        return self.mechanism.rates_by(math.expm1)

    @property
    def standard_error(self) -> float:
        """Standard error of the unbiased estimate of the share of an empty category: of yes, or the largest of all."""
        variances = np.broadcast_to(self.rates.variance(0), self.num_categories)
        return math.sqrt((np.max(variances) if self.yes is None else variances[self.yes]) / self.num_reports)

    def facts(self) -> dict[str, Any]:
        return {
            "reports": self.paths,
            "column": self.counted.column,
            "num_reports": self.num_reports,
            "num_missing": self.counted.num_missing,
            "num_categories": self.num_categories,
            "domain": self.counted.domain.describe(),
            "yes": None if self.yes is None else str(self.labels[self.yes]),
            "mechanism": self.mechanism.name,
            "epsilon": self.epsilon,
            "simulated": self.simulated,
            "round": None if self.counted.metadata is None else self.counted.metadata.round,
            "metadata_tests": self.metadata_tests,
            "warnings": self.warnings,
        }

    def shares_in(self, source: Source, counts: str | None = None) -> np.ndarray:
        """The shares of the true values in files, or of those in a column of counts, `[K]`."""
        from rrjax.reports.comparison import read_truth

        return read_truth(source, counts, self)

    def __repr__(self) -> str:
        """The number of reports, their column, domain, mechanism and ε, and what is odd about them, which is tested."""
        _ = self.contradicted
        return super().__repr__()

    def summary(self, name: str = "") -> str:
        """A sentence about the collection, which begins with a name if there are several."""
        of = "" if self.tallied is None else f" of {self.mechanism.name}"
        ends = f"ε = {self.epsilon:.6g} nats"
        if (metadata := self.counted.metadata) is not None and metadata.round is not None:
            of += f", round {metadata.round}"
            ends += f" a report, {metadata.epsilon:.6g} for all reports of one value"
        return (
            f"{name + ': ' if name else ''}{self.called}{of} in column {self.counted.column!r}; domain: "
            f"{self.counted.domain.describe()}{said(self.counted.domain, self.yes)}; {ends}"
        )


def checked(reports: Reports) -> Reports:
    """The reports, with the warnings that precede their estimates; refuses a single report."""
    return warned(refuse_single(reports))


def refuse_single(reports: Any) -> Any:
    """The reports, of which there are two or more."""
    if reports.num_reports < 2:
        raise DataError(
            f"{reports.name} holds one report: a distribution cannot be estimated from it. "
            "Were all files given, and is the column right?",
            file=reports.name,
            column=reports.counted.column,
        )
    return reports


def left_out(counted: CountedReports) -> list[str]:
    """Warnings about values that are missing, or read as integers."""
    warnings, metadata = padded(counted.num_padded, "report"), counted.metadata
    if counted.num_missing and (metadata is None or metadata.sampled is None):  # of sampled columns most are missing
        kinds = ", ".join(
            f"{many:,} {'empty' if token == '' else repr(token)}" for token, many in counted.missing.items()
        )
        verb = "is" if counted.num_missing == 1 else "are"
        of = f"{counted.num_missing:,} of {counted.num_rows:,} reports"
        warnings.insert(0, f"{of} {verb} missing ({kinds}), and {verb} left out.")
    return warnings


def written_alike(domain: Domain, from_data: bool, *, named: bool = True) -> list[str]:
    """A warning about categories that may be one answer; `named` where messages may repeat labels."""
    labels = domain.listed or ()
    if len(labels) > MOST_LISTED:
        return []
    keys = [likeness(label) if from_data else spelling(label) for label in labels]
    return _one_in_two_ways(keys, labels, "categories", "answer", named)


def levels_alike(column: str | None, levels: Iterable[str]) -> list[str]:
    """A warning about levels of a public column that may be one."""
    levels = [*dict.fromkeys(levels)]
    return _one_in_two_ways([*map(likeness, levels)], levels, f"levels of {column!r},", "level")


def likeness(label: str) -> str:
    """What two texts of one number or time have in common: 0.10 is 0.1, midnight the day, 8:00 is 08:00:00."""
    label = spelling(label)
    exponent = label.lower().partition("e")[2].strip("+-")
    if re.fullmatch(NUMBER, label) and len(exponent) < 4:  # 1e4567890123 is a code
        return str(Decimal(plain(label)).normalize(Context(prec=len(label))))
    name = time_of(label).casefold()
    if re.fullmatch(r"[0-9]{1,4}([-/.][0-9]{1,4}){2}|[0-9]{1,2}(:[0-9]{2}){1,2}", name):  # a day, or a time of it
        name = re.sub("[0-9]+", lambda digits: digits[0].zfill(2), name) + ":00" * (name.count(":") == 1)
    return name


def _one_in_two_ways(keys, labels, what, one, named=True):
    seen: dict[str, str] = {}
    firsts = [seen.setdefault(key, label) for key, label in zip(keys, labels, strict=True)]
    pairs = [pair for pair in zip(firsts, labels, strict=True) if pair[0] != pair[1]]
    if not pairs:
        return []
    more = f" (and {form.number(len(pairs) - 1, 'more pair', 'more pairs')})" * (len(pairs) > 1)
    which = f"The {what} {pairs[0][0]!r} and {pairs[0][1]!r}{more}" if named else f"Some {what}"
    alike = len({unicodedata.normalize("NFC", label) for label in pairs[0]}) == 1
    how = "in how they are written" if not alike else "in their form of Unicode"
    return [f"{which} differ only {how}, and count as different: if they are one {one}, write it in one way."]


def _alike(counted: CountedReports) -> list[str]:
    """Warnings about categories that may be one answer, and about the header of a file of labels."""
    labels = counted.domain.listed or ()
    if not labels or len(labels) > MOST_LISTED:
        return []
    warnings = written_alike(counted.domain, counted.domain_from_data)
    if labels[0].casefold() in ("label", counted.column.casefold()) and not counted.counts[0]:
        warnings.append(
            f"The first category is {labels[0]!r}, which nobody reported: is it the header of the file of labels? If "
            "so, remove that line, because K is too large."
        )
    return warnings


def of_order(reports: Any, what: str) -> list[str]:
    """A warning where the order of the domain, which `what` follow, may not be the one that is meant."""
    domain, followed = reports.counted.domain, f"the domain, whose order {what} follow"
    if domain.is_range:
        return []
    labels = [str(label) for label in reports.labels]
    if not all(re.fullmatch(NUMBER, label) for label in labels):
        alphabetical = f"The order of {followed}, is alphabetical, because it was taken from the data: give "
        return [f"{alphabetical}{option('domain')} in the order that is meant."] * reports.counted.domain_from_data
    odd = np.flatnonzero(np.diff(np.asarray(labels, float)) <= 0)
    return [
        f"The labels are numbers, and {labels[place + 1]} comes after {labels[place]} in {followed}: give "
        f"{option('domain')} in increasing order, if that is meant."
        for place in odd[:1]
    ]


def of_thousands(reports: Any) -> list[str]:
    """A warning about labels that are taken as numbers, such as 1.000 beside 500."""
    domain = reports.counted.domain
    labels = [str(label) for label in domain.listed or ()]
    if domain.is_range or not all(re.fullmatch(NUMBER, label) for label in labels):
        return []
    decimals = [-1 if "." not in label else len(label.partition(".")[2]) for label in labels]
    exponents = "e" in "".join(labels).lower()
    if exponents or not maybe_thousands(np.asarray(labels, float), np.asarray(decimals), whole=False):
        return []
    # Numbers of another type than text have no zero at their end; and without whole ones many may be even decimals.
    written = [label for label, number in zip(labels, decimals, strict=True) if number == 3]
    zeros, least = ("0", 1) if -1 in decimals else ("00", len(written))
    round_ones = [label for label in written if label.endswith(zeros)]
    if len(round_ones) < least:
        return []
    odd = round_ones[0]
    return [
        f"The labels are numbers, and {odd} is taken as {float(odd):g}. If it is {1000 * float(odd):,.0f}, write the "
        "labels without points, in the reports and in the domain."
    ]


def warned(reports: Reports) -> Reports:
    """The reports, with the warnings that precede their estimates."""
    counted, number = reports.counted, reports.num_reports
    warnings, metadata = reports.warnings, counted.metadata
    if counted.domain_from_data and metadata is None:  # the metadata hold the K of the mechanism
        warnings.append(
            f"The domain was taken from the data ({counted.domain.num_categories:,} categories). Categories that "
            f"nobody reported are unknown, K is too small, and the estimate is biased: give {option('domain')}."
        )
        listed = [str(label) for label in reports.labels] if reports.num_categories <= MOST_LISTED else []
        if odd := [label for label in listed if label.casefold() in MISSING]:
            flags = option(f"missing={odd}", " ".join(f"--missing {shlex.quote(label)}" for label in odd))
            look = form.number(len(odd), "category looks", "categories look")
            warnings.append(f"{look} like a missing answer: {', '.join(map(repr, odd))}. If so, give {flags}.")
    warnings += left_out(counted) + _alike(counted) * (metadata is None)
    source = None if reports.from_counts or metadata is not None else reports.source
    if source is not None and may_be_counts(source, counted):
        warnings.append(
            "The reports name each of their categories once, and the file has more columns. If one of them holds "
            f"counts, name it with {option('counts')}."
        )
    size = reports.num_categories
    # Of equal shares; of equal rates, it is the same for all shares.
    squared_error = float(np.sum(np.broadcast_to(reports.rates.variance(1 / size), size))) / number
    if squared_error > 1:
        warnings.append(
            f"These {number:,} reports carry little information at this ε and K: summed over the categories, "
            f"the squared error of the unbiased estimate is expected to be {squared_error:.3g}, and between two "
            f"distributions it is never more than 2. To expect 0.01, collect "
            f"{math.ceil(100 * number * squared_error):,} reports."
        )
    warnings += simulation(reports.simulated)
    return reports


def simulation(simulated: bool) -> list[str]:
    """A warning about reports that were made from a seed."""
    said = f"The reports are a simulation (made with {option('a seed=', '--seed')}); they protect nobody."
    return [said] * simulated


def padded(number: int, what: str) -> list[str]:
    """A warning about codes with leading zeros that are read as integers."""
    if not number:
        return []
    return [
        f"{number:,} {what}{'s are' if number > 1 else ' is'} written with leading zeros, as 007, and the domain is of "
        f"integers, so that 007 counts as 7. Where zeros tell codes apart, give {option('domain')} a file of labels."
    ]


def may_be_counts(source: Source, counted: CountedReports) -> bool:
    """Whether a table that was read row by row may hold counts in another column: it names each category once."""
    named = counted.counts[counted.counts > 0]
    return len(named) > 1 and named.max() == 1 and len(column_names(source)) > 1
