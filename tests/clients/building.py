"""Builds the programs of the clients that are compiled, and unpacks Apache Pulsar, under
build/clients. Downloads are kept between runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import NoReturn

import pytest

__all__ = ["apache_pulsar", "built_go_program", "built_java_program", "built_tool"]

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "clients"
BUILD_SECONDS_MAX = 500.0
PULSAR_VERSION = "4.0.6"
"""The newest 4.0 of which Maven Central has the server's distribution, which holds the tools."""


def _left_out(reason: str) -> NoReturn:
    """Everywhere but in CI, which has all that is needed, a client that cannot be built is left out
    by name.
    """
    (pytest.fail if os.environ.get("CI") else pytest.skip)(f"left out: {reason}")


def _build(client: str, command: list[str], directory: Path, **environment: str) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        _left_out(
            f"{client} cannot be built: {' '.join(command[:2])} ended with "
            f"{done.returncode}\n{(done.stdout + done.stderr)[-2_000:]}"
        )


def built_go_program() -> list[str]:
    """The command that runs it; skips or, in CI, fails the test when there is none."""
    client = "Apache Pulsar's Go client"
    if shutil.which("go") is None:
        _left_out(f"{client}, because there is no go")
    program = BUILD / "go-client"
    # Without C: its ZSTD would be compiled from C, for minutes.
    _build(
        client,
        ["go", "build", "-o", str(program), "."],
        HERE / "go",
        CGO_ENABLED="0",
        GOFLAGS="-mod=readonly -buildvcs=false",
    )
    return [str(program)]


def built_java_program() -> list[str]:
    """The command that runs it; skips or, in CI, fails the test when there is none."""
    client = "Apache Pulsar's Java client"
    for tool in ("mvn", "javac", "java"):
        if shutil.which(tool) is None:
            _left_out(f"{client}, because there is no {tool}")
    sources = HERE / "java"
    pom = sources / "pom.xml"
    class_path = BUILD / f"java-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}.classpath"
    small = "-XX:TieredStopAtLevel=1"
    if not class_path.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        made = class_path.with_suffix(".new")
        resolve = [
            "mvn",
            "-q",
            "-B",
            "-ntp",
            "dependency:build-classpath",
            f"-Dmdep.outputFile={made}",
        ]
        _build(client, resolve, sources, MAVEN_OPTS=f"{small} -Xmx256m")
        made.replace(class_path)
    jars = class_path.read_text().strip()
    classes = BUILD / "java"
    shutil.rmtree(classes, ignore_errors=True)
    files = sorted(str(path) for path in sources.glob("*.java"))
    _build(
        client,
        [
            "javac",
            f"-J{small}",
            "-Xlint:deprecation",
            "-Werror",
            "-cp",
            jars,
            "-d",
            str(classes),
            *files,
        ],
        sources,
    )
    log = [
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    ]
    return ["java", small, "-Xmx400m", *log, "-cp", f"{classes}{os.pathsep}{jars}", "Program"]


def apache_pulsar() -> Path:
    """The unpacked distribution of Apache Pulsar: its servers and its command line tools."""
    name = "Apache Pulsar's distribution"
    for tool in ("mvn", "java"):
        if shutil.which(tool) is None:
            _left_out(f"{name}, because there is no {tool}")
    unpacked = BUILD / f"apache-pulsar-{PULSAR_VERSION}"
    if unpacked.exists():
        return unpacked
    fresh = BUILD / "unpacking"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    artifact = f"org.apache.pulsar:pulsar-server-distribution:{PULSAR_VERSION}:tar.gz:bin"
    copy = [
        "mvn",
        "-q",
        "-B",
        "-ntp",
        "dependency:copy",
        f"-Dartifact={artifact}",
        f"-DoutputDirectory={fresh}",
        "-Dmdep.stripVersion",
    ]
    _build(name, copy, HERE / "java", MAVEN_OPTS="-XX:TieredStopAtLevel=1 -Xmx256m")
    with tarfile.open(fresh / "pulsar-server-distribution-bin.tar.gz") as archive:
        archive.extractall(fresh, filter="data")
    (fresh / unpacked.name).replace(unpacked)
    shutil.rmtree(fresh)
    return unpacked


def built_tool(name: str) -> list[str]:
    """Return the command that runs a class of ``tools``, with everything of Apache Pulsar's
    distribution on its class path.
    """
    jars = f"{apache_pulsar() / 'lib'}/*"
    if shutil.which("javac") is None:
        _left_out(f"{name}, because there is no javac")
    classes = BUILD / "tools" / name
    small = "-XX:TieredStopAtLevel=1"
    _build(
        name,
        ["javac", f"-J{small}", "-Werror", "-cp", jars, "-d", str(classes), f"{name}.java"],
        HERE / "tools",
    )
    return ["java", small, "-Xmx400m", "-cp", f"{classes}{os.pathsep}{jars}", name]
