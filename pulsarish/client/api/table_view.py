"""A table of the latest value of each key of a topic, updated by readers of all its partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Generic, Self

from pulsarish.client.api.asyncio_consumer import AsyncReader
from pulsarish.client.checks import check_callable, check_text
from pulsarish.client.connection.context import ClientContext
from pulsarish.client.messages.message import Message
from pulsarish.client.schemas.schema import Decode
from pulsarish.client.type_variables import Value_co
from pulsarish.model.errors import ForkedProcess, PulsarishError, UnknownError
from pulsarish.runtime.background import Background

__all__ = ["AsyncTableView", "TableView"]

Listener = Callable[[str, Any], object]


class AsyncTableView(Generic[Value_co]):
    """``open`` returns once the table has everything that the topic held at that time.

    An empty message removes its key.
    """

    def __init__(
        self,
        topic: str,
        subscription_name: str | None,
        readers: list[AsyncReader[Value_co]],
        parts: ClientContext,
    ) -> None:
        self._topic = topic
        self._subscription_name = subscription_name
        self._readers = readers
        self._parts = parts
        # a copy: one value must not keep its whole batch in memory
        self._values: dict[str, tuple[bytes, Decode]] = {}
        self._listeners: list[Listener] = []
        self._failure: PulsarishError | None = None

    async def _fill(self) -> None:
        """Read to the present end of every partition, then continue in the background."""
        await asyncio.gather(*(self._read_to_end(reader) for reader in self._readers))
        for reader in self._readers:
            _ = self._parts.tasks.spawn(self._follow(reader), name=f"table view {self._topic}")

    async def _read_to_end(self, reader: AsyncReader) -> None:
        while await reader.has_message_available():
            self._apply(await reader.read_next())

    async def _follow(self, reader: AsyncReader) -> None:
        while True:
            try:
                message = await reader.read_next()
            except PulsarishError as error:
                # Closed or finally refused: the next call raises it.
                self._failure = self._failure or error
                return
            try:
                self._apply(message)
            except Exception as error:
                # A defect of the client. Report it to the program, which would see values that are
                # old forever otherwise.
                self._failure = UnknownError(
                    f"the table view of {self._topic} failed in the client: {error!r}"
                )
                raise

    def _apply(self, message: Message) -> None:
        key = message.partition_key()
        if not message.has_partition_key():
            return
        data = message.data()
        if data:
            self._values[key] = (data, message._decoder())
        else:
            self._values.pop(key, None)
        for listener in self._listeners:
            self._tell(listener, key, message)

    def _tell(self, listener: Listener, key: str, message: Message) -> None:
        try:
            listener(key, message.value() if message.size() else None)
        except Exception as error:  # noqa: BLE001
            # The program's own code: reported, and the table goes on.
            self._parts.callback_failed(error)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def get(self, key: str) -> Value_co | None:
        """Return the latest value of a key, ``None`` when there is none.

        Raises why the table is no longer updated.
        """
        self._check()
        check_text("key", key)
        found = self._values.get(key)
        if found is None:
            return None
        data, decode = found
        value: Value_co = decode(data)
        return value

    def __getitem__(self, key: str) -> Value_co:
        """Return the latest value of a key. Raises ``KeyError`` when there is none."""
        self._check()
        check_text("key", key)
        data, decode = self._values[key]
        value: Value_co = decode(data)
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys that are there now."""
        return iter(list(self._values))

    def items(self) -> list[tuple[str, Value_co]]:
        """Return the keys and values that are there now."""
        self._check()
        return [(key, decode(data)) for key, (data, decode) in list(self._values.items())]

    def for_each(self, callback: Callable[[str, Value_co], object]) -> None:
        """Call ``callback(key, value)`` for each key."""
        self._check()
        check_callable("callback", callback, "a function (key, value)")
        for key, (data, decode) in list(self._values.items()):
            callback(key, decode(data))

    def for_each_and_listen(self, callback: Callable[[str, Value_co | None], object]) -> None:
        """Call ``callback(key, value)`` for each key, then at each change, in the event loop; a
        removed key's value is ``None``.
        """
        self.for_each(callback)
        self._listeners.append(callback)

    async def close(self) -> None:
        await asyncio.gather(*(reader.close() for reader in self._readers))

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        name = self._subscription_name
        subscription = "" if name is None else f", subscription={name}"
        return f"TableView(topic={self._topic}{subscription})"


class TableView(Generic[Value_co]):
    """The blocking form of ``AsyncTableView``."""

    def __init__(self, view: AsyncTableView[Value_co], background: Background) -> None:
        self._view = view
        self._background = background
        self._refusal: PulsarishError | None = None
        background.add_user(self)

    def _on_fork(self, error: PulsarishError) -> None:
        self._refusal = error

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def get(self, key: str) -> Value_co | None:
        """Return the latest value of a key, ``None`` when there is none.

        Raises why the table is no longer updated.
        """
        self._check()
        return self._view.get(key)

    def __getitem__(self, key: str) -> Value_co:
        """Return the latest value of a key. Raises ``KeyError`` when there is none."""
        self._check()
        return self._view[key]

    def __contains__(self, key: object) -> bool:
        return key in self._view

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys that are there now."""
        return iter(self._view)

    def items(self) -> list[tuple[str, Value_co]]:
        """Return the keys and values that are there now."""
        self._check()
        return self._view.items()

    def for_each(self, callback: Callable[[str, Value_co], object]) -> None:
        """Call ``callback(key, value)`` for each key."""
        self._check()
        self._view.for_each(callback)

    def for_each_and_listen(self, callback: Callable[[str, Value_co | None], object]) -> None:
        """Call ``callback(key, value)`` for each key, then at each change, in the client's thread;
        a removed key's value is ``None``.
        """
        self._check()

        async def listen() -> None:
            # In the loop, so that no change is missed in between.
            self._view.for_each_and_listen(callback)

        self._background.run(listen())

    def close(self) -> None:
        self._check()
        self._background.run(self._view.close())

    def __len__(self) -> int:
        return len(self._view)

    def __repr__(self) -> str:
        return repr(self._view)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The child of a fork that leaves its parent's block has nothing to close.
        if not isinstance(self._refusal, ForkedProcess):
            self.close()
