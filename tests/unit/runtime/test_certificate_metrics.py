"""The metric of the days until certificates expire."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from pulsarish.runtime.metrics import Metrics
from pulsarish.runtime.network.certificate_metrics import export_certificates
from pulsarish.security.authority import Authority
from pulsarish.security.tls import earliest_expiry_ms

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000


def test_the_first_certificate_to_expire_counts_and_changes_are_followed(tmp_path: Path) -> None:
    first, second = (
        Authority.create("a", now_ms=NOW_MS, days=days).certificate for days in (90, 10)
    )
    path = tmp_path / "server.pem"
    now_ms = [NOW_MS]
    metrics = Metrics()
    files = {"a": str(path), "b": "", "c": str(tmp_path / "missing.pem")}
    export_certificates(metrics, files, lambda: now_ms[0])

    def days() -> list[tuple[str, float]]:
        text = asyncio.run(metrics.scrape()).decode()
        name = "pulsarish_certificate_expires_in_days"
        found = re.findall(name + r'{option="(\w)"} (.+)', text)
        return [(each, float(value)) for each, value in found]

    assert str(days()) == "[('a', nan), ('b', inf), ('c', nan)]"
    path.write_bytes(first + second)
    ends_ms = earliest_expiry_ms(first + second, "x")
    assert ends_ms == min(earliest_expiry_ms(first, "x"), earliest_expiry_ms(second, "x"))
    assert days()[0] == ("a", pytest.approx(10, abs=0.01))
    path.write_bytes(second)
    now_ms[0] += 400 * DAY_MS
    ends_ms = earliest_expiry_ms(second, "x")
    assert days()[0] == ("a", pytest.approx((ends_ms - now_ms[0]) / DAY_MS, abs=0.01))
    path.write_bytes(b"junk")
    now_ms[0] += DAY_MS
    assert days()[0] == ("a", pytest.approx((ends_ms - now_ms[0]) / DAY_MS, abs=0.01))
