"""How a test is simulated: the flags that tests share."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Annotated, Any

import jax
import typer

from rrjax import inference, io
from rrjax.cli.reading import (
    check_rate,
)
from rrjax.data.errors import UsageError

MOST_DRAWS = 10_000_000
_flag = partial(typer.Option, rich_help_panel="The test")


@dataclasses.dataclass(frozen=True)
class Draws:
    """How a test is simulated, and what its p-value is compared with."""

    draws: Annotated[int, _flag(help="How many collections to simulate in which there is nothing to find.")] = 9999
    significance: Annotated[
        float, _flag(help="What the p-value is compared with: the chance of an alarm where there is nothing.")
    ] = 0.05
    seed: Annotated[int, _flag(min=0, max=2**63 - 1, help="Of the simulations.")] = 0

    def __post_init__(self) -> None:
        """Refuses a level that is none, and too few draws for it."""
        check_rate("--significance", self.significance, small=True)
        if self.significance > 0.5:
            raise UsageError(
                f"--significance {self.significance:g} is the chance to be wrong where there is nothing, so it is "
                f"small; did you mean {1 - self.significance:g}?",
                flag="--significance",
                value=self.significance,
            )
        if self.significance < 1 / MOST_DRAWS:
            raise UsageError(
                f"--significance {self.significance:g} is below what {MOST_DRAWS:,} draws can tell",
                flag="--significance",
                value=self.significance,
            )
        if self.draws > MOST_DRAWS:
            raise UsageError(
                f"--draws must be at most {MOST_DRAWS:,}, got {self.draws:,}", flag="--draws", value=self.draws
            )
        least = math.ceil(1 / self.significance) - 1
        if self.draws < least:
            raise UsageError(
                f"--draws {self.draws} is too few for --significance {self.significance:g}: the least p-value would be "
                f"{1 / (max(self.draws, 0) + 1):.2g}; take at least {least}",
                flag="--draws",
                value=self.draws,
            )

    @property
    def key(self) -> jax.Array:
        """Of the random numbers."""
        return jax.random.key(self.seed)

    @property
    def options(self) -> dict[str, Any]:
        """For the functions of `rrjax.inference`."""
        return {"num_draws": self.draws, "level": self.significance}

    def verdict(
        self, question: str, result: inference.HypothesisTest, if_so: str, if_not: str, log_least: float
    ) -> dict[str, Any]:
        """What a test says: the question, the result, and the answer in words.

        `log_least` is the logarithm of the least p-value that any reports of this number could have: where that is
        above the significance, the test cannot find anything, and says so.
        """
        p_value = float(result.p_value)
        if math.isnan(p_value):
            raise io.DataError("the test came out as NaN: these counts are beyond what it can compute")
        rejected, least = p_value <= self.significance, math.exp(min(log_least, 0.0))
        if least > self.significance:
            if_not = (
                f"It cannot be found out: with so few reports, or at so large an ε, p is {least:.2g} or more whatever "
                "they say."
            )
        answer = {"rejected": rejected, "answer": if_so if rejected else if_not, "least_p_value": least}
        return {"question": question} | vars(result) | answer
