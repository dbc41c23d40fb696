"""Apache Pulsar's clients against a cluster that asks for credentials: each shape of credentials,
over each transport, with its result; and what becomes of a consumer whose token expires.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.building import built_go_program, built_java_program
from tests.clients.credential_shapes import OK, Shape, differences, shapes, topic_of, tried
from tests.clients.locked_site import NAMESPACE, LockedSite, locked_site

pytestmark = pytest.mark.timeout(600)  # the first one downloads and compiles

_NO_SERVER = "pulsar://127.0.0.1:1"
PROGRAMS: dict[str, Callable[[], list[str]]] = {
    "python": lambda: [sys.executable, str(Path(__file__).with_name("credentials_python.py"))],
    "java": lambda: [*built_java_program(), "credentials", _NO_SERVER, _NO_SERVER, "none"],
    "go": lambda: [*built_go_program(), "credentials", _NO_SERVER, _NO_SERVER, "none"],
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedSite]:
    with locked_site(tmp_path_factory.mktemp("locked-clients")) as found:
        yield found


@pytest.fixture(scope="module")
def all_shapes(site: LockedSite, tmp_path_factory: pytest.TempPathFactory) -> list[Shape]:
    return shapes(site, tmp_path_factory.mktemp("wrong"))


@pytest.mark.parametrize("language", PROGRAMS)
def test_each_shape_of_credentials(
    language: str, site: LockedSite, all_shapes: list[Shape]
) -> None:
    found = tried(PROGRAMS[language](), language, all_shapes, site)
    different = differences(all_shapes, language, found)
    assert not different, "\n".join(different)
    accepted = {topic_of(shape, language) for shape in all_shapes if getattr(shape, language) == OK}
    there = {topic for topic in site.admin.topics.list(NAMESPACE) if f"/{language}-" in topic}
    assert there == accepted, "a refused client leaves no topic"
