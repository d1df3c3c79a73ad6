"""Mechanisms of local differential privacy, and survey designs: randomizers, counts of reports, and likelihoods.

Names are loaded when they are first used, so that `rrjax.mechanisms.table` needs no JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rrjax.mechanisms.table import PARTS, TABLE, names_in

if TYPE_CHECKING:
    from rrjax.mechanisms.channel import Channel
    from rrjax.mechanisms.columns import HadamardResponse, ProjectiveGeometry
    from rrjax.mechanisms.local_hashing import BinaryLocalHashing, LocalHashing
    from rrjax.mechanisms.longitudinal.protocol import TwoStages
    from rrjax.mechanisms.mechanism import Mechanism, MechanismFactory, PureMechanism, SupportMechanism
    from rrjax.mechanisms.ordered import DiscreteSquareWave, Geometric, SquareWave
    from rrjax.mechanisms.product import Product, Sampled, SampledWithFakes
    from rrjax.mechanisms.randomized_response import RandomizedResponse
    from rrjax.mechanisms.subset_selection import SubsetSelection
    from rrjax.mechanisms.surveys.by_respondent import ByRespondent
    from rrjax.mechanisms.surveys.design import Design
    from rrjax.mechanisms.surveys.one_sample import (
        Coin,
        Crosswise,
        Direct,
        ForcedResponse,
        Kuk,
        Mangat,
        NegativeQuestion,
        NonCompliance,
        Triangular,
        UnrelatedQuestion,
        Warner,
    )
    from rrjax.mechanisms.surveys.two_sample_designs import (
        AnchoredCrosswise,
        CheatingDetection,
        Compliance,
        SelfProtection,
        StochasticLieDetector,
        TwoSamples,
        UnrelatedQuestionTwoSamples,
    )
    from rrjax.mechanisms.unary import OptimizedUnaryEncoding, SymmetricUnaryEncoding

    DESIGNS: dict[str, type[Design]]
    """The survey designs, which are made from other parameters than K and ε, by their names."""
    MECHANISMS: dict[str, type[PureMechanism]]
    """The mechanisms of K and ε, by the names that files and the command line use."""
    ORDERED: dict[str, type[DiscreteSquareWave | Geometric]]
    """The mechanisms for numbers, by the names that files and the command line use."""
    PROTOCOLS: dict[str, type[TwoStages]]
    """The longitudinal protocols that files know, by their names."""
    TWO_SAMPLES: dict[str, type[TwoSamples]]
    """The survey designs of two samples, which estimate two unknown shares, by their names."""

__all__ = [
    "DESIGNS",
    "MECHANISMS",
    "ORDERED",
    "PROTOCOLS",
    "TWO_SAMPLES",
    "AnchoredCrosswise",
    "BinaryLocalHashing",
    "ByRespondent",
    "Channel",
    "CheatingDetection",
    "Coin",
    "Compliance",
    "Crosswise",
    "Design",
    "Direct",
    "DiscreteSquareWave",
    "ForcedResponse",
    "Geometric",
    "HadamardResponse",
    "Kuk",
    "LocalHashing",
    "Mangat",
    "Mechanism",
    "MechanismFactory",
    "NegativeQuestion",
    "NonCompliance",
    "OptimizedUnaryEncoding",
    "Product",
    "ProjectiveGeometry",
    "PureMechanism",
    "RandomizedResponse",
    "Sampled",
    "SampledWithFakes",
    "SelfProtection",
    "SquareWave",
    "StochasticLieDetector",
    "SubsetSelection",
    "SupportMechanism",
    "SymmetricUnaryEncoding",
    "Triangular",
    "TwoSamples",
    "UnrelatedQuestion",
    "UnrelatedQuestionTwoSamples",
    "Warner",
]

_FILES = {entry.class_name: entry.file for entry in TABLE.values()} | {
    "ByRespondent": "surveys.by_respondent",
    "Channel": "channel",
    "Compliance": "surveys.two_sample_designs",
    "Design": "surveys.design",
    "Mechanism": "mechanism",
    "MechanismFactory": "mechanism",
    "NonCompliance": "surveys.one_sample",
    "Product": "product",
    "Sampled": "product",
    "SampledWithFakes": "product",
    "PureMechanism": "mechanism",
    "SquareWave": "ordered",
    "SupportMechanism": "mechanism",
    "TwoSamples": "surveys.two_sample_designs",
}


def __getattr__(name: str) -> Any:
    if name in PARTS:
        value = {key: __getattr__(TABLE[key].class_name) for key in names_in(name)}
    elif name in _FILES:
        value = getattr(import_module(f"rrjax.mechanisms.{_FILES[name]}"), name)
    else:
        raise AttributeError(f"module 'rrjax.mechanisms' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__"])
