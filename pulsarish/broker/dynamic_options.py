"""Options that change while brokers run: one record in metadata for all brokers of a cluster.

Each broker watches the record. Its values win over the file, the environment and the command line
of the broker. The object with the broker's configuration is changed in place, so that what reads an
option at each use has the new value at once; ``changed`` tells the others.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from pulsarish.broker.config import BrokerConfig
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import DynamicOptionsRecord
from pulsarish.model.errors import ConfigError, CorruptData, InvalidArgument, MetadataUnavailable
from pulsarish.runtime.config import check, describe, dynamic_value, text_of
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World
from pulsarish.wire.json_record import decode_record

__all__ = ["NAMES", "DynamicOptions"]

_log = get_logger("broker.options")

NAMES: Final = tuple(option.name for option in describe(BrokerConfig) if option.is_dynamic)
"""The options that can change while a broker runs."""

_CAPITAL: Final = re.compile("([A-Z])")
_RETRY_SECONDS: Final = 1.0
_REQUEST: Final = "the request"
_STORED: Final = "the dynamic configuration of the cluster"


class DynamicOptions:
    """The dynamic options of one broker.

    Args:
        config: the broker's own configuration, which no other broker of the process shares. It is
            changed in place.
        changed: called with the names of options after they changed.
    """

    def __init__(
        self,
        world: World,
        records: Records,
        config: BrokerConfig,
        changed: Callable[[Collection[str]], None],
    ) -> None:
        self.refused = ""
        """Why the stored values are not in force here; empty when they are."""
        self._world = world
        self._records = records
        self._config = config
        self._started = msgspec.structs.replace(config)
        self._changed = changed
        self._seen: Mapping[str, str] = {}
        self._touched = asyncio.Event()
        self._stopped = False

    # -- following the record

    async def start(self) -> None:
        """Apply the stored values, and follow them from now on. Raises ``MetadataUnavailable``."""
        await self._look()
        _ = run_in_background(self._world.tasks, self._world.clock, "dynamic options", self._follow)

    def stop(self) -> None:
        self._stopped = True
        self._touched.set()

    async def _follow(self) -> None:
        while not self._stopped:
            await self._touched.wait()
            self._touched.clear()
            try:
                if not self._stopped:
                    await self._look()
            except MetadataUnavailable as error:
                _log.debug("dynamic options wait for metadata", reason=error)
                await self._world.clock.sleep(_RETRY_SECONDS)
                self._touched.set()

    async def _look(self) -> None:
        path = paths.DYNAMIC_OPTIONS
        node = (await self._records.nodes([path], watch=lambda _: self._touched.set()))[0]
        try:
            values = (
                {} if node is None else decode_record(node.data, DynamicOptionsRecord, path).values
            )
        except CorruptData as error:
            # What is in force stays: defaults may be limits that someone lifted for a reason.
            self.refused = str(error)
            _log.error("dynamic options cannot be read", exception=error)
            return
        if values != self._seen or self.refused:
            self._apply(values)
            self._seen = values

    def _apply(self, stored: Mapping[str, str]) -> None:
        """Put stored values in force. Those that this version does not know are left out."""
        self.refused = ""
        values: dict[str, Any] = {}
        for name, text in sorted(stored.items()):
            try:
                values[name] = dynamic_value(BrokerConfig, name, text, _STORED)
            except ConfigError as error:
                # Of a newer broker, most likely.
                _log.warning("dynamic option ignored", option=name, reason=error)
        wanted = msgspec.structs.replace(self._started, **values)
        try:
            check(wanted)
        except ConfigError as error:
            # The options that this broker was started with do not fit them.
            self.refused = f"the dynamic options are not in force at this broker: {error}"
            _log.error("dynamic options refused", reason=error)
            return
        before = {name: getattr(self._config, name) for name in NAMES}
        after = {name: getattr(wanted, name) for name in NAMES}
        changed = [name for name in NAMES if before[name] != after[name]]
        for name in changed:
            msgspec.structs.force_setattr(self._config, name, after[name])
            _log.info("option changed", option=name, before=before[name], value=after[name])
        if changed:
            self._changed(changed)

    # -- changing the record

    async def values(self) -> Mapping[str, str]:
        """Return the stored values. Raises ``MetadataUnavailable``, ``CorruptData``."""
        found = await self._records.get(paths.DYNAMIC_OPTIONS, DynamicOptionsRecord)
        return {} if found is None else found[0].values

    async def set(self, name: str, text: str) -> None:
        """Store the value of an option for all brokers, which put it in force at once.

        ``name``: also as Apache Pulsar writes it, ``brokerMaxConnections``.

        Raises ``InvalidArgument`` for an unknown option, one that cannot change while a broker
        runs, and a value that is refused or does not fit the other options of this broker;
        ``MetadataUnavailable``, ``CorruptData``.
        """
        name = _own_name(name)
        try:
            value = dynamic_value(BrokerConfig, name, text, _REQUEST)
        except ConfigError as error:
            raise InvalidArgument(str(error)) from None

        def change(record: DynamicOptionsRecord | None) -> DynamicOptionsRecord:
            found = record or DynamicOptionsRecord()
            wanted = {**found.values, name: text_of(value)}
            _check_together(self._started, wanted)
            return msgspec.structs.replace(found, values=wanted)

        await self._records.update(paths.DYNAMIC_OPTIONS, DynamicOptionsRecord, change)

    async def remove(self, name: str) -> None:
        """Remove the stored value of an option, so that each broker has what it was started with.

        ``name``: as for ``set``. One that only another version knows can be removed, too.

        Raises ``InvalidArgument`` (the option cannot change while a broker runs, or without it the
        others do not fit together), ``MetadataUnavailable``, ``CorruptData``.
        """
        name = _own_name(name)

        def change(record: DynamicOptionsRecord | None) -> DynamicOptionsRecord | None:
            if record is None or name not in record.values:
                if name not in NAMES:
                    raise InvalidArgument(
                        f"{name} is not an option that can change while a broker runs; see: "
                        "pulsarish brokers list-dynamic-config"
                    )
                return None
            wanted = {each: text for each, text in record.values.items() if each != name}
            _check_together(self._started, wanted)
            return msgspec.structs.replace(record, values=wanted)

        await self._records.update(paths.DYNAMIC_OPTIONS, DynamicOptionsRecord, change)


def _own_name(name: str) -> str:
    """Return the name of an option from its name here or in Apache Pulsar, which sometimes has the
    singular.
    """
    snake = _CAPITAL.sub(lambda found: f"_{found[1].lower()}", name)
    return f"{snake}s" if f"{snake}s" in NAMES else snake


def _check_together(started: BrokerConfig, stored: Mapping[str, str]) -> None:
    """Raise ``InvalidArgument`` if stored values do not fit each other and the options that this
    broker was started with.
    """
    values: dict[str, Any] = {}
    for name in NAMES:
        if name in stored:
            try:
                values[name] = dynamic_value(BrokerConfig, name, stored[name], _STORED)
            except ConfigError:
                continue  # a value of a newer version, which brokers of this one ignore
    try:
        check(msgspec.structs.replace(started, **values))
    except ConfigError as error:
        raise InvalidArgument(str(error)) from None
