"""`windowbox doctor`: what is wrong, and the remedy."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from commands.sandbox import name_option, output_option
from sandbox import state as states
from sandbox.doctor import checks

_SIGNS = {"ok": ("✓", "green"), "note": ("!", "yellow"), "wrong": ("✗", "red")}


@click.command(
    epilog="\b\nExamples:\n"
    "  windowbox doctor                          this machine and its sandbox\n"
    "  windowbox doctor --settings worker.yaml   the servers that a process would use\n"
    "  windowbox doctor -o json | jq '.[] | select(.verdict != \"ok\")'"
)
@name_option
@click.option(
    "--settings",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="WINDOWBOX_SETTINGS",
    help="Check the servers in this settings file instead of the sandbox's.",
)
@output_option
@click.pass_context
def doctor(ctx: click.Context, name: str | None, settings: Path | None, output: str) -> None:
    """Check this machine, the sandbox and the servers; name what is wrong, and the remedy.

    Changes nothing. Ends with 1 if something is wrong.
    """
    findings = list(checks.examine(states.folder(name), settings))
    if output == "json":
        click.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            sign, colour = _SIGNS[finding.verdict]
            click.echo(f"{click.style(sign, fg=colour)} {finding.what}: {finding.said}")
            if finding.mend:
                click.echo(f"    → {finding.mend}")
    ctx.exit(1 if any(finding.verdict == "wrong" for finding in findings) else 0)
