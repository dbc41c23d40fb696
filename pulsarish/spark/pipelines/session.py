"""The Spark session of a pipeline, and the options by which the connector finds the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.profiles import Profile
from pulsarish.spark import register
from pulsarish.spark.access import BrokerAccess
from pulsarish.spark.jobs.session import spark_session
from pulsarish.spark.pipelines.parts import Pipeline

__all__ = ["cluster_options", "session_of"]


@contextmanager
def session_of(pipeline: Pipeline, master: str | None) -> Iterator[SparkSession]:
    """Provide a session as the file describes it, which ends with the block."""
    settings = [f"{name}={value}" for name, value in pipeline.spark.conf.items()]
    with spark_session(pipeline.name, master or pipeline.spark.master, settings) as spark:
        register(spark)
        yield spark


def cluster_options(
    pipeline: Pipeline, service_url: str, admin_url: str, profile_of: Callable[[str], Profile]
) -> dict[str, str]:
    """Return the connector's options.

    Args:
        service_url: applies, as ``admin_url``, when the file names none.
        profile_of: returns who uses the brokers at a URL.

    Raises ``InvalidArgument`` for a profile that holds a secret.
    """
    service_url = pipeline.cluster.service_url or service_url
    profile = profile_of(service_url)
    profile.check()
    admin_url = pipeline.cluster.admin_url or admin_url
    if profile_of(admin_url) != profile:
        raise InvalidArgument(
            f"the profile in use is for only one of {service_url} and {admin_url}; give both "
            "addresses of one cluster"
        )
    return BrokerAccess.at(service_url, admin_url, profile).options()
