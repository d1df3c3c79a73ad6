"""Survey designs by flags: what the answers in a table were made by."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rrjax.cli.paths import READS
from rrjax.data.errors import ArgumentError, DataError, UsageError, did_you_mean
from rrjax.io.domain import Domain
from rrjax.mechanisms.table import RANDOMIZED_RESPONSE, TABLE, full_name, names_in
from rrjax.reports.parameters import in_order, names_yes

if TYPE_CHECKING:
    from rrjax.mechanisms import Design, TwoSamples

PANEL, WHICH = "Which survey design", "Which mechanism"
DESIGNS, TWO_SAMPLES = names_in("DESIGNS"), names_in("TWO_SAMPLES")
MECHANISMS, ORDERED, PROTOCOLS = (names_in(part) for part in ("MECHANISMS", "ORDERED", "PROTOCOLS"))
READ = (
    "reports of {} are read with their metadata (`rrjax randomize` writes them), support counts with --num-users, and "
    "randomized response with --epsilon alone; --mechanism names a survey design"
)
"""What is said of a mechanism that is no design, where its reports are read."""
RANDOMIZING = [name for name in DESIGNS if TABLE[name].parameters]
"""The designs that protect somebody: all but direct questioning."""
KNOWN = [*DESIGNS, *TWO_SAMPLES]
Made = TypeVar("Made")
EXAMPLES = {1: "yes:1/4,no:3/4", 2: "0.8,0.4"}
"""Values of parameters of several numbers, by the number of samples: for each answer, or for each sample."""

Sample = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN=FIRST,SECOND",
        help="For a --mechanism of two samples: the column that says which sample (or question) a row is of, and "
        "its two levels in the order of the parameters.",
        rich_help_panel=PANEL,
    ),
]

_FRACTION = re.compile(r"^\s*(\w+)\s*=\s*(\d+\s*/\s*\d+)", re.MULTILINE)
"""A fraction without quotes in a file of --design."""


def design_name(text: str) -> str:
    """The name of a survey design, or the column of names."""
    if text.startswith("@"):
        return text
    name = full_name(text)
    if name in ORDERED or name in PROTOCOLS:
        raise typer.BadParameter(READ.format(name))
    return _among(text, [*KNOWN, *MECHANISMS])


def randomizer_name(text: str) -> str:
    """The name of a mechanism of K and ε, a survey design of one sample, or a longitudinal protocol."""
    if (name := full_name(text)) in TWO_SAMPLES:
        raise typer.BadParameter(
            f"{name} has two samples, whose answers interviewers collect: `rrjax estimate` takes them, with --sample"
        )
    return _among(text, randomizer_names())


def randomizer_names() -> list[str]:
    """The names of `randomizer_name`, for completion in the shell."""
    return [*MECHANISMS, *ORDERED, *RANDOMIZING, *PROTOCOLS]


def design_names() -> list[str]:
    """The names of survey designs, for completion in the shell."""
    return KNOWN


def _among(text: str, known: list[str]) -> str:
    name = full_name(text)
    if name not in known:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(known)}{did_you_mean(name, known)}")
    return name


@dataclasses.dataclass(frozen=True)
class SurveyDesign:
    """The flags of a survey design."""

    mechanism: Annotated[
        str | None,
        typer.Option(
            parser=design_name,
            autocompletion=design_names,
            metavar="NAME",
            help=f"How respondents randomized their answers, in place of --epsilon: {', '.join(DESIGNS)}; or @COLUMN, "
            f"where a column says it. `rrjax estimate` and `regress` with --sample also take {', '.join(TWO_SAMPLES)}.",
            rich_help_panel=PANEL,
        ),
    ] = None
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A parameter of --mechanism, such as truth=2/3 or forced=yes:1/2,no:1/2 (numbers without names are in "
            "the order of --domain). yes=LABEL says which of two answers is the yes, where 1, yes, true, ja, oui or sí "
            "does not. NAME=@COLUMN takes it from a column. Repeatable.",
            rich_help_panel=PANEL,
        ),
    ] = None

    design: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="A file with the mechanism and its parameters, in place of --mechanism and --parameter.",
            rich_help_panel=PANEL,
        ),
        READS,
    ] = None

    def __post_init__(self) -> None:
        """Refuses parameters that the design does not have, or that are missing."""
        if self.design is not None:
            self._read(self.design)
        if self.by_respondent:
            _ = self.given
            return
        entry = None if self.mechanism is None else TABLE[self.mechanism]
        if self.mechanism is None or entry is None or entry.parameters is None:
            if self.parameter:
                instead = ": name it with --mechanism" if entry is None else f"; {self.mechanism} has none"
                problem = f"{self.parameter[0]} is one of a survey design{instead}"
                raise UsageError.about("--parameter", problem, value=self.parameter[0])
            return
        from rrjax.mechanisms.surveys.named import parameters_of

        try:
            parameters_of(self.mechanism, self._numbers(None))
        except ArgumentError as error:
            if error.value is not None or self.design is not None:
                raise self._unfit(error) from error
            several = dict.fromkeys(entry.vectors, EXAMPLES[entry.samples])
            wanted = " ".join(
                f"--parameter {name}={several.get(name, '1/4' if name == 'lack' else '2/3')}"
                for name in entry.parameters
                if name != "forced_no"  # of the symmetric design
            )
            problem = f"--mechanism: {error}: give for example {wanted}"
            raise UsageError(problem, flag="--parameter", value=error.value) from error

    def _read(self, path: Path) -> None:
        """Takes mechanism and parameters from a file."""
        if self.mechanism is not None or self.parameter:
            raise UsageError.about(
                "--design", "holds the mechanism and its parameters: leave --mechanism and --parameter out", value=path
            )
        try:
            record = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            of_toml = isinstance(error, tomllib.TOMLDecodeError)
            bare = _FRACTION.search(path.read_text(encoding="utf-8-sig")) if of_toml else None
            hint = f'. TOML wants quotes around a fraction: {bare[1]} = "{bare[2]}"' if bare else ""
            raise _unusable(path, f" cannot be read: {reason}{hint}") from error
        try:
            name = self._named(str(record.pop("mechanism", "")))
        except typer.BadParameter as error:
            raise _unusable(path, f", mechanism: {error.message}") from error
        texts = []
        for key, value in record.items():
            parts = [f"{name}:{number}" for name, number in value.items()] if isinstance(value, dict) else value
            texts.append(f"{key}={','.join(map(str, parts)) if isinstance(parts, list) else parts}")
        object.__setattr__(self, "mechanism", name)
        object.__setattr__(self, "parameter", texts)

    def _named(self, text: str) -> str:
        return design_name(text)

    @property
    def given(self) -> dict[str, str]:
        """The parameters as texts, by their names."""
        parameters: dict[str, str] = {}
        for text in self.parameter or []:
            name, equals, value = text.partition("=")
            name = name.strip().replace("-", "_")
            if not equals or name in parameters:
                problem = "is given twice" if equals else "wants NAME=VALUE, such as truth=2/3"
                raise UsageError.about("--parameter", f"{text}: {problem}", value=text)
            parameters[name] = value
        return parameters

    def _numbers(self, domain: Domain | None) -> dict[str, str]:
        """The parameters that are numbers, those of all answers in the order of the domain."""
        entry = TABLE[self.mechanism or ""]
        vectors = entry.vectors if entry.samples == 1 else ()
        given = {name: text for name, text in self.given.items() if name != "yes"}
        try:
            return {name: in_order(name, text, domain) if name in vectors else text for name, text in given.items()}
        except UsageError as error:
            if self.design is None:
                raise
            said, form = str(error).removeprefix("--parameter "), '{yes = "1/6", no = "5/6"}'
            raise _unusable(self.design, f": {said}. In the file they are named so: {form}.") from error

    def _made(self, make: Callable[[], Made]) -> Made:
        try:
            return make()
        except ArgumentError as error:
            raise self._unfit(error) from error

    def _unfit(self, error: ArgumentError) -> UsageError | DataError:
        """The error about parameters, of the flag or of the file of --design."""
        if self.design is not None:
            return _unusable(self.design, f": {error}")
        return UsageError(f"--parameter: {error}", flag="--parameter", value=self.parameter)

    @property
    def by_respondent(self) -> bool:
        """Whether the design, or a parameter, is in a column."""
        return any(text.startswith("@") for text in (self.mechanism or "", *self.given.values()))

    @property
    def of_two_samples(self) -> bool:
        """Whether it is a design of two samples, which estimates two unknown shares."""
        return self.mechanism in TWO_SAMPLES

    def check_one_sample(self) -> None:
        """Refuses a design of two samples, for commands without --sample."""
        if self.of_two_samples:
            problem = f"{self.mechanism} has two samples: `rrjax estimate` and `rrjax regress` take it, with --sample"
            raise UsageError.about("--mechanism", problem, value=self.mechanism)

    def two_samples(self) -> TwoSamples:
        """The design of two samples; errors as of `made`."""
        name = self.mechanism
        assert name is not None
        from rrjax.mechanisms.surveys.named import make_two_samples

        return self._made(lambda: make_two_samples(name, self._numbers(None)))

    @property
    def yes_is_first(self) -> bool:
        """Whether category 0 is the yes where no domain is given: of yes or no, or of numbers named so."""
        from rrjax import mechanisms

        if getattr(mechanisms.DESIGNS.get(self.mechanism or ""), "yes_category", None) is not None:
            return True
        named = [text for name, text in self.given.items() if name in TABLE[self.mechanism or ""].vectors]
        return any(names_yes(text) for text in named)

    @property
    def maker(self) -> tuple[Callable[[Domain], Design] | None, str]:
        """The function that makes the design of a domain, None without one; and its name."""
        if self.by_respondent:
            problem = (
                "takes a column (@) in `rrjax estimate`, `rrjax regress` and `rrjax test difference`: give one design "
                "for all"
            )
            raise UsageError.about("--mechanism", problem, value=self.mechanism)
        if self.mechanism in MECHANISMS:
            message = f"--mechanism: {READ.format(self.mechanism)}"
            raise UsageError(message, flag="--mechanism", value=self.mechanism)
        return (None, "") if self.mechanism is None else (self.made, self.mechanism)

    @property
    def yes(self) -> str | None:
        """The label of yes, if it is given."""
        return self.given.get("yes")

    def made(self, domain: Domain) -> Design:
        """The design for these answers; refuses parameters that make none for them, and a yes that is not known."""
        from rrjax.reports.parameters import with_yes

        made = self._of_size(domain.num_categories, f"--domain {domain.num_categories}", domain)
        return with_yes(made, domain, self.yes)

    def _of_size(self, num_categories: int | None, said: str, domain: Domain | None = None) -> Design:
        """The design; `said` says in a message where K comes from."""
        name = self.mechanism
        assert name is not None
        self.check_one_sample()
        numbers = self._numbers(domain)
        from rrjax.mechanisms.surveys.named import make_design

        design = self._made(lambda: make_design(name, numbers, num_categories))
        if num_categories not in (None, design.num_categories):
            raise UsageError.about(
                "--mechanism",
                f"{name} with these parameters has {design.num_categories} answers, and {said}: they must "
                "be the same, in the same order",
                value=name,
            )
        return design


def _unusable(path: Path, problem: str) -> DataError:
    """The error about a file of --design."""
    return DataError(f"--design {path}{problem}", flag="--design", file=path, value=path)


@dataclasses.dataclass(frozen=True)
class Randomizer(SurveyDesign):
    """The flags of a mechanism of K and ε, or of a survey design."""

    mechanism: Annotated[
        str | None,
        typer.Option(
            parser=randomizer_name,
            autocompletion=randomizer_names,
            metavar="NAME",
            help=f"One of {', '.join(MECHANISMS)}; or a survey design, with --parameter in place of --epsilon: "
            f"{', '.join(RANDOMIZING)}. By default {RANDOMIZED_RESPONSE}. `rrjax randomize` also takes "
            f"{', '.join(ORDERED)} for numbers, and {', '.join(PROTOCOLS)} for users who report many times.",
            rich_help_panel=WHICH,
        ),
    ] = None

    def _named(self, text: str) -> str:
        return randomizer_name(text)

    @property
    def name(self) -> str:
        """The name of the mechanism."""
        return self.mechanism or RANDOMIZED_RESPONSE

    @property
    def is_design(self) -> bool:
        """Whether it is a survey design."""
        return self.name in DESIGNS

    def check_categories(self) -> None:
        """Refuses mechanisms for numbers, and longitudinal protocols."""
        self.check_no_rounds()
        if self.name in ORDERED:
            raise UsageError.about(
                "--mechanism",
                f"{self.name} is for numbers, whose error depends on their distribution; this command is "
                "about categories",
                value=self.name,
            )

    def check_no_rounds(self) -> None:
        """Refuses a longitudinal protocol, of which one round is a mechanism of K and ε."""
        if self.name in PROTOCOLS:
            from rrjax import mechanisms

            single = mechanisms.PROTOCOLS[self.name](2, 2.0, 1.0).single_round.name
            raise UsageError.about(
                "--mechanism",
                f"{self.name} is for users who report many times; one round of it is {single}: give that, "
                "with the ε of a single report",
                value=self.name,
            )

    def check_epsilon(self, epsilon: float | None) -> None:
        """Refuses ε beside the parameters of a survey design, which determine it, and requires it elsewhere."""
        if epsilon is None and not self.is_design:
            raise UsageError.about("--epsilon", "is missing: the privacy parameter ε, in nats")
        if epsilon is not None and self.is_design:
            problem = f"--epsilon: the ε of {self.name} follows from --parameter: leave --epsilon out"
            raise UsageError(problem, flag="--epsilon", value=epsilon)

    def of_size(self, num_categories: int | None) -> Design:
        """The survey design for K answers, or for those that its parameters have; refused if K is open."""
        from rrjax import mechanisms

        kind: Any = mechanisms.DESIGNS[self.name]
        if num_categories is None and "num_categories" in {each.name for each in dataclasses.fields(kind)}:
            raise UsageError(f"--mechanism {self.name} needs --categories", flag="--categories")
        return self._of_size(num_categories, f"--categories {num_categories}")
