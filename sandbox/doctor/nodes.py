"""Checks of what real nodes need on this machine."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.doctor.findings import Finding
from sandbox.nodes import addresses, hostresources, leftovers, routes
from sandbox.options import Options
from sandbox.programs import binaries, packages
from sandbox.programs.binaries import Found
from windowbox.errors import WindowboxError


def examine() -> Iterator[Finding]:
    """Findings are notes, not errors: a sandbox also runs without nodes."""
    if reason := hostresources.unsuited():
        yield Finding("real nodes", "note", f"need {reason}", "windowbox up --nodes 0")
        return
    lacking = [*packages.lacking_for_nodes(), *filter(_lacks, hostresources.PROGRAMS)]
    if lacking:
        yield Finding("real nodes", "note", f"these are not here: {', '.join(lacking)}", "make setup")
    else:
        yield Finding("real nodes", "ok", "possible")
        yield _ranges(Options().ranges)
    if left := leftovers.found():
        text = f"left by a sandbox that was killed: {', '.join(left)}"
        yield Finding("leftovers", "note", text, "windowbox down")


def _lacks(name: str) -> bool:
    try:
        return not isinstance(binaries.look(name), Found)
    except WindowboxError:
        return True


def _ranges(ranges: tuple[str, str]) -> Finding:
    """Whether this host already has routes to the addresses of nodes."""
    parts, known = list(addresses.parts(ranges)), routes.known(foreign=True)
    taken = {
        network: found
        for part in parts
        for network in part
        if (found := addresses.overlapping(network, known))
    }
    what, text = "addresses for nodes", " and ".join(ranges)
    if not taken:
        return Finding(what, "ok", text)
    used = sorted({str(route) for found in taken.values() for route in found})
    free = sum(not (taken.keys() & set(part)) for part in parts)
    mend = "" if free else "set other `ranges` for the sandbox"
    return Finding(
        what, "note", f"{text}: this host has routes to {', '.join(used)}; {free} parts are free", mend
    )
