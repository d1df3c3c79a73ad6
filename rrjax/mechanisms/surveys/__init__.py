"""Survey designs, which `rrjax.mechanisms` names; and `groups`, for users who randomized with different ε."""

from rrjax.mechanisms.surveys import groups

__all__ = ["groups"]
