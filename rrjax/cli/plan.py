"""`rrjax plan`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rrjax.cli import show
from rrjax.cli.design import Randomizer
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import CONFIDENCE, Level, Output, flags, listed_in, taken
from rrjax.cli.randomization import PANEL
from rrjax.data.errors import UsageError

if TYPE_CHECKING:
    from rrjax.reports.plans import ColumnPlan


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
    from rrjax.reports.plans import Target, planned

    if columns is not None:
        others = {"categories": categories, "target_rmse": target_rmse, "target_width": target_width}
        others |= {"mechanism": randomizer.mechanism, "design": randomizer.design}
        taken(_of_columns, "--columns", **others)
        with ending_at_once():
            answer = _of_columns(columns, epsilon, users)
        show.deliver(answer, "plan", output)
        return
    randomizer.check_categories()
    design = randomizer.of_size(categories) if randomizer.is_design else None
    size: Any = categories if design is None else design.num_categories
    yes = 0 if design is not None and randomizer.yes_is_first else None
    target = Target(size, randomizer.name, target_rmse, target_width, share, level, design, yes)
    with show.status("Planning …"), ending_at_once():
        answer = planned(target, epsilon, users)
    show.deliver(answer, "plan", output)


def _of_columns(columns: str, epsilon: float | None, users: int | None) -> ColumnPlan:
    """The ways to report several columns, with their errors."""
    from rrjax.reports.plans import plan_columns

    for flag, value in {"--epsilon": epsilon, "--users": users}.items():
        if value is None:
            raise UsageError(f"--columns needs {flag}", flag=flag)
    assert epsilon is not None
    assert users is not None
    sizes: list[Any] = listed_in("--columns", columns)
    return plan_columns([int(each) if re.fullmatch(r"[0-9]{1,10}", each) else each for each in sizes], epsilon, users)
