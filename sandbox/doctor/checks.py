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


def examine(folder: Path, settings: Path | None) -> list[Finding]:
    """Check this machine, the sandbox in `folder`, and the servers that the settings name."""
    return [*machine.examine(), *machine.examine_sandbox(folder), *_servers(folder, settings)]


def _servers(folder: Path, settings: Path | None) -> Iterator[Finding]:
    path = settings_file(folder, "operator")
    if settings == path:  # as `windowbox env` says; then we know more than what stands there
        settings = None
    path = settings or path
    state = states.read(folder) if settings is None else None
    if settings is None and (state is None or not state.running()):
        return
    try:
        loaded = load(path)
    except Malformed as error:
        yield Finding("settings", "wrong", str(error), "compare with docs/settings.md")
        return
    yield servers.bus(loaded.nats)
    if loaded.nats.user != "edge":  # which reaches no API server
        yield servers.kubernetes(loaded.cluster)
    yield from servers.rights(loaded, folder if settings is None else None)
    for zone in loaded.dns.zones:
        yield from servers.zone(zone)
    if loaded.nats.user not in ("watcher", "patcher"):  # who have nothing to do with them
        yield from loadbalancers.examine(loaded.loadbalancer)
    yield from kinds.examine(loaded)
    yield from webhooks.examine(loaded)
