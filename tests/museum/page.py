"""docs/museum.md, written from the collection. ``python -m tests.museum.page`` writes it again."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.museum.collection import AREAS, EXHIBITS, read_deaths
from tests.museum.exhibit import Exhibit

__all__ = ["PAGE", "page"]

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "museum.md"

_HEAD: Final = """\
# A museum of this field's bugs

Apache Pulsar and Apache BookKeeper have run in production for years, and their issue
trackers say what went wrong. Each exhibit takes one defect from there and shows that
our program does not have it, with a check that is known to be able to fail.

* A **mutant** is our program with one safeguard taken away, so that it has the same
  defect. The check fails with it and passes without it.
* A **scenario** sets up the same situation with our real code. It passes; with the
  defect patched in it fails.
* **Impossible by design**: we lack the part that was wrong. The check shows what stands
  in its place, and fails when that is taken away.

An exhibit is *dead* when each of its defects makes the check fail and the check passes
without them. The last column is the commit at which that was last seen; the data are
`tests/museum/deaths.json`, which only `--record` writes.

```
make museum                        # all exhibits, with what killed each
make museum MUSEUM=--record        # the same, and record this commit (the tree must be clean)
```

The ordinary tests run all of them, too. To add one: look the issue up, put a record
into the module of its area in `tests/museum/`, write this page again with `python -m
tests.museum.page`, commit, and then record. The facts are those of the threads; no code
or text of these projects is in here. Of some threads the cause is not known; their
exhibits say so and reproduce the situation.

There are {count} exhibits.
"""


def page() -> str:
    deaths = read_deaths()
    parts = [_HEAD.format(count=len(EXHIBITS))]
    for area, exhibits in AREAS.items():
        parts.append(
            f"\n## {area}\n\n| exhibit | upstream | what went wrong there | what is shown here | "
            "kind | last seen to die |\n"
        )
        parts.append("| --- | --- | --- | --- | --- | --- |\n")
        parts += [_row(exhibit, deaths.get(exhibit.name, "")) for exhibit in exhibits]
    return "".join(parts)


def _row(exhibit: Exhibit, commit: str) -> str:
    defects = ", ".join(f"`{defect.name}`" for defect in exhibit.defects)
    upstream = ", ".join(exhibit.upstream)
    here = f"{exhibit.here} Killed with {defects}."
    return (
        f"| `{exhibit.name}` | {upstream} | {exhibit.wrong} | {here} | {exhibit.kind.value} | "
        f"{commit[:12] or 'not recorded'} |\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page())
