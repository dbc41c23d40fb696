"""A transport for kombu, and so a broker for Celery. Needs the extra ``pulsarish[celery]``.

    app = Celery("shop", broker="pulsarish://127.0.0.1:6660")
    app.conf.broker_transport = "pulsarish.integrations.kombu:Transport"

``register`` makes the scheme ``pulsarish`` known, for programs that give kombu nothing but a URL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pulsarish.integrations.kombu.channel import Channel
    from pulsarish.integrations.kombu.transport import Transport

__all__ = ["Channel", "Transport", "register"]

_CLASS: Final = "pulsarish.integrations.kombu:Transport"


def register() -> None:
    """Let kombu find the transport by the schemes ``pulsarish`` and ``pulsarish+ssl`` of a URL.

    Raises ``ImportError`` with the remedy when kombu is not installed.
    """
    _check_installed()
    from kombu.transport import TRANSPORT_ALIASES

    TRANSPORT_ALIASES["pulsarish"] = _CLASS


def _check_installed() -> None:
    try:
        import kombu  # noqa: F401
    except ImportError as error:
        from pulsarish.runtime.extras import install_command

        raise ImportError(
            f"pulsarish.integrations.kombu needs kombu: {install_command('celery')}"
        ) from error


def __getattr__(name: str) -> Any:
    """Import the classes at their first use: importing this module imports no kombu."""
    if name == "Transport":
        _check_installed()
        from pulsarish.integrations.kombu.transport import Transport

        return Transport
    if name == "Channel":
        _check_installed()
        from pulsarish.integrations.kombu.channel import Channel

        return Channel
    raise AttributeError(f"module 'pulsarish.integrations.kombu' has no attribute {name!r}")
