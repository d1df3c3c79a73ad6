"""From files, data frames and counts to reports."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import jax
import numpy as np

import rrjax
from rrjax import io
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError, DataError, option, refusal
from rrjax.data.tally import Tally
from rrjax.io.domain import Domain
from rrjax.io.frames import lazy
from rrjax.io.labels import Labels, as_domain, by_label
from rrjax.io.numbers import of_numbers
from rrjax.io.read import CountedReports
from rrjax.io.rounds import check_users, rounds_of
from rrjax.io.source import FrameRows, FrameSource, Source, as_texts, copies, identity
from rrjax.io.stored_tallies import check_rates, check_stored, stored_domain
from rrjax.io.tallies import Tallied, as_jax_integers, domain_of, mechanism_of, tallied_answers
from rrjax.mechanisms import (
    DESIGNS,
    MECHANISMS,
    TWO_SAMPLES,
    Design,
    PureMechanism,
    RandomizedResponse,
    SupportMechanism,
    TwoSamples,
)
from rrjax.mechanisms.surveys.named import make_design, make_two_samples
from rrjax.mechanisms.table import TABLE, full_name
from rrjax.reports.parameters import LARGEST_EPSILON, SMALLEST_EPSILON, check_epsilon, epsilon_of, in_order, with_yes
from rrjax.reports.reports import Reports, checked, left_out

P = ParamSpec("P")
T = TypeVar("T")
if TYPE_CHECKING:
    from jaxtyping import ArrayLike
    from narwhals.stable.v2.typing import IntoFrame

    from rrjax.io.metadata import Metadata
    from rrjax.reports.separate_columns import SeparateColumns

MOST_REPORTS = 2**53
"""Numbers of reports are exact below."""


def in_float64(function: Callable[P, T]) -> Callable[P, T]:
    """The function, whose arrays are float64 whatever the setting, as those of the command line are."""

    @wraps(function)
    def wide(*args: P.args, **kwargs: P.kwargs) -> T:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wide


@in_float64
def read(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | IntoFrame,
    *,
    column: str | None = None,
    epsilon: float | None = None,
    probability: float | None = None,
    domain: Labels | None = None,
    mechanism: str | Design | TwoSamples | None = None,
    parameters: Mapping[str, Any] | None = None,
    sample: str | None = None,
    counts: str | None = None,
    num_users: int | None = None,
    missing: Sequence[str] = (),
    format: Literal["csv", "tsv", "parquet", "jsonl", "transactions"] | None = None,  # noqa: A002
    header: bool | None = None,
    delimiter: str | None = None,
) -> Any:
    """Reads the reports in files or in a data frame, with how they were made.

    Files that `rrjax randomize` wrote say it themselves; of others it is told by `epsilon` (randomized response), or by
    `mechanism` (a survey design). Reports that contradict it are tested when a question is asked, and every answer says
    so.

    Args:
        data: A file, several, or a glob; or a frame of pandas, Polars (lazy too), PyArrow, DuckDB, PySpark or Dask.
            A frame's rows are counted by its own engine; for public columns and weights they are gathered.
        column: Name of the column of reports; None for the only one, or for all columns that were randomized
            separately.
        epsilon: ε of randomized response, nats.
        probability: In place of ε: the probability p = e^ε/(e^ε + K − 1) that a report is the true category; K is the
            size of `domain`.
        domain: All K categories, also those that nobody reported: a range such as "0:99", a list of labels, or the
            name of a file with a label a line. None takes them from the metadata, or from the data, which biases.
        mechanism: A survey design, or its name, such as "forced-response"; then `domain` is needed. "@design" takes the
            design of each respondent from the column `design`.
        parameters: The parameters of a design that is named: numbers, lists of them, or texts such as "2/3". "yes" is
            the label of the yes, where it does not say so itself. "@p" takes a parameter from the column `p`, row by
            row; designs without it ignore that column.
        sample: For a design of two samples: the column that says which sample a row is of, and its two levels in the
            order of the parameters, such as "question=sensitive,anchor".
        counts: Name of a column of counts, if the table holds counts already.
        num_users: The number of users, if these are support counts: how many reports of a `mechanism` of K and ε, such
            as "oue", support each category.
        missing: Texts that stand for a missing answer; empty cells always do.
        format: Format of files whose names do not say it.
        header: Whether a CSV starts with the names of columns; None looks.
        delimiter: The character between the columns of a CSV.

    Returns:
        `Reports` of one column; of files of several rounds of a longitudinal protocol `reports.Rounds`, of files that
        were randomized differently `reports.Groups`, of designs by respondent `reports.ByRespondentReports`, of a
        design of two samples `reports.TwoSampleReports`, of numbers `reports.Numbers`, of several columns, if none is
        named, `reports.SeparateColumns`.

    Raises:
        DataError: A file, column, row or metadata that cannot be used.
        ArgumentError: Arguments that contradict the files or each other.

    Example:
        >>> import polars, rrjax
        >>> frame = polars.DataFrame({"smokes": ["no"] * 600 + ["yes"] * 400})
        >>> reports = rrjax.read(frame, epsilon=1.0, domain=["no", "yes"])
        >>> reports.num_reports, reports.counts.tolist()
        (1000, [600, 400])
    """
    from rrjax.reports.by_respondent import is_by_respondent, read_by_respondent

    by_respondent, two = is_by_respondent(mechanism, parameters), _two_samples(mechanism, parameters)
    other = two is not None or by_respondent or num_users is not None
    made = None if other else design_of(mechanism, parameters)
    named = mechanism.name if isinstance(mechanism, Design | TwoSamples) else mechanism or ""
    if (two is None) is not (sample is None):
        problem = "says which of two samples a row is of"
        wrong = f"is needed: mechanism {named} has two samples" if two else "is for a mechanism of two samples only"
        raise ArgumentError.about("sample", f"{problem}, and {wrong}", value=sample)
    missing = as_texts(missing)
    known = as_domain(domain)
    files = _files(data)
    tokens = (missing,) if isinstance(missing, str) else tuple(missing)
    if files is None:
        source: Source = FrameSource(column=column, missing=tokens, rows=FrameRows(data))
    else:
        source = Source(files, column=column, format=format, header=header, delimiter=delimiter, missing=tokens)
    if probability is not None:
        size = None if known is None else known.num_categories
        epsilon = epsilon_of(probability, size, epsilon=epsilon is not None, mechanism=named, data=source.columns())
    if files is None:
        of_files = {"format": format, "header": header, "delimiter": delimiter, "sample": sample}
        argument = next((name for name, value in of_files.items() if value is not None), None)
        if argument is not None:
            raise ArgumentError.about(argument, "is of files, and this is a data frame")
        if not by_respondent and num_users is None:
            return _of_frame(data, column, epsilon, known, made, counts, missing)
    if num_users is not None:
        if parameters is not None:
            raise ArgumentError.about("parameters", "are of a survey design, whose answers name one category each")
        return read_support(source, epsilon, known, counts, mechanism, num_users)
    if by_respondent:
        return read_by_respondent(source, known, str(mechanism), parameters or {}, epsilon, counts)
    if two is None:
        return kind_of(source, epsilon, known, counts, made, named)
    from rrjax.reports.two_sample_designs import read_two_samples

    return read_two_samples(source, known, *two, sample, epsilon, counts)


def kind_of(
    source: Source,
    epsilon: float | None,
    domain: Domain | None,
    counts: str | None = None,
    design: Callable[[Domain], Design] | None = None,
    named: str = "",
) -> Any:
    """The reports in files, of the kind that their metadata tell; arguments and errors as of `read_source`."""
    from rrjax.io.rounds import several_rounds
    from rrjax.reports.parts import Groups, groups_of
    from rrjax.reports.rounds import Rounds

    def reports_of(part):
        return read_source(part, epsilon, domain, counts, design, named)

    def several(kind, parts):
        # Rounds have one ε, which the metadata are compared with.
        given = {"epsilon": None if kind is Rounds else epsilon, "mechanism": design, "counts": counts}
        odd = next((argument for argument, value in given.items() if value is not None), None)
        if odd is not None:
            problem = f"{option(odd)} does not apply to {kind.called_kind}: "
            raise refusal(odd, f"{problem}{kind.instead}, or leave it out", value=given[odd])
        return kind({number: reports_of(each) for number, each in parts.items()})

    if groups := groups_of(source):
        return several(Groups, groups)
    if source.column is None and len(source.columns()) > 1:
        return columns_of(source, {"epsilon": epsilon, "domain": domain, "mechanism": design, "counts": counts})
    if of_numbers(source.metadata()):
        from rrjax.reports.numbers import read_numbers

        return read_numbers(source, epsilon, domain, {"mechanism": design, "counts": counts})
    if rounds := several_rounds(source):
        return several(Rounds, rounds)
    return reports_of(source)


@in_float64
def of_counts(
    counts: ArrayLike | Mapping[Any, int],
    epsilon_or_mechanism: float | SupportMechanism | None,
    domain: Labels | None,
    probability: float | None,
    column: str,
) -> Reports:
    """See `Reports.of_counts`."""
    known = as_domain(domain)
    named, numbers = by_label(counts, known), np.asarray(counts)
    if named is not None:
        if known is None:
            problem = "have labels, and domain= is missing: all labels that are possible, in their order"
            raise ArgumentError.about("counts", problem, value=counts)
        numbers = np.asarray([named.pop(str(label), 0) for label in known.labels()])
        if named:
            raise ArgumentError.about("counts", f"have labels that are not in {known.describe()}", value=[*named])
    whole = numbers.ndim == 1 and numbers.size > 1 and numbers.dtype.kind in "iu" and (numbers >= 0).all()
    if not whole or not 0 < sum(map(int, numbers)) < MOST_REPORTS:
        problem = "must be at least two whole numbers, not negative, with a sum from 1 to below 2⁵³"
        raise ArgumentError.about("counts", problem, value=counts)
    known = known or Domain.range(0, len(numbers) - 1)
    _check_sizes(len(numbers), "counts", domain=known.num_categories)
    counted = CountedReports(numbers.astype(np.int64), known, column, int(numbers.sum()), 0, False)
    given: Any = epsilon_or_mechanism
    if probability is not None:
        kind = "mechanism" if isinstance(given, SupportMechanism) else "epsilon"
        given = epsilon_of(probability, len(numbers), **{kind: given is not None})
    if isinstance(given, Design):
        return checked(of_design(counted, _fitting(given, known)))
    if isinstance(given, RandomizedResponse):
        _check_sizes(len(numbers), "counts", epsilon_or_mechanism=given.num_categories)
        given = float(np.asarray(given.epsilon))
    if isinstance(given, PureMechanism):
        problem = f"is {given.name}, whose reports do not name one category each: give of_tally their support counts"
        raise ArgumentError.about("epsilon_or_mechanism", problem, value=given)
    return checked(Reports(counted, check_epsilon(given), from_counts=True))


@in_float64
def of_tally(tally: Tally, mechanism: SupportMechanism, domain: Labels | None, column: str) -> Reports:
    """See `Reports.of_tally`."""
    support = np.asarray(tally.support)
    own, given = domain_of(tally.domain), as_domain(domain)
    if own is not None and given is not None and own != given:
        problem = f"has other labels than the tally, or another order: {given.describe()}; {own.describe()}"
        raise ArgumentError.about("domain", problem, value=domain)
    known = given or own or Domain.range(0, len(support) - 1)
    sizes = {"mechanism": mechanism.num_categories, "domain": known.num_categories}
    _check_sizes(len(support), "support counts", **sizes)
    own_rates, rates = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (tally.rates, mechanism.rates))
    both = zip(jax.tree.leaves(own_rates), jax.tree.leaves(rates), strict=True)
    if not all(np.allclose(one, other, rtol=1e-5, atol=0) for one, other in both):
        raise ArgumentError.about("mechanism", "has other p and q than the tally: which made the reports?")
    counted = CountedReports(support, known, column, int(tally.num_users), 0, False)
    if isinstance(mechanism, Design):
        return checked(of_design(counted, _fitting(mechanism, known)))
    again = Tally(as_jax_integers(support), as_jax_integers(np.asarray(tally.num_users)), rates=rates)
    return checked(Reports(counted, float(mechanism.epsilon), Tallied(counted, mechanism, again, None), None, True))


@in_float64
def added(one: Reports, other: Reports) -> Reports:
    """See `Reports.__add__`."""
    first, second = one.counted, other.counted
    different = {
        "domains": first.domain != second.domain,
        "mechanisms": one.mechanism.name != other.mechanism.name,
        "ε": one.epsilon != other.epsilon,
        "parameters": not all(map(np.array_equal, one.rates, other.rates)),
        "columns": first.column != second.column,
        "metadata": _making(first.metadata) != _making(second.metadata),
    }
    what = next((what for what, differs in different.items() if differs), None)
    if what is not None:
        raise ArgumentError(f"reports with different {what} cannot be added: ask each for its answer", value=other)
    if first.metadata is not None and first.metadata.round is not None:
        raise ArgumentError("rounds of the same users depend on each other, and cannot be added", value=other)
    _check_different(one, other)
    counted = first + second
    source = None
    if one.source is not None and other.source is not None:
        # A question about single reports reads all files in one way, which would misread some.
        ways = one.source.way_of_reading(), other.source.way_of_reading()
        if what := next((name for name, way in ways[0].items() if way != ways[1][name]), None):
            problem = f"files with different {what} cannot be added: read all alike, or add their counts"
            raise ArgumentError(f"{problem} (rrjax.Reports.of_counts, of_tally)", value=other)
        paths: list[Any] = [*one.files.files(), *other.files.files()]
        source = dataclasses.replace(one.source, paths=tuple(paths), column=first.column)
    from_counts = one.from_counts or other.from_counts
    if one.tallied is None or other.tallied is None:
        both = Reports(counted, one.epsilon, None, source, from_counts)
    elif one.design is not None:
        both = of_design(counted, one.design, source, from_counts)
    else:
        tallied = Tallied(counted, one.mechanism, one.tallied.tally + other.tallied.tally, None)
        both = Reports(counted, one.epsilon, tallied, source, from_counts)
    return checked(dataclasses.replace(both, beside=(*one.inputs, *other.inputs)))


def _making(metadata):
    """What must be equal in the metadata of reports that are added."""
    return metadata and (metadata.mechanism, metadata.simulated, metadata.sampled, metadata.columns, metadata.range)


def _check_different(one, other):
    """Refuses reports that are the same: one object, one file, or a copy of it."""
    frames = one.frame, other.frame
    if one is other or (None not in frames and frames[0].rows.frame is frames[1].rows.frame):
        raise ArgumentError("these are the same reports twice, which are not more reports", value=other)
    if one.source is None or other.source is None:
        return
    files = [*one.source.files(), *other.source.files()]
    if len({identity(file) for file in files}) < len(files) or copies(files):
        raise ArgumentError("a file is among both, or a copy of it: give each report once", value=other)


def _check_sizes(size, what, **sizes):
    for argument, length in sizes.items():
        if length != size:
            raise ArgumentError.about(argument, f"has {length:,} categories, and there are {size:,} {what}")


def read_source(
    source: Source,
    epsilon: float | None,
    domain: Domain | None,
    counts: str | None = None,
    design: Callable[[Domain], Design] | None = None,
    named: str = "",
) -> Reports:
    """Counts the reports in files; their ε is given, or in the metadata, or they are of a survey design.

    `design` makes the design of a domain, and `named` is its name for messages; `counts` is a column of counts.
    """
    if epsilon is not None:
        check_epsilon(epsilon)
    name, metadata = os.path.basename(source.files()[0]), source.metadata()
    if design is not None:
        check_design(source, name, epsilon, domain, named)
        assert domain is not None
        made = design(domain)
        check_rates(check_stored(source, counts, mechanism=made.name), made, domain)
        return checked(of_design(count_source(source, domain, counts), made, source, counts is not None))
    if of_numbers(metadata):
        problem = "holds reports of numbers: `rrjax estimate` and `rrjax compare` take it, other commands do not"
        raise refusal("data", f"{name} {problem}", flag="REPORTS", value=name)
    if metadata is not None:
        check_counts(source, counts)
        mechanism = mechanism_of(metadata, name)
        metadata.check(name, column=source.column, epsilon=epsilon, domain=domain)
        epsilon = metadata.effective_epsilon
        if metadata.round is not None:
            check_round(source, metadata)
            epsilon = float(mechanism.epsilon)
        if not (isinstance(mechanism, Design) or 0.99 * SMALLEST_EPSILON < epsilon <= LARGEST_EPSILON):
            raise DataError(
                f"{name} says that it was randomized with ε = {epsilon:g} nats, and collections have one from "
                f"{SMALLEST_EPSILON:g} to {LARGEST_EPSILON:g}: was the file changed after it was written?",
                file=name,
                argument="epsilon",
                value=epsilon,
            )
        if mechanism.name != rrjax.RandomizedResponse.name:
            return checked(_tallied(source, name, epsilon))
    stored = {} if metadata else check_stored(source, counts, mechanism=RandomizedResponse.name, epsilon=epsilon)
    if epsilon is None:
        raise refusal(
            "epsilon",
            f"{name} does not say how it was randomized: give {option('epsilon')}, the privacy parameter of the "
            "collection in nats (files written by `rrjax randomize` carry it)",
        )
    named_column = source if metadata is None else dataclasses.replace(source, column=metadata.column)
    counted = count_source(named_column, domain or stored_domain(stored, source), counts)
    check_rates(stored, RandomizedResponse(counted.domain.num_categories, epsilon), counted.domain)
    return checked(Reports(counted, epsilon, None, source, counts is not None))


@in_float64
def read_support(
    source: Source, epsilon: float | None, domain: Domain | None, counts: str | None, mechanism: Any, num_users: int
) -> Reports:
    """Reads a table of support counts of a mechanism of K and ε; arguments and errors are as of `rrjax.read`."""
    of_users = option("num_users")
    name = full_name(mechanism) if isinstance(mechanism, str) else ""
    for argument, given, what in (
        ("counts", counts, "the column of support counts"),
        ("epsilon", epsilon, "the ε of the mechanism, nats"),
        ("domain", domain, "all categories"),
    ):
        if given is None:
            raise refusal(argument, f"{of_users} needs {option(argument)}, {what}")
    if name not in MECHANISMS or name == RandomizedResponse.name:
        known = ", ".join(each for each in MECHANISMS if each != RandomizedResponse.name)
        problem = f"{of_users} needs {option('mechanism')}, whose reports support the categories: one of {known}"
        raise refusal("mechanism", problem, value=mechanism)
    num_users = as_integer(num_users, "num_users", 1, MOST_REPORTS)
    check_counts(source, counts)
    stored = check_stored(source, counts, mechanism=name, epsilon=epsilon, num_users=num_users)
    counted = count_source(source, domain, counts)
    made = MECHANISMS[name](counted.domain.num_categories, check_epsilon(epsilon or 0.0))
    check_rates(stored, made, counted.domain)
    most = int(counted.counts.max())
    if num_users < most:
        problem = f"{num_users:,} is below {most:,}, the support of one category: a report supports a category once"
        raise refusal("num_users", f"{of_users} {problem}", value=num_users)
    tally = Tally(as_jax_integers(counted.counts), as_jax_integers(np.asarray(num_users)), rates=made.rates)
    reports = of_tally(tally, made, counted.domain, counted.column)
    return dataclasses.replace(reports, source=source, warnings=[*left_out(counted), *reports.warnings])


def check_round(source: Source, metadata: Metadata) -> None:
    """Refuses files of several rounds, a user twice in one round, and a row without a user."""
    rounds = rounds_of(source)
    if len(rounds) > 1:
        name = os.path.basename(source.files()[0])
        raise refusal(
            "data",
            f"{name} and the other files hold the rounds {', '.join(map(str, rounds))} of the same users, whose "
            "reports depend on each other: give the file of one round. `rrjax estimate` and `rrjax report` take all",
            flag="REPORTS",
        )
    check_users(source, metadata.user or "")


def columns_of(source: Source, given: Mapping[str, Any], flag: str = "REPORTS") -> SeparateColumns:
    """All columns of a file that were randomized separately; refuses what is given about one column."""
    from rrjax.reports.separate_columns import SeparateColumns

    columns = SeparateColumns.of_source(source, flag)
    odd = next((argument for argument, value in given.items() if value is not None), None)
    if odd is not None:
        several = "the file has several that say how they were randomized"
        problem = f"{option(odd)} is of one column, and {several}: name one with {option('column')}"
        raise refusal(odd, problem, value=given[odd])
    return columns


def _files(data):
    """The names of files; None for a frame."""
    if isinstance(data, str | os.PathLike):
        return data
    if isinstance(data, Sequence) and all(isinstance(each, str | os.PathLike) for each in data):
        if not data:
            raise ArgumentError.about("data", "is an empty list: give a file, or a data frame")
        return list(data)
    if data is None or isinstance(data, Sequence | Mapping | int | float | np.ndarray):
        problem = f"is a file, several, or a data frame, not a {type(data).__name__}; of counts make Reports.of_counts"
        raise ArgumentError.about("data", problem)
    return None


def design_of(mechanism: Any, parameters: Mapping[str, Any] | None) -> Any:
    """The function that makes the design of a domain; None without one."""
    if isinstance(mechanism, Design):
        if parameters is not None:
            raise ArgumentError.about("parameters", "are of a design that is named; this one has its own")
        return partial(_fitting, mechanism)
    if mechanism is None:
        if parameters is not None:
            raise ArgumentError.about("parameters", "are of a design: name it with mechanism=")
        return None
    if mechanism not in DESIGNS:
        of_files = isinstance(mechanism, SupportMechanism) or mechanism in [*TABLE]
        why = "; randomized response needs epsilon= alone, and other mechanisms files of `rrjax randomize`" * of_files
        problem = f"must be a design or the name of one, {', '.join([*DESIGNS, *TWO_SAMPLES])}; got {mechanism!r}{why}"
        raise ArgumentError.about("mechanism", problem, value=mechanism)
    numbers = dict(parameters or {})
    yes = numbers.pop("yes", None)

    def made(domain):
        named = {
            key: in_order(key, numbers[key], domain) for key in TABLE[mechanism].vectors if _of_answers(numbers, key)
        }
        design = make_design(mechanism, numbers | named, domain.num_categories)
        _check_sizes(domain.num_categories, "answers in the domain", mechanism=design.num_categories)
        return with_yes(design, domain, yes)

    return made


def _of_answers(numbers, key):
    """Whether a parameter names the answer of each of its numbers."""
    value = numbers.get(key)
    return isinstance(value, Mapping) or (isinstance(value, str) and ":" in value)


def _two_samples(mechanism, parameters):
    """The design of two samples and the label of its yes, which may be None; None for another mechanism."""
    numbers = dict(parameters or {})
    yes = numbers.pop("yes", None)
    if isinstance(mechanism, TwoSamples):
        if numbers:
            raise ArgumentError.about("parameters", "are of a design that is named; this one has its own")
        return mechanism, yes
    if isinstance(mechanism, str) and mechanism in TWO_SAMPLES:
        return make_two_samples(mechanism, numbers), yes
    return None


def _of_frame(frame, column, epsilon, domain, design, counts, missing):
    """The reports in a data frame."""
    if column is None:
        column = _only_column(frame, counts)
    counted = io.count_frame(frame, domain, column=column, counts=counts, missing=missing)
    rows = FrameSource(column=column, missing=missing, rows=FrameRows(frame))
    given: dict[str, Any] = {"from_counts": counts is not None, "frame": rows}
    if design is not None:
        if epsilon is not None:
            raise ArgumentError.about("epsilon", "is of randomized response; that of a design follows from it")
        if domain is None:
            raise ArgumentError.about("domain", "is missing: all answers that are possible, in the order of the design")
        return checked(dataclasses.replace(of_design(counted, design(domain)), **given))
    if epsilon is None:
        message = "a frame does not say how its reports were made: give epsilon= or mechanism="
        raise ArgumentError(message, argument="epsilon")
    return checked(Reports(counted, check_epsilon(epsilon), **given))


def _only_column(frame, counts):
    names = [name for name in lazy(frame).collect_schema().names() if name != counts]
    if len(names) != 1:
        raise ArgumentError(f"column= is missing: the frame has {', '.join(map(repr, names))}", argument="column")
    return names[0]


def count_source(source: Source, domain: Domain | None, counts: str | None) -> CountedReports:
    """Counts the reports or values in files, or reads their counts from a column that is named."""
    return io.count_reports(source, domain) if counts is None else io.read_counts(source, counts, domain)


def check_counts(source: Source, counts: str | None) -> None:
    """Refuses a column of counts in files of reports."""
    if counts is not None and source.columns():
        problem = f"{option('counts')} is for files of counts, and {source.files()[0]} holds reports"
        raise refusal("counts", problem, value=counts)


def check_design(source, name, epsilon, domain, named):
    """Refuses what contradicts a survey design."""
    if source.metadata() is not None:
        problem = f"{name} says itself how it was randomized: leave {option('mechanism')} {named} out"
        raise refusal("mechanism", problem, value=named)
    if epsilon is not None:
        raise refusal(
            "epsilon",
            f"{option('epsilon')} is of randomized response; the ε of {named or 'a design'} follows from "
            f"{option('parameters', '--parameter')}: leave it out",
            value=epsilon,
        )
    if domain is None:
        raise refusal(
            "domain",
            f"{option('mechanism')} {named} needs {option('domain')}, all answers that are possible: give a file of "
            "labels, one a line, or a range such as 0:1",
        )


def _fitting(design, domain):
    """A design that was made by the caller; refused where its answers, or its yes, are not those of the domain."""
    _check_sizes(domain.num_categories, "answers in the domain", mechanism=design.num_categories)
    place = domain.place_of_yes
    if not design.symmetric and None not in (place, design.yes_category) and place != design.yes_category:
        answers = domain.labels()
        problem = (
            f"takes {answers[design.yes_category]!r} for the yes, and the domain says {answers[place]!r}: make it with "
            f"yes_category={place}"
        )
        raise ArgumentError.about("mechanism", problem, value=design)
    return design


def of_design(counted, made, source=None, from_counts=True):
    """Reports of the counted answers to a survey design."""
    return Reports(counted, float(made.epsilon), tallied_answers(counted, made), source, from_counts)


def _tallied(source, name, epsilon):
    """Reports of another mechanism than randomized response."""
    if source.missing:
        raise refusal(
            "missing",
            f"{option('missing')} is for files of labels, and {name} holds reports of a mechanism, none of them "
            "missing",
            value=source.missing[0],
        )
    tallied = io.read_tally(source)
    return Reports(tallied.counted, epsilon, tallied, source)
