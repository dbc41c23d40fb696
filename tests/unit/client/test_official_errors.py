"""Exceptions and results have the names and numbers of Apache Pulsar's Python client."""

from __future__ import annotations

import builtins

import pulsar
import pulsar.exceptions
import pytest

import pulsarish
import pulsarish.exceptions
from pulsarish.client.checks import check_type
from pulsarish.client.service_url import parse_service_url
from pulsarish.model import errors

_OFFICIAL = sorted(
    name for name, value in vars(pulsar.exceptions).items() if isinstance(value, type)
)


@pytest.mark.parametrize("name", _OFFICIAL)
def test_each_exception_of_the_official_client_is_here(name: str) -> None:
    here = getattr(pulsarish.exceptions, name)
    assert getattr(pulsarish, name) is here
    assert issubclass(here, pulsarish.PulsarException)
    assert name in pulsarish.exceptions.__all__
    assert name in pulsarish.__all__
    assert name in (here.__name__, "PulsarException")
    if name in pulsar.Result.__members__:
        assert here("why").error() is pulsarish.Result[name]


def test_results_have_the_names_and_numbers_of_the_official_client() -> None:
    there = {name: int(result) for name, result in pulsar.Result.__members__.items()}
    assert {result.name: result.value for result in pulsarish.Result} == there


@pytest.mark.parametrize(
    ("ours", "official"),
    [
        (errors.MetadataUnavailable, "BrokerMetadataError"),
        (errors.NotEnoughBookies, "BrokerPersistenceError"),
        (errors.NotEnoughDomains, "BrokerPersistenceError"),
        (errors.ServiceNotReady, "ServiceUnitNotReady"),
        (errors.NotOwner, "ServiceUnitNotReady"),
        (errors.TooManyRequests, "TooManyLookupRequestException"),
    ],
)
def test_an_error_of_a_broker_is_of_the_class_that_programs_know(
    ours: type[errors.PulsarishError], official: str
) -> None:
    raised = errors.error_from_code(ours.code, "why")
    assert type(raised) is ours
    assert isinstance(raised, getattr(pulsarish, official))
    assert str(raised) == "why"


def test_a_timeout_is_one_for_python_too() -> None:
    assert issubclass(pulsarish.Timeout, builtins.TimeoutError)
    assert str(pulsarish.Timeout("no answer")) == "no answer"


def test_a_refused_argument_is_what_python_raises_for_one() -> None:
    with pytest.raises(ValueError, match="pulsarish://"):
        parse_service_url("host")
    with pytest.raises(pulsarish.InvalidUrl):
        parse_service_url(5)
    with pytest.raises(TypeError, match="n is 'a' of type str") as found:
        check_type("n", "a", int, "an int")
    assert isinstance(found.value, ValueError)
    assert isinstance(found.value, pulsarish.InvalidArgument)
