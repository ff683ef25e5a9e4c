"""`windowbox doctor`: what is wrong with this machine, the sandbox and its servers, and the remedies.

With `--before`: whether the demo will work here, and what it will show.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from commands.options import name_option, output_option
from sandbox import state as states
from sandbox.doctor import kinds, loadbalancers, machine, servers, webhooks
from sandbox.doctor.findings import Finding
from sandbox.forecast import findings as forecast
from sandbox.forecast import reading, showing, summary, timing
from sandbox.forecast.facts import Facts
from sandbox.roles import settings_file
from windowbox.errors import Malformed
from windowbox.settings.settings import load

_SIGNS = {"ok": ("✓", "green"), "note": ("!", "yellow"), "wrong": ("✗", "red")}


@click.command(
    epilog="\b\nExamples:\n"
    "  windowbox doctor                          this machine and its sandbox\n"
    "  windowbox doctor --before                 will the demo work here?\n"
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
@click.option("--before", is_flag=True, help="Will the demo work here? Ten seconds, before anything is made.")
@output_option
@click.pass_context
def doctor(ctx: click.Context, name: str | None, settings: Path | None, before: bool, output: str) -> None:
    """Check this machine, the sandbox and the servers; name what is wrong, and the remedy.

    Changes nothing. Ends with 1 if something is wrong.

    With --before: whether `windowbox demo` will work here, what it will show and what not, and how long it
    will take. Ends with 1 if something will be left out, and with 3 if nothing can be shown.
    """
    folder = states.folder(name)
    if before:
        facts = reading.read(folder)
        if output == "json":
            click.echo(json.dumps(_as_json(facts), indent=2))
        else:
            _print(forecast.findings(facts))
            click.echo("\n" + "\n".join(summary.lines(facts)))
        ctx.exit(summary.code(facts))
    findings = list(examine(folder, settings))
    if output == "json":
        click.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        _print(findings)
    ctx.exit(1 if any(finding.verdict == "wrong" for finding in findings) else 0)


def _print(findings: Iterable[Finding]) -> None:
    for finding in findings:
        sign, colour = _SIGNS[finding.verdict]
        click.echo(f"{click.style(sign, fg=colour)} {finding.what}: {finding.said}")
        if finding.mend:
            click.echo(f"    → {finding.mend}")


def _as_json(facts: Facts) -> dict[str, object]:
    """Findings, parts of the demo with what they lack, and seconds."""
    time = timing.expected(facts, nodes=not showing.without_nodes(facts))
    return {
        "findings": [dataclasses.asdict(finding) for finding in forecast.findings(facts)],
        "parts": {part.name: part.lacking for part in showing.parts(facts)},
        "seconds": {"records": round(time.records), "everything": round(time.everything)},
    }


def examine(folder: Path, settings: Path | None) -> Iterator[Finding]:
    """Check this machine, the sandbox in `folder`, and the servers that the settings name."""
    yield from machine.examine()
    yield from machine.examine_sandbox(folder)
    path = settings_file(folder, "operator")
    if settings == path:  # as `windowbox env` says: the sandbox knows more than its settings
        settings = None
    state = states.read(folder) if settings is None else None
    if settings is None and (state is None or not state.running()):
        return
    try:
        loaded = load(settings or path)
    except Malformed as error:
        yield Finding("settings", "wrong", str(error), "compare with docs/settings.md")
        return
    yield servers.bus(loaded.nats)
    if loaded.nats.user != "edge":  # the edge reaches no API server
        yield servers.kubernetes(loaded.cluster)
    yield from servers.rights(loaded, folder if settings is None else None)
    for zone in loaded.dns.zones:
        yield from servers.zone(zone)
    if loaded.nats.user not in ("watcher", "patcher"):  # these two never touch load balancers
        yield from loadbalancers.examine(loaded.loadbalancer)
    yield from kinds.examine(loaded)
    yield from webhooks.examine(loaded)
