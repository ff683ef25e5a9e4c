"""The command line as a whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from commands import cli
from commands.cli import COMMANDS
from commands.sandbox import role_counts

NAMES = [name for section in COMMANDS.values() for name in section]


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; from click.testing import CliRunner; from commands.cli import cli;"
        "assert 'Sandbox' in CliRunner().invoke(cli, ['--help']).output;"
        "print([m for m in ('nats', 'pydantic', 'rich', 'yaml', 'cryptography') if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert answer.stdout.strip() == "[]"


def test_help_lists_the_exit_codes_and_every_command() -> None:
    shown = CliRunner().invoke(cli.cli, ["--help"]).output
    assert "Exit codes" in shown
    assert [name for name in NAMES if f"  {name} " not in shown] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_command_teaches_with_an_example(name: str) -> None:
    shown = CliRunner().invoke(cli.cli, [name, "--help"])
    if "is not part of this installation" in shown.output:
        pytest.skip(shown.output.strip())
    assert shown.exit_code == 0, shown.output
    assert f"windowbox {name}" in shown.output


def test_an_unknown_command_gets_a_suggestion() -> None:
    shown = CliRunner().invoke(cli.cli, ["statsu"])
    assert shown.exit_code == 2
    assert "Did you mean `status`?" in shown.output


def test_a_missing_sandbox_ends_with_three(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WINDOWBOX_HOME", str(tmp_path))
    shown = CliRunner().invoke(cli.cli, ["env"])
    assert shown.exit_code == 3
    assert shown.output == (
        f"Error: the sandbox 'default' is not running (in {tmp_path}): start it with `windowbox up`\n"
    )


def test_a_sandbox_is_started_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WINDOWBOX_HOME", str(tmp_path))
    for command in ("status", "top"):
        shown = CliRunner().invoke(cli.cli, [command, "--name", "other"])
        assert shown.exit_code == 3
        assert "`windowbox up --name other`" in shown.output


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("--port", "named", "write PROCESS=PORT"),
        ("--sync-interval", "soon", "write 100ms, 10s, 2m or always"),
    ],
)
def test_a_bad_option_is_a_usage_error(option: str, value: str, remedy: str) -> None:
    shown = CliRunner().invoke(cli.cli, ["up", option, value])
    assert shown.exit_code == 2
    assert remedy in shown.output


@pytest.mark.parametrize(
    ("chosen", "separate", "running", "expected"),
    [
        ({}, False, False, {"runners": 1, "watchers": 0, "workers": 0, "patchers": 0}),
        ({"nodes": 2}, False, False, {"runners": 1, "watchers": 0, "workers": 0, "patchers": 0}),
        ({"workers": 4}, False, False, {"runners": 0}),
        ({"patchers": 0}, False, False, {"runners": 0}),
        ({}, True, False, {"runners": 0}),
        ({}, True, True, {"runners": 0}),
        ({}, False, True, {}),
    ],
)
def test_one_process_does_all_by_default(
    chosen: dict[str, int], separate: bool, running: bool, expected: dict[str, int]
) -> None:
    assert role_counts(chosen, separate=separate, running=running) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_be_taught_to_complete(shell: str) -> None:
    shown = CliRunner().invoke(cli.cli, ["completion", shell])
    assert "_WINDOWBOX_COMPLETE" in shown.output
