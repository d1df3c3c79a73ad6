"""Time and memory of the loss of randomized reports, beside plain softmax cross-entropy: forward, and with gradient."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
import report
import timing
from report import Table
from timing import spread

from rrjax.mechanisms import OptimizedUnaryEncoding, SubsetSelection
from rrjax.models import rr_loss

PLAIN = "optax, integer labels"
SIZES = [(65_536, 10), (4096, 1000), (128, 100_000)]


def losses(size: int, examples: int, labels: jax.Array) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """By name: the mean loss, of logits and reports, and the reports."""
    key = jax.random.key(1)
    unary, subsets = OptimizedUnaryEncoding(size, 1.0), SubsetSelection(size, 4.0)
    epsilon = jnp.linspace(0.5, 4, examples)
    found: dict[str, tuple[Any, tuple[Any, ...]]] = {
        PLAIN: (lambda z, y: jnp.mean(optax.softmax_cross_entropy_with_integer_labels(z, y)), (labels,)),
        "rr_loss, ε = 1": (lambda z, y: jnp.mean(rr_loss(z, y, 1.0)), (labels,)),
        "rr_loss, an ε for each": (lambda z, y, e: jnp.mean(rr_loss(z, y, e)), (labels, epsilon)),
        "rr_loss, unary encoding": (lambda z, y: jnp.mean(rr_loss(z, y, unary)), (unary.randomize(key, labels),)),
    }
    if size <= 1000:  # drawing subsets is a loop over the categories
        members = subsets.randomize(key, labels)
        found["rr_loss, subset selection"] = (lambda z, y: jnp.mean(rr_loss(z, y, subsets)), (members,))
    return found


def memory(call: Any, arguments: Any) -> int | None:
    """Bytes that XLA sets aside beyond arguments and results."""
    analysis = call.lower(*arguments).compile().memory_analysis()
    return None if analysis is None else int(analysis.temp_size_in_bytes)


def compared(quick: bool) -> tuple[list[Table], list[dict[str, Any]]]:
    tables, record = [], []
    for examples, size in SIZES[: 1 if quick else None]:
        logits = jax.random.normal(jax.random.key(0), (examples, size))
        labels = jax.random.randint(jax.random.key(2), (examples,), 0, size)
        cases = losses(size, examples, labels)
        forward = {name: jax.jit(loss) for name, (loss, _) in cases.items()}
        both = {name: jax.jit(jax.value_and_grad(loss)) for name, loss in forward.items()}
        arguments = {name: (logits, *reports) for name, (_, reports) in cases.items()}
        calls = {
            f"{name}, {part}": partial(_done, call, arguments[name])
            for part, group in (("forward", forward), ("with gradient", both))
            for name, call in group.items()
        }
        times = timing.interleaved(calls, 3 if quick else 15)
        rows = []
        for name in forward:
            row = [name]
            for part, group in (("forward", forward), ("with gradient", both)):
                time, plain = times[f"{name}, {part}"], times[f"{PLAIN}, {part}"]
                ratio = time.median / plain.median
                space = memory(group[name], arguments[name])
                row += [spread(time), f"{ratio:.2f}", "–" if space is None else f"{space / 2**20:.3g}"]
                record.append({"examples": examples, "num_categories": size, "loss": name, "part": part,
                               "seconds": time, "ratio": ratio, "temporary_bytes": space})  # fmt: skip
            rows.append(row)
        tables.append(
            Table(
                f"{examples:,} examples, K = {size:,}",
                ["", "forward", "ratio", "MiB", "with gradient", "ratio", "MiB"],
                rows,
                f"Float32; the logits take {logits.nbytes / 2**20:.3g} MiB. Memory: XLA's temporary, beyond arguments "
                "and results.",
            )
        )
    return tables, record


def _done(call: Any, arguments: Any) -> Any:
    return jax.block_until_ready(call(*arguments))


def main() -> None:
    options = report.parser(__doc__).parse_args()
    tables, record = compared(options.quick)
    report.publish(options, "models", "Losses", tables, {"losses": record})


if __name__ == "__main__":
    main()
