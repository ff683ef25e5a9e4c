"""Memory and CPU of an installation in Pods: all containers that the chart starts, on one node of a sandbox.

NATS, named, Envoy and its launcher count; what Kubernetes runs for each Pod does not.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.nodes import hostresources
from sandbox.options import Options
from tests.support import helm, release, worldwithnodes
from tests.support.release import Release
from tests.support.worldwithnodes import NodeWorld
from tools.bench.report import MachineFacts, Report, say, table
from tools.bench.usage import proportional, resident, usage
from tools.chart.generated import CHART
from windowbox.errors import Refused

_SETTLING = 60.0
_IDLE = 60.0
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Container:
    """What the processes of a container use, in MB, and in percent of a core."""

    name: str
    cgroup: float
    """All memory of its cgroup (`memory.current`), pages of files included."""
    working_set: float
    """As the kubelet counts it: without pages of files that were not used lately."""
    resident: float
    """Of all its processes: pages that two share count twice."""
    proportional: float
    """A page that several processes share counts by parts."""
    cpu_percent: float


@dataclass(frozen=True)
class PodFigures(MachineFacts):
    """The result of `bench memory --pods`."""

    containers: Sequence[Container]


async def measure() -> Report:
    """Measure the chart for a laptop with `edge` and `admit`, idle, with a record and a load balancer."""
    if reason := hostresources.impossible():
        raise Refused(f"an installation in Pods needs a node, and this machine can have none: {reason}")
    return _report(await asyncio.to_thread(_measured))


def _measured() -> PodFigures:
    options = Options(watchers=0, workers=0, patchers=0, nodes=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with worldwithnodes.opened(folder / "sandbox", options) as world:
            say("an image, and helm install")
            release.bring_image(world, folder / "own.tar", edge=True)
            installed = Release(world)
            values = release.one_of_each(world) | {"operator": {"enabled": False}}
            installed.install(folder, CHART / "values-laptop.yaml", values)
            installed.test()
            world.deploy_echo("web", replicas=1, service={"type": "LoadBalancer"})
            address = "--for=jsonpath={.status.loadBalancer.ingress[0].ip}"
            world.kubectl("wait", "service/web", address, "--timeout=60s")
            say(f"{_SETTLING:.0f} s until it is idle, and {_IDLE:.0f} s in which it is")
            time.sleep(_SETTLING)
            containers = list(_containers(world))
            before = [_cpu(pids) for _, pids in containers]
            time.sleep(_IDLE)
            found = [
                Container(
                    name=name,
                    cgroup=round(_of_cgroup(pids[0])[0], 1),
                    working_set=round(_of_cgroup(pids[0])[1], 1),
                    resident=round(sum(map(resident, pids)), 1),
                    proportional=round(sum(map(proportional, pids)), 1),
                    cpu_percent=round(100 * (_cpu(pids) - cpu) / _IDLE, 2),
                )
                for (name, pids), cpu in zip(containers, before, strict=True)
            ]
            installed.uninstall()
            return PodFigures(containers=found)


def _containers(world: NodeWorld) -> Iterator[tuple[str, list[int]]]:
    """The running containers of the release, and the processes of each."""
    said = world.kubectl("get", "pods", f"--namespace={helm.NAMESPACE}", "--output=json")
    groups = {int(file.parent.name): _text(file) for file in Path("/proc").glob("[0-9]*/cgroup")}
    for pod in json.loads(said)["items"]:
        role = pod["metadata"]["labels"].get("app.kubernetes.io/component", pod["metadata"]["name"])
        for one in pod["status"]["containerStatuses"]:
            id_ = one["containerID"].rpartition("/")[2]
            if pids := sorted(pid for pid, text in groups.items() if id_ in text):
                yield role, pids


def _of_cgroup(pid: int) -> tuple[float, float]:
    """The memory and the working set of the container of this process, in MB."""
    lines = [line.split(":", 2) for line in _text(Path(f"/proc/{pid}/cgroup")).splitlines()]
    first = {names: group for _, names, group in lines}
    if "memory" in first:
        group, used = _CGROUPS / "memory" / first["memory"][1:], "memory.usage_in_bytes"
        inactive = "total_inactive_file"
    else:
        group, used, inactive = _CGROUPS / first[""][1:], "memory.current", "inactive_file"
    stat = dict(line.split() for line in _text(group / "memory.stat").splitlines())
    current = int(_text(group / used)) / 1e6
    return current, current - int(stat[inactive]) / 1e6


def _cpu(pids: Sequence[int]) -> float:
    return sum(usage(pid).cpu for pid in pids)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):  # the process has ended
        return ""


def _report(figures: PodFigures) -> Report:
    found = sorted(figures.containers, key=lambda one: -one.working_set)
    all_ = Container(
        "all",
        *(
            round(sum(getattr(one, name) for one in found), 2)
            for name in ("cgroup", "working_set", "resident", "proportional", "cpu_percent")
        ),
    )
    return Report(
        figures,
        [
            table(
                "Containers of an idle installation: MB, and percent of a core",
                [*found, all_],
                {
                    "container": lambda one: one.name,
                    "cgroup": lambda one: f"{one.cgroup:.1f}",
                    "working set": lambda one: f"{one.working_set:.1f}",
                    "resident": lambda one: f"{one.resident:.1f}",
                    "proportional": lambda one: f"{one.proportional:.1f}",
                    "CPU": lambda one: f"{one.cpu_percent:.2f}",
                },
            )
        ],
    )
