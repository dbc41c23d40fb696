"""What a server of HTTP makes of the query of a request."""

from __future__ import annotations

import pytest

from pulsarish.runtime import http


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {}),
        ("a=1&b=&c=x%26y", {"a": "1", "b": "", "c": "x&y"}),
        ("topics=t1&bundle=b&topics=t2&topics=t3", {"topics": "t1,t2,t3", "bundle": "b"}),
        ("topics=&topics=t", {"topics": ",t"}),
    ],
)
def test_a_parameter_that_is_repeated_is_a_list(query: str, found: dict[str, str]) -> None:
    assert http._parameters(query) == found
