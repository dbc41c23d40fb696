"""What type checkers know of records and their fields; at run time it does nothing."""

from __future__ import annotations

from typing import Protocol, dataclass_transform

from pulsarish.client.type_variables import Each_co

__all__ = ["Constructed", "Declares"]

MYPY = False
"""As mypy has it, and no other type checker: for mypy it is always true."""


class Declares(Protocol[Each_co]):
    """What declares an attribute: a field, or a record."""

    def _held(self) -> Each_co: ...


if MYPY:
    # A class that annotates no field keeps the constructor that it inherits. For other type
    # checkers it would have one without arguments.
    @dataclass_transform(kw_only_default=True)
    class Constructed:
        """Classes below have constructors of the fields that they annotate."""

else:

    class Constructed:
        __slots__ = ()
