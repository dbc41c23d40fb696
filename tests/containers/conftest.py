"""The images, built once for all tests of this directory."""

from __future__ import annotations

import os

import pytest

from tests.containers.podman import HOME, Podman, why_no_containers


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Build the images. Skips the tests where containers cannot run, with ``CI`` set fails them."""
    reason = why_no_containers()
    if reason is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            f"left out: the compose files are not run, because {reason}"
        )
    podman = Podman(HOME, {})
    podman.remove_all()
    podman.build(tmp_path_factory.mktemp("images"))
