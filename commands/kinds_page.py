"""The tables of docs/kinds.md, written from the table of kinds: `python -m commands.kinds_page`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from windowbox.kinds import KINDS, UNSERVED, Served

PAGE = Path(__file__).parents[1] / "docs" / "kinds.md"

_BEGIN, _END = "<!-- {}: written by `make generate` -->", "<!-- end of {} -->"


def page(text: str) -> str:
    """The page with updated tables."""
    for name, lines in {"served": _served(), "settings": _settings(), "not served": _unserved()}.items():
        before, begin, rest = text.partition(_BEGIN.format(name))
        _, end, after = rest.partition(_END.format(name))
        assert end, f"{PAGE} has no place for {name}"
        text = "".join([before, begin, "\n\n", *(f"{line}\n" for line in lines), "\n", end, after])
    return text


def _served() -> Iterator[str]:
    yield "| kind | type | pool | becomes |"
    yield "|---|---|---|---|"
    for row in KINDS:
        which = f" {row.which}" if row.which else ""
        type_ = f"`{row.type}`" if row.type else ""
        yield f"| `{row.resource.kind}`{which} | {type_} | `{row.pool}` | {row.about} |"
    yield "| `Cluster` | | | read only |"


def _settings() -> Iterator[str]:
    yield "These pools are served only where a setting says so:"
    yield ""
    for setting, rows in groupby(filter(_has_setting, KINDS), lambda row: row.setting):
        name, _, rest = setting.partition(" ")
        yield f"* {', '.join(f'`{row.pool}`' for row in rows)}: set `{name}`{f' {rest}' if rest else ''}"


def _has_setting(row: Served) -> bool:
    return bool(row.setting)


def _unserved() -> Iterator[str]:
    yield "| kind | what to do |"
    yield "|---|---|"
    for row in UNSERVED:
        yield f"| `{row.resource.kind}` | {row.why}: {row.remedy} |"


def main() -> None:
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
