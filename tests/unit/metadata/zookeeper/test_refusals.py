"""What the server's answers to requests that it refuses mean."""

from __future__ import annotations

from kazoo.exceptions import QuotaExceededError, RolledBackError

from pulsarish.metadata.zookeeper.kazoo_requests import commit_refusal
from pulsarish.model.errors import MetadataUnavailable
from pulsarish.runtime.seams import Op, OutcomeUnknown


def test_a_full_store_says_so_and_what_to_do() -> None:
    ops = [Op("check", "/a"), Op("create", "/a/b", b"x")]
    error = commit_refusal(ops, 1, QuotaExceededError())
    assert isinstance(error, MetadataUnavailable)
    assert str(error).startswith("the metadata store refuses /a/b: QuotaExceededError: it is full")
    assert "tree_bytes_max" in str(error)
    assert isinstance(commit_refusal(ops, 1, RolledBackError()), OutcomeUnknown)
