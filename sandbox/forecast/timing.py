"""How long the demo takes: measured figures, and the time expected from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sandbox.forecast.facts import Facts
from sandbox.programs.binaries import PROGRAMS
from sandbox.programs.obtain import estimate

DOWNLOADED = {
    "nats-server": 8, "etcd": 25, "kube-apiserver": 90, "kube-controller-manager": 75, "kubectl": 58,
    "kubelet": 60, "kube-proxy": 42, "kube-scheduler": 48, "kwok": 20, "gardener-resource-manager": 35,
    "local-path-provisioner": 17,
}  # fmt: skip
"""Megabytes to download of each program."""
_FIRST = ("nats-server", "etcd", "kube-apiserver")
"""The programs that records need."""
_MEGABYTES = 12
"""Megabytes a second: 100 Mbit/s."""
_APT = 40
"""Seconds that system packages take."""
_RECORDS, _OTHERS, _NODES = 12, 25, 50
"""Seconds until records are shown; for what follows without real nodes; and for the parts with these."""


@dataclass(frozen=True)
class Expected:
    """Seconds until records are shown, and until all is; and how programs come here."""

    records: float
    everything: float
    how: str


def expected(facts: Facts, *, nodes: bool) -> Expected:
    """The time for a demo with or without real nodes, on a machine that has nothing else to do."""
    compiled, downloaded = facts.compiled, facts.downloaded
    fetched = _APT if facts.installs and (facts.system or (facts.packages and nodes)) else 0.0

    def seconds(names: Iterable[str]) -> float:
        wanted = set(names)
        compiling = estimate((PROGRAMS[name] for name in compiled if name in wanted), facts.cpus)
        size = sum(DOWNLOADED.get(name, 0) for name in downloaded if name in wanted)
        # Compiling uses CPUs, the others wait for the network.
        return max(compiling, size / _MEGABYTES, fetched)

    records = _RECORDS + seconds(_FIRST)
    rest = _OTHERS + (_NODES if nodes else 0)
    # What is shown already is no longer waited for.
    everything = max(records, seconds(facts.lacking)) + rest
    return Expected(records, everything, _how(facts))


def text(seconds: float) -> str:
    """A time for people; estimates are not more exact than this."""
    if seconds < 90:
        return f"{max(10, round(seconds / 10) * 10):.0f} s"
    return f"{round(seconds / 60):.0f} min"


def _how(facts: Facts) -> str:
    ways = [(facts.downloaded, "downloaded"), (facts.compiled, "compiled")]
    parts = [f"{len(names)} {verb}" for names, verb in ways if names]
    if not parts:
        return "all programs are here"
    asked = facts.unreachable is not None and bool(facts.sources)
    why = ", as no release page answers" if asked and not facts.downloaded else ""
    return f"programs, once: {', '.join(parts)}{why}"
