"""Apache Pulsar's clients against a cluster that asks for credentials: each shape of credentials,
over each transport, with its result; and what becomes of a consumer whose token expires.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pulsarish
from pulsarish.local_cluster.locked import profiles_of
from pulsarish.local_cluster.security_files import ADMINISTRATOR
from pulsarish.model.errors import NotFound
from pulsarish.runtime.profiles import Profiles
from tests.clients.building import built_go_program, built_java_program, built_tool
from tests.clients.credential_shapes import (
    OK,
    Shape,
    differences,
    request,
    results,
    shapes,
    topic_of,
    tried,
)
from tests.clients.locked_site import NAMESPACE, PASSWORD, ROLE, LockedSite, locked_site
from tests.support.certificates import Certificates
from tests.support.until import until

pytestmark = pytest.mark.timeout(600)  # the first one downloads and compiles

TOKEN_SECONDS = 20
"""More than the programs need to connect once they run."""
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


TOKEN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
BASIC = "org.apache.pulsar.client.impl.auth.AuthenticationBasic"
CERTIFICATE = "org.apache.pulsar.client.impl.auth.AuthenticationTls"
FORBIDDEN = "lacks permission"


def test_pulsar_admin_shows_credentials_and_is_held_to_its_rights(
    site: LockedSite, tmp_path: Path
) -> None:
    """One process, in which each command has settings of its own."""
    certificate, key = site.certificates.issue(ROLE, is_server=False)
    foreign = Certificates(tmp_path, "another authority")
    admin = ("authPlugin=" + TOKEN, f"authParams=file://{site.administrators_token}")
    app = ("authPlugin=" + TOKEN, f"authParams=token:{site.token()}")
    topics, grants = ("topics", "list", NAMESPACE), ("namespaces", "permissions", NAMESPACE)
    grant = ("namespaces", "grant-permission", NAMESPACE, "--actions", "consume", "--role", "ann")
    revoke = ("namespaces", "revoke-permission", NAMESPACE, "--role", "ann")

    def shown(plugin: str, params: str) -> tuple[str, str]:
        return f"authPlugin={plugin}", f"authParams={params}"

    rows: list[tuple[tuple[str, ...], tuple[str, ...], bool, str]] = [
        # how the administrator is known
        (admin, ("tenants", "list"), True, "public"),
        (shown(TOKEN, f"token:{site.token(ADMINISTRATOR)}"), grants, True, ROLE),
        (shown("token", f"token:{site.token()}"), topics, False, "UnsupportedAuthentication"),
        # what it changes
        (admin, grant, True, ""),
        (admin, grants, True, "ann"),
        (admin, revoke, True, ""),
        # how another role is known, and what it may not do
        (app, topics, True, ""),
        (shown(BASIC, json.dumps({"userId": ROLE, "password": PASSWORD})), topics, True, ""),
        (
            shown(CERTIFICATE, f"tlsCertFile:{certificate},tlsKeyFile:{key}"),
            topics,
            True,
            "",
        ),
        (app, grant, False, FORBIDDEN),
        (app, revoke, False, FORBIDDEN),
        (app, ("tenants", "create", "mine"), False, FORBIDDEN),
        (shown(TOKEN, f"token:{site.token('ann')}"), topics, False, FORBIDDEN),
        # what opens nothing
        ((), topics, False, "no credentials were sent"),
        (shown(TOKEN, "token:junk"), topics, False, "no JSON Web Token"),
        (shown(TOKEN, f"token:{site.token(seconds=-60)}"), topics, False, "has expired"),
        (
            shown(BASIC, json.dumps({"userId": ROLE, "password": "wrong"})),
            topics,
            False,
            "user or password is wrong",
        ),
        # transports
        ((*admin, f"webServiceUrl={site.urls['http']}"), topics, True, ""),
        ((*admin, f"tlsTrustCertsFilePath={foreign.trust}"), topics, False, "PKIX"),
    ]
    trust = f"tlsTrustCertsFilePath={site.trust}"
    asked = "".join("\t".join((trust, *settings, *words)) + "\n" for settings, words, *_ in rows)
    done = subprocess.run(
        [*built_tool("AdminBattery"), site.urls["https"], site.urls["tls"]],
        input=asked,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    answers = [line[1:].split("\t", 1) for line in done.stdout.split("\n") if line.startswith("=")]
    assert len(answers) == len(rows), done.stdout[-2_000:]
    different = [
        f"{settings[:1]} {words}: {code} {text[:300]}"
        for (settings, words, is_done, said), (code, text) in zip(rows, answers, strict=True)
        if (code == "0") is not is_done or said not in text
    ]
    assert not different, "\n".join(different)
    assert "ann" not in site.admin.namespaces.permissions(NAMESPACE)


def consumers(site: LockedSite, topic: str) -> list[dict[str, Any]]:
    """Return the consumers that a broker says the topic's subscription has."""
    try:
        subscriptions = site.admin.topics.stats(topic)["subscriptions"]
    except NotFound:
        return []
    return list(subscriptions["s"]["consumers"]) if "s" in subscriptions else []


def test_a_consumer_that_only_receives_lives_as_long_as_its_credentials(
    site: LockedSite, tmp_path: Path
) -> None:
    """A supplier is asked for a new token before the old one expires, and its connection stays.
    Without a new one it ends at the expiry, and the client gets no other. Python does both through
    the proxy, too.
    """
    programs = {language: command() for language, command in PROGRAMS.items()}
    file = tmp_path / "token"

    def shapes_of(name: str, plugin: str, params: str) -> list[Shape]:
        direct = Shape(name, plugin, params, receives_only=True)
        return [direct, replace(direct, name=f"{name}, proxy", url="proxy", java="", go="")]

    def topics_of(shapes: list[Shape]) -> list[str]:
        return [
            topic_of(shape, language)
            for shape in shapes
            for language in programs
            if getattr(shape, language)
        ]

    supplied = shapes_of("supplied", "new supplier", str(file))
    kept = topics_of(supplied)

    def since(topic: str) -> list[str]:
        return [each["connectedSince"] for each in consumers(site, topic)]

    with ExitStack() as stack:
        running = {}
        for language, command in programs.items():
            process = stack.enter_context(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            stack.callback(process.kill)
            assert process.stdin is not None
            process.stdin.write(
                request(language, [Shape("begun", "org.example.Absent", "{}")], site)
            )
            process.stdin.flush()
            running[language] = process
        for process in running.values():
            assert process.stdout is not None
            assert next(results(process.stdout))[0] == "begun"
        expiry = int(time.time()) + TOKEN_SECONDS
        token = site.token(exp=expiry)
        file.write_text(token)
        fixed = shapes_of("fixed", "new token", token)
        lost = topics_of(fixed)
        for language, process in running.items():
            assert process.stdin is not None
            process.stdin.write(request(language, [*supplied, *fixed], site))
            process.stdin.close()
        until("all are connected", lambda: all(map(since, [*kept, *lost])))
        file.write_text(site.token(seconds=600))
        before = {topic: since(topic) for topic in kept}
        until("the others are closed", lambda: not any(map(since, lost)))
        assert time.time() >= expiry
        assert {topic: since(topic) for topic in kept} == before
        profile = Profiles.read(profiles_of(site.cluster)).get(ADMINISTRATOR)
        with pulsarish.Client(profile.url, **profile.arguments(profile.url)) as client:
            for topic in kept:
                client.create_producer(topic).send(b"shown")
        for language, process in running.items():
            assert process.stdout is not None
            wanted = {(shape.name, OK) for shape in supplied if getattr(shape, language)}
            found = results(process.stdout)
            assert {next(found) for _ in wanted} == wanted
        assert not any(map(since, lost))
