"""The package as users install it: from a wheel, far from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS = (".py", ".pyi", ".typed")
PROGRAM = """
import pathlib, pulsarish, sys
from pulsarish.testing import LocalServer

assert pathlib.Path(pulsarish.__file__).is_relative_to(sys.argv[1]), pulsarish.__file__
with LocalServer() as server, server.client() as client:
    consumer = client.subscribe("t", "s")
    client.create_producer("t").send(b"from a wheel")
    print(consumer.receive(60_000).data().decode())
"""


def run(*words: str | Path, path: Path | None = None) -> str:
    environment = dict(os.environ) if path is None else {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=path or ROOT,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_has_the_whole_package_and_works(tmp_path: Path) -> None:
    # A copy: a build in the checkout would leave files there.
    source = tmp_path / "source"
    shutil.copytree(ROOT / "pulsarish", source / "pulsarish")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("pulsarish/")}
    files = (path for path in (ROOT / "pulsarish").rglob("*") if path.suffix in OURS)
    assert inside == {path.relative_to(ROOT).as_posix() for path in files}
    installed = tmp_path / "installed"
    run("-m", "pip", "install", "--quiet", "--no-deps", "--target", installed, wheel)
    assert run("-c", PROGRAM, installed, path=installed) == "from a wheel\n"
    assert "standalone" in run("-m", "pulsarish", "--help", path=installed)
