"""The names that figures had before `rrjax.figures`."""

from rrjax.figures import *  # noqa: F403
