"""The shapes in which Apache Pulsar's clients show credentials, and what becomes of each.

A shape is tried by all three clients: it opens a producer and a consumer, and receives what it
publishes. A trial says ``ok``, or the name of the client's own error.
"""

from __future__ import annotations

import json
import subprocess
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pulsarish.security.keys import SigningKey
from pulsarish.security.token_maker import sign_token
from tests.clients.locked_site import NAMESPACE, PASSWORD, ROLE, LockedSite
from tests.support.certificates import Certificates
from tests.support.tokens import raw_token

__all__ = ["OK", "Shape", "differences", "request", "results", "shapes", "topic_of", "tried"]

TRIAL_SECONDS_MAX = 150
OPERATION_SECONDS = 30
GIVEN_UP_SECONDS = 4
"""The clients' time-out where they answer a refusal by trying again until then."""

OK = "ok"
_PACKAGE = "org.apache.pulsar.client.impl.auth"
_TLS, _TOKEN, _BASIC = (f"{_PACKAGE}.Authentication{kind}" for kind in ("Tls", "Token", "Basic"))

# The clients' own names for what went wrong. The Python client drops the answer to CONNECT if it is
# an error, and the Go client keeps it out of its own error: both connect again until the time-out.
_UNHEARD_PYTHON, _UNHEARD_GO, _UNHEARD_JAVA = "Timeout", "DeadlineExceeded", "PulsarClientException"
_GIVEN_UP = (_UNHEARD_PYTHON, _UNHEARD_GO, _UNHEARD_JAVA)
_UNKNOWN = "UnsupportedAuthenticationException"


@dataclass(frozen=True)
class Shape:
    """What a client is given, and what it says then.

    Args:
        plugin: a short name or class name for the client's factory; with ``new`` before a word, it
            is a constructor of the client, for ``new supplier`` with a function that reads a file;
            empty: no authentication.
        params: for the factory or, with commas between, for the constructor.
        url: a key of the site's URLs.
        python: the result: ``ok``, or the name of the client's error; empty: it lacks the shape.
        java: the same of the Java client, a class below ``PulsarClientException``.
        go: the same of the Go client.
        go_params: for its factory, which takes JSON only; empty: ``params``.
        trust: the file of trusted authorities, if it is not the site's.
        receives_only: the client publishes nothing, and waits for what others publish.
    """

    name: str
    plugin: str
    params: str
    url: str = "tls"
    python: str = OK
    java: str = OK
    go: str = OK
    go_params: str = ""
    verifies: bool = True
    insecure: bool = False
    trust: str = ""
    receives_only: bool = False


def _refused(
    python: str = _UNHEARD_PYTHON, java: str = "AuthenticationException"
) -> dict[str, str]:
    return {"python": python, "java": java, "go": _UNHEARD_GO}


def _token(name: str, token: str, url: str = "tls", **expected: Any) -> Shape:
    params = json.dumps({"token": token})
    return Shape(name, _TOKEN, f"token:{token}", url, go_params=params, **expected)


def _certificate(name: str, certificate: str, key: str, url: str = "tls", **expected: Any) -> Shape:
    params = json.dumps({"tlsCertFile": certificate, "tlsKeyFile": key})
    words = f"tlsCertFile:{certificate},tlsKeyFile:{key}"
    return Shape(name, _TLS, words, url, go_params=params, **expected)


def _password(
    name: str, user: str, password: str, url: str = "tls", *, plugin: str = _BASIC, **expected: Any
) -> Shape:
    """The clients have different words for the user."""
    params = {"userId": user, "username": user, "password": password}
    if method := expected.pop("method", ""):
        params["method"] = method
    return Shape(name, plugin, json.dumps(params), url, **expected)


def shapes(site: LockedSite, directory: Path) -> list[Shape]:
    """Return the shapes for a site; ``directory`` gets files that are wrong."""
    token, file = site.token(), site.token_file()
    mine = site.certificates.issue(ROLE, is_server=False)
    other = site.certificates.issue("other", is_server=False)
    strangers = Certificates(directory, "another authority")
    foreign = strangers.issue(ROLE, is_server=False)
    junk = directory / "junk"
    junk.write_text("junk")
    words = f"tlsCertFile:{mine[0]},tlsKeyFile:{mine[1]}"
    json_tls = json.dumps({"tlsCertFile": mine[0], "tlsKeyFile": mine[1]})
    json_token = json.dumps({"token": token})
    bad_words = {"java": _UNKNOWN, "go": "SyntaxError"}
    found = [
        # by name
        Shape(
            "token by short name", "token", f"token:{token}", java=_UNKNOWN, go_params=json_token
        ),
        Shape("token by class name", _TOKEN, f"token:{token}", go_params=json_token),
        Shape("certificate by short name", "tls", words, java=_UNKNOWN, go_params=json_tls),
        Shape("certificate by class name", _TLS, words, go_params=json_tls),
        _password("password by short name", ROLE, PASSWORD, plugin="basic", java=_UNKNOWN),
        _password("password by class name", ROLE, PASSWORD),
        Shape(
            "unknown name",
            "org.example.Absent",
            "{}",
            python="AuthenticationError",
            java=_UNKNOWN,
            go="errorString",
        ),
        # by the forms of parameters
        Shape("token as JSON", _TOKEN, json_token, python=_UNHEARD_PYTHON),
        Shape("token with nothing around it", _TOKEN, token, go="SyntaxError"),
        Shape(
            "token in a file, by class name",
            _TOKEN,
            f"file://{file}",
            go_params=json.dumps({"file": file}),
        ),
        Shape("certificate as JSON", _TLS, json_tls, python="AuthenticationError"),
        Shape(
            "password as words",
            _BASIC,
            f"userId:{ROLE},password:x",
            python="RuntimeError",
            **bad_words,
        ),
        Shape(
            "junk for a token",
            _TOKEN,
            "junk:x,y",
            python=_UNHEARD_PYTHON,
            java="AuthenticationException",
            go="SyntaxError",
        ),
        Shape("junk for a password", _BASIC, "junk:x,y", python="RuntimeError", **bad_words),
        Shape(
            "junk for a certificate",
            _TLS,
            "junk:x,y",
            python="AuthenticationError",
            java=_UNHEARD_JAVA,
            go="SyntaxError",
        ),
        Shape(
            "JSON without a token",
            _TOKEN,
            '{"junk": "x"}',
            python=_UNHEARD_PYTHON,
            java=_UNKNOWN,
            go="fundamental",
        ),
        Shape(
            "token in no file",
            _TOKEN,
            f"file://{directory}/absent",
            python=_UNHEARD_PYTHON,
            java=_UNHEARD_JAVA,
            go="PathError",
            go_params=json.dumps({"file": f"{directory}/absent"}),
        ),
        # by the constructors
        Shape("token", "new token", token),
        Shape("token by a supplier", "new supplier", file),
        Shape("token in a file", "new file", file),
        Shape("certificate", "new tls", ",".join(mine)),
        Shape("password", "new basic", f"{ROLE},{PASSWORD}"),
        Shape("supplier of junk", "new supplier", str(junk), **_refused()),
        # by the method
        _password("method basic", ROLE, PASSWORD, method="basic"),
        # the Java and Go clients do not know the parameter
        _password(
            "unknown method", ROLE, PASSWORD, method="junk", python=_UNHEARD_PYTHON, java="", go=""
        ),
        Shape(
            "password as method token",
            "new method",
            f"{ROLE},{PASSWORD},token",
            python=_UNHEARD_PYTHON,
            java="AuthenticationException",
            go="",
        ),
        Shape(
            "password as an unknown method",
            "new method",
            f"{ROLE},{PASSWORD},junk",
            python=_UNHEARD_PYTHON,
            java="AuthenticationException",
            go="",
        ),
    ]
    # by the transport
    https = {"python": "ConnectError", "java": _UNHEARD_JAVA, "go": "Code 401"}
    proxied = {
        "python": "AuthenticationError",
        "java": "AuthenticationException",
        "go": "AuthenticationError",
    }
    for url, wrong in {
        "plain": _refused(),
        "https": https,
        "http": https,
        "proxy": proxied,
    }.items():
        found += [
            _token(f"token, {url}", token, url),
            _password(f"password, {url}", ROLE, PASSWORD, url),
            _certificate(f"certificate, {url}", *mine, url, **({} if url == "https" else wrong)),
            _token(f"junk, {url}", "junk", url, **wrong),
            Shape(f"nothing, {url}", "", "", url, **wrong),
        ]
    # by the credential
    found += [
        Shape("nothing", "", "", **_refused()),
        _token("junk", "junk", **_refused()),
        _token("empty token", "", **(_refused() | {"go": "fundamental"})),
        _token("expired token", site.token(seconds=-60), **_refused()),
        _token(
            "token of another key",
            sign_token({"sub": ROLE}, SigningKey(bytes(32), ("HS256",))).decode(),
            **_refused(),
        ),
        _token("unsigned token", raw_token({"alg": "none"}, {"sub": ROLE}).decode(), **_refused()),
        _token(
            "role without a grant",
            site.token("stranger"),
            python="AuthorizationError",
            java="AuthorizationException",
            go="AuthorizationError",
        ),
        _password("wrong password", ROLE, "wrong", **_refused()),
        _password("unknown user", "unknown", PASSWORD, **_refused()),
        _password("wrong password, https", ROLE, "wrong", "https", **https),
        _certificate(
            "another certificate's key",
            mine[0],
            other[1],
            python=_UNHEARD_PYTHON,
            java=_UNHEARD_JAVA,
            go="errorString",
        ),
        _certificate("certificate of another authority", *foreign, **_refused(java=_UNHEARD_JAVA)),
    ]
    # by the name and authority of the server
    closed = {"python": "ConnectError", "java": _UNHEARD_JAVA, "go": _UNHEARD_GO}
    found += [
        _token("wrong host", token, "misnamed", **closed),
        # the Go client verifies it unless it is insecure
        _token("wrong host, not verified", token, "misnamed", verifies=False, go=_UNHEARD_GO),
        _token("wrong host, insecure", token, "misnamed", verifies=False, insecure=True),
        _token("unknown authority", token, trust=strangers.trust, **closed),
        _token("unknown authority, insecure", token, trust=strangers.trust, insecure=True),
        _token("TLS to a plain port", token, "tls to plain", **_refused(java=_UNHEARD_JAVA)),
        _token("plain to a port with TLS", token, "plain to tls", **_refused(java=_UNHEARD_JAVA)),
    ]
    return found


def topic_of(shape: Shape, language: str) -> str:
    """Return the topic at which a client tries a shape."""
    number = zlib.crc32(shape.name.encode())
    return f"persistent://{NAMESPACE}/{language}-{number}"


def request(language: str, shapes: Sequence[Shape], site: LockedSite) -> str:
    """Return what a client's program reads: the shapes that its language has, each in a line."""
    lines = [
        json.dumps(
            asdict(shape)
            | {
                "url": site.urls[shape.url],
                "trust": shape.trust or site.trust,
                "topic": topic_of(shape, language),
                "seconds": GIVEN_UP_SECONDS
                if getattr(shape, language) in _GIVEN_UP
                else OPERATION_SECONDS,
                "params": (language == "go" and shape.go_params) or shape.params,
            }
        )
        for shape in shapes
        if getattr(shape, language)
    ]
    return "\n".join(lines) + "\n"


def results(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pick the names and results of shapes out of what a client's program prints."""
    for line in lines:
        if line.startswith("="):
            name, result = json.loads(line[1:])
            yield name, result


def tried(
    command: Sequence[str], language: str, shapes: Sequence[Shape], site: LockedSite
) -> dict[str, str]:
    """Have a client's program try the shapes that its language has. Return the results by name."""
    done = subprocess.run(
        command,
        input=request(language, shapes, site),
        capture_output=True,
        text=True,
        timeout=TRIAL_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return dict(results(done.stdout.splitlines()))


def differences(shapes: Sequence[Shape], language: str, found: Mapping[str, str]) -> list[str]:
    """Say for which shapes a client's results, by name, are not the wanted ones."""
    return [
        f"{shape.name}: {wanted} is wanted, and the result is {found.get(shape.name)}"
        for shape in shapes
        if (wanted := getattr(shape, language))
        and (found.get(shape.name) or "nothing").split(":")[0] != wanted
    ]
