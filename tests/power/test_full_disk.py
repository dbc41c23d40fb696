"""The disk of one bookie of three, an ext4 image that is mounted through a loop device, is filled
to its last byte: messages go on to the other bookies, and once there is room to this one again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from pulsarish.chaos.storage import fill
from tests.power.hook import left_out
from tests.power.stand import Stand
from tests.support.until import until

BOOKIE: Final = "bookie-1"
IMAGE_BYTES: Final = 96 << 20
TOPIC: Final = "full"
SETTINGS: Final = {"bookie": ["disk_check_interval_seconds=0.5"]}


def mount_image(image: Path, directory: Path) -> None:
    if os.geteuid() or shutil.which("mkfs.ext4") is None:
        left_out("a disk of a file is mounted by root with mkfs.ext4: one of them is missing")
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    directory.mkdir(mode=0o700, parents=True)
    for command in (["mkfs.ext4", "-q", image], ["mount", "-o", "loop", image, directory]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            left_out(f"{command[0]}: {done.stderr.strip()}")


def is_read_only(stand: Stand) -> bool | None:
    found = [row for row in stand.admin.bookies.list() if row["bookie_id"] == BOOKIE]
    return bool(found[0]["read_only"]) if found else None


@pytest.mark.parametrize("kills", [False, True])
def test_messages_go_on_while_the_disk_of_a_bookie_is_full(tmp_path: Path, kills: bool) -> None:
    stand = Stand(tmp_path, 3, SETTINGS, forgetful=False)
    home = stand.home(BOOKIE)
    mount_image(tmp_path / "image", home)
    try:
        stand.up()
        stand.publish(TOPIC, 60)
        filler = home / "filler"
        assert fill(filler) > 0
        stand.publish(TOPIC, 100)
        until("it is read-only", lambda: is_read_only(stand) is True)
        stand.publish(TOPIC, 60)
        stand.read(TOPIC)
        if kills:
            stand.cluster.kill(BOOKIE)
            said = stand.tries_to_start(BOOKIE)
            assert said is None or str(home) in said.splitlines()[-1], said
            assert said is None or "room" in said or "free space" in said, said
        filler.unlink()
        if stand.cluster.pid(BOOKIE) is None:
            stand.start(BOOKIE)
        until("it is writable", lambda: is_read_only(stand) is False)
        stand.publish(TOPIC, 60)
        stand.close_ledgers(TOPIC)
        stand.read(TOPIC)
        stand.verify(BOOKIE)
    finally:
        stand.down()
        subprocess.run(["umount", "-l", str(home)], check=False)
