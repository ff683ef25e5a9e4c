"""Commands that the docs quote exist, with the options that they quote."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from commands.cli import cli

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_QUOTED = re.compile(r"(?:`|^[$#] (?:\S+ )?)windowbox ([^`\n]*)", re.MULTILINE)
_MAKE = re.compile(r"(?:`|^[$#] )make ([a-z-]+)", re.MULTILINE)


def problem(quoted: str) -> str | None:
    """The first word of a quoted command that windowbox does not know."""
    words = shlex.split(re.split(r" # |[;|)]| && ", quoted)[0], posix=False)
    command: click.Command = cli
    with click.Context(cli) as context:
        for word in words:
            if word.startswith("-"):
                known = {name for option in command.get_params(context) for name in option.opts}
                if word.partition("=")[0] not in known | {"-h", "--help", "--version"}:
                    return f"{command.name} {word}"
            elif isinstance(command, click.Group):
                found = command.get_command(context, word)
                if found is None:
                    # Some groups also run without a subcommand.
                    return None if not word.isalpha() else f"{command.name} {word}"
                command = found
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page: Path) -> None:
    text = page.read_text()
    assert [wrong for quoted in _QUOTED.findall(text) if (wrong := problem(quoted))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(_MAKE.findall(page.read_text())) <= targets


@pytest.mark.parametrize(
    ("quoted", "wrong"),
    [
        ("bench dnsrecords -n 1000 --first", None),
        ("bench nothing", "bench nothing"),
        ("bench bus --scale", "bus --scale"),
        ("lb list; windowbox nothing", None),
    ],
)
def test_a_wrong_command_is_found(quoted: str, wrong: str | None) -> None:
    assert problem(quoted) == wrong
