"""The arguments of a study and of its run, from Python or from a TOML file: checks, and messages in TOML's words."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rrjax.data.errors import StudyError
from rrjax.estimators.catalogue import ESTIMATORS, METRICS, entry_of

_DIMENSIONS = (
    *("estimator", "mechanism", "num_categories", "num_users", "epsilon", "zipf", "distribution", "versus"),
    *("quantile", "seed"),
)
_SUFFIXES = ("_se", "_difference", "_difference_se", "_quantile", "_seeds")
_SHOWN_LENGTH = 100
"""Characters of a wrong value that a message shows."""


def refusal(argument: str, message: str, value: Any = None) -> StudyError:
    """The error of an argument; `StudyError.about` for messages that begin with its name."""
    return StudyError(message, argument=argument, value=value)


@dataclasses.dataclass(frozen=True)
class Configuration:
    """One point of the grid."""

    num_categories: int
    num_users: int
    epsilon: float
    population: float | str
    """The Zipf exponent, or the label of the distribution or of the users."""
    mechanism: str | None = None
    """Label of the mechanism, if the study has mechanisms."""

    def describe(self) -> str:
        """The configuration in words, for a message."""
        kind = f"zipf = {self.population:g}" if isinstance(self.population, float) else f"{self.population!r}"
        words = f"K = {self.num_categories:,}, N = {self.num_users:,}, epsilon = {self.epsilon:g}, {kind}"
        return words if self.mechanism is None else f"{self.mechanism}, {words}"

    def words(self, seed: int) -> tuple[int, ...]:
        """Two 32-bit words that seed this configuration's random numbers, independent of the rest of the grid.

        With a mechanism they seed its users, the same for all mechanisms; two more words seed their randomization.
        """
        # These values must never change. A new field of a configuration may enter only with values other than its
        # default.
        key = seed, self.num_categories, self.num_users, self.epsilon, self.population
        return _words(key) if self.mechanism is None else _words(key) + _words((*key, self.mechanism))


def _words(key: tuple[Any, ...]) -> tuple[int, int]:
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


class Progress(NamedTuple):
    """The progress of a run, in collections × categories."""

    done: int
    total: int
    resumed: int
    """The part of `done` that was found in the folder."""
    seconds: float
    """Since the run began."""


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """The arguments of `Study.run`, checked."""

    seed: int = 0
    folder: Path | None = None
    batch_size: int | None = None
    memory: int | None = None
    devices: Sequence[Any] | None = None
    quantiles: Sequence[float] = ()
    keep_seeds: bool = False
    progress: Callable[[Progress], None] | None = None

    def __post_init__(self) -> None:
        """Refuses invalid options, with their names."""
        object.__setattr__(self, "seed", integer("seed", self.seed, 0, 2**63 - 1))  # what NetCDF holds
        if self.batch_size is not None:
            integer("batch_size", self.batch_size)
        if not isinstance(self.keep_seeds, bool):
            raise StudyError.about(
                "keep_seeds", f"must be true or false, got {as_toml(self.keep_seeds)}", value=self.keep_seeds
            )
        is_empty = isinstance(self.quantiles, list | tuple | np.ndarray) and len(self.quantiles) == 0
        object.__setattr__(self, "quantiles", () if is_empty else several("quantiles", self.quantiles, share))
        memory = self.memory
        if memory is not None and not (positive("memory", memory) >= 1 and math.isfinite(memory)):
            raise StudyError.about("memory", f"must be a number of bytes, got {as_toml(memory)}", value=memory)
        if self.devices is not None and (not isinstance(self.devices, Sequence) or not self.devices):
            raise refusal("devices", "devices must be a list of them, not empty; leave it out to use all")
        if len(set(self.devices or ())) < len(self.devices or ()):
            raise refusal("devices", "a device is there more than once")


def as_toml(value: Any) -> str:
    """A value in TOML's syntax, or a function by its name; for messages."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, Mapping):
        text = f"{{{', '.join(f'{key} = {as_toml(one)}' for key, one in value.items())}}}"
    elif isinstance(value, list | tuple):
        text = f"[{', '.join(map(as_toml, value))}]"
    else:
        text = getattr(value, "__name__", None) or str(value)
    return text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 1] + "…"


def underscored(name: str) -> str:
    """A name in the catalogue's spelling, from any case and with dashes."""
    return name.lower().replace("-", "_")


def named(
    given: Any, known: Mapping[str, Any], argument: str, spell: Callable[[str], str] = underscored
) -> dict[str, Any]:
    """Label → function, from names, functions, or a mapping of labels to either; `spell` spells names as `known`."""
    kind = argument.removesuffix("s")
    if isinstance(given, str) or callable(given) or not isinstance(given, Iterable):
        given = [given]
    if not isinstance(given, Mapping):
        given = list(given)
        labels = [spell(value) if isinstance(value, str) else label_of(value, argument) for value in given]
        if len(set(labels)) < len(labels):
            raise refusal(
                argument, f"two {kind}s have one name: {', '.join(labels)}; name each once, or give each a label", given
            )
        given = dict(zip(labels, given, strict=True))
    if not given:
        raise refusal(argument, f"at least one {kind} is needed", given)
    entries = {}
    for label, value in as_texts(given, argument).items():
        if isinstance(value, str):
            name = spell(value)
            if name not in known:
                raise refusal(
                    argument, f"unknown {kind} {value!r}; known are {', '.join(known)}, or give a function", value
                )
            if label != name and (label in known or known[name] is None):
                raise refusal(argument, f"{kind} {name!r} keeps its name, and cannot have the label {label!r}", label)
            value = known[name]
        elif not callable(value) and not (value is None and label in known):  # a metric without a function of its own
            raise refusal(argument, f"{kind} {label!r} must be a name or a function, got {as_toml(value)}", value)
        elif label in known and value is not known[label]:
            raise refusal(argument, f"{kind} {label!r} is a name of its own; call yours something else", label)
        entries[label] = value
    return entries


def as_texts(given: Mapping[Any, Any], argument: str) -> dict[str, Any]:
    """The mapping with its labels as texts, of which no two may be the same."""
    texts = {str(label): value for label, value in given.items()}
    if len(texts) < len(given):
        raise refusal(
            argument, f"{argument}: two have one label: {', '.join(repr(label) for label in given)}", list(given)
        )
    return texts


def label_of(function: Any, argument: str) -> str:
    """The name of a function that was given without a label."""
    kind = argument.removesuffix("s")
    if not callable(function):
        raise refusal(argument, f"{kind} must be a name or a function, got {as_toml(function)}", function)
    name = getattr(inspect.unwrap(getattr(function, "func", function)), "__name__", None)
    if name is None or name == "<lambda>":
        raise refusal(argument, f"{kind} without a name: give the function a label", function)
    return name


def check_labels(metrics: Iterable[str]) -> None:
    """Refuses labels of metrics that collide with other variables of the dataset, or are invalid names."""
    for label in metrics:
        if not label.isidentifier() or label in _DIMENSIONS or label.endswith(_SUFFIXES):
            raise refusal(
                "metrics",
                f"metric {label!r} cannot be a variable of the result: a label is made of letters, digits and _, "
                f"is none of {', '.join(_DIMENSIONS)}, and does not end in {', '.join(_SUFFIXES)}",
                label,
            )


def check_tallies_suffice(estimators: Mapping[str, Callable[..., Any]]) -> None:
    """Refuses estimators that need whole reports, if mechanisms collect tallies."""
    for label, function in estimators.items():
        entry = entry_of(function)
        if entry is not None and entry.needs in ("mixture", "counts"):
            enough = ", ".join(name for name, entry in ESTIMATORS.items() if entry.needs == "tally")
            raise refusal(
                "estimators",
                f"estimator {label!r} needs the likelihood of whole reports, and studies of mechanisms collect "
                f"tallies: leave it out, or leave `mechanism` out, which is randomized response; a tally is enough "
                f"for {enough}",
                label,
            )


def check_metrics(metrics: Iterable[str]) -> None:
    """Refuses metrics that need whole reports, if there are mechanisms."""
    for label in metrics:
        if label in METRICS and METRICS[label].whole_reports:
            enough = ", ".join(name for name, entry in METRICS.items() if not entry.whole_reports)
            raise refusal(
                "metrics",
                f"metric {label!r} is of whole reports of randomized response; with `mechanism` there are {enough}",
                label,
            )


def categories_of(labelled: Mapping[str, Any], num_categories: Any, argument: str) -> Any:
    """K of the arrays among the distributions (or users); `num_categories` unchanged if there are none."""
    if not isinstance(labelled, Mapping) or not labelled:
        raise refusal(
            argument,
            f"{argument} needs at least one label, each with an array of K numbers, got {as_toml(labelled)}",
            labelled,
        )
    try:
        shapes = {name: np.shape(value) for name, value in labelled.items() if not callable(value)}
    except ValueError as error:
        raise refusal(argument, f"{argument}: each label needs one array of K numbers") from error
    if not shapes:
        return num_categories
    if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
        listed = ", ".join(f"{name}: {shape_in_words(shape)}" for name, shape in shapes.items())
        raise StudyError.about(
            argument, f"must be arrays of K numbers, K the same for all, got {listed}; study each K alone"
        )
    size = next(iter(shapes.values()))[0]
    if num_categories is not None and tuple(np.atleast_1d(num_categories).tolist()) != (size,):
        raise refusal(
            "num_categories",
            f"{argument} have K = {size}, num_categories says {as_toml(num_categories)}",
            num_categories,
        )
    return size


def shape_in_words(shape: tuple[int, ...]) -> str:
    """The shape of an array: "3 × 2 values"."""
    return f"{' × '.join(map(str, shape))} value{'s' * (math.prod(shape) != 1)}" if shape else "no array"


def several(argument: str, value: Any, settle: Callable[[str, Any], Any]) -> tuple[Any, ...]:
    """One value or several as a tuple, each checked and converted by `settle(argument, value)`."""
    given = value if isinstance(value, list | tuple) else np.atleast_1d(np.asarray(value)).tolist()
    values = tuple(settle(argument, one.item() if getattr(one, "ndim", None) == 0 else one) for one in given)
    if not values:
        raise refusal(argument, f"{argument} is empty: the grid has no configurations", value)
    if len(set(values)) < len(values):
        raise StudyError.about(argument, f"names a value twice: {', '.join(map(str, values))}", value=value)
    return values


def integer(argument: str, value: Any, low: int = 1, high: int = 2**31 - 1) -> int:
    """An integer in range."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise StudyError.about(argument, f"must be an integer from {low} to {high}, got {as_toml(value)}", value=value)
    return int(value)


def positive(argument: str, value: Any) -> float:
    """A positive number."""
    return _number(argument, value, "be a positive number", lambda x: x > 0)


def exponent(argument: str, value: Any) -> float:
    """A Zipf exponent."""
    return _number(argument, value, "be a number from 0 to infinity", lambda x: x >= 0)


def share(argument: str, value: Any) -> float:
    """A number from 0 to 1."""
    return _number(argument, value, "lie in [0, 1]", lambda x: 0 <= x <= 1)


def _number(argument: str, value: Any, must: str, allowed: Callable[[float], bool]) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:  # an integer beyond all floats
        number = math.nan
    if not allowed(number):
        raise refusal(argument, f"{argument} must {must}, got {as_toml(value)}", value)
    return number
