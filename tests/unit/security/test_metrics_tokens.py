"""The tokens that open metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsarish.model.errors import ConfigError
from pulsarish.security.metrics_tokens import MetricsTokens

OLD, NEW = "o" * 44, "n" * 44


def written(path: Path, content: str, mode: int = 0o600) -> str:
    path.write_text(content)
    path.chmod(mode)
    return str(path)


def test_each_line_is_a_token_and_a_changed_file_is_used(tmp_path: Path) -> None:
    path, now, problems = written(tmp_path / "t", f"{OLD}\n"), [0], list[str]()
    tokens = MetricsTokens(path, lambda: now[0], problems.append)
    assert tokens.accept(f"Bearer {OLD}")
    assert tokens.accept(f"bearer  {OLD} ")
    for header in ("", OLD, "Bearer", "Bearer ", f"Basic {OLD}", f"Bearer {OLD}o", f"Bearer {NEW}"):
        assert not tokens.accept(header), header
    written(tmp_path / "t", f"{OLD}\n{NEW}\n")
    now[0] += 2_000
    assert tokens.accept(f"Bearer {OLD}")
    assert tokens.accept(f"Bearer {NEW}")
    written(tmp_path / "t", "")
    now[0] += 2_000
    assert tokens.accept(f"Bearer {NEW}")
    assert "metrics_token_file" in problems[0]


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        ("", 0o600, "create-secret-key"),
        ("short\n", 0o600, "32 characters"),
        ("é" * 40, 0o600, "ASCII"),
        (f"{OLD}\n" * 17, 0o600, "at most 16"),
        (OLD, 0o640, "chmod 600"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, content: str, mode: int, said: str) -> None:
    path = written(tmp_path / "t", content, mode)
    with pytest.raises(ConfigError, match="metrics_token_file") as refused:
        MetricsTokens(path, lambda: 0, print)
    assert said in str(refused.value)
    assert OLD not in str(refused.value)
