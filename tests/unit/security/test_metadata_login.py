"""Files with the logins of members at metadata servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsarish.model.errors import ConfigError
from pulsarish.security.metadata_login import MetadataLogins, read_logins


def written(path: Path, content: bytes, mode: int = 0o600) -> str:
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def test_each_line_is_a_login(tmp_path: Path) -> None:
    path = written(tmp_path / "logins", b"a:b:c\n\n  d:e  \r\n")
    assert [login.reveal() for login in read_logins("option", path)] == [b"a:b:c", b"d:e"]


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (b"", 0o600, "is empty"),
        (b"a:b\nsecret\n", 0o600, "line 2"),
        (b":secret\n", 0o600, "line 1"),
        (b"secret:\n", 0o600, "line 1"),
        ("a:sécret\n".encode(), 0o600, "ASCII"),
        (b"a:secret\n", 0o640, "chmod 600"),
        (b"a:secret\n" * 17, 0o600, "at most 16"),
    ],
)
def test_a_wrong_file_is_refused_without_showing_it(
    tmp_path: Path, content: bytes, mode: int, said: str
) -> None:
    path = written(tmp_path / "logins", content, mode)
    with pytest.raises(ConfigError, match=said) as refused:
        read_logins("the_option", path)
    assert "the_option" in str(refused.value)
    assert path in str(refused.value)
    assert "cret" not in str(refused.value)


def test_a_changed_file_is_used_unless_it_is_wrong(tmp_path: Path) -> None:
    path = written(tmp_path / "logins", b"a:old\n")
    problems: list[str] = []
    now = 0
    logins = MetadataLogins("auth_file", path, lambda: now, problems.append)
    assert logins.accepts("", b"a:old")
    assert not logins.accepts("", b"a:new")
    assert not logins.accepts("", b"")
    written(tmp_path / "logins", b"a:old\na:newer\n")
    now += 2_000
    assert logins.accepts("", b"a:old")
    assert logins.accepts("", b"a:newer")
    written(tmp_path / "logins", b"")
    now += 2_000
    assert logins.accepts("", b"a:old")
    assert "auth_file" in problems[0]
    written(tmp_path / "logins", b"a:newer\n")
    now += 2_000
    assert not logins.accepts("", b"a:old")
    assert logins.accepts("", b"a:newer")
