"""Draws the images of `gallery.md`: every figure of rrjax, small, from made-up data.

`python docs/gallery.py` draws all, in about two minutes; with names it draws only those.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

import rrjax
from rrjax import figures, inference
from rrjax.figures import curves
from rrjax.io import write_table
from rrjax.study import Study, convergence

IMAGES = Path(__file__).parent / "gallery"
DPI, COLOURS = 72, 64
"""Of the images: dots per inch, and the largest number of colours."""
FRUIT = ["apple", "pear", "plum", "cherry", "fig", "quince", "lemon", "grape", "melon", "date", "kiwi", "lime"]


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
    answers = {"uses": words[uses], "drinks": words[drinks], "smokes": words[smokes], "region": region}
    write_table(where / "survey.csv", {"answer": words[reported], "age": age, "region": region})
    write_table(where / "columns.csv", answers)
    write_table(where / "ages.csv", {"age": 15 + 80 * rng.beta(2, 4, number)})
    words = np.array(["no", "yes"])
    has, innocuous, asked = rng.random(number) < 0.2, rng.random(number) < 0.4, rng.random(number) < 0.5
    sensitive = rng.random(number) < np.where(asked, 0.7, 0.3)
    said = words[np.where(sensitive, has, innocuous).astype(int)]
    write_table(where / "dice.csv", {"answer": said, "die": np.where(asked, "first", "second")})
    columns = [flag for name in answers for flag in ("--column", name)]
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


def survey() -> rrjax.Reports:
    """Reports with public columns beside them."""
    return rrjax.read(folder() / "survey.csv", column="answer", epsilon=2.0, domain=["never", "sometimes", "often"])


def columns() -> Any:
    """Reports of four columns that were randomized separately."""
    return rrjax.read(folder() / "columns.parquet")


@cache
def study() -> Any:
    """A small grid."""
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


FIGURES: dict[str, Callable[[], Any]] = {
    "shares": lambda: counted().shares().figure(),
    "compare": lambda: counted().compare(np.asarray(fruit(), float)).figure(),
    "statements": lambda: survey().by("region", group=["at all=sometimes,often", "often"]).figure(),
    "regression": lambda: survey().regress(["age", "region"]).figure(),
    "two-samples": lambda: (
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
    "numbers": lambda: rrjax.read(folder() / "ages.parquet").statements().figure(),
    "classes": lambda: survey().within("age", quantile=[0.25, 0.75]).figure(),
    "joint": lambda: columns().joint(["smokes", "drinks"]).figure(),
    "pairs": lambda: columns().pairs().figure(),
    "tree": lambda: columns().tree().figure(),
    "plan": lambda: rrjax.plan(20, 2.0, 10_000).figure(),
    "splits": lambda: rrjax.reports.plan_columns([4, 10, 16], 2.0, 50_000).figure(),
    "profiles": profiles,
    "likelihood": lambda: figures.likelihood_figure(
        inference.log_likelihood_surface([620, 380, 400], 1.0), ["yes", "no", "maybe"]
    ),
    "against-users": lambda: figures.against_users(study(), ["mse"], num_categories=100, epsilon=2.0),
    "against-epsilon": lambda: figures.against_epsilon(study(), ["mse"], num_categories=100, num_users=10_000),
    "by-categories": lambda: figures.by_categories(study(), "mse", zipf=2.0, epsilons=[1.0, 4.0]),
    "real-data": visits,
    "decomposition": lambda: figures.decomposition(study().sel(zipf=[1.0]), num_categories=100, epsilon=2.0),
    "overview": lambda: figures.overview(study(), "mse", zipf=2.0),
    "closest": lambda: figures.closest(study().sel(zipf=[2.0])),
    "wins": lambda: figures.wins(study().sel(zipf=[2.0]), estimator="empirical_bayes"),
    "convergence": lambda: figures.convergence(convergence(num_users=[1000], epsilon=[1.0, 2.0, 4.0], zipf=[1.3])),
}
"""Name of the image → how it is drawn."""


def draw(path: Path, figure: Any) -> None:
    """Writes a figure as a small image with few colours."""
    from PIL import Image

    figures.save(figure, path, dpi=DPI)
    with Image.open(path) as image:
        few = image.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)


def main() -> None:
    """Draws the figures that are named, or all."""
    for name in sys.argv[1:] or FIGURES:
        draw(IMAGES / f"{name}.png", FIGURES[name]())


if __name__ == "__main__":
    main()
