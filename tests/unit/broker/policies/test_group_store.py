"""Resource groups in metadata: no group is deleted while a namespace or a topic is put into it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from pulsarish.broker.policies.group_store import GroupStore
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import NamespacePolicies
from pulsarish.model.errors import NotEmpty, NotFound
from pulsarish.model.policies import ResourceGroup
from pulsarish.runtime.seams import Conflict, Op
from pulsarish.wire.json_record import encode_record
from tests.unit.broker.ownership.test_placement_rules import run as run_world

LIMITS = ResourceGroup(publish_messages=5)


def run(work: Callable[[GroupStore, Records], Awaitable[None]]) -> None:
    async def inside(_world: object, records: Records) -> None:
        await records.make_parents(paths.namespace("acme", "n0"))
        store = GroupStore(records)
        await store.set("g", lambda _: LIMITS)
        await work(store, records)

    run_world(inside)


async def put(records: Records, name: str, group: str, ops: Sequence[Op]) -> None:
    """Store the policies of a namespace together with operations."""
    path = paths.namespace("acme", name)
    policies = {"resource_group": group} if group else {}
    data = encode_record(NamespacePolicies(policies=policies))
    exists = (await records.nodes([path]))[0] is not None
    await records.commit([Op("put" if exists else "create", path, data), *ops])


def test_a_deletion_between_a_use_and_its_commit_refuses_the_commit() -> None:
    async def work(store: GroupStore, records: Records) -> None:
        ops = await store.use("g", "acme/n")
        await store.delete("g")
        with pytest.raises(Conflict):
            await put(records, "n", "g", ops)
        with pytest.raises(NotFound, match="there is no resource group 'g'"):
            _ = await store.use("g", "acme/n")
        assert await store.use("", "acme/n") == ()

    run(work)


def test_a_user_that_comes_back_while_the_group_is_deleted_keeps_it() -> None:
    async def work(store: GroupStore, records: Records) -> None:
        await put(records, "n", "g", await store.use("g", "acme/n"))
        await put(records, "n", "", ())
        read = records.nodes

        async def nodes(places: Sequence[str], **watch: object) -> object:
            found = await read(places, **watch)  # type: ignore[arg-type]
            if list(places) == [paths.namespace("acme", "n")]:
                # It has been judged, and is put into the group again.
                records.nodes = read  # type: ignore[method-assign]
                await put(records, "n", "g", await store.use("g", "acme/n"))
            return found

        records.nodes = nodes  # type: ignore[method-assign, assignment]
        with pytest.raises(NotEmpty, match="used by acme/n;"):
            await store.delete("g")
        assert await store.find("g") == LIMITS

    run(work)


def test_a_refusal_names_ten_users_and_what_they_left_is_removed() -> None:
    async def work(store: GroupStore, records: Records) -> None:
        for number in range(12):
            name = f"n{number:02d}"
            await put(records, name, "g", await store.use("g", f"acme/{name}"))
        with pytest.raises(NotEmpty, match=r"acme/n00, .*acme/n09 and 2 more; take them out"):
            await store.delete("g")
        for number in range(12):
            await put(records, f"n{number:02d}", "", ())
        await store.delete("g")
        assert await store.names() == []
        assert await store.find("g") is None
        with pytest.raises(NotFound):
            await store.delete("g")

    run(work)
