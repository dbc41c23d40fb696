"""Methods that take the arguments of the function or class that checks them, so that each argument
is written down once: a type checker, ``help`` and ``inspect.signature`` show them all.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from pulsarish.client.checks import check_names
from pulsarish.client.errors import InvalidType

__all__ = ["taking"]

P = ParamSpec("P")
S = TypeVar("S")
O = TypeVar("O")  # noqa: E741
R = TypeVar("R")


_ARGUMENT = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)


def _meanings(options: Callable[..., object]) -> dict[str, str]:
    """Return what the docstring says of each argument."""
    documented = vars(options)["__init__"] if isinstance(options, type) else options
    _, _, arguments = (inspect.getdoc(documented) or "").partition("Args:\n")
    return dict(_ARGUMENT.findall(arguments))


def taking(
    options: Callable[P, O],
    *,
    on_unless: Mapping[str, str] | None = None,
    described_by: tuple[Callable[..., object], ...] = (),
) -> Callable[[Callable[[S, O], R]], Callable[Concatenate[S, P], R]]:
    """Return a decorator: the method gets what ``options`` returns for the arguments of a call.

    Args:
        on_unless: flags that are on by default, each with another flag that is set instead of it.
        described_by: have the descriptions of the arguments that ``options`` does not describe.

    The call, or awaiting it, raises ``InvalidType`` for arguments that ``options`` does not have,
    and what ``options`` raises.
    """
    flags = on_unless or {}
    parameters = [
        each.replace(default=True) if each.name in flags else each
        for each in inspect.signature(options).parameters.values()
    ]
    signature = inspect.Signature(parameters)
    meanings: dict[str, str] = {}
    for each in (*reversed(described_by), options):
        meanings |= _meanings(each)
    described = "\n".join(
        f"    {name}: {meanings[name]}" for name in signature.parameters if name in meanings
    )

    def decorate(method: Callable[[S, O], R]) -> Callable[Concatenate[S, P], R]:
        called = "Client" if method.__name__ == "__init__" else method.__name__

        def made(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> O:
            check_names(called, named, signature.parameters)
            try:
                given: dict[str, Any] = signature.bind(*arguments, **named).arguments
            except TypeError as error:
                raise InvalidType(f"{called}(): {error}") from None
            for flag, other in flags.items():
                given.setdefault(flag, not given.get(other, False))
            return cast("Callable[..., O]", options)(**given)

        if inspect.iscoroutinefunction(method):

            @wraps(method)
            async def awaited(self: S, *arguments: Any, **named: Any) -> Any:
                return await cast(Any, method)(self, made(arguments, named))

            wrapper: Any = awaited
        else:

            @wraps(method)
            def call(self: S, *arguments: Any, **named: Any) -> R:
                return method(self, made(arguments, named))

            wrapper = call
        own = inspect.signature(method)
        wrapper.__signature__ = inspect.Signature(
            [*own.parameters.values()][:1] + parameters, return_annotation=own.return_annotation
        )
        if described:
            wrapper.__doc__ = f"{inspect.getdoc(method)}\n\nArgs:\n{described}\n"
        return cast("Callable[Concatenate[S, P], R]", wrapper)

    return decorate
