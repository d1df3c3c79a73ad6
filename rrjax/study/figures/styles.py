"""How estimators look and what they and the metrics are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import xarray as xr
TITLES = {
    "mle_star": "MLE*",
    "inv_p": "InvP",
    "inv_n": "InvN",
    "inv": "Inv",
    "cv_threshold": "CV threshold",
    "ibu": "IBU",
}
METRICS = {
    "mse": "mean squared error,\nsummed over categories",
    "nll": "negative log-likelihood\n(nats per report)",
    "tv": "total variation",
    "max_error": "largest error of a category",
    "kl": "Kullback–Leibler divergence\n(nats)",
    "bias2": "squared bias,\nsummed over categories",
    "variance": "variance,\nsummed over categories",
}
SYMBOLS = {"num_users": "N", "epsilon": "ε", "num_categories": "K", "zipf": "s"}
SHORT = {"mse": "MSE", "nll": "NLL", "tv": "total variation", "max_error": "largest error", "kl": "KL divergence"}
AXES = {
    "num_users": "users N",
    "epsilon": "privacy ε (nats)",
    "num_categories": "categories K",
    "zipf": "Zipf exponent s",
}


class Style(NamedTuple):
    """How an estimator is drawn."""

    colour: str
    dash: Any
    marker: str
    size: float
    filled: bool = False


# Large and hollow to small and filled: where estimates coincide, each one still shows.
STYLES = {
    "mle_star": Style("#1b4f8a", "-", "s", 7.5),
    "inv_p": Style("#d9702b", "--", "o", 5),
    "inv_n": Style("#3d8b57", "-.", "D", 3.2, filled=True),
    "inv": Style("#808080", ":", "x", 5),
    "cv_threshold": Style("#8a3f8f", (0, (5, 1, 1, 1, 1, 1)), "^", 5),
    "ibu": Style("#7a6a2f", (0, (8, 2)), "v", 5),
}
OWN_STYLES = (
    Style("#000000", (0, (1, 1)), "*", 6),
    Style("#c23b6e", (0, (3, 1, 1, 1)), "P", 5),
    Style("#2a9aa8", (0, (6, 1, 2, 1)), "<", 5),
    Style("#9c6b3c", (0, (4, 2)), ">", 5),
)


def estimator_title(name: object) -> str:
    """How an estimator is called in figures and tables; one without a title of its own keeps its name.

    Args:
        name: As in the coordinate `estimator`.

    Returns:
        The title, unescaped.

    Example:
        >>> from rrjax.study.figures import estimator_title
        >>> estimator_title("inv_p"), estimator_title("mine")
        ('InvP', 'mine')
    """
    return TITLES.get(str(name), str(name))


def line_of(style: Style) -> dict[str, Any]:
    """A style as matplotlib's keywords."""
    return {
        "color": style.colour,
        "linestyle": style.dash,
        "linewidth": 1.5,
        "marker": style.marker,
        "markersize": style.size,
        "markerfacecolor": style.colour if style.filled else "none",
        "markeredgewidth": 1.2,
    }


def styles_of(dataset: xr.Dataset) -> dict[str, Style]:
    """Fixed by the name; an own estimator's by its place among those of the dataset."""
    names = [str(name) for name in dataset["estimator"].values]
    own = [name for name in names if name not in STYLES]
    styles = {name: STYLES.get(name) or OWN_STYLES[own.index(name) % len(OWN_STYLES)] for name in names}
    # The large and hollow are drawn first.
    return {name: styles[name] for name in sorted(names, key=lambda name: (name not in STYLES, rank_of(name)))}


def rank_of(name: str) -> int:
    """Where an estimator stands among those known by name."""
    return list(STYLES).index(name) if name in STYLES else 0
