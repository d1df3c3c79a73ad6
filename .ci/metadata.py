"""What a package index shows: the README with links that lead there, too, and the addresses of the project.

The repository does not know its own address. The release workflow passes it on in RRJAX_REPOSITORY; without it links
stay relative.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAPER = "https://arxiv.org/abs/2601.08603"


class Metadata(MetadataHookInterface):
    """Fills in `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling."""
        repository = os.environ.get("RRJAX_REPOSITORY", "").rstrip("/")
        tag = f"v{metadata['version']}"
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, repository, tag)}
        metadata["urls"] = {"Paper": PAPER}
        if repository:
            metadata["urls"] |= {
                "Source": repository,
                "Documentation": f"{repository}/blob/{tag}/docs/index.md",
                "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }


def absolute(text: str, repository: str, tag: str) -> str:
    """The README with the repository's address before every relative link."""
    if not repository:
        return text
    whole = re.sub(r"(!\[[^\]]*\]\()(?![a-z]+:|#)", rf"\g<1>{repository}/raw/{tag}/", text)
    return re.sub(r"(?<!!)(\[[^\]]*\]\()(?![a-z]+:|#)", rf"\g<1>{repository}/blob/{tag}/", whole)
