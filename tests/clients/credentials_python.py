"""Tries shapes of credentials with Apache Pulsar's Python client: standard input has a shape a
line, as JSON, and a line of standard output with "=" before it has its name and result.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pulsar


def authentication(plugin: str, params: str) -> Any:
    """Return what the client's constructor takes."""
    match plugin:
        case "":
            return None
        case "new token":
            return pulsar.AuthenticationToken(params)
        case "new supplier":
            return pulsar.AuthenticationToken(lambda: Path(params).read_text())
        case "new file":
            return pulsar.Authentication("token", f"file://{params}")
        case "new tls":
            return pulsar.AuthenticationTLS(*params.split(","))
        case "new basic" | "new method":
            return pulsar.AuthenticationBasic(*params.split(","))
        case _:
            return pulsar.Authentication(plugin, params)


def attempt(shape: dict[str, Any]) -> str:
    """Return ``ok``, or the name and text of the error."""
    client = None
    try:
        client = pulsar.Client(
            shape["url"],
            authentication=authentication(shape["plugin"], shape["params"]),
            tls_trust_certs_file_path=shape["trust"],
            tls_validate_hostname=shape["verifies"],
            tls_allow_insecure_connection=shape["insecure"],
            operation_timeout_seconds=shape["seconds"],
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        topic = shape["topic"]
        consumer = client.subscribe(topic, "s")
        if not shape["receives_only"]:
            client.create_producer(topic).send(b"shown")
        same = consumer.receive(90_000).data() == b"shown"
        return "ok" if same else "another message"
    except (pulsar.PulsarException, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        if client is not None:
            client.close()


def report(line: str) -> None:
    shape = json.loads(line)
    sys.stdout.write(f"={json.dumps([shape['name'], attempt(shape)])}\n")
    sys.stdout.flush()


def main() -> None:
    with ThreadPoolExecutor(16) as pool:
        for trial in [pool.submit(report, line) for line in sys.stdin]:
            trial.result()


main()
