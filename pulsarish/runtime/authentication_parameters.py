"""Parameters of an authentication plugin, as Apache Pulsar's clients and tools write them.

An error says what to give, never what was given: it could be a secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pulsarish.model.errors import InvalidArgument

__all__ = ["parse_parameters", "take_parameters"]


def parse_parameters(name: str, text: str) -> dict[str, str]:
    """Return the parameters of a text ``name:value,name2:value2``, or of a JSON object.

    Args:
        name: of the argument, for errors.

    Raises ``InvalidArgument``.
    """
    if not text.lstrip().startswith("{"):
        found: dict[str, str] = {}
        for number, part in enumerate(text.split(","), 1):
            key, colon, value = part.partition(":")
            if not colon or not key.strip():
                raise InvalidArgument(
                    f"part {number} of {name} has no name:value; write a value that holds a comma "
                    "as JSON"
                )
            found[key.strip()] = value
        return found
    try:
        given = json.loads(text)
    except ValueError:
        raise InvalidArgument(f"{name} is not valid JSON") from None
    if not all(isinstance(value, str) for value in given.values()):
        raise InvalidArgument(f"{name} is a JSON object whose values are not all texts")
    return dict(given)


def take_parameters(
    name: str, parameters: Mapping[str, str], known: Mapping[str, str]
) -> dict[str, str]:
    """Return parameters by their own names.

    Args:
        name: of the argument, for errors.
        known: every accepted name, with the name that it stands for.

    Raises ``InvalidArgument`` for a name that is not known. It is not shown: it may be a part of a
    secret that holds a comma.
    """
    unknown = len([key for key in parameters if key not in known])
    if unknown:
        raise InvalidArgument(
            f"{unknown} of the parameters in {name} are not known: it takes "
            f"{', '.join(dict.fromkeys(known.values()))}; write a value that holds a comma as JSON"
        )
    return {known[key]: value for key, value in parameters.items()}
