"""The server that commands of the administration are run against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.admin_server import AdminServer, admin_server


@pytest.fixture
def server() -> Iterator[AdminServer]:
    with admin_server() as found:
        yield found
