"""Gardener's own end-to-end tests against the landscape, and a table of what they found."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from sandbox import files
from tools.gardener import base, garden, landscape, programs
from windowbox.errors import Missing

_REPORT = "e2e.json"
_WAITING = {
    # As Gardener's own script sets them.
    "GOMEGA_DEFAULT_EVENTUALLY_TIMEOUT": "30s",
    "GOMEGA_DEFAULT_EVENTUALLY_POLLING_INTERVAL": "500ms",
    "GOMEGA_DEFAULT_CONSISTENTLY_DURATION": "10s",
    "GOMEGA_DEFAULT_CONSISTENTLY_POLLING_INTERVAL": "500ms",
}
_INSIDE = 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'


@dataclass(frozen=True)
class Result:
    """One test of several steps."""

    name: str
    state: str
    seconds: float
    message: str = ""


def run(labels: str, focus: str = "", skip: str = "") -> int:
    """Run the tests with these labels whose names match, without the steps that `skip` matches.

    Returns their exit code. The report is kept.
    """
    place = landscape.folder()
    if not garden.kubeconfig(place).exists():
        raise Missing("there is no landscape: start it with `windowbox gardener up`")
    resolver = place / "resolv.conf"
    files.write(resolver, _resolver(base.find(place).ranges.name_server))
    program = programs.path("gardener-e2e")
    # In a mount namespace: only the tests ask the landscape's name server.
    command: list[str | Path] = [
        "unshare", "--mount", "--propagation=private", "sh", "-c", _INSIDE, "sh", resolver, program,
        "-ginkgo.v", "-ginkgo.timeout=4h", f"-ginkgo.json-report={place / _REPORT}",
        f"-ginkgo.label-filter={labels}", f"-ginkgo.focus={focus}", f"-ginkgo.skip={skip}",
    ]  # fmt: skip
    environment = {**os.environ, **_WAITING, "KUBECONFIG": str(garden.kubeconfig(place))}
    return subprocess.run(command, cwd=program.parent, env=environment, check=False).returncode


def table() -> Iterator[str]:
    """A line for each test of the last run."""
    for result in last():
        yield f"{result.state:<8} {result.seconds:6.0f} s  {result.name}"
        if result.message:
            yield f"    {result.message}"


def last() -> list[Result]:
    """The tests of the last run."""
    report = landscape.folder() / _REPORT
    if not report.exists():
        raise Missing("no tests have run: `windowbox gardener e2e`")
    return results(json.loads(report.read_bytes()))


def results(report: list[dict[str, Any]]) -> list[Result]:
    """The tests of a report of Ginkgo, each with all its steps; not those that the flags left out."""
    steps: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for suite in report:
        for step in suite.get("SpecReports") or []:
            if step["LeafNodeType"] == "It":
                steps.setdefault(tuple(step["ContainerHierarchyTexts"]), []).append(step)
    # What several tests do has a container of its own inside of each of them.
    for name in sorted(steps, key=len, reverse=True):
        outer = next((name[:size] for size in range(1, len(name)) if name[:size] in steps), None)
        if outer:
            steps[outer] += steps.pop(name)
    return [
        _together(" › ".join(name), of_test)
        for name, of_test in steps.items()
        if any(step["State"] not in ("skipped", "pending") for step in of_test)
    ]


def _together(name: str, steps: list[dict[str, Any]]) -> Result:
    seconds = sum(step["RunTime"] for step in steps) / 1e9
    failed = next((step for step in steps if step["State"] not in ("passed", "skipped", "pending")), None)
    if failed is None:
        return Result(name, "passed", seconds)
    said = (failed.get("Failure") or {}).get("Message", "").strip().splitlines() or [""]
    return Result(name, failed["State"], seconds, f"{failed['LeafNodeText']}: {said[0][:200]}")


def _resolver(server: IPv4Address) -> str:
    return f"nameserver {server}\nsearch svc.cluster.local cluster.local\noptions ndots:5 timeout:5\n"
