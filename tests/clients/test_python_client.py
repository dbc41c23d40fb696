"""Apache Pulsar's official Python client goes through the scenarios unchanged, blocking and
awaitable.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pulsarish
from tests.clients.programs import ClientProgram, Complaints, Site
from tests.clients.scenarios import PROXIED, SCENARIOS

pytest.importorskip(
    "pulsar", reason="left out: Apache Pulsar's Python client (pulsar-client) is not installed"
)

PROGRAM = Path(__file__).with_name("python_client.py")

COMPLAINTS = Complaints(
    re.compile(
        r"unexpected|unknown command|invalid (command|message|consumer id|producer "
        r"id)|checksum mismatch|corrupt"
        r"|Received (unknown|invalid|error from server)|failed to parse|out of "
        r"order|NotImplemented|not handled|unhandled",
        re.IGNORECASE,
    ),
    allowed=dict.fromkeys(
        ("access_modes", "json_schema", "avro_schema"),
        re.compile("Received error from server", re.IGNORECASE),
    ),
)


@pytest.mark.parametrize("scenario", PROXIED)
def test_the_python_client_through_a_proxy(scenario: str, site: Site, tmp_path: Path) -> None:
    with site.through_a_proxy() as behind:
        ClientProgram([sys.executable, str(PROGRAM)], tmp_path, COMPLAINTS).run(
            scenario, behind, f"python-proxy-{scenario}"
        )
        assert behind.relayed_bytes() > 0


@pytest.mark.parametrize(
    "scenario", [*SCENARIOS, "chunked_and_shared", "sticky_ranges", "compacted", "awaitable"]
)
def test_the_python_client(scenario: str, site: Site, tmp_path: Path) -> None:
    ClientProgram([sys.executable, str(PROGRAM)], tmp_path, COMPLAINTS).run(
        scenario, site, f"python-{scenario}"
    )


def test_our_own_client_through_a_proxy(site: Site) -> None:
    """gRPC passes a proxy by CONNECT of HTTP, which the environment names, to brokers by their own
    addresses.
    """
    program = """if True:
        import sys, pulsarish
        client = pulsarish.Client(sys.argv[1])
        producer = client.create_producer("through-a-proxy")
        for number in range(100):
            producer.send_async(b"%d" % number, None)
        producer.flush()
        earliest = pulsarish.InitialPosition.Earliest
        consumer = client.subscribe("through-a-proxy", "s", initial_position=earliest)
        assert [int(consumer.receive(20_000).data()) for _ in range(100)] == list(range(100))
        client.close()
    """
    url = site.cluster.service_urls()["pulsarish"]
    with site.through_a_proxy() as behind:
        environ = {**os.environ, "grpc_proxy": behind.connect_url}
        done = subprocess.run(
            [sys.executable, "-c", program, url],
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert behind.relayed_bytes() > 10_000


def test_our_own_client_leaves_what_is_encrypted_to_others(site: Site, tmp_path: Path) -> None:
    """It has no keys, raises for each encrypted message, and leaves it unacknowledged; or does as
    ``crypto_failure_action`` says.
    """
    ClientProgram([sys.executable, str(PROGRAM)], tmp_path, COMPLAINTS).run(
        "encrypted", site, "left"
    )
    with pulsarish.Client(site.cluster.service_urls()["pulsarish"]) as client:
        for topic, entries in (("left-single", 20), ("left-batched", 1)):
            client.create_producer(topic).send(b"plain")
            consumer = client.subscribe(
                topic, "ours", initial_position=pulsarish.InitialPosition.Earliest
            )
            for _ in range(entries):
                with pytest.raises(pulsarish.CryptoError, match="is encrypted"):
                    consumer.receive(20_000)
            message = consumer.receive(20_000)
            assert message.data() == b"plain"
            consumer.acknowledge(message)
            with pytest.raises(pulsarish.Timeout):
                consumer.receive(100)
            consumer.close()
            assert site.admin.topics.stats(topic)["subscriptions"]["ours"]["msgBacklog"] == entries
            discard = client.subscribe(
                topic, "ours", crypto_failure_action=pulsarish.ConsumerCryptoFailureAction.DISCARD
            )
            with pytest.raises(pulsarish.Timeout):
                discard.receive(2_000)
            discard.close()
            assert site.admin.topics.stats(topic)["subscriptions"]["ours"]["msgBacklog"] == 0
