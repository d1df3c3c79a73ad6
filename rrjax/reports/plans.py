"""Plans of a collection: the number of users, ε, the expected error, the mechanism; how to spend ε on columns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rrjax import inference
from rrjax.data.errors import check_rate, option, refusal
from rrjax.inference.precision import noisiest
from rrjax.mechanisms import DESIGNS, MECHANISMS, Design, RandomizedResponse
from rrjax.mechanisms.surveys.named import make_design
from rrjax.mechanisms.table import full_name
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Block, Caution, Cells
from rrjax.reports.parameters import LARGEST_EPSILON, SMALLEST_EPSILON, check_epsilon
from rrjax.reports.reading import in_float64

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PROTECTS = 8.0
"""The ε above which a report hardly protects its user: it may change odds 3,000-fold."""
MOST_USERS = 10**15
"""Limit of the number of users: above that of people, and exact in float64."""


def plan(
    num_categories: int | None = None,
    epsilon: float | None = None,
    num_users: int | None = None,
    *,
    target_rmse: float | None = None,
    target_width: float | None = None,
    share: float = 0.1,
    level: float = 0.95,
    mechanism: str | Design = RandomizedResponse.name,
    parameters: Mapping[str, Any] | None = None,
) -> Plan:
    """Plans a collection: of ε, the number of users and a target, two are given and the third is computed.

    Args:
        num_categories: K; a survey design may say so itself.
        epsilon: ε, nats; not of a survey design, whose ε follows from its parameters.
        num_users: N.
        target_rmse: Target of the root mean squared error of a share of the population that the users are drawn from.
        target_width: Target of the width of the exact interval of a category with the share `share`.
        share: The share that the width is for.
        level: Confidence level of the interval.
        mechanism: Name of a mechanism or of a survey design, or a design.
        parameters: The parameters of a design that is named.

    Returns:
        `Plan`, computed in float64 by the plans of `rrjax.inference`.

    Raises:
        ArgumentError: Too few or too many of the three, or a target that cannot be reached.

    Example:
        >>> import rrjax
        >>> plan = rrjax.plan(3, epsilon=1.0, target_rmse=0.02)
        >>> plan.solved, plan.num_users
        ('users', 4189)
    """
    design = mechanism if isinstance(mechanism, Design) else None
    name = full_name(mechanism) if isinstance(mechanism, str) else mechanism.name
    if design is None and name in DESIGNS:
        design = make_design(name, parameters or {}, num_categories)
    elif parameters is not None:
        raise refusal("parameters", f"{option('parameters')} are of a survey design that is named", value=parameters)
    if design is None and name not in MECHANISMS:
        known = ", ".join([*MECHANISMS, *DESIGNS])
        raise refusal("mechanism", f"{option('mechanism')} must be one of {known}, or a design; got {name!r}")
    if design is not None and num_categories not in (None, design.num_categories):
        problem = f"is {num_categories:,}, and {name} with these parameters has {design.num_categories:,} answers"
        raise refusal("num_categories", f"{option('num_categories')} {problem}", value=num_categories)
    size: Any = num_categories if design is None else design.num_categories
    yes = None if design is None else design.yes_category
    return planned(Target(size, name, target_rmse, target_width, share, level, design, yes), epsilon, num_users)


@dataclasses.dataclass(frozen=True)
class Target:
    """The aim of a plan."""

    num_categories: int
    mechanism: str
    target_rmse: float | None
    target_width: float | None
    share: float
    level: float
    design: Design | None = None
    """The survey design, if the mechanism is one."""
    yes: int | None = None
    """The category of the yes, if it is known."""

    def __post_init__(self) -> None:
        """Refuses aims that no plan can reach."""
        check_rate("level", self.level)
        size, categories = self.num_categories, option("num_categories", "--categories")
        if size is None or not 2 <= size < 2**31:
            problem = (
                "is missing: K, how many categories there are"
                if size is None
                else f"must be from 2 to 2147483647, got {_short(size)}"
            )
            raise refusal("num_categories", f"{categories} {problem}", flag="--categories", value=size)
        for argument in ("target_rmse", "target_width"):
            if getattr(self, argument) is not None:
                check_rate(argument, getattr(self, argument))
        if not 0 <= self.share <= 1:
            problem = f"must lie between 0 and 1, got {self.share:g}"
            raise refusal("share", f"{option('share')} {problem}", value=self.share)
        if self.target_rmse is not None and self.target_width is not None:
            both = f"{option('target_rmse')} and {option('target_width')}"
            raise refusal("target_width", f"{both} are two targets; give one")

    @property
    def argument(self) -> str | None:
        """The argument that gave the target error or width; None without a target."""
        return next((name for name in ("target_rmse", "target_width") if getattr(self, name) is not None), None)

    @property
    def spoken(self) -> str:
        """The name of the mechanism in sentences."""
        return self.mechanism.replace("-", " ")

    def unreachable(self, problem: str, value: Any = None) -> Exception:
        """The error about the target."""
        return refusal(self.argument or "", problem, value=value)

    def of(self, function: Any, *arguments: Any, **options: Any) -> float:
        """The result of a function of `rrjax.inference` for this K and mechanism."""
        design = self.design
        kind = MECHANISMS[self.mechanism] if design is None else lambda *_: design
        return float(function(self.num_categories, *arguments, mechanism=kind, **options))

    def category(self, share: float) -> int | None:
        """The category that a width at a share is of: yes of two answers, else the noisiest; None if all are alike."""
        if self.design is None:
            return None
        return noisiest(self.design, share) if self.yes is None else self.yes

    def width(self, num_users: float, epsilon: float, share: float) -> float:
        """The expected width of the interval of a category with a share."""
        category = self.category(share)
        return self.of(inference.expected_width, num_users, epsilon, share, level=self.level, category=category)


class _Expected(Answer):
    """An answer before there are reports, with a table of a few rows, which people see whole."""

    page: ClassVar[str] = "choose/mechanism"

    @property
    def columns(self) -> dict[str, np.ndarray]:
        (rows,) = self.rows().values()
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    @property
    def warnings(self) -> list[str]:
        return []


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Plan(_Expected):
    """The expected errors of a collection, and of all mechanisms at its ε.

    `columns` has a row for each mechanism, and for the survey design: its name, error, bits, note and operations.
    """

    written: ClassVar[str] = "All mechanisms"

    target: Target
    epsilon: float
    num_users: int
    solved: str
    """Which of users, epsilon and target was computed."""
    rmse: float
    """Upper bound, over all distributions, of the error of a share of the population that the users are drawn from."""
    rmse_of_users: float
    """Error of a share of the users themselves."""
    width: float
    """Width of the interval of an empty category."""
    share_width: float
    """Width of the interval of a category with the share of the target."""
    detectable: float
    """Share that a p-value at 0.05 detects with 80 % power."""
    detectable_among_all: float
    """Share that a p-value at 0.05 ÷ K detects with 80 % power; at 0.05 if K = 2, of which one is not empty."""
    category: int | None
    """The category with the share of the target, if not all are alike: 0 is yes of two answers, else the noisiest."""
    empty_category: int | None
    """The same of the empty category, and of the shares that are detected."""
    mechanisms: list[inference.MechanismErrors]
    """The errors of all mechanisms at this ε, and of the survey design, the smallest first."""

    @property
    def _size(self):
        return f"K = {self.target.num_categories:,}, ε = {self.epsilon:.4g}"

    @property
    def title(self) -> str:
        solved = {
            "users": f"{form.number(self.num_users, 'user is', 'users are')} needed",
            "epsilon": f"ε = {self.epsilon:.4g} nats is needed",
            "target": "Expected errors of the collection",
        }[self.solved]
        return f"{solved}: {self._size} nats, N = {self.num_users:,.0f}"

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        return {"mechanisms": [row._asdict() | {"name": row.name.replace(" ", "-")} for row in self.mechanisms]}

    @property
    def facts(self) -> dict[str, Any]:
        design = self.target.design
        known = {**vars(self.target), **vars(self), "design": None if design is None else design.note}
        # `category` has the yes.
        return {name: value for name, value in known.items() if name not in ("target", "yes", "mechanisms")}

    @property
    def sentences(self) -> list[str]:
        said = [
            "error: typical, of a share of the population; bits: size of a report; operations: the server's, to count "
            "all reports."
        ]
        best, own = self.mechanisms[0], self.target.spoken
        more = (next(row for row in self.mechanisms if row.name == own).expected_rmse / best.expected_rmse) ** 2
        if more > 1.05:
            said.append(
                f"For the same error {own} needs {more:.2g} times the users of {best.name}, whose reports "
                f"`rrjax randomize --mechanism {best.name.replace(' ', '-')}` makes."
            )
        return said

    @property
    def cautions(self) -> list[str]:
        if math.isinf(self.epsilon):
            return [
                "ε is infinite: some answer is never given by some respondents, so that it tells what its sender does "
                "not hold. Choose parameters with which everybody may give every answer."
            ]
        odds = form.at_most(math.exp(min(self.epsilon, 700)))
        return [
            f"ε = {self.epsilon:.4g} hardly protects anybody: a report may change the odds of what its user holds "
            f"{odds}-fold. Collect from more people at a smaller ε, or accept a larger error."
        ] * (self.epsilon > PROTECTS)

    def blocks(self, top: int = SHOWN) -> list[Block]:
        target, interval = self.target, form.interval(self.target.level)
        empty, own = (
            "" if place is None else f" (noisiest: {place})" if target.yes is None else " (yes)"
            for place in (self.empty_category, self.category)
        )
        values = {
            "Typical error of a share of the population (root mean squared)": self.rmse,
            "Typical error for the people who answered": self.rmse_of_users,
            f"Width of the {interval} of an empty category{empty}": self.width,
            f"Width of the {interval} of a share of {form.percent(target.share)}{own}": self.share_width,
            f"Smallest share that is detected, for a category chosen beforehand{empty}": self.detectable,
            f"Smallest share that is detected, among all categories{empty}": self.detectable_among_all,
        }
        errors = [[text, form.percent(value) if value <= 1 else "more than 100 %"] for text, value in values.items()]
        rows = [
            [row.name, row.note, form.percent(row.expected_rmse), f"{row.bits:,.0f}", f"{row.operations:.1e}"]
            for row in self.mechanisms
        ]
        compared = Cells(["mechanism", "parameters", "error", "bits", "operations"], rows, names=2)
        return [Cells(["", ""], errors, width=None), compared, *self.sentences, *map(Caution, self.cautions)]

    @property
    def words(self) -> dict[str, str]:
        return {
            "error": "root mean squared, of the unbiased estimate of a share; that of `rrjax estimate` is often closer",
            "population": "from which the users are drawn at random; drawing them is a part of the error, taken as "
            "large as it can be (where all shares are equal, or, with rates that differ by category, where the sum of "
            "both is largest). Intervals and the smallest detected shares are of the population, too",
            "noisiest": "of categories whose rates differ, the one with the largest variance; counted from zero",
            "interval": "exact, as `rrjax estimate` prints it",
            "detected": "with a chance of 80\N{NO-BREAK SPACE}%, by a p-value of at most 0.05; among all categories of "
            f"at most 0.05 ÷ {self.target.num_categories:,}",
            "operations": "additions and hashes, roughly",
        }

    def figure(self, ax: Axes | None = None) -> Figure:
        """The error against the number of users and against ε, for each mechanism."""
        from rrjax.figures import plan_figure
        from rrjax.figures.axes import refuse_axes

        refuse_axes(ax)
        return plan_figure(
            self.target.num_categories,
            self.epsilon,
            self.num_users,
            target=self.target.target_rmse,
            design=self.target.design,
            title=f"{self._size}, {form.number(self.num_users, 'user', 'users')}",
        )


@in_float64
def planned(target: Target, epsilon: float | None, num_users: int | None) -> Plan:
    """Solves for the one of ε, N and target that is not given."""
    design, users = target.design, option("num_users", "--users")
    if design is not None:
        if epsilon is not None:
            named, parameters = option("epsilon"), option("parameters", "--parameter")
            problem = f"{named}: the ε of {target.mechanism} follows from {parameters}: leave {named} out"
            raise refusal("epsilon", problem, value=epsilon)
        epsilon = float(design.epsilon)
    elif epsilon is not None:
        epsilon = check_epsilon(epsilon)
    if num_users is not None:
        num_users = check_users(num_users)
    if (epsilon is not None) + (num_users is not None) + (target.argument is not None) != 2:
        some = f"two of {option('epsilon')}, {users} and" if design is None else f"one of {users} and"
        problem = f"give {some} a target ({option('target_rmse')} or {option('target_width')}); the other is computed"
        flag = "--epsilon" if design is None else "--users"
        raise refusal("epsilon" if design is None else "num_users", problem, flag=flag)
    number, solved = float(num_users or 1), "target"
    if epsilon is not None and num_users is None:
        solved, number = "users", _users(target, epsilon)
    elif epsilon is None:
        solved, epsilon = "epsilon", _epsilon(target, number)
    size, empty = target.num_categories, target.category(0.0)
    # Where an answer can give its user away, there is no ε to compare at.
    rows = inference.compare_mechanisms(size, max(round(number), 1), epsilon) if math.isfinite(epsilon) else []
    if design is not None:
        error, bits = target.of(inference.expected_rmse, number, epsilon), math.ceil(math.log2(size))
        rows.append(inference.MechanismErrors(target.spoken, error, bits, design.note, number))
    return Plan(
        target,
        epsilon,
        round(number),
        solved,
        target.of(inference.expected_rmse, number, epsilon),
        target.of(inference.expected_rmse, number, epsilon, estimand="users"),
        target.width(number, epsilon, 0.0),
        target.width(number, epsilon, target.share),
        target.of(inference.detectable_share, number, epsilon, category=empty),
        target.of(inference.detectable_share, number, epsilon, level=0.05 / (size if size > 2 else 1), category=empty),
        target.category(target.share),
        empty,
        sorted(rows, key=lambda row: float(f"{row.expected_rmse:.6e}")),
    )


def check_users(num_users: int) -> int:
    """The number of users; refuses one that is not whole, below one, or above any number of people."""
    problem = None
    if isinstance(num_users, bool) or num_users % 1:
        problem = f"must be a whole number, got {num_users}"
    elif not 1 <= num_users <= MOST_USERS:
        problem = f"must be at least 1 and at most {MOST_USERS:,}, got {_short(num_users)}"
    if problem is not None:
        raise refusal("num_users", f"{option('num_users', '--users')} {problem}", flag="--users", value=num_users)
    return int(num_users)


def _users(target: Target, epsilon: float) -> float:
    if target.target_width is not None:
        given = {"level": target.level, "category": target.category(target.share)}
        number = target.of(inference.users_for_width, epsilon, target.target_width, target.share, **given)
    else:
        number = target.of(inference.users_for_error, epsilon, target.target_rmse)
    if not max(number, 1.0) <= MOST_USERS:
        raise target.unreachable(f"the target takes more than {MOST_USERS:,} users: widen it, or raise ε", number)
    return max(number, 1.0)


def _epsilon(target: Target, number: float) -> float:
    """The smallest ε that reaches the target."""
    low, epsilon = SMALLEST_EPSILON, 2 * LARGEST_EPSILON
    if (width := target.target_width) is None:
        epsilon = target.of(inference.epsilon_for_error, number, target.target_rmse)
    elif not target.width(number, epsilon, target.share) <= width:
        epsilon = math.inf
    else:
        for _ in range(60):
            middle = math.sqrt(low * epsilon)
            narrow = target.width(number, middle, target.share) <= width
            low, epsilon = (low, middle) if narrow else (middle, epsilon)
    users = form.number(round(number), "user", "users")
    if epsilon > LARGEST_EPSILON:
        raise target.unreachable(f"with {users} no ε reaches the target: it takes more of them, or a wider target")
    if epsilon < SMALLEST_EPSILON:
        raise target.unreachable(f"with {users} any ε down to {SMALLEST_EPSILON:g} reaches the target")
    return epsilon


def _short(number: int) -> str:
    return f"{number:,}" if abs(number) < 10**18 else "a number of more than 18 digits"


WAYS = {"all": "all columns", "sampled": "{}, drawn at random", "among fakes": "1, among fake answers"}


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class ColumnPlan(_Expected):
    """The expected errors of each way to spend ε on several columns.

    `columns` has a row for each way: its name, the number of columns that a user reports, ε of each, and the errors of
    a share and of a cell.
    """

    written: ClassVar[str] = "All ways"

    num_categories: list[int]
    """K of each column."""
    epsilon: float
    num_users: int
    ways: list[inference.SplitErrors]
    """The ways, the one with the smallest error of a share first."""

    @property
    def title(self) -> str:
        return (
            f"Errors of {len(self.num_categories)} columns: {self._sizes}, ε = {self.epsilon:.4g} nats for all of "
            f"them, N = {self.num_users:,}"
        )

    @property
    def _sizes(self):
        return f"K = {', '.join(f'{size:,}' for size in self.num_categories)}"

    @property
    def facts(self) -> dict[str, Any]:
        return {"columns": self.num_categories, "epsilon": self.epsilon, "num_users": self.num_users}

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        return {"ways": [way._asdict() for way in self.ways]}

    def cells(self, top: int = SHOWN) -> Cells:
        rows = [
            [
                WAYS[way.name].format(way.number),
                f"{way.epsilon:.4g}",
                form.percent(way.share),
                form.percent(way.cell) if np.isfinite(way.cell) else "unknown",
            ]
            for way in self.ways
        ]
        return Cells(["a user reports", "ε of each", "error of a share", "error of a cell"], rows)

    @property
    def sentences(self) -> list[str]:
        alone, together = (
            f"--columns-per-user {way.number}" if way.name == "sampled" else "all of them from each user"
            for way in (self.ways[0], min(self.ways, key=lambda way: way.cell))
        )
        return [
            "Errors: root mean squared, of unbiased estimates of the population, where shares are equal and columns "
            "independent; a cell is one in the table of two columns.",
            f"`rrjax randomize --apart`: for single columns {alone}; to see how columns go together {together}.",
        ]

    @property
    def words(self) -> dict[str, str]:
        return {
            "all columns": "every user reports every column, each with an equal part of ε",
            "at random": "every user reports some of the columns, drawn at random, each with an equal part of ε",
            "fake answers": "every user reports one column, drawn at random, with all of ε; the answers in the other "
            "columns are made up, so that the report does not tell which column it is (RS+FD)",
        }

    def figure(self, ax: Axes | None = None) -> Figure:
        """The errors of each way against ε."""
        from rrjax.figures import splits_figure
        from rrjax.figures.axes import refuse_axes

        refuse_axes(ax)
        title = f"{self._sizes}; {form.number(self.num_users, 'user', 'users')}"
        return splits_figure(self.num_categories, self.epsilon, self.num_users, title=title)


@in_float64
def plan_columns(num_categories: Sequence[int], epsilon: float, num_users: int) -> ColumnPlan:
    """Compares the ways to spend ε on several columns.

    Args:
        num_categories: K of each column, two columns or more.
        epsilon: ε of everything that a user reports, nats.
        num_users: N.

    Returns:
        `ColumnPlan`, computed by `rrjax.inference.compare_splits`.

    Raises:
        ArgumentError: Fewer than two columns, or K, ε or N that no collection can have.

    Example:
        >>> import rrjax
        >>> best = rrjax.reports.plan_columns([4, 10, 16], 2.0, 50_000).ways[0]
        >>> best.name, best.number
        ('sampled', 1)
    """
    sizes = list(num_categories)
    if len(sizes) < 2 or not all(isinstance(size, int) and 2 <= size < 2**31 for size in sizes):
        problem = "give the number of categories of each of two columns or more, at least 2, such as 4,10,16"
        given = ",".join(map(str, sizes))
        named = option("num_categories", "--columns")
        raise refusal("num_categories", f"{named} {given}: {problem}", flag="--columns", value=given)
    num_users, epsilon = check_users(num_users), check_epsilon(epsilon)
    return ColumnPlan(sizes, epsilon, num_users, inference.compare_splits(sizes, num_users, epsilon))
