"""`rrjax plan --columns`: how to spend ε on several columns."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rrjax import inference
from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Output, listed_in, refuse_flags
from rrjax.data.errors import UsageError
from rrjax.reports import form
from rrjax.reports.epsilon import check_epsilon

WAYS = {
    "all": "all columns",
    "sampled": "{}, drawn at random",
    "among fakes": "1, among fake answers",
}


def _flag(row: inference.SplitErrors) -> str:
    return f"--columns-per-user {row.number}" if row.name == "sampled" else "all of them from each user"


@ending_at_once()
def run(columns: str, epsilon: float | None, users: int | None, others: dict[str, Any], output: Output) -> None:
    """Compares the ways to report several columns, and prints their errors."""
    refuse_flags(others, "--columns")
    try:
        sizes = [int(part) for part in listed_in("--columns", columns)]
    except ValueError:
        sizes = []
    if len(sizes) < 2 or min(sizes) < 2 or max(sizes) >= 2**31:
        raise UsageError.about(
            "--columns",
            f"{columns}: give the number of categories of each of two columns or more, at least 2, such as 4,10,16",
            value=columns,
        )
    for flag, value in {"--epsilon": epsilon, "--users": users}.items():
        if value is None:
            raise UsageError(f"--columns needs {flag}", flag=flag)
    assert epsilon is not None
    assert users is not None
    if users < 1:
        raise UsageError(f"--users must be at least 1, got {users}", flag="--users", value=users)
    check_epsilon(epsilon)
    rows = inference.compare_splits(sizes, users, epsilon)
    if output.plot is not None:
        _draw(output.plot, sizes, epsilon, users)
    if output.json:
        ways = [row._asdict() | {"cell": row.cell if math.isfinite(row.cell) else None} for row in rows]
        facts = {"command": "plan", "columns": sizes, "epsilon": epsilon, "num_users": users, "ways": ways}
        show.record(facts | {"plot": output.plot})
        return
    show.out.print(
        f"[bold]Errors of {len(sizes)} columns[/bold]: K = {', '.join(f'{size:,}' for size in sizes)}, ε = "
        f"{epsilon:.4g} nats for all of them, N = {users:,}"
    )
    table = show.table("a user reports", "ε of each", "error of a share", "error of a cell")
    for row in rows:
        cells = form.percent(row.cell) if math.isfinite(row.cell) else "unknown"
        table.add_row(WAYS[row.name].format(row.number), f"{row.epsilon:.4g}", form.percent(row.share), cells)
    show.show_table(table)
    show.out.print()
    best = min(rows, key=lambda row: row.cell)
    show.say(
        "Errors: root mean squared, of unbiased estimates of the population, where shares are equal and columns "
        "independent; a cell is one in the table of two columns."
    )
    show.say(
        f"`rrjax randomize --apart`: for single columns {_flag(rows[0])}; to see how columns go together {_flag(best)}."
    )
    show.show_files({"Figure": output.plot})


def _draw(plot: Path, sizes: list[int], epsilon: float, users: int) -> None:
    with show.drawing():
        from rrjax.figures import save, splits_figure

        title = f"K = {', '.join(f'{size:,}' for size in sizes)}; {form.number(users, 'user', 'users')}"
        save(splits_figure(sizes, epsilon, users, title=title), plot)
