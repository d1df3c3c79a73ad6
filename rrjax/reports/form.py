"""Numbers and labels in words: shares in percent, limits, levels."""

from __future__ import annotations

import decimal
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrjax.data.errors import number as number

if TYPE_CHECKING:
    import numpy as np


def sentence(text: str) -> str:
    """A text with a full stop at its end, unless it ends as a sentence already."""
    text = text.rstrip()
    return text if text.endswith((".", "!", "?", ".)", "…")) else f"{text}."


def at_most(bound: float, digits: int = 1) -> str:
    """An upper bound, rounded up: 3e-16."""
    rounded = decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING).create_decimal(decimal.Decimal(bound))
    return f"{rounded:.{digits - 1}e}"


def between(lower: float | np.ndarray, upper: float | np.ndarray) -> str:
    """Two limits in percent: 12.34 – 13.45 %; a dash if there is no interval."""
    return "–" if math.isnan(lower) else f"{percent(lower)[:-2]} – {percent(upper)}"


def decimals(standard_error: float) -> int:
    """Number of decimals that show two digits of a standard error; two if there is none."""
    if not (math.isfinite(standard_error) and standard_error > 0):
        return 2
    return max(1 - math.floor(math.log10(standard_error)), 0)


def in_full(share: float) -> str:
    """A level or rate of a flag in percent, with all its digits: 95 %."""
    return f"{100 * share:.12g}\N{NO-BREAK SPACE}%"


def interval(level: float) -> str:
    """The heading of intervals: 95 % interval."""
    return f"{in_full(level)} interval"


def percent(share: float | np.ndarray) -> str:
    """A share in percent with two decimals or two digits: 12.34 %, 0.0042 %."""
    value = 100 * float(share)
    return f"{value:.2f}\N{NO-BREAK SPACE}%" if abs(value) >= 0.1 else f"{value:.2g}\N{NO-BREAK SPACE}%"


def printable(label: object) -> str:
    """A label with escaped control and format characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(label))


def quantile(probability: float) -> str:
    """The name of a quantile: median, 75 % quantile."""
    return "median" if probability == 0.5 else f"{100 * probability:.4g} % quantile"


def share(estimate: float | np.ndarray) -> str:
    """An estimated share in percent; without digits below 0.0001 %, the tolerance of iterations."""
    value = float(estimate)
    return percent(value) if not 0 < value < 1e-6 else "< 0.0001\N{NO-BREAK SPACE}%"


def plain(value: Any) -> Any:
    """A value as JSON has it: Python's own kinds, and None for numbers that are infinite or undefined."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):  # of NumPy or JAX
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
