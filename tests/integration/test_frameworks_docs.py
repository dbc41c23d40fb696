"""The examples of docs/frameworks.md run as they stand there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulsarish.testing import LocalServer
from tests.support.until import until

WAIT = 60
BLOCKS = re.findall(
    r"```python\n(.*?)```",
    (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text(),
    re.DOTALL,
)
FASTAPI = """
import time
from fastapi.testclient import TestClient
import fastapi_shop

with TestClient(fastapi_shop.app) as client:
    answer = client.post("/orders/17")
    assert (answer.status_code, answer.json()["order"]) == (202, 17), answer
    while not client.get("/billed/17").json()["billed"]:
        time.sleep(0.02)
    print("billed")
"""
SETTINGS = """
import os
SECRET_KEY = "for a test"
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "urls"
ALLOWED_HOSTS = ["testserver"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
DATABASES = {"default": {
    "ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite", "OPTIONS": {"timeout": 60}}}
PULSARISH_URL = os.environ["PULSARISH_URL"]
"""
URLS = """
from django.urls import path
from shop.views import place_order
urlpatterns = [path("orders", place_order)]
"""
MODELS = """
from django.db import models

class Order(models.Model):
    billed = models.BooleanField(default=False)
"""
DJANGO = """
import os, signal, subprocess, sys, time
import django
django.setup()
from django.core.management import call_command
from django.db import transaction
from django.test import Client
from shop.messages import publish_on_commit
from shop.models import Order

call_command("migrate", run_syncdb=True, verbosity=0)
Order.objects.create(pk=7)
worker = subprocess.Popen([sys.executable, "-m", "django", "bill_orders"])
try:
    try:
        with transaction.atomic():
            publish_on_commit("django-orders", b"7")
            raise LookupError
    except LookupError:
        pass
    answer = Client().post("/orders")
    assert answer.status_code == 202, answer.content
    placed = answer.json()["order"]
    while not Order.objects.get(pk=placed).billed:
        assert worker.poll() is None
        time.sleep(0.02)
    assert not Order.objects.get(pk=7).billed
finally:
    worker.send_signal(signal.SIGTERM)
assert worker.wait() == 0
print("billed")
"""


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


def example(mark: str, server: LocalServer) -> str:
    """Return the example with this text, for the server of the test."""
    (found,) = [block for block in BLOCKS if mark in block]
    return found.replace("pulsarish://127.0.0.1:6660", server.service_url)


def write(directory: Path, server: LocalServer, *modules: str) -> None:
    """Write examples to the modules that their first lines name."""
    for module in modules:
        text = example(f"# the module {module}\n", server)
        file = directory / f"{module.replace('.', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def run(directory: Path, program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=WAIT * 2,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory), **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_celery(tmp_path: Path, server: LocalServer) -> None:
    write(tmp_path, server, "shop")
    options = example("broker_transport_options", server)
    compile(options, "options", "exec")
    run(tmp_path, "import runpy; runpy.run_module('shop', run_name='__main__')")
    log = tmp_path / "log"
    with log.open("wb") as file:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "shop", "worker", "-P", "solo"],
            cwd=tmp_path,
            stdout=file,
            stderr=file,
        )
        try:
            until(log.read_text, lambda: "bill 17" in log.read_text())
        finally:
            worker.send_signal(signal.SIGKILL)
            worker.wait()


def test_kombu(tmp_path: Path, server: LocalServer) -> None:
    assert run(tmp_path, example("import kombu", server)) == "{'score': '3:1'}\n"


def test_fastapi(tmp_path: Path, server: LocalServer) -> None:
    write(tmp_path, server, "fastapi_shop")
    assert run(tmp_path, FASTAPI, PULSARISH_URL=server.service_url) == "billed\n"


def test_django(tmp_path: Path, server: LocalServer) -> None:
    write(
        tmp_path,
        server,
        "shop.messages",
        "shop.views",
        "shop.management.commands.bill_orders",
    )
    for name, text in (
        ("settings.py", SETTINGS),
        ("urls.py", URLS),
        ("shop/__init__.py", ""),
        ("shop/models.py", MODELS),
        ("shop/management/__init__.py", ""),
        ("shop/management/commands/__init__.py", ""),
    ):
        (tmp_path / name).write_text(text)
    environment = {"DJANGO_SETTINGS_MODULE": "settings", "PULSARISH_URL": server.service_url}
    assert run(tmp_path, DJANGO, **environment) == "billed\n"
