"""The commands of ``pulsarish metadata``: back up, rehearse, restore, compare, repair and protect a
whole tree.
"""

from __future__ import annotations

from pulsarish.cli.metadata.backups import backup, diff, rehearse, restore
from pulsarish.cli.metadata.repairs import accept, audit, confirm, cut, protect

__all__ = ["accept", "audit", "backup", "confirm", "cut", "diff", "protect", "rehearse", "restore"]
