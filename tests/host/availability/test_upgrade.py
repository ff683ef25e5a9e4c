"""Everything in Pods is replaced under load: upgraded from the release before, and restarted."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.chaos.converging import settled
from tests.chaos.load import Load, unsettled
from tests.host.traffic.steady import Steady, steady
from tests.support import helm, previous, release, releasedshoot, servers, worldwithnodes
from tests.support.release import Release
from tests.support.releasedshoot import Asked
from tests.support.waits import Waits
from windowbox.clients.kubernetes import kube

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
logger = logging.getLogger(__name__)

RECORDS = 100
RATE = {"upgrade": 20.0, "restart": 200.0}
"""Changes a second: how many there are depends on the machine."""
CONNECTIONS = 20
PATIENCE = 600


@dataclass
class World:
    """The release, and who uses it all the time."""

    release: Release
    shoot: str
    address: str
    """Of a load balancer."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The release before on one node, with two Pods that answer webhooks."""
    servers.need("helm", "named", "dig")
    folder = tmp_path_factory.mktemp("images")
    sources = previous.extracted(tmp_path_factory.mktemp("sources"))
    chart = sources / "deploy" / "charts" / "windowbox"
    for nodes in worldwithnodes.fixture(tmp_path_factory, nodes=1):
        release.bring_image(nodes, folder / "own.tar", edge=True)
        release.bring_image(nodes, folder / "previous.tar", previous.image(sources))
        made = Release(nodes)
        values = release.one_of_each(nodes)
        values |= {"image": {**release.IMAGE, "tag": "0"}, "admit": {"enabled": True, "replicas": 2}}
        made.install(folder, chart / "values-laptop.yaml", values, chart)
        nodes.deploy_echo("web", replicas=1, service={"type": "LoadBalancer"})
        address = "{.status.loadBalancer.ingress[0].ip}"
        nodes.kubectl("wait", "service/web", f"--for=jsonpath={address}", "--timeout=60s")
        found = nodes.kubectl("get", "service/web", f"--output=jsonpath={address}")
        with releasedshoot.shoot(nodes) as shoot:
            yield World(made, shoot, found)
        nodes.kubectl("delete", "service/web", "deployment/web", "--timeout=60s")
        made.uninstall()


async def test_an_upgrade_loses_nothing_and_fails_no_request(world: World) -> None:
    await _under_load(world, "upgrade")


async def test_a_rolling_restart_loses_and_fails_nothing(world: World) -> None:
    clients = await _under_load(world, "restart")
    clients.unharmed()


async def _under_load(world: World, what: str) -> Steady:
    """Replace all Pods while records change, webhooks are asked, and clients connect to a load balancer."""
    done = asyncio.Event()
    async with kube.from_file(world.release.node.kubeconfig) as api:
        load = Load(api, 7, RECORDS)
        await load.run(1)
        waits = Waits(api, load, RATE[what])
        with (
            releasedshoot.asking(world.release.node, world.shoot) as asked,
            steady(world.address, 8080, rate=5, lasting=CONNECTIONS) as clients,
        ):
            async with asyncio.TaskGroup() as group:
                group.create_task(waits.go_on(done))
                began = asyncio.get_running_loop().time()
                await asyncio.to_thread(_replace, world.release, what)
                seconds = asyncio.get_running_loop().time() - began
                await asyncio.to_thread(clients.enough, 10)
                done.set()
        problems = await settled(PATIENCE, lambda: unsettled(api, load.wanted))
    _tell(what, seconds, waits, asked, clients)
    assert not problems, "\n".join(problems)
    assert len(waits.seconds) == waits.made
    assert world.release.resolved(load.names()) == load.names()
    assert not asked.failed, asked.failed[:5]
    return clients


def _replace(installed: Release, what: str) -> None:
    if what == "upgrade":
        installed.upgrade(f"--set-string=image.tag={release.IMAGE['tag']}")
        return
    namespace = f"--namespace={helm.NAMESPACE}"
    for kind in ("deployments", "statefulsets"):
        installed.node.kubectl("rollout", "restart", kind, namespace)
    for what in ("deployments", "statefulset/windowbox-nats"):  # that of Envoy waits for a person
        installed.node.kubectl("rollout", "status", what, namespace, "--timeout=900s", patience=960)


def _tell(what: str, seconds: float, waits: Waits, asked: Asked, clients: Steady) -> None:
    """The figures, for docs/benchmarks.md."""
    served = [when for when, _ in clients.served]
    away = max((after - before for before, after in itertools.pairwise(served)), default=0.0)
    logger.warning(
        "%s in %.0f s: %d changes (%.0f/s), waits p50 %.1f s, p99 %.1f s; %d webhook requests, %d failed; "
        "of %d connections %d were cut, the load balancer was away for %.1f s, %d connections failed",
        what, seconds, waits.made, waits.made / seconds, waits.percentile(50), waits.percentile(99),
        asked.answered, len(asked.failed), CONNECTIONS, len(clients.broken), away, len(clients.failed),
    )  # fmt: skip
