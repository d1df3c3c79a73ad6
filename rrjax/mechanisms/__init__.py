"""Mechanisms of local differential privacy: randomizers, counts of reports, and likelihoods.

Names are loaded when they are first used, so that `rrjax.mechanisms.table` needs no JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rrjax.mechanisms.table import TABLE

if TYPE_CHECKING:
    from rrjax.mechanisms.channel import Channel
    from rrjax.mechanisms.columns import HadamardResponse
    from rrjax.mechanisms.local_hashing import BinaryLocalHashing, LocalHashing
    from rrjax.mechanisms.mechanism import Mechanism, MechanismFactory
    from rrjax.mechanisms.ordered import Geometric, SquareWave
    from rrjax.mechanisms.projective_geometry_response import ProjectiveGeometry
    from rrjax.mechanisms.randomized_response import RandomizedResponse, Warner
    from rrjax.mechanisms.subset_selection import SubsetSelection
    from rrjax.mechanisms.unary import OptimizedUnaryEncoding, SymmetricUnaryEncoding

    MECHANISMS: dict[str, type[Mechanism]]
    """The pure mechanisms, by the names that files and the command line use."""

__all__ = [
    "MECHANISMS",
    "BinaryLocalHashing",
    "Channel",
    "Geometric",
    "HadamardResponse",
    "LocalHashing",
    "Mechanism",
    "MechanismFactory",
    "OptimizedUnaryEncoding",
    "ProjectiveGeometry",
    "RandomizedResponse",
    "SquareWave",
    "SubsetSelection",
    "SymmetricUnaryEncoding",
    "Warner",
]

_FILES = {entry.kind: entry.file for entry in TABLE.values()} | {
    "Channel": "channel",
    "Geometric": "ordered",
    "Mechanism": "mechanism",
    "MechanismFactory": "mechanism",
    "SquareWave": "ordered",
    "Warner": "randomized_response",
}


def __getattr__(name: str) -> Any:
    if name == "MECHANISMS":
        value = {name: __getattr__(entry.kind) for name, entry in TABLE.items()}
    elif name in _FILES:
        value = getattr(import_module(f"rrjax.mechanisms.{_FILES[name]}"), name)
    else:
        raise AttributeError(f"module 'rrjax.mechanisms' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__"])
