"""File modes of a node.

Its files hold messages and metadata, so only the user that runs it may read them.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DIRECTORY_MODE", "FILE_MODE"]

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
