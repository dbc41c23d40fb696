"""Options of reading: what is taken, and what is said of what is not."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pulsarish.model.errors import NotFound
from pulsarish.runtime.profiles import Profile, Profiles
from pulsarish.spark.access import BrokerAccess
from pulsarish.spark.options import DirectReads, OptionError, read_options
from pulsarish.spark.positions import Place, parse_bound, parse_time_ms
from pulsarish.spark.writing.options import write_options


def test_names_are_compared_without_case_and_values_become_typed() -> None:
    found = read_options(
        {
            "TOPIC": "orders",
            "splitbytes": "8m",
            "DirectReads": "Always",
            "failOnDataLoss": "FALSE",
            "startingOffsets": "12:34:5",
        },
        streaming=False,
    )
    assert found.topics == ("persistent://public/default/orders",)
    assert found.split_bytes == 8 << 20
    assert found.direct_reads is DirectReads.ALWAYS
    assert not found.fail_on_data_loss
    assert found.starting is not None
    assert found.starting.of("any", "earliest") == Place(12, 34, 5)


@pytest.mark.parametrize(
    ("given", "streaming", "said"),
    [
        ({}, False, "option 'topic' = '': give one of topic, topics, topicsPattern"),
        (
            {"topic": "a", "topics": "b"},
            False,
            "give one of topic, topics, topicsPattern, not topic and topics",
        ),
        (
            {"topic": "a", "startingOffset": "earliest"},
            False,
            (
                "option 'startingOffset' = 'earliest': reading has no such option; did you mean "
                "'startingOffsets'?"
            ),
        ),
        (
            {"topic": "a", "startingOffsets": "first"},
            False,
            (
                "option 'startingOffsets' = 'first': 'first' is no place in a topic; allowed are "
                "earliest"
            ),
        ),
        (
            {"topic": "a", "startingOffsets": "{"},
            False,
            "option 'startingOffsets' = '{': it is no JSON",
        ),
        (
            {"topic": "a", "directReads": "sometimes"},
            False,
            "option 'directReads' = 'sometimes': allowed are auto, always, never",
        ),
        (
            {"topic": "a", "splitBytes": "12"},
            False,
            "option 'splitBytes' = '12': it must be at least 65536 bytes",
        ),
        (
            {"topic": "a", "splitBytes": "much"},
            False,
            "option 'splitBytes' = 'much': it must be a number of bytes",
        ),
        (
            {"topic": "a", "failOnDataLoss": "no"},
            False,
            "option 'failOnDataLoss' = 'no': allowed are true and false",
        ),
        (
            {"topic": "a", "subscription": "s"},
            False,
            "option 'subscription' = 's': it is for streaming queries only",
        ),
        (
            {"topic": "a", "endingOffsets": "latest"},
            True,
            "option 'endingOffsets' = 'latest': a streaming query has no end",
        ),
        (
            {"topic": "a", "maxMessagesPerTrigger": "0"},
            True,
            "option 'maxMessagesPerTrigger' = '0': it must be a whole number of 1 or more",
        ),
        (
            {"topic": "a", "startingTime": "yesterday"},
            True,
            (
                "option 'startingTime' = 'yesterday': it must be milliseconds since the epoch or "
                "a time"
            ),
        ),
        (
            {"topic": "a", "startingTime": "5", "startingOffsets": "earliest"},
            True,
            "give it or startingOffsets, not both",
        ),
        (
            {"topic": "non-persistent://public/default/a"},
            True,
            "keeps nothing that could be read again",
        ),
        (
            {"topic": "a", "onDecodeError": "drop"},
            False,
            "option 'onDecodeError' = 'drop': it needs option 'valueSchema' = 'topic'",
        ),
        (
            {"topic": "a", "publishTimeSlackSeconds": "5"},
            True,
            "option 'publishTimeSlackSeconds' = '5': it is for batches only",
        ),
        (
            {"topics": "a,b", "startingOffsets": '{"a": "earliest", "c": {"0": "latest"}}'},
            True,
            (
                "it names persistent://public/default/c-partition-0, which is not read; the "
                "topics are persistent://public/default/a, "
            ),
        ),
        (
            {"topic": "a", "bookieTokenLife": "1h"},
            False,
            "option 'bookieTokenLife' = '1h': it belongs to clusterKeyFile",
        ),
        (
            {"topic": "a", "clusterKeyFile": "/k", "bookieTokenLife": "12"},
            True,
            "option 'bookieTokenLife' = '12': '12' has no unit; write 12s, 12m, 12h or 12d",
        ),
        (
            {"topic": "a", "clusterKeyFile": "/k", "bookieTokenLife": "8d"},
            False,
            "option 'bookieTokenLife' = '8d': a token for reading lasts from 1m to 7d",
        ),
        ({"topic": "a/b"}, True, "option 'topic' = 'a/b'"),
        ({"topicsPattern": "("}, True, "option 'topicsPattern' = '(': it is no regular expression"),
        (
            {"topic": "a", "service.url": "localhost:6650"},
            True,
            "option 'service.url' = 'localhost:6650': it must be pulsarish://host:6660",
        ),
        (
            {"topic": "a", "admin.url": "localhost:8080"},
            True,
            "option 'admin.url' = 'localhost:8080': it must be http://host:8080",
        ),
    ],
)
def test_a_mistake_names_the_option_its_value_and_what_is_allowed(
    given: dict[str, str], streaming: bool, said: str
) -> None:
    with pytest.raises(OptionError, match=re.escape(said)):
        read_options(given, streaming=streaming)


def test_offsets_by_partition() -> None:
    bound = parse_bound('{"orders": {"0": "12:3", "1": "latest"}, "bills-partition-2": "earliest"}')
    assert bound.of("persistent://public/default/orders-partition-0", "earliest") == Place(12, 3)
    assert bound.of("persistent://public/default/orders-partition-1", "earliest") == "latest"
    assert bound.of("persistent://public/default/orders-partition-2", "earliest") == "earliest"
    assert bound.of("persistent://public/default/bills-partition-2", "latest") == "earliest"


def test_offsets_of_a_topic_are_those_of_its_partitions() -> None:
    bound = parse_bound('{"orders": "latest", "orders-partition-1": "12:3"}')
    assert bound.of("persistent://public/default/orders-partition-0", "earliest") == "latest"
    assert bound.of("persistent://public/default/orders-partition-1", "earliest") == Place(12, 3)
    named = {"topic": "orders-partition-1", "startingOffsets": '{"orders": {"1": "latest"}}'}
    assert read_options(named, streaming=False).starting is not None


def test_a_message_id_as_the_client_shows_it() -> None:
    assert parse_bound("(12,34,2,-1)").everywhere == Place(12, 34)
    assert parse_bound("(12,34,-1,7)").everywhere == Place(12, 34, 7)


@pytest.mark.parametrize(
    ("place", "before"),
    [
        (Place(3, 4), Place(3, 3)),
        (Place(3, 4, 2), Place(3, 4, 1)),
        (Place(3, 4, 0), Place(3, 3)),
        (Place(3, 0), Place(3, -1)),
    ],
)
def test_the_place_in_front_of_a_message(place: Place, before: Place) -> None:
    assert place.before == before
    assert before.key < place.key


def test_times() -> None:
    assert (
        parse_time_ms("1700000000000")
        == parse_time_ms("2023-11-14T22:13:20Z")
        == parse_time_ms("2023-11-14T22:13:20")
        == 1_700_000_000_000
    )


def test_a_role_reads_through_brokers_unless_an_operators_access_is_given() -> None:
    role = {"topic": "t", "authPlugin": "token", "authParams": "token:file:///run/orders.token"}

    def chosen(**options: str) -> DirectReads:
        return read_options({**role, **options}, streaming=False).direct_reads

    assert read_options({"topic": "t"}, streaming=False).direct_reads is DirectReads.AUTO
    assert chosen() is DirectReads.NEVER
    assert chosen(directReads="auto") is DirectReads.NEVER
    assert chosen(directReads="always") is DirectReads.ALWAYS
    assert chosen(clusterKeyFile="/run/cluster.key") is DirectReads.AUTO
    assert chosen(bookieTlsTrustCertsFilePath="/run/ca.pem") is DirectReads.AUTO
    certificate = {"tlsCertificateFilePath": "/c.pem", "tlsPrivateKeyFilePath": "/k.pem"}
    by_certificate = {"topic": "t", "service.url": "pulsarish+ssl://h", **certificate}
    assert read_options(by_certificate, streaming=False).direct_reads is DirectReads.NEVER


def test_options_and_a_profile_say_who_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "profiles.toml"
    monkeypatch.setenv("PULSARISH_PROFILES_FILE", str(file))
    profile = Profile(
        url="pulsarish+ssl://h:6661",
        admin_url="https://h:8443",
        auth_plugin="token",
        auth_params="token:file:///run/orders.token",
        tls_trust_certs_file_path="/ca.pem",
    )
    profiles = Profiles(file, {}, "")
    profiles.put("orders", profile, replace=True)
    profiles.write()

    def read(**options: str) -> BrokerAccess:
        return read_options({"topic": "t", **options}, streaming=False).brokers

    assert read().profile.auth_plugin == ""  # the profile in use is that of commands
    named = read(profile="orders")
    assert named.profile == profile
    assert named.is_known
    other = read(profile="orders", authParams="token:env:OTHER", authPlugin="token")
    assert other.profile == replace(profile, auth_params="token:env:OTHER")
    # What a pipeline or job hands to the data source means the same.
    assert read(**named.options()) == named
    assert write_options(named.options(), streaming=False).brokers == named
    with pytest.raises(NotFound, match="no profile 'bills'"):
        read(profile="bills")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"authPlugin": "token", "authParams": "token:hunter2"}, "write it to a file"),
        ({"authPlugin": "token", "authParams": "token:data:,hunter2"}, "write it to a file"),
        (
            {"authPlugin": "basic", "authParams": "username:ann,password:hunter2"},
            "write it to a file",
        ),
        ({"authParams": "token:hunter2"}, "authParams is given without authPlugin"),
        ({"authPlugin": "kerberos"}, "no known authentication"),
        ({"authParam": "token:hunter2"}, "did you mean 'authParams'?"),
        ({"token": "hunter2"}, "reading has no such option"),
        ({"tlsTrustCertsFilePath": "/ca.pem"}, "it needs TLS: give a service.url"),
        ({"tlsValidateHostname": "false"}, "it needs TLS: give a service.url"),
        ({"bookieTlsCertificateFilePath": "/c.pem"}, "it belongs to bookieTlsPrivateKeyFilePath"),
        (
            {"service.url": "pulsarish+ssl://h", "tlsPrivateKeyFilePath": "/k.pem"},
            "it belongs to tlsCertificateFilePath",
        ),
        ({"service.url": "pulsar://h"}, "with TLS pulsarish+ssl://host:6661"),
    ],
)
def test_a_secret_is_refused_and_not_shown(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)) as raised:
        read_options({"topic": "t", **given}, streaming=False)
    assert "hunter2" not in str(raised.value)


def test_a_read_that_travels_holds_no_secret() -> None:
    given = {
        "topic": "t",
        "authPlugin": "token",
        "authParams": "token:env:ORDERS_TOKEN",
        "clusterKeyFile": "/run/cluster.key",
    }
    found = read_options(given, streaming=False)
    assert pickle.loads(pickle.dumps(found)) == found
    assert hash(found.brokers) == hash(pickle.loads(pickle.dumps(found.brokers)))
