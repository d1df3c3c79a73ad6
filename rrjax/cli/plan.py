"""`rrjax plan`."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from rrjax import inference
from rrjax.cli import show
from rrjax.cli.apart import PANEL
from rrjax.cli.design import Randomizer
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import CONFIDENCE, Level, Output, check_rate, flags
from rrjax.cli.splits import run as run_splits
from rrjax.data.errors import UsageError
from rrjax.inference.planned_rates import noisiest
from rrjax.mechanisms import MECHANISMS, Design
from rrjax.reports import form
from rrjax.reports.epsilon import LARGEST_EPSILON, SMALLEST_EPSILON, check_epsilon

PROTECTS = 8.0
"""The ε above which a report hardly protects its user: it may change odds 3,000-fold."""
MOST_USERS = 10**15
"""Limit of the number of users: above that of people, and exact in float64."""


@flags(without=("out", "top"))
def plan(
    categories: Annotated[
        int | None, typer.Option(help="K, how many categories there are; a survey design may say so itself.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy parameter ε, in nats.")] = None,
    users: Annotated[int | None, typer.Option(help="N, how many users.")] = None,
    target_rmse: Annotated[
        float | None,
        typer.Option(
            help="Target of the typical error (root mean squared) of a share of the population that the users are "
            "drawn from; 0.01 is one percent point."
        ),
    ] = None,
    target_width: Annotated[
        float | None,
        typer.Option(help="Target width of the exact interval of a category with the share --share."),
    ] = None,
    *,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="K,K,…",
            help="The numbers of categories of several columns, in place of --categories: how to spend ε on them.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    randomizer: Randomizer,
    output: Output,
    share: Annotated[
        float, typer.Option(help="True share of the category that the width is for.", rich_help_panel=CONFIDENCE)
    ] = 0.1,
    level: Level = 0.95,
) -> None:
    """Plan a collection: the number of users, ε, the expected error, the mechanism.

    rrjax plan --categories 100 --epsilon 1 --target-rmse 0.01

    rrjax plan --columns 4,10,16 --epsilon 2 --users 50000

    rrjax plan --mechanism forced-response --parameter truth=2/3 --parameter forced=1/2,1/2 --target-rmse 0.02

    Give two of --epsilon, --users and a target; the third is computed. The ε of a survey design follows from its
    parameters: give --users or a target.
    """
    if columns is not None:
        others = {
            "--categories": categories,
            "--target-rmse": target_rmse,
            "--target-width": target_width,
            "--mechanism": randomizer.mechanism,
            "--design": randomizer.design,
        }
        run_splits(columns, epsilon, users, others, output)
        return
    randomizer.check_categories()
    if randomizer.is_design:
        randomizer.check_epsilon(epsilon)
    design = randomizer.of_size(categories) if randomizer.is_design else None
    size = categories if design is None else design.num_categories
    if size is None:
        raise UsageError("--categories is missing: K, how many categories there are", flag="--categories")
    yes = 0 if design is not None and randomizer.yes_is_first else None
    wanted = Target(size, randomizer.name, target_rmse, target_width, share, level, design, yes)
    with show.status("Planning …"):
        found = _solve(wanted, epsilon if design is None else float(design.epsilon), users)
        if output.plot is not None:
            _draw(output.plot, found)
    if output.json:
        # The spelling of flags and files.
        mechanisms = [row._asdict() | {"name": row.name.replace(" ", "-")} for row in found.mechanisms]
        facts = dataclasses.asdict(found)
        facts = facts.pop("target") | facts | {"mechanisms": mechanisms, "plot": output.plot}
        del facts["yes"]  # `category` has it
        facts["design"] = None if design is None else design.note
        show.record({"command": "plan"} | facts)
        return
    _show(found)
    show.explain(_explanations(found), output.explain, "choose/mechanism")
    show.show_files({"Figure": output.plot})


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
        check_rate("--level", self.level)
        if not 2 <= self.num_categories < 2**31:
            raise UsageError(
                f"--categories must be from 2 to 2147483647, got {_short(self.num_categories)}",
                flag="--categories",
                value=self.num_categories,
            )
        for flag, value in (("--target-rmse", self.target_rmse), ("--target-width", self.target_width)):
            if value is not None:
                check_rate(flag, value)
        if not 0 <= self.share <= 1:
            raise UsageError(f"--share must lie between 0 and 1, got {self.share:g}", flag="--share", value=self.share)
        if self.target_rmse is not None and self.target_width is not None:
            raise UsageError("--target-rmse and --target-width are two targets; give one", flag="--target-width")

    @property
    def given(self) -> bool:
        """Whether there is a target error or width."""
        return self.target_rmse is not None or self.target_width is not None

    @property
    def flag(self) -> str:
        """The flag that gave the target."""
        return "--target-rmse" if self.target_width is None else "--target-width"

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


@dataclasses.dataclass(frozen=True)
class Plan:
    """The expected errors of a collection."""

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


@ending_at_once()
def _solve(target: Target, epsilon: float | None, users: int | None) -> Plan:
    """Solves for the one of ε, N and target that is not given."""
    if epsilon is not None and target.design is None:
        check_epsilon(epsilon)
    if users is not None and not 1 <= users <= MOST_USERS:
        raise UsageError(
            f"--users must be at least 1 and at most {MOST_USERS:,}, got {_short(users)}", flag="--users", value=users
        )
    if (epsilon is not None) + (users is not None) + target.given != 2:
        some = "two of --epsilon, --users and" if target.design is None else "one of --users and"
        raise UsageError(
            f"give {some} a target (--target-rmse or --target-width); the other is computed",
            flag="--epsilon" if target.design is None else "--users",
        )
    number, solved = float(users or 1), "target"
    if epsilon is not None and users is None:
        solved, number = "users", _users(target, epsilon)
    elif epsilon is None:
        solved, epsilon = "epsilon", _epsilon(target, number)
    size, empty = target.num_categories, target.category(0.0)
    return Plan(
        target,
        float(epsilon),
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
        _compared(target, number, epsilon),
    )


def _compared(target: Target, number: float, epsilon: float) -> list[inference.MechanismErrors]:
    """The errors of all mechanisms at this ε, and of the survey design, the smallest first."""
    size, design, users = target.num_categories, target.design, max(round(number), 1)
    # Where an answer can give its user away, there is no ε to compare at.
    rows = inference.compare_mechanisms(size, users, epsilon) if math.isfinite(epsilon) else []
    if design is not None:
        error = target.of(inference.expected_rmse, number, epsilon)
        rows.append(inference.MechanismErrors(_spoken(target), error, math.ceil(math.log2(size)), design.note, number))
    return sorted(rows, key=lambda row: float(f"{row.expected_rmse:.6e}"))


def _spoken(target: Target) -> str:
    return target.mechanism.replace("-", " ")


def _users(target: Target, epsilon: float) -> float:
    """Number of users that reach the target."""
    if target.target_width is not None:
        width = target.target_width
        given = {"level": target.level, "category": target.category(target.share)}
        number = target.of(inference.users_for_width, epsilon, width, target.share, **given)
    else:
        number = target.of(inference.users_for_error, epsilon, target.target_rmse)
    if not max(number, 1.0) <= MOST_USERS:
        raise UsageError(
            f"the target takes more than {MOST_USERS:,} users: widen it, or raise ε", flag=target.flag, value=number
        )
    return max(number, 1.0)


def _epsilon(target: Target, number: float) -> float:
    """The ε that reaches the target."""
    if target.target_width is not None:
        epsilon = _epsilon_for_width(target, number, target.target_width)
    else:
        epsilon = target.of(inference.epsilon_for_error, number, target.target_rmse)
    if epsilon > LARGEST_EPSILON:
        raise UsageError(
            f"with {form.number(round(number), 'user', 'users')} no ε reaches the target: it takes more of them, or a "
            "wider target",
            flag=target.flag,
        )
    if epsilon < SMALLEST_EPSILON:
        raise UsageError(
            f"with {form.number(round(number), 'user', 'users')} any ε down to {SMALLEST_EPSILON:g} reaches the target",
            flag=target.flag,
        )
    return epsilon


def _epsilon_for_width(target: Target, number: float, width: float) -> float:
    """The smallest ε at which an interval has a width; infinite if there is none."""
    low, high = SMALLEST_EPSILON, 2 * LARGEST_EPSILON
    if not target.width(number, high, target.share) <= width:
        return math.inf
    for _ in range(60):
        middle = math.sqrt(low * high)
        narrow = target.width(number, middle, target.share) <= width
        low, high = (low, middle) if narrow else (middle, high)
    return high


def _short(number: int) -> str:
    return f"{number:,}" if abs(number) < 10**18 else "a number of more than 18 digits"


def _draw(plot: Path, found: Plan) -> None:
    size = found.target.num_categories
    with show.drawing():
        from rrjax.figures import plan_figure, save

        figure = plan_figure(
            size,
            found.epsilon,
            found.num_users,
            target=found.target.target_rmse,
            design=found.target.design,
            title=f"K = {size:,}, ε = {found.epsilon:.4g}, {form.number(found.num_users, 'user', 'users')}",
        )
        save(figure, plot)


def _show(found: Plan) -> None:
    target = found.target
    solved = {
        "users": f"{form.number(found.num_users, 'user is', 'users are')} needed",
        "epsilon": f"ε = {found.epsilon:.4g} nats is needed",
        "target": "Expected errors of the collection",
    }[found.solved]
    show.out.print(
        f"[bold]{solved}[/bold]: K = {target.num_categories:,}, ε = {found.epsilon:.4g} nats, "
        f"N = {found.num_users:,.0f}"
    )
    table = show.table("", "", show_header=False)
    table.columns[0].no_wrap = False  # its sentences are longer than names
    level = f"{100 * target.level:g}\N{NO-BREAK SPACE}%"
    empty, own = (_category(target, place) for place in (found.empty_category, found.category))
    for text, value in (
        ("Typical error of a share of the population (root mean squared)", found.rmse),
        ("Typical error of a share of these very users", found.rmse_of_users),
        (f"Width of the {level} interval of an empty category{empty}", found.width),
        (f"Width of the {level} interval of a share of {form.percent(target.share)}{own}", found.share_width),
        (f"Smallest share that is detected, of one category{empty}", found.detectable),
        (f"Smallest share that is detected, among all categories{empty}", found.detectable_among_all),
    ):
        table.add_row(text, form.percent(value) if value <= 1 else "more than 100 %")
    show.show_table(table)
    show.out.print()
    table = show.table("mechanism", "error", "bits", "operations")
    table.add_column("")
    for row in found.mechanisms:
        table.add_row(row.name, form.percent(row.expected_rmse), f"{row.bits:,.0f}", f"{row.operations:.1e}", row.note)
    show.show_table(table)
    show.say(
        "error: typical, of a share of the population; bits: size of a report; operations: the server's, to count all "
        "reports."
    )
    own_name = _spoken(target)
    best, own = found.mechanisms[0], next(row for row in found.mechanisms if row.name == own_name)
    more = (own.expected_rmse / best.expected_rmse) ** 2
    if more > 1.05:
        show.say(
            f"For the same error {own_name} needs {more:.2g} times the users of {best.name}, whose reports "
            f"`rrjax randomize --mechanism {best.name.replace(' ', '-')}` makes."
        )
    if math.isinf(found.epsilon):
        show.beware(
            "ε is infinite: some answer is never given by some respondents, so that it tells what its sender does not "
            "hold. Choose parameters with which everybody may give every answer."
        )
    elif found.epsilon > PROTECTS:
        show.beware(
            f"ε = {found.epsilon:.4g} hardly protects anybody: a report may change the odds of what its user holds "
            f"{form.at_most(math.exp(min(found.epsilon, 700)))}-fold. Collect from more people at a smaller ε, or "
            "accept a larger error."
        )


def _category(target: Target, place: int | None) -> str:
    """Which category a row is of, if not all are alike."""
    if place is None:
        return ""
    return f" (noisiest: {place})" if target.yes is None else " (yes)"


def _explanations(found: Plan) -> dict[str, str]:
    """Explains the rows and columns."""
    return {
        "error": "root mean squared, of the unbiased estimate of a share; that of `rrjax estimate` is often closer",
        "population": "from which the users are drawn at random; drawing them is a part of the error, taken as large "
        "as it can be (where all shares are equal, or, with rates that differ by category, where the sum of both is "
        "largest). Intervals and the smallest detected shares are of the population, too",
        "noisiest": "of categories whose rates differ, the one with the largest variance; counted from zero",
        "interval": "exact, as `rrjax estimate` prints it",
        "detected": "with a chance of 80\N{NO-BREAK SPACE}%, by a p-value of at most 0.05; among all categories of at "
        f"most 0.05 ÷ {found.target.num_categories:,}",
        "operations": "additions and hashes, roughly",
    }
