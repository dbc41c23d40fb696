"""The fake broker as a process of its own: ``python -m tests.support.fake_broker_process`` prints
its address and serves until killed.

Settings are words on the command line: ``discard`` (entries are counted and not kept),
``deduplication``, ``framed`` (frames are offered, too), ``partitions=TOPIC:N``, ``token=TEXT``
(other credentials are refused), ``tls=CERTIFICATE,KEY,TRUST`` (TRUST may be empty).
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from pulsarish.runtime.connections import NodeConnections
from pulsarish.runtime.tasks import Supervisor
from pulsarish.security.credentials import Secret
from pulsarish.security.tls import TlsServerConfig
from tests.support.fake_broker import FakeBroker, FakeCluster


async def serve(words: list[str]) -> None:
    tasks = Supervisor()
    cluster = FakeCluster(deduplication="deduplication" in words)
    cluster.keep = "discard" not in words
    for word in words:
        if word.startswith("partitions="):
            topic, _, count = word.removeprefix("partitions=").rpartition(":")
            cluster.partitions[topic] = int(count)
    port = next((word.removeprefix("port=") for word in words if word.startswith("port=")), "0")
    broker = FakeBroker(cluster, NodeConnections(tasks=tasks), tasks)
    tokens = [Secret(word.removeprefix("token=")) for word in words if word.startswith("token=")]
    if tokens:
        broker.refusal = lambda shown, method: "" if shown.data in tokens else "an unknown token"
    files = next((word.removeprefix("tls=") for word in words if word.startswith("tls=")), "")
    # The certificate, its key, and the authorities of the certificates that clients must show.
    certificate, key, trust = files.split(",") if files else ("", "", "")
    tls = TlsServerConfig(certificate, key, trust, "required" if trust else "none")
    host = "localhost" if files else "127.0.0.1"
    await broker.start(f"{host}:{port}", framed="framed" in words, tls=tls if files else None)
    sys.stdout.write(broker.address + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(sys.argv[1:]))
