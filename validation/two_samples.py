"""Exact sizes, power and coverage for designs of two samples: every outcome of both samples, with its probability.

The test that all comply where all do, at shares from 0 to 0.99; the test of fit on all sides of the region of each
design; the coverage of intervals. Beside the first one the plain likelihood ratio with half a χ²₁, without a correction
for continuity, and the power of both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import xlog1py, xlogy
from scipy.stats import binom, norm

from rrjax import inference, mechanisms
from validation.runner import FLOAT, Table, covers, run

DESIGNS = [
    mechanisms.CheatingDetection(np.array([0.25, 0.75])),
    mechanisms.CheatingDetection(np.array([0.1, 0.5])),
    mechanisms.StochasticLieDetector(np.array([0.8, 0.4])),
    mechanisms.AnchoredCrosswise(0.15, 0.15),
    mechanisms.AnchoredCrosswise(0.15, 0.2, 0.1),
    mechanisms.SelfProtection(np.array([0.8, 0.4]), 0.5),
    mechanisms.SelfProtection(np.array([0.8, 0.4]), 0.4),
    mechanisms.UnrelatedQuestionTwoSamples(np.array([0.7, 0.3])),
    mechanisms.UnrelatedQuestionTwoSamples(np.array([0.9, 0.6])),
]
NUMBERS = [(25, 25), (50, 50), (100, 100), (200, 200), (300, 60), (60, 300)]
SHARES = (0, 0.003, 0.01, 0.03, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 0.9, 0.97, 0.99)
SPREAD = (0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
LEVELS = (0.05, 0.01)
AT_ONCE = 2**12


class Outcomes(NamedTuple):
    """Of every outcome `[M]`: the numbers of yes `[M, 2]`, and what the library says."""

    said: np.ndarray
    numbers: np.ndarray
    fit_p_value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    p_value: np.ndarray
    plain: np.ndarray

    def weights(self, chance: np.ndarray) -> np.ndarray:
        """The probability of every outcome."""
        return np.prod(binom.pmf(self.said, self.numbers, chance), axis=1)


def label(design: Any) -> str:
    """A design with its parameters."""
    values = [np.ravel(np.asarray(each)).round(3).tolist() for each in vars(design).values()]
    return f"{type(design).__name__}({', '.join(str(each[0] if len(each) == 1 else each) for each in values)})"


def outcomes(design: Any, numbers: tuple[int, int]) -> Outcomes:
    """All outcomes of samples of these numbers."""
    said = np.indices([number + 1 for number in numbers]).reshape(2, -1).T
    counts = np.stack([said, numbers - said], axis=-1)
    comply = isinstance(design, mechanisms.Compliance)
    function = inference.compliance if comply else inference.unrelated_question
    found = jax.jit(lambda rows: jax.lax.map(lambda row: function(row, design), rows, batch_size=AT_ONCE))(
        jnp.asarray(counts, jnp.int32)
    )
    part = {name: np.asarray(value, float) for name, value in found._asdict().items()}
    p_value, plain = part.get("p_value", np.ones(len(said))), np.ones(len(said))
    if comply:
        without = np.stack([part["naive"], 1 - part["naive"]], axis=1)
        ratio = 2 * (_value(design, part["kinds"], counts) - _value(design, without, counts))
        plain = np.where(part["kinds"][:, 2] > 0, norm.sf(np.sqrt(np.maximum(ratio, 0))), 1)
    return Outcomes(said, np.asarray(numbers), part["fit_p_value"], part["lower"], part["upper"], p_value, plain)


def _value(design: Any, kinds: np.ndarray, counts: np.ndarray) -> np.ndarray:
    chance = np.clip(kinds @ np.asarray(design.yes, float)[:, : kinds.shape[1]].T, 0, 1)
    return np.sum(xlogy(counts[..., 0], chance) + xlog1py(counts[..., 1], -chance), axis=1)


def points(design: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Points on the sides of the region, and points inside and on its sides."""
    corners = np.array(design.region.corners, float)
    sides = [(1 - t) * corners[a] + t * corners[b] for a, b in design.region.sides for t in (*SHARES, 1)]
    if isinstance(design, mechanisms.Compliance):
        inside = [np.array([p, 1 - p - c, c]) for c in SPREAD for p in SPREAD]
    else:
        inside = [np.array([p, u, 1 - p - u]) for p in SPREAD for u in SPREAD]
    return sides, inside


def share_of(design: Any, kinds: np.ndarray) -> float:
    """The share with the attribute."""
    part, whole = np.array(design.region.share, float) @ kinds
    return part / whole


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    designs, all_numbers = (DESIGNS[::4], [(10, 12)]) if options.quick else (DESIGNS, NUMBERS)
    comply, fit, covered, record = [], [], [], []
    for design in designs:
        yes, name = np.asarray(design.yes, float), label(design)
        sides, inside = points(design)
        for numbers in all_numbers:
            seen = outcomes(design, numbers)
            row: dict[str, Any] = {"design": name, "numbers": numbers}
            sizes = [[seen.weights(yes @ k) @ (seen.fit_p_value <= level) for level in LEVELS] for k in sides]
            row["fit"] = np.max(sizes, axis=0).tolist()
            within = {
                tuple(k.round(3).tolist()): float(seen.weights(yes @ k) @ covers(seen, share_of(design, k), FLOAT))
                for k in inside
            }
            row["coverage"], row["at"] = min((value, key) for key, value in within.items())
            row["below"] = float(np.mean(np.array(list(within.values())) < 0.94))
            shown = f"{numbers[0]}, {numbers[1]}"
            fit.append([name, shown, *(f"{each:.4f}" for each in row["fit"])])
            covered.append([
                name, shown, f"{row['coverage']:.3f}", " ".join(f"{each:g}" for each in row["at"]),
                f"{row['below']:.2f}",
            ])  # fmt: skip
            if isinstance(design, mechanisms.Compliance):
                # A tenth does not comply; a fifth of the others has the attribute.
                truths = [np.array([share, 1 - share, 0]) for share in SHARES]
                other = seen.weights(yes @ np.array([0.18, 0.72, 0.1]))
                for rule, p_value in (("here", seen.p_value), ("plain", seen.plain)):
                    sizes = [[seen.weights(yes @ k) @ (p_value <= level) for level in LEVELS] for k in truths]
                    row[rule] = {"size": np.max(sizes, axis=0).tolist(), "power": float(other @ (p_value <= 0.05))}
                both = [row[rule] for rule in ("here", "plain")]
                sizes = [f"{rule['size'][place]:.4f}" for place in range(2) for rule in both]
                comply.append([name, shown, *sizes, *(f"{rule['power']:.3f}" for rule in both)])
            record.append(row)
    numbers = "respondents"
    tables = [
        Table(
            "All comply: largest size, and power",
            ["design", numbers, "at 0.05", "plain", "at 0.01", "plain", "power at 0.05", "plain"],
            comply,
            f"Largest over shares of {', '.join(f'{each:g}' for each in SHARES)}. Power: a tenth does not comply, and "
            "a fifth of the others has the attribute. Plain: half a χ²₁, no correction for continuity.",
        ),
        Table(
            "Test of fit: largest size", ["design", numbers, "at 0.05", "at 0.01"], fit,
            "Largest over all sides of the region and their corners.",
        ),
        Table(
            "95 % intervals: least coverage", ["design", numbers, "least", "at the point", "points below 0.94"],
            covered,
            "Of the 49 points whose first coordinate and the share that does not comply (or says yes to the unrelated "
            f"question) are {', '.join(f'{each:g}' for each in SPREAD)}.",
        ),
    ]  # fmt: skip
    return tables, {"rows": record}


if __name__ == "__main__":
    run(study, "Designs of two samples")
