"""Type variables of what messages hold, for type checkers; at run time they say nothing.

They have defaults, so that programs may write ``Message`` for a message of any value. Python has
such variables from 3.13 on, type checkers know them before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Each = TypeVar("Each", default=Any)
    Each_co = TypeVar("Each_co", covariant=True, default=Any)
    Given = TypeVar("Given", default=Any)
    Held = TypeVar("Held", default=Any)
    Key = TypeVar("Key", default=Any)
    Value = TypeVar("Value", default=Any)
    Value_co = TypeVar("Value_co", covariant=True, default=Any)
    Value_contra = TypeVar("Value_contra", contravariant=True, default=Any)
    Chosen = TypeVar("Chosen", default=bytes)
else:
    from typing import TypeVar

    Each = TypeVar("Each")
    Each_co = TypeVar("Each_co", covariant=True)
    Given = TypeVar("Given")
    Held = TypeVar("Held")
    Key = TypeVar("Key")
    Value = TypeVar("Value")
    Value_co = TypeVar("Value_co", covariant=True)
    Value_contra = TypeVar("Value_contra", contravariant=True)
    Chosen = TypeVar("Chosen")
"""What the schema of a call holds: bytes, when it has none."""

__all__ = ["Chosen", "Key", "Value", "Value_co", "Value_contra"]
