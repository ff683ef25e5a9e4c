"""One finding for each topic that decides whether the demo works."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from sandbox.doctor.findings import Finding
from sandbox.forecast import showing
from sandbox.forecast.facts import Facts
from sandbox.forecast.showing import COMPILING, NODES, SERVERS, SHOOT, gigabytes
from sandbox.nodes import suitability

_NODES = ("switch", "node-1", "node-2")
_NAMES = {"linux": "Linux", "darwin": "macOS"}


def findings(facts: Facts) -> Iterator[Finding]:
    """All topics, each in a line."""
    yield _machine(facts)
    yield _memory(facts)
    yield _disk(facts)
    yield _ports(facts)
    if facts.host.system == "linux":
        yield _inotify(facts)
        yield _cgroups(facts)
        yield _kernel(facts)
        yield _namespaces(facts)
    yield from _network(facts)
    yield _programs(facts)
    yield _packages(facts)


def _machine(facts: Facts) -> Finding:
    host = facts.host
    system = f"{_NAMES.get(host.system, host.system)} {facts.architecture}"
    cores = f"{facts.cpus} CPU" + ("s" if facts.cpus != 1 else "")
    where = f"in a container ({facts.container})" if facts.container else ""
    said = ", ".join(filter(None, [system, cores, where, "root" if host.root else "not root"]))
    if reason := suitability.unsuited(host):
        return Finding("machine", "note", f"{said}; real nodes need {reason}", _remedy(facts))
    return Finding("machine", "ok", said)


def _remedy(facts: Facts) -> str:
    """How this user could have real nodes."""
    if facts.host.system != "linux":
        return "run the demo in Docker: docs/install.md" if facts.docker else ""
    if not facts.host.root:
        return (
            "run the demo as root, or in Docker: docs/install.md" if facts.docker else "run the demo as root"
        )
    return "a privileged container with a volume: docs/install.md" if facts.container else ""


def _memory(facts: Facts) -> Finding:
    if facts.memory is None:
        return Finding("memory", "note", "it is not known how much is available")
    said = f"{gigabytes(facts.memory)} available"
    wanted = max(SHOOT.memory, COMPILING if facts.compiled else 0)
    if facts.running or facts.memory >= wanted:
        return Finding("memory", "ok", said)
    if facts.memory < SERVERS.memory:
        return Finding("memory", "wrong", f"{said}; records need {gigabytes(SERVERS.memory)}", "end programs")
    for need, what in (
        (NODES.memory, "real nodes need"),
        (SHOOT.memory, "a Shoot needs"),
        (wanted, "Go needs"),
    ):
        if facts.memory < need:
            return Finding("memory", "note", f"{said}; {what} {gigabytes(need)}", "end programs")
    raise AssertionError


def _disk(facts: Facts) -> Finding:
    mend = "free some, or name larger ones: WINDOWBOX_HOME, WINDOWBOX_CACHE, GOCACHE, GOMODCACHE"
    if reason := showing.full(facts):
        return Finding("disk", "wrong", f"needed is {reason}", mend)
    used = [place for place in facts.places if showing.wanted_in(place.purpose, facts)]
    said = ", ".join(
        f"{gigabytes(free)} free" for free in {place.disk: place.free for place in used}.values()
    )
    if showing.little(facts, SHOOT):
        return Finding("disk", "note", f"{said}; a Shoot needs {gigabytes(SHOOT.disk)}", mend)
    return Finding("disk", "ok", said)


def _ports(facts: Facts) -> Finding:
    reasons = [reason for port in showing.used_ports(facts) if (reason := facts.ports.get(port))]
    if not reasons:
        return Finding("ports", "ok", "servers get free ones of loopback, and load balancers can have theirs")
    said = "; ".join(reason.partition(": ")[0] for reason in reasons)
    mend = reasons[0].partition(": ")[2] or "find the process: ss -lntp"
    return Finding("ports", "note", said, mend)


def _inotify(facts: Facts) -> Finding:
    free = facts.inotify_free
    if free is None:
        return Finding("inotify", "note", "it is not known how many instances are free")
    said = f"{free} instances are free for this user"
    mend = f"sudo sysctl fs.inotify.max_user_instances={8 * SHOOT.inotify}"
    for need, what in (
        (SERVERS.inotify, "servers use"), (NODES.inotify, "real nodes use"), (SHOOT.inotify, "a Shoot uses")
    ):  # fmt: skip
        if free < need and not facts.running:
            return Finding(
                "inotify", "wrong" if what == "servers use" else "note", f"{said}; {what} {need}", mend
            )
    return Finding("inotify", "ok", said)


def _cgroups(facts: Facts) -> Finding:
    host = facts.host
    if not host.cgroups:
        return Finding("cgroups", "note", "there are none: no real nodes")
    if host.writable:
        return Finding("cgroups", "ok", f"{host.cgroups}, writable")
    if not host.root:
        return Finding("cgroups", "ok", f"{host.cgroups}, which only root writes")
    return Finding("cgroups", "note", f"{host.cgroups}, read-only: no real nodes")


def _kernel(facts: Facts) -> Finding:
    host = facts.host
    version = ".".join(map(str, host.kernel))
    absent = [name for name, there in host.features.items() if there is False]
    unknown = [name for name, there in host.features.items() if there is None]
    if absent:
        return Finding("kernel", "note", f"{version} without {', '.join(absent)}: no real nodes")
    if unknown:
        said = f"{version}; nothing tells whether it has {', '.join(unknown)}"
        return Finding("kernel", "note", said, f"sudo modprobe -a {' '.join(unknown)}")
    return Finding("kernel", "ok", f"{version} with {', '.join(host.features)}")


def _namespaces(facts: Facts) -> Finding:
    what = "network namespaces"
    if facts.free_parts == 0:
        said = f"none has addresses: this host has routes to all of {', '.join(facts.overlapping)}"
        return Finding(what, "note", said, "ip route")
    if reason := showing.without_nodes(facts):
        return Finding(what, "ok", f"none are made without real nodes, which need {reason}")
    names = ", ".join(f"{facts.site}-{name}" for name in _NODES)
    parts = "" if facts.free_parts is None else f"; addresses for {facts.free_parts} sandboxes are free"
    said = f"{names} are made, and a link {facts.site}{parts}"
    if facts.overlapping:
        said += f", as this host has routes to {', '.join(facts.overlapping)}"
    return Finding(what, "ok", said)


def _network(facts: Facts) -> Iterator[Finding]:
    """Whether programs can come from elsewhere."""
    if not facts.lacking and not facts.system and not facts.packages:
        yield Finding("name servers", "ok", "none is needed, as all programs are here")
        return
    answering = [server for server, answers in facts.name_servers.items() if answers]
    silent = [server for server, answers in facts.name_servers.items() if not answers]
    found = [f"{', '.join(names)} {verb}" for names, verb in (
        (answering, "answers" if len(answering) == 1 else "answer"),
        (silent, "is silent" if len(silent) == 1 else "are silent"),
    ) if names]  # fmt: skip
    mend = "" if answering else "connect this machine, or name a proxy in HTTPS_PROXY"
    verdict: Literal["ok", "note"] = "note" if silent or not answering else "ok"
    yield Finding("name servers", verdict, "; ".join(found) or "there is none", mend)
    if facts.unreachable is not None:
        away: dict[str, list[str]] = {}
        for source, reason in facts.unreachable.items():
            if reason:
                away.setdefault(reason, []).append(source)
        if away:
            said = "; ".join(f"{', '.join(sources)}: {reason}" for reason, sources in away.items())
            yield Finding("official binaries", "note", f"{said}; so these are compiled")
        else:
            yield Finding("official binaries", "ok", "their pages answer")


def _programs(facts: Facts) -> Finding:
    if not facts.lacking:
        return Finding("programs", "ok", "all are here")
    parts = []
    if facts.downloaded:
        parts.append(f"downloaded: {', '.join(facts.downloaded)}")
    if facts.compiled:
        go = "Go is here" if facts.go else "Go comes from PyPI"
        parts.append(f"compiled ({go}): {', '.join(facts.compiled)}")
    return Finding("programs", "ok", "; ".join(parts))


def _packages(facts: Facts) -> Finding:
    lacking = [*facts.system, *facts.packages]
    if not lacking:
        return Finding("packages", "ok", "all are here")
    if facts.installs:
        return Finding("packages", "ok", f"apt-get installs {', '.join(lacking)}")
    if facts.system:
        return Finding(
            "packages", "wrong", f"BIND 9 is not here ({', '.join(facts.system)})", facts.bind_command
        )
    said = f"not here, for real nodes: {', '.join(lacking)}"
    return Finding("packages", "note", said)
