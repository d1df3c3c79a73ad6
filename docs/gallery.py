"""Makes `gallery.md` and its images: every figure of rrjax, small, with what it shows, when to use it, and the call.

`python docs/gallery.py` draws all figures from made-up data, in about two minutes; with names it draws only those.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import rrjax
from rrjax import figures, inference
from rrjax.figures import curves

HERE = Path(__file__).parent
PAGE, IMAGES = HERE / "gallery.md", HERE / "gallery"
DPI, COLOURS = 72, 64
"""Of the images: dots per inch, and the largest number of colours."""
HEAD = """# Gallery

All figures of rrjax. Each call returns a figure of matplotlib, and `rrjax.figures.save(figure, "name")` writes it as
PNG and PDF; on the command line `--plot FILE` writes it. Answers (`reports.…`) draw themselves, with their labels,
titles and intervals; the functions of [`rrjax.figures`](reference/figures.rst) take arrays. `python docs/gallery.py`
makes this page from made-up data.
"""
FRUIT = ["apple", "pear", "plum", "cherry", "fig", "quince", "lemon", "grape", "melon", "date", "kiwi", "lime"]


class Entry(NamedTuple):
    """A figure of the gallery."""

    title: str
    shows: str
    when: str
    calls: list[str]
    """Of Python and of the command line, without their marks."""
    draw: Callable[[], Any]
    page: str = ""
    """A page or a notebook with an example."""


@cache
def counted() -> rrjax.Reports:
    """Reports of 20,000 people, counted."""
    counts = rrjax.simulate.counts(jax.random.key(1), fruit(), 20_000, 2.0)
    return rrjax.Reports.of_counts(np.asarray(counts).astype(int), 2.0, FRUIT)


def fruit() -> Any:
    """The shares of that population."""
    return rrjax.simulate.zipf(len(FRUIT), 1.2)


@cache
def folder() -> Path:
    """Files of people with a public region and age, of answers to two samples, of columns, and of numbers."""
    where = Path(tempfile.mkdtemp())
    rng = np.random.default_rng(0)
    number = 20_000
    age, south = rng.integers(18, 80, number), rng.random(number) < 0.4
    odds = np.exp([0 * age, -0.5 - 0.03 * (age - 45), -1.6 - 0.02 * (age - 45) + 0.8 * south])
    uses = (rng.random(number) > (odds / odds.sum(0)).cumsum(0)).sum(0)
    drinks = np.where(rng.random(number) < 0.5, uses, rng.integers(0, 3, number))
    smokes = np.where(rng.random(number) < 0.6, drinks, rng.integers(0, 3, number))
    words = np.array(["never", "sometimes", "often"])
    reported = np.asarray(rrjax.RandomizedResponse(3, 2.0).randomize(jax.random.key(0), uses))
    region = np.where(south, "south", "north")
    write(where / "survey.csv", answer=words[reported], age=age, region=region)
    write(where / "columns.csv", uses=words[uses], drinks=words[drinks], smokes=words[smokes], region=region)
    write(where / "ages.csv", age=15 + 80 * rng.beta(2, 4, number))
    words = np.array(["no", "yes"])
    has, innocuous, asked = rng.random(number) < 0.2, rng.random(number) < 0.4, rng.random(number) < 0.5
    sensitive = rng.random(number) < np.where(asked, 0.7, 0.3)
    answers = words[np.where(sensitive, has, innocuous).astype(int)]
    write(where / "dice.csv", answer=answers, die=np.where(asked, "first", "second"))
    columns = [flag for name in ("uses", "drinks", "smokes", "region") for flag in ("--column", name)]
    made = {
        "columns.parquet": ["columns.csv", *columns, "--apart", "--epsilon", "10"],
        "ages.parquet": [
            *("ages.csv", "--column", "age", "--mechanism", "square-wave"),
            *("--range", "15,95", "--bins", "32", "--epsilon", "1"),
        ],
    }
    for name, flags in made.items():
        command = [sys.executable, "-m", "rrjax", "randomize", *flags, "--seed", "0", "--out", name]
        subprocess.run(command, cwd=where, check=True, capture_output=True)
    return where


def write(path: Path, **columns: Any) -> None:
    """Writes a CSV."""
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join(",".join(map(str, row)) for row in [tuple(columns), *rows]))


def survey() -> rrjax.Reports:
    """Reports with public columns beside them."""
    return rrjax.read(folder() / "survey.csv", column="answer", epsilon=2.0, domain=["never", "sometimes", "often"])


def columns() -> Any:
    """Reports of four columns that were randomized separately."""
    return rrjax.read(folder() / "columns.parquet")


@cache
def study() -> Any:
    """A small grid."""
    from rrjax.study import Study

    return Study(
        estimators=["mle_star", "inv_p", "inv_n", "empirical_bayes"],
        num_categories=[10, 100],
        num_users=[100, 1_000, 10_000, 100_000],
        epsilon=[1.0, 2.0, 4.0],
        zipf=[1.0, 2.0],
        num_seeds=20,
        metrics=["mse", "nll", "bias2", "variance"],
    ).run()


@cache
def visits() -> Any:
    """A study of a data set."""
    from rrjax.study import Study

    counts = np.round(1e5 * np.asarray(rrjax.simulate.zipf(100, 1.5))).astype(int)
    result = Study(
        estimators=["mle_star", "inv_n", "empirical_bayes"],
        users={"visits": counts},
        epsilon=[1.0, 2.0, 4.0],
        num_seeds=10,
    ).run()
    return curves.real_data(result, {"visits": counts / counts.sum()})


def profiles() -> Any:
    """The likelihoods of three categories."""
    counts = [600, 250, 150]
    limits = inference.intervals(counts, 2.0)
    names = ["never", "sometimes", "often"]
    return figures.profile_figure(
        {name: inference.profile(counts, 2.0, place) for place, name in enumerate(names)},
        limits={name: (float(limits.lower[at]), float(limits.upper[at])) for at, name in enumerate(names)},
    )


def paths() -> Any:
    """How EM converges."""
    from rrjax.study import convergence

    return figures.convergence(convergence(num_users=[1000], epsilon=[1.0, 2.0, 4.0], zipf=[1.3]))


PARTS: dict[str, dict[str, Entry]] = {
    "Of reports": {
        "shares": Entry(
            "Shares",
            "The largest categories by the closest and the likeliest estimate, with simultaneous exact intervals.",
            "First, for every file of reports.",
            ["reports.shares().figure()", "$ rrjax estimate FILE --plot shares.png", "figures.estimate_figure"],
            lambda: counted().shares().figure(),
            "guides/analyst.md",
        ),
        "compare": Entry(
            "Estimates beside the truth",
            "The same with the true shares as bars.",
            "If the true values are known: in a simulation, or beside a census.",
            ["reports.compare(truth).figure()", "$ rrjax compare FILE --truth TRUTH --plot shares.png"],
            lambda: counted().compare(np.asarray(fruit(), float)).figure(),
            "tutorials/kosarak.md",
        ),
        "statements": Entry(
            "Means, quantiles, groups and subgroups",
            "Each statement with its interval, a row for each level of a public column, and the difference of two.",
            "To see which group differs, and by how much.",
            [
                'reports.group("at all=sometimes,often", by="region").figure()',
                "$ rrjax estimate FILE --group NAME=LABELS --by COLUMN --plot groups.png",
                "figures.forest_figure",
            ],
            lambda: survey().by("region", group=["at all=sometimes,often", "often"]).figure(),
            "models.md",
        ),
        "regression": Entry(
            "Regression",
            "The coefficient of each covariate for each category, in log-odds, with its interval.",
            "To see what the true answers depend on.",
            [
                'reports.regress(["age", "region"]).figure()',
                "$ rrjax regress FILE --outcome COLUMN --covariates age,region --plot coefficients.png",
                "figures.forest_figure",
            ],
            lambda: survey().regress(["age", "region"]).figure(),
            "models.md",
        ),
        "two-samples": Entry(
            "Two samples",
            "Both unknown shares of a survey of two samples with their intervals.",
            "If a design has a second unknown: the share of an unrelated question, or of people who ignore the rule.",
            [
                'rrjax.read(FILE, mechanism=NAME, sample="die=first,second", …).shares().figure()',
                "$ rrjax estimate FILE --mechanism NAME --sample die=first,second --plot both.png",
            ],
            lambda: (
                rrjax.read(
                    folder() / "dice.csv",
                    column="answer",
                    domain=["yes", "no"],
                    mechanism="unrelated-question-two-samples",
                    parameters={"truth": [0.7, 0.3], "yes": "yes"},
                    sample="die=first,second",
                )
                .shares()
                .figure()
            ),
            "mechanisms.md",
        ),
        "numbers": Entry(
            "Numbers",
            "The distribution function with limits that hold everywhere together, and the shares of the bins.",
            "For ages, incomes and hours by the square wave or the geometric mechanism.",
            [
                'rrjax.read("ages.parquet").statements().figure()',
                "$ rrjax estimate ages.parquet --plot ages.png",
                "figures.cdf_figure",
            ],
            lambda: rrjax.read(folder() / "ages.parquet").statements().figure(),
            "guides/numbers.md",
        ),
        "joint": Entry(
            "Two columns together",
            "The joint shares of two columns that were randomized separately.",
            "To see which answers of two questions go together.",
            [
                'rrjax.read(FILE).joint(["smokes", "drinks"]).figure()',
                "$ rrjax estimate FILE --joint smokes,drinks --plot joint.png",
                "figures.joint_figure",
            ],
            lambda: columns().joint(["smokes", "drinks"]).figure(),
            "tutorials/several-questions.md",
        ),
        "pairs": Entry(
            "All pairs of columns",
            "Cramér's V of each pair; dots mark the significant ones.",
            "To find which of many columns are associated.",
            [
                "rrjax.read(FILE).pairs().figure()",
                "$ rrjax estimate FILE --all-pairs --plot pairs.png",
                "figures.association_figure",
            ],
            lambda: columns().pairs().figure(),
            "guides/privacy-engineer.md",
        ),
        "tree": Entry(
            "A tree of columns",
            "The tree of the strongest pairs, each with Cramér's V.",
            "To describe many columns by one distribution.",
            [
                "rrjax.read(FILE).tree().figure()",
                "$ rrjax estimate FILE --tree --plot tree.png",
                "figures.tree_figure",
            ],
            lambda: columns().tree().figure(),
            "tutorials/several-questions.md",
        ),
    },
    "Before a collection": {
        "plan": Entry(
            "Users and ε",
            "The expected error of a share against N for some ε, and against ε for each mechanism.",
            "To choose the number of users, ε and the mechanism.",
            [
                "rrjax.plan(20, 2.0, 10_000).figure()",
                "$ rrjax plan --categories 20 --epsilon 2 --users 10000 --plot plan.png",
                "figures.plan_figure",
            ],
            lambda: rrjax.plan(20, 2.0, 10_000).figure(),
            "inference.md",
        ),
        "splits": Entry(
            "Several columns",
            "The errors of a share and of a cell of two columns, for each number of columns that a user reports.",
            "To choose of how many columns each user reports.",
            [
                "rrjax.reports.plan_columns([4, 10, 16], 2.0, 50_000).figure()",
                "$ rrjax plan --columns 4,10,16 --epsilon 2 --users 50000 --plot splits.png",
                "figures.splits_figure",
            ],
            lambda: rrjax.reports.plan_columns([4, 10, 16], 2.0, 50_000).figure(),
            "choose/mechanism.md",
        ),
    },
    "The likelihood": {
        "profiles": Entry(
            "Of one share",
            "The profile log-likelihood of the share of each category, with exact intervals as bars beneath.",
            "To look at the likelihood; near zero its intervals do not hold their level.",
            ["figures.profile_figure({name: rrjax.inference.profile(counts, epsilon, place), …}, limits=…)"],
            profiles,
            "../notebooks/04-an-honest-statement.ipynb",
        ),
        "likelihood": Entry(
            "Of two or three categories",
            "The whole log-likelihood with its maximum and the likelihood-ratio region.",
            "To explain an estimate at the boundary of the triangle.",
            ["figures.likelihood_figure(rrjax.inference.log_likelihood_surface(counts, epsilon), labels)"],
            lambda: figures.likelihood_figure(
                inference.log_likelihood_surface([620, 380, 400], 1.0), ["yes", "no", "maybe"]
            ),
            "../notebooks/04-an-honest-statement.ipynb",
        ),
    },
    "Of a study": {
        "against-users": Entry(
            "Errors against N",
            "Metrics of each estimator against the number of users, a panel for each population (the paper's Fig. 1).",
            "To see how many users an estimator needs.",
            ["figures.against_users(result, num_categories=100, epsilon=2.0)"],
            lambda: figures.against_users(study(), ["mse"], num_categories=100, epsilon=2.0),
            "choose/estimator.md",
        ),
        "against-epsilon": Entry(
            "Errors against ε",
            "The same against ε (Fig. 2).",
            "To see which ε an estimator needs.",
            ["figures.against_epsilon(result, num_categories=100, num_users=10_000)"],
            lambda: figures.against_epsilon(study(), ["mse"], num_categories=100, num_users=10_000),
            "choose/estimator.md",
        ),
        "by-categories": Entry(
            "Errors for each K and ε",
            "One metric of one population: a row for each K, a column for each ε, against N (Figs. 5–10).",
            "For the whole grid of one population.",
            ['figures.by_categories(result, "mse", zipf=2.0)'],
            lambda: figures.by_categories(study(), "mse", zipf=2.0, epsilons=[1.0, 4.0]),
            "../notebooks/01-reproduce-the-paper.ipynb",
        ),
        "real-data": Entry(
            "Data sets of your own",
            "The true histogram of each data set, and a metric against ε (Fig. 3).",
            "To see which estimator is closest on your own data.",
            ["figures.curves.real_data(result, histograms)", "$ rrjax study data FILE"],
            visits,
            "guides/researcher.md",
        ),
        "decomposition": Entry(
            "Bias and variance",
            "Squared bias and variance of each estimator on one scale.",
            "To see how much of the error is bias.",
            ["figures.decomposition(result, num_categories=100, epsilon=2.0)"],
            lambda: figures.decomposition(study().sel(zipf=[1.0]), num_categories=100, epsilon=2.0),
            "../notebooks/01-reproduce-the-paper.ipynb",
        ),
        "overview": Entry(
            "Any grid",
            "Small multiples over the dimensions of the study, at most four rows and columns.",
            "First, for a study of your own.",
            ["figures.overview(result)", "$ rrjax study my-study.toml"],
            lambda: figures.overview(study(), "mse", zipf=2.0),
            "guides/researcher.md",
        ),
        "closest": Entry(
            "The closest estimator",
            "Which estimator has the smallest error; a pale cell is not significant.",
            "To choose an estimator.",
            ["figures.closest(result)"],
            lambda: figures.closest(study().sel(zipf=[2.0])),
            "choose/estimator.md",
        ),
        "wins": Entry(
            "Where yours wins",
            "The error of one estimator over the smallest of the others, on a logarithmic scale.",
            "To see where an estimator of your own is better, and where worse.",
            ['figures.wins(result, estimator="empirical_bayes")'],
            lambda: figures.wins(study().sel(zipf=[2.0]), estimator="empirical_bayes"),
            "../notebooks/02-bring-your-own-estimator.ipynb",
        ),
        "convergence": Entry(
            "Convergence of EM",
            "The distance of the iterates of EM from the exact maximum, for each variant and ε (Fig. 4).",
            "To choose the number of iterations, or a faster variant.",
            ["figures.convergence(rrjax.study.convergence())", "$ rrjax study paper --figure 4"],
            paths,
            "../notebooks/01-reproduce-the-paper.ipynb",
        ),
    },
}


def page() -> str:
    """The page as it should be."""
    lines = [HEAD]
    for part, entries in PARTS.items():
        lines += [f"## {part}", ""]
        for name, entry in entries.items():
            python = [call for call in entry.calls if not call.startswith("$ ")]
            shell = [call.removeprefix("$ ") for call in entry.calls if call.startswith("$ ")]
            calls = "; ".join(f"`{call}`" for call in [*python[:1], *shell, *python[1:]])
            example = f" ([example]({entry.page}))" if entry.page else ""
            lines += [f"### {entry.title}", "", f"![{entry.shows}](gallery/{name}.png)", ""]
            lines += [f"* **Shows**: {entry.shows}", f"* **Use it**: {entry.when}", f"* **Call**: {calls}{example}", ""]
    return "\n".join(lines).rstrip() + "\n"


def draw(path: Path, figure: Any) -> None:
    """Writes a figure as a small image with few colours."""
    from PIL import Image

    figures.save(figure, path, dpi=DPI)
    with Image.open(path) as image:
        few = image.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)


def main() -> None:
    """Writes the page, and draws the figures that are named, or all."""
    PAGE.write_text(page(), encoding="utf-8")
    IMAGES.mkdir(exist_ok=True)
    for entries in PARTS.values():
        for name, entry in entries.items():
            if name in sys.argv[1:] or not sys.argv[1:]:
                draw(IMAGES / f"{name}.png", entry.draw())


if __name__ == "__main__":
    main()
