"""The table of the latest values of a topic, where Apache Pulsar's Python client has it."""

from __future__ import annotations

from pulsarish.client.api.table_view import TableView
from pulsarish.client.schemas.schema import Schema

__all__ = ["Schema", "TableView"]
