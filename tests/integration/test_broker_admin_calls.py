"""What brokers run for each other over gRPC: it needs the key of the registration, which no client
can read.
"""

from __future__ import annotations

import json

from pulsarish.runtime.seams import HttpRequest
from pulsarish.wire._pb import broker_pb2 as pb
from tests.support.brokered import Brokered, play_with_brokers

PATH = ("admin", "v2", "tenants", "made-by-a-client")


def test_a_client_cannot_administer_over_grpc() -> None:
    async def scenario(brokered: Brokered) -> None:
        address, key = "broker0:6660", brokered.admin_key("broker0:6660")
        assert len(key) == 32
        for wrong in ("", "0" * 32, key[:-1], key.upper() + "\u00e9"):
            request = pb.AdminRequest(
                method="PUT", segments=PATH, body=b"{}", admin_key=wrong
            ).SerializeToString()
            answer = pb.AdminResponse.FromString(
                await brokered.world.connections.call(
                    address, "broker.admin", request, timeout_seconds=5.0
                )
            )
            assert answer.status == 403
            assert b"use the HTTP port" in answer.body
        assert "made-by-a-client" not in await brokered.administer("GET", "tenants")

    play_with_brokers(scenario)


def test_the_key_is_new_with_each_registration_and_shown_to_no_client() -> None:
    async def scenario(brokered: Brokered) -> None:
        keys = {brokered.admin_key(f"{name}:6660") for name in brokered.cluster.brokers}
        assert len(keys) == len(brokered.cluster.brokers)
        path = ("admin", "v2", "brokers", "registrations")
        shown = await brokered.cluster.brokers["broker0"].http.handle(
            HttpRequest("GET", "/" + "/".join(path), {}, {}, b"", path)
        )
        assert [each["admin_key"] for each in json.loads(shown.body)] == [""] * len(keys)

    play_with_brokers(scenario, brokers=2)
