"""All checks of `windowbox doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sandbox import state as states
from sandbox.doctor import kinds, loadbalancers, machine, servers, webhooks
from sandbox.doctor.findings import Finding
from sandbox.roles import settings_file
from windowbox.errors import Malformed
from windowbox.settings.settings import load


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
