"""What a function may ask and do while it processes a message."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from logging import Logger
from typing import Any

from pulsarish.client.enums import CompressionType
from pulsarish.client.message_id import MessageId
from pulsarish.model.result import Result

__all__ = ["Context"]


class Context:
    """The interface; ``LocalRunner`` has the one that functions get."""

    @abstractmethod
    def get_message_id(self) -> MessageId:
        """Return the id of the message that is processed."""
        raise NotImplementedError

    @abstractmethod
    def get_message_key(self) -> str:
        """Return its key; empty when it has none."""
        raise NotImplementedError

    @abstractmethod
    def get_message_eventtime(self) -> int:
        """Return its event time in ms since the epoch; 0 when it has none."""
        raise NotImplementedError

    @abstractmethod
    def get_message_properties(self) -> dict[str, str]:
        """Return its properties."""
        raise NotImplementedError

    @abstractmethod
    def get_current_message_topic_name(self) -> str:
        """Return the topic that it came from."""
        raise NotImplementedError

    @abstractmethod
    def get_function_tenant(self) -> str:
        """Return the tenant of the function."""
        raise NotImplementedError

    @abstractmethod
    def get_function_namespace(self) -> str:
        """Return the namespace of the function."""
        raise NotImplementedError

    @abstractmethod
    def get_function_name(self) -> str:
        """Return the name of the function."""
        raise NotImplementedError

    @abstractmethod
    def get_function_id(self) -> str:
        """Return the id of the function."""
        raise NotImplementedError

    @abstractmethod
    def get_instance_id(self) -> str:
        """Return the id of the process that runs the function."""
        raise NotImplementedError

    @abstractmethod
    def get_function_version(self) -> str:
        """Return the version of the function."""
        raise NotImplementedError

    @abstractmethod
    def get_logger(self) -> Logger:
        """Return a logger for the function."""
        raise NotImplementedError

    @abstractmethod
    def get_user_config_value(self, key: str) -> Any:
        """Return a value of the program's settings; ``None`` when there is none."""
        raise NotImplementedError

    @abstractmethod
    def get_user_config_map(self) -> dict[str, Any]:
        """Return all settings of the program."""
        raise NotImplementedError

    @abstractmethod
    def get_secret(self, secret_name: str) -> str | None:
        """Return a secret; ``None`` when there is none."""
        raise NotImplementedError

    @abstractmethod
    def get_partition_key(self) -> str:
        """Return the key of the message; empty when it has none."""
        raise NotImplementedError

    @abstractmethod
    def get_ordering_key(self) -> str:
        """Return its ordering key; empty when it has none."""
        raise NotImplementedError

    @abstractmethod
    def record_metric(self, metric_name: str, metric_value: float) -> None:
        """Record a value of a metric."""
        raise NotImplementedError

    @abstractmethod
    def publish(
        self,
        topic_name: str,
        message: Any,
        serde_class_name: str = "serde.IdentitySerDe",
        properties: Mapping[str, str] | None = None,
        compression_type: CompressionType | None = None,
        callback: Callable[[Result, MessageId], object] | None = None,
        message_conf: Mapping[str, Any] | None = None,
    ) -> None:
        """Publish a value to a topic.

        Args:
            serde_class_name: ``module.Class`` of the ``SerDe`` that writes it.
            callback: called as that of ``Producer.send_async``. What is not stored fails the
                message that is processed, with a callback, too.
            message_conf: more arguments of ``Producer.send_async`` by name.
        """
        raise NotImplementedError

    @abstractmethod
    def get_input_topics(self) -> list[str]:
        """Return the topics that the function reads."""
        raise NotImplementedError

    @abstractmethod
    def get_output_topic(self) -> str:
        """Return the topic that its results go to; empty when there is none."""
        raise NotImplementedError

    @abstractmethod
    def get_output_serde_class_name(self) -> str:
        """Return ``module.Class`` of the ``SerDe`` of the results."""
        raise NotImplementedError

    @abstractmethod
    def ack(self, msgid: MessageId, topic: str) -> None:
        """Acknowledge a message before it is processed."""
        raise NotImplementedError

    @abstractmethod
    def incr_counter(self, key: str, amount: int) -> None:
        """Add to a counter."""
        raise NotImplementedError

    @abstractmethod
    def get_counter(self, key: str) -> int:
        """Return a counter; 0 when it does not exist."""
        raise NotImplementedError

    @abstractmethod
    def del_counter(self, key: str) -> None:
        """Delete a counter."""
        raise NotImplementedError

    @abstractmethod
    def put_state(self, key: str, value: Any) -> None:
        """Keep a value."""
        raise NotImplementedError

    @abstractmethod
    def get_state(self, key: str) -> Any:
        """Return a value that was kept; ``None`` when there is none."""
        raise NotImplementedError
