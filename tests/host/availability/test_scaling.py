"""KEDA's operator scales a pool in Pods by its lag, from one Pod to four and back, and nothing is lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import processes
from sandbox.programs import binaries
from tests.chaos.converging import settled
from tests.chaos.load import NAMESPACE, ZONE, namespace, record, unsettled
from tests.support import helm, keda, release, servers, worldwithnodes
from tests.support.release import Release
from tools.chart.generated import CHART
from windowbox.clients.kubernetes import kube
from windowbox.models.refs import DNSRECORDS

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
logger = logging.getLogger(__name__)

ITEMS = 5000
WRITERS = 16
GROUP = "windowbox-work-a"
MONITOR = "windowbox-nats-servers.windowbox-system.svc"
STABLE = 60
"""For so many seconds fewer Pods must do before some end: five minutes in a cluster."""
PATIENCE = 900


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """One node with KEDA, and one Pod of the pool of records."""
    servers.need("helm", "named", "dig")
    folder = tmp_path_factory.mktemp("keda")
    for world in worldwithnodes.fixture(
        tmp_path_factory, nodes=1, apiserver_arguments=keda.front_proxy(folder)
    ):
        release.bring_image(world, folder / "own.tar")
        monitor = release.service_address(world, 61)
        hpa = processes.start(_horizontal(world.kubeconfig), folder / "hpa.log")
        try:
            keda.install(world, folder / "keda.tar", {monitor: MONITOR})
            made = Release(world)
            made.install(folder, CHART / "values-laptop.yaml", _values(made, monitor))
            yield made
            made.uninstall()
        finally:
            servers.end(hpa)


async def test_a_pool_scales_to_four_pods_and_back(scaled: Release) -> None:
    names = {f"record-{n:04d}": f"10.1.{n // 250}.{1 + n % 250}" for n in range(ITEMS)}
    await asyncio.to_thread(_replicas, scaled, {1})
    # As KEDA's documentation says. Workers make items of changes: all items come with the first Pod.
    await asyncio.to_thread(_pause, scaled, "autoscaling.keda.sh/paused-replicas=0")
    await asyncio.to_thread(_replicas, scaled, {0})
    async with kube.from_file(scaled.node.kubeconfig) as api:
        await _create(api, names)
        began = time.monotonic()
        await asyncio.to_thread(_pause, scaled, "autoscaling.keda.sh/paused-replicas-")
        await asyncio.to_thread(_replicas, scaled, {4})
        logger.info("four Pods are ready after %.0f s; %d wait", time.monotonic() - began, _waiting(scaled))
        problems = await settled(PATIENCE, lambda: unsettled(api, names))
        logger.info("all records are made after %.0f s", time.monotonic() - began)
        assert not problems, "\n".join(problems[:20])
    await asyncio.to_thread(_replicas, scaled, {1})
    logger.info("one Pod is left after %.0f s", time.monotonic() - began)
    wanted = {f"{name}.chaos.{ZONE}": address for name, address in names.items()}
    assert await asyncio.to_thread(scaled.resolved, wanted) == wanted
    assert _waiting(scaled) == 0
    assert scaled.restarts() == {}


def _values(made: Release, monitor: str) -> dict[str, Any]:
    values = release.one_of_each(made.node)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "monitor", "namespace": helm.NAMESPACE},
        "spec": {
            "clusterIP": monitor,
            "selector": {"app.kubernetes.io/component": "bus"},
            "ports": [{"port": 8222}],
        },
    }
    group = {"name": "a", "pools": ["dnsrecord"], "autoscaling": {"type": "keda", "lag": 200}}
    off = {"enabled": False}
    return values | {"run": off, "work": [group], "edge": off, "admit": off, "extraObjects": [service]}


def _horizontal(kubeconfig: Path) -> list[str]:
    """Kubernetes' controller of HorizontalPodAutoscalers, which KEDA makes one for each ScaledObject."""
    return [
        str(binaries.find("kube-controller-manager")), f"--kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={processes.free_port()}", f"--cert-dir={kubeconfig.parent / 'hpa'}",
        "--leader-elect=false", "--controllers=horizontal-pod-autoscaler-controller",
        "--use-service-account-credentials",
        f"--horizontal-pod-autoscaler-downscale-stabilization={STABLE}s",
    ]  # fmt: skip


def _pause(scaled: Release, annotation: str) -> None:
    scaled.node.kubectl("annotate", f"scaledobject/{GROUP}", f"--namespace={helm.NAMESPACE}", annotation)


async def _create(api: kube.Kube, names: dict[str, str]) -> None:
    await namespace(api)
    left = list(names.items())

    async def write() -> None:
        while left:
            name, address = left.pop()
            await api.create(DNSRECORDS, NAMESPACE, record(name, address))

    async with asyncio.TaskGroup() as group:
        for _ in range(WRITERS):
            group.create_task(write())


def _replicas(scaled: Release, wanted: set[int]) -> None:
    """Wait until that many Pods are wanted, and ready."""
    path = f"/apis/apps/v1/namespaces/{helm.NAMESPACE}/deployments?fieldSelector=metadata.name={GROUP}"
    seen = None
    for event in scaled.node.api.events(path, seconds=PATIENCE):
        spec, status = event["object"]["spec"], event["object"].get("status", {})
        seen = spec["replicas"], status.get("readyReplicas", 0)
        if seen[0] == seen[1] == status.get("replicas", 0) and seen[0] in wanted:
            return
    raise TimeoutError(f"{seen} Pods are wanted and ready, not {wanted}: {_described(scaled)}")


def _waiting(scaled: Release) -> int:
    """The items of the pool that wait, or are under way."""
    [work] = [one for one in scaled.streams("consumers=true&config=true") if one["name"] == "WORK"]
    [consumer] = [one for one in work["consumer_detail"] if one["name"] == "pool-dnsrecord"]
    return int(consumer["num_pending"] + consumer["num_ack_pending"])


def _described(scaled: Release) -> str:
    said = scaled.node.kubectl("describe", "scaledobjects,hpa", f"--namespace={helm.NAMESPACE}")
    logs = ("logs", "deploy/keda-operator", f"--namespace={keda.NAMESPACE}", "--tail=30")
    return f"{said}\n{scaled.node.kubectl(*logs)}\n{scaled.pods()}"
