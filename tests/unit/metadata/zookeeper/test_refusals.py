"""What the server's answers to requests that it refuses mean."""

from __future__ import annotations

from kazoo.exceptions import QuotaExceededError, RolledBackError

from pulsarish.metadata.zookeeper.kazoo_requests import commit_refusal, refusal
from pulsarish.model.errors import MetadataUnavailable
from pulsarish.runtime.seams import Op, OutcomeUnknown


def test_a_full_store_says_so_and_what_to_do() -> None:
    ops = [Op("check", "/a"), Op("create", "/a/b", b"x")]
    error = commit_refusal(ops, 1, QuotaExceededError())
    assert isinstance(error, MetadataUnavailable)
    assert str(error).startswith("the metadata store refuses /a/b: QuotaExceededError: it is full")
    assert "tree_bytes_max" in str(error)
    assert isinstance(commit_refusal(ops, 1, RolledBackError()), OutcomeUnknown)


def test_each_limit_of_the_metadata_daemon_is_named() -> None:
    registration = [Op("create_ephemeral", "/a")]
    error = commit_refusal(registration, 0, QuotaExceededError())
    assert "ephemeral_nodes_per_session_max" in str(error)
    error = refusal("/a", QuotaExceededError())
    assert isinstance(error, MetadataUnavailable)
    assert "watch_bytes_max" in str(error)
    assert "full" not in str(error)
