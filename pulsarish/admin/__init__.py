"""The admin client: Apache Pulsar's HTTP administration from Python."""

from pulsarish.admin.client import Admin

__all__ = ["Admin"]
