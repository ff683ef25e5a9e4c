"""Writes the lists of docs/gardener.md from the table of images: `python -m tools.gardener.page`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from commands import pages
from sandbox.programs import binaries
from tools.gardener import programs
from tools.gardener.images import COMPONENTS, Component, How

PAGE = Path(__file__).parents[2] / "docs" / "gardener.md"
_WIDTH = 150
_SHORTENED = "gardener-project/releases/"


def page(text: str) -> str:
    """The page with its lists written anew."""
    return pages.filled(text, {"images": list(_lists())[1:]})


def _lists() -> Iterator[str]:
    built: tuple[How, ...] = ("real", "stand-in")
    for how in built:
        yield from ("", f"### {how.capitalize()}", "", "| image | programs | note |", "|---|---|---|")
        for row in _of(how):
            titles = ", ".join(_title(name) for name in row.files.values())
            yield f"| `{_image(row)}` | {titles} | {row.why} |"
    missing: tuple[How, ...] = ("played", "absent")
    for how in missing:
        yield from ("", f"### {how.capitalize()}", "")
        for why in dict.fromkeys(row.why for row in _of(how)):
            named = ", ".join(f"`{_image(row)}`" for row in _of(how) if row.why == why)
            yield from textwrap.wrap(
                f"* {why} {named}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False,
                break_long_words=False,
            )  # fmt: skip


def _of(how: How) -> list[Component]:
    return [row for row in COMPONENTS.values() if row.how == how]


def _image(row: Component) -> str:
    return row.repository.removeprefix(_SHORTENED)


def _title(name: str) -> str:
    return (programs.PROGRAMS.get(name) or binaries.PROGRAMS[name]).title.replace("-whole", "")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
