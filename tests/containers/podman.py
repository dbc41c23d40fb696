"""Podman for the tests: images, networks and volumes of its own under one directory, so that
nothing of the machine's own is touched.

The official base images come from a registry that tests cannot count on. Stand-ins with the same
names are made of what the machine can have: Debian by mmdebstrap for ``python:3.11-slim``, and the
ZooKeeper whose jars PySpark brings, with the machine's Java, for ``zookeeper:3.9``. Everything
after that is what a user does.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pulsarish.metadata.daemon.zookeeper_server import find_jars, find_java
from tests.support.metadata_stores import why_no_zookeeper

__all__ = ["HOME", "IMAGE", "ROOT", "Podman", "why_no_containers"]

ROOT: Final = Path(__file__).resolve().parents[2]
HOME: Final = ROOT / "build" / "containers"
IMAGE: Final = "pulsarish:latest"

_PYTHON_IMAGE: Final = "docker.io/library/python:3.11-slim"
_ZOOKEEPER_IMAGE: Final = "docker.io/library/zookeeper:3.9"
_DEBIAN: Final = "bookworm"  # whose Python is 3.11
_UNUSED: Final = ("doc", "locale", "man")  # nor does the official image have them
_COMMAND_SECONDS_MAX: Final = 600

# Limits that a nested machine grants, and managers that need no systemd.
_CONTAINERS_CONF: Final = """\
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{run}/libpod"
[network]
network_backend = "cni"
network_config_dir = "{home}/networks"
"""
_STORAGE_CONF: Final = """\
[storage]
driver = "overlay"
graphroot = "{home}/images"
runroot = "{run}"
"""
_ZOOKEEPER_DOCKERFILE: Final = f"""\
FROM {_PYTHON_IMAGE}
COPY java /opt/java
COPY jars /opt/zookeeper
COPY --chmod=755 entrypoint.sh /docker-entrypoint.sh
VOLUME /data /datalog
ENTRYPOINT ["/docker-entrypoint.sh"]
"""


def why_no_containers() -> str | None:
    """What is missing for containers here, or None."""
    if os.geteuid() != 0:
        return "containers with published ports and addresses of their own need root"
    for program, package in (
        ("podman", "podman runc"),
        ("mmdebstrap", "mmdebstrap"),
        ("make", "make"),
    ):
        if shutil.which(program) is None:
            return f"there is no program {program!r}; on Debian: apt-get install {package}"
    if not _podman_compose().exists():
        return f"there is no {_podman_compose()}; pip install podman-compose"
    return why_no_zookeeper()


def _podman_compose() -> Path:
    return Path(sys.executable).with_name("podman-compose")


class Podman:
    """``environ`` is the environment of its commands, and so where the compose file's settings are.

    Args:
        home: keeps images from one run to the next; containers and volumes do not outlive a test.
        files: the compose files, in ``deploy``.
    """

    def __init__(
        self, home: Path, environ: dict[str, str], files: Sequence[str] = ("docker-compose.yml",)
    ) -> None:
        self._home = home
        self._files = [part for file in files for part in ("-f", f"deploy/{file}")]
        (home / "networks").mkdir(parents=True, exist_ok=True)
        # What only holds until the machine starts again: by a name of its own for each start, since
        # /run outlives it on some machines. Short, because podman restarts no container when this
        # is longer than 50 characters.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        run = f"/run/pulsarish-tests-{hashlib.sha256(f'{home} {boot}'.encode()).hexdigest()[:16]}"
        for name, text in (("containers.conf", _CONTAINERS_CONF), ("storage.conf", _STORAGE_CONF)):
            (home / name).write_text(text.format(home=home, run=run))
        configuration = {
            "CONTAINERS_CONF": f"{home}/containers.conf",
            "CONTAINERS_STORAGE_CONF": f"{home}/storage.conf",
        }
        self.environ = {**os.environ, **configuration, **environ}
        # The plugin that resolves names keeps files and a process by a network's name outside of
        # home: what a killed run left there would be taken for ours.
        self.project = f"pulsarish-{os.getpid()}"

    # -- commands

    def __call__(self, *arguments: str) -> str:
        """What ``podman`` prints. Raises ``AssertionError`` with its complaint when it fails."""
        return self._run(["podman", *arguments])

    def compose(self, *arguments: str) -> str:
        """The same for ``podman-compose`` with the files that users run."""
        return self._run(
            [
                str(_podman_compose()),
                "-p",
                self.project,
                *self._files,
                *arguments,
            ]
        )

    def _run(self, command: Sequence[str], stdin: Any = None) -> str:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=self.environ,
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, (
            f"{' '.join(command)} ended with "
            f"{done.returncode}:\n{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
        )
        return done.stdout.strip()

    def container(self, replica: str) -> str:
        """The container of a service's replica, such as ``bookie_2``."""
        return f"{self.project}_{replica}"

    def inspect(self, container: str) -> dict[str, Any]:
        (found,) = json.loads(self("container", "inspect", container))
        assert isinstance(found, dict)
        return found

    def containers(self) -> list[str]:
        return sorted(self("ps", "--all", "--format", "{{.Names}}").split())

    def show(self) -> None:
        """Print what became of the containers and what they said last, for whoever reads a failed
        test.
        """
        print(self("ps", "--all", "--format", "{{.Names}} {{.Status}} {{.Networks}} {{.Ports}}"))
        for container in self.containers():
            state = self.inspect(container)
            print(
                f"-- {container}: {state['RestartCount']} restarts, "
                f"{json.dumps(state['State'], default=str)[:600]}"
            )
            said = subprocess.run(
                ["podman", "logs", "--tail", "25", container],
                env=self.environ,
                capture_output=True,
                text=True,
                check=False,
            )
            print(said.stdout[-4_000:], said.stderr[-4_000:], sep="\n")

    def remove_all(self) -> None:
        """Containers, pods, networks and volumes: all of them are the tests' own."""
        self("pod", "rm", "--all", "--force", "--time", "0")
        self("rm", "--all", "--force", "--time", "0")
        self("volume", "rm", "--all", "--force")
        self("network", "prune", "--force")

    # -- images

    def build(self, directory: Path) -> None:
        """All images: stand-ins for the bases unless they are here, and ours by ``make images``."""
        if not self._has(_PYTHON_IMAGE):
            self._make_python(directory / "debian")
        if not self._has(_ZOOKEEPER_IMAGE):
            self._make_zookeeper(directory / "zookeeper")
        options = "--network host " + _pip_secrets(directory)
        self._run(
            [
                "make",
                "--silent",
                "images",
                "CONTAINER_ENGINE=podman",
                f"IMAGE={IMAGE}",
                f"IMAGE_OPTIONS={options}",
            ]
        )

    def _has(self, image: str) -> bool:
        return image in self("images", "--format", "{{.Repository}}:{{.Tag}}").split()

    def _make_python(self, directory: Path) -> None:
        sources = self._run(
            [
                "apt-get",
                "indextargets",
                "--format",
                "$(CODENAME) $(REPO_URI)",
                "Created-By: Packages",
            ]
        ).splitlines()
        mirrors = [line.split()[1] for line in sources if line.startswith(f"{_DEBIAN} ")]
        archive = directory / "debian.tar"
        directory.mkdir()
        self._run(
            [
                "mmdebstrap",
                "--mode=root",
                "--variant=minbase",
                "--include=python3,python3-venv,ca-certificates",
                *(f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in _UNUSED),
                _DEBIAN,
                str(archive),
                *mirrors[:1],
            ]
        )
        self("import", "--quiet", str(archive), _PYTHON_IMAGE)
        archive.unlink()

    def _make_zookeeper(self, directory: Path) -> None:
        directory.mkdir()
        java = Path(find_java()).resolve().parents[1]
        unused = shutil.ignore_patterns("jmods", "src.zip", "demo", "man", "include")
        shutil.copytree(java, directory / "java", ignore=unused, ignore_dangling_symlinks=True)
        (directory / "jars").mkdir()
        for jar in find_jars():
            shutil.copy(jar, directory / "jars")
        shutil.copy(
            Path(__file__).with_name("zookeeper-entrypoint.sh"), directory / "entrypoint.sh"
        )
        (directory / "Dockerfile").write_text(_ZOOKEEPER_DOCKERFILE)
        self("build", "--quiet", "--tag", _ZOOKEEPER_IMAGE, str(directory))
        shutil.rmtree(directory)


def _pip_secrets(directory: Path) -> str:
    """This machine's way to PyPI as secrets of the build: they leave no trace in the image."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    settings = dict(re.findall(r"^[\w:]+\.\.?([\w-]+)='(.*)'$", listed, re.MULTILINE))
    lines = [
        f"{name} = {settings[name]}"
        for name in ("index-url", "extra-index-url", "trusted-host", "proxy")
        if name in settings
    ]
    secrets = f"--secret id=pip.conf,src={directory}/pip.conf"
    if "cert" in settings:
        lines.append("cert = /run/secrets/pip-ca")
        secrets += f" --secret id=pip-ca,src={settings['cert']}"
    (directory / "pip.conf").write_text("\n".join(["[global]", *lines, ""]))
    return secrets
