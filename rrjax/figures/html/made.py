"""With what a page was made."""

from __future__ import annotations

import importlib.metadata
import platform


def versions(*packages: str) -> str:
    """The versions of packages that are installed, and of Python, in words."""
    found = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    return f"{found}, Python {platform.python_version()}"
