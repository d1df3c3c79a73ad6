"""`rrjax demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import rrjax
from rrjax import io
from rrjax.cli import show
from rrjax.cli.options import Explain, Output, ask, flags
from rrjax.cli.paths import FILLS, check_own_files, remembering
from rrjax.cli.randomization import make_reports
from rrjax.cli.randomize import show_made
from rrjax.cli.reading import Files, Reading, read_collection
from rrjax.data.errors import check_installed
from rrjax.io.write import check_writable, make_folder
from rrjax.reports.parameters import check_epsilon


@flags()
def demo(
    folder: Annotated[Path, typer.Option(help="Where to write the files and the figure."), FILLS] = Path("rrjax-demo"),
    categories: Annotated[int, typer.Option(min=2, help="K, the number of categories.")] = 50,
    users: Annotated[int, typer.Option(min=2, help="N, the number of users.")] = 100_000,
    epsilon: Annotated[float, typer.Option(help="Privacy parameter ε, in nats.")] = 2.0,
    exponent: Annotated[
        float, typer.Option(min=0, help="Exponent of the Zipf population: the larger, the fewer items are frequent.")
    ] = 1.3,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            max=2**63 - 1,
            help="Seed of the population and of its simulated reports.",
            rich_help_panel="Simulation",
        ),
    ] = 0,
    explain: Explain = False,
) -> None:
    """Show the main commands on a built-in population: randomize, estimate, compare.

    rrjax demo

    The demonstration prints the commands that it runs.
    """
    check_installed("plots", "The demonstration", "matplotlib")
    check_epsilon(epsilon)
    values, reports = folder / "values.parquet", folder / "reports.parquet"
    table, figure = folder / "estimate.csv", folder / "estimate.png"
    make_folder(folder)
    check_writable(reports, over=("simulated",))
    check_own_files(folder, "demo", (values, reports, table, figure), "--folder")
    with remembering(folder, "demo"):
        _write_population(values, categories, users, exponent, seed)
        show.say(
            f"A population of {users:,} users. Each holds one of {categories:,} items; a few items are frequent and "
            f"most are rare (Zipf, exponent {exponent:g}). File: {values}"
        )
        domain, more = f"1:{categories}", " --explain" * explain
        show.command(f"rrjax randomize {values} --epsilon {epsilon:g} --domain {domain} --seed {seed} --out {reports}")
        files = Files([str(values)], Reading(domain=domain))
        made = make_reports(files, reports, epsilon, seed)
        show_made(made, reports, False)
        show.command(f"rrjax estimate {reports} --top 10 --out {table}{more}")
        collection = read_collection(Files([str(reports)]), None)
        show.deliver(ask(collection, "shares"), "estimate", Output(out=table, top=10, explain=explain))
        show.command(f"rrjax compare {reports} --truth {values} --top 5 --plot {figure}{more}")
        truth = collection.shares_in(Files([str(values)], true_values=True).source)
        show.deliver(ask(collection, "compare", truth=truth), "compare", Output(plot=figure, top=5, explain=explain))


def _write_population(path: Path, num_categories: int, num_users: int, exponent: float, seed: int) -> None:
    """Writes the true values of a Zipf population, items numbered from 1."""
    import jax

    theta = rrjax.simulate.zipf(num_categories, exponent)
    # Not the stream that `randomize --seed` draws from the same seed.
    key = jax.random.fold_in(jax.random.key(seed), 1)
    values = np.asarray(rrjax.simulate.values(key, theta, num_users))
    io.write_table(path, {"item": values + 1})
