"""`windowbox top`, the bus in `windowbox status`, and `windowbox clusters`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from bus import streams, subjects
from bus.messages import Reason, Wish
from bus.transport.connection import connected
from bus.workqueue.queue import Queue
from commands import busstatus
from commands.busstatus import BusState
from tests.api.commands.operated import CommandLine, Operated
from tests.support.cases import cases
from windowbox.kinds import POOLS
from windowbox.models.refs import DNSRECORDS, NAMESPACES, RUNTIME, ObjectRef
from windowbox.settings import settings
from windowbox.settings.bussettings import Access


def test_top_shows_workers_and_recent_runs(operated: Operated) -> None:
    space = operated.space()
    space.record(space.name(), ["10.0.0.1"]).until_ready()
    report = operated.windowbox.until("top", "--once", shows=lambda report: report["pools"][-1]["rate"])
    pools = by_name(report)
    assert list(pools) == [*POOLS, "patch"]
    for pool in (pools["dnsrecord"], pools["patch"]):
        assert pool["workers"] == 1
        assert pool["rate"] > 0
        assert pool["seconds"] > 0
    assert {stream["name"]: stream for stream in report["streams"]}["OBJECTS"]["messages"] > 0
    assert report["server"]["connections"] >= 1


def test_top_counts_errors(operated: Operated) -> None:
    space = operated.space()
    before = by_name(operated.windowbox.until("top", "--once", shows=lambda shown: shown["pools"]))
    record = space.record(space.name(), ["nonsense"])
    errors = before["dnsrecord"]["errors"]
    after = by_name(
        operated.windowbox.until(
            "top", "--once", shows=lambda shown: by_name(shown)["dnsrecord"]["errors"] > errors
        )
    )
    assert after["patch"]["errors"] == before["patch"]["errors"]
    assert record.read().last_operation["state"] == "Error"


def by_name(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {pool["pool"]: pool for pool in report["pools"]}


def test_top_is_a_table_for_people(operated: Operated) -> None:
    shown = operated.windowbox("top", "--once")
    assert "\x1b" not in shown
    assert shown.split()[:3] == ["POOL", "WORKERS", "WAITING"]
    assert "nats-server " in shown


async def wish_for_three(url: str) -> None:
    async with connected(Access(url)) as bus:
        await streams.ensure(bus)
        for name in ("a", "b", "c"):
            key = subjects.key(ObjectRef(RUNTIME, DNSRECORDS.id, "default", name))
            await Queue(bus, "dnsrecord").wish(key, Wish(reason=Reason.EVENT))


def test_waiting_items_are_counted_without_any_worker(alone: CommandLine, nats_url: str) -> None:
    asyncio.run(wish_for_three(nats_url))
    pools = by_name(alone.json("top", "--once"))
    assert (pools["dnsrecord"]["workers"], pools["dnsrecord"]["waiting"]) == (0, 3)
    assert (pools["patch"]["workers"], pools["patch"]["waiting"]) == (0, 0)


def test_an_empty_bus_is_shown(alone: CommandLine) -> None:
    report = alone.json("top", "--once")
    assert report["streams"] == []
    assert report["server"] is None


def test_status_shows_processes_watches_and_streams(operated: Operated) -> None:
    operated.windowbox.until(
        "top", "--once",
        shows=lambda report: "watching" in report["processes"][0]["watches"].values(),
    )  # fmt: skip
    found = busstatus.bus_status(settings.load(operated.windowbox.settings))
    report = "\n".join(busstatus.lines(found))
    assert found.as_json()["reports"].keys() == {"waiting", "in_hand", "oldest_seconds"}
    assert "\n  patch, direct writes " in report
    assert "  run     " in report
    assert f"runtime/{NAMESPACES.id}: watching" in report
    assert f"zone {operated.named.zone}: connected" in report
    assert [stream.name for stream in found.streams][:3] == ["OBJECTS", "TRIGGERS", "WORK"]


def test_status_shows_waiting_watchers_and_missing_processes() -> None:
    state = {"runtime/dnsrecords.extensions.gardener.cloud": "waiting for its CustomResourceDefinition"}
    watcher = {"role": "watch", "process": "host/1", "metrics": "127.0.0.1:1", "watches": state}
    report = "\n".join(busstatus.lines(BusState([watcher], [], [], None)))
    assert "dnsrecords.extensions.gardener.cloud: waiting for its CustomResourceDefinition" in report
    assert "no process of windowbox answers" in "\n".join(busstatus.lines(BusState([], [], [], None)))


def test_a_cluster_joins_is_watched_and_leaves(operated: Operated) -> None:
    windowbox, kubeconfig = operated.windowbox, str(operated.plane.kubeconfig)
    windowbox("clusters", "add", "lab", "--kubeconfig", kubeconfig, "--kind", NAMESPACES.id)
    [lab] = windowbox.until(
        "clusters", "list", shows=lambda found: found[0]["watches"].get(NAMESPACES.id) == "watching"
    )
    assert (lab["id"], lab["credentials"], lab["kinds"]) == ("lab", f"file {kubeconfig}", [NAMESPACES.id])
    assert windowbox.json("trace", "namespace", "default", "--cluster", "lab")["story"]

    windowbox("clusters", "remove", "lab")
    assert windowbox.json("clusters", "list") == []


def test_only_the_place_of_credentials_is_shown(alone: CommandLine, nats_url: str) -> None:
    asyncio.run(wish_for_three(nats_url))
    where = ("--secret", "garden/kubeconfig", "--key", "config", "--machines", "infra")
    alone("clusters", "add", "garden", *where)
    [garden] = alone.json("clusters", "list")
    assert garden == {
        "id": "garden",
        "credentials": "Secret garden/kubeconfig, key config",
        "kinds": ["services", "nodes"],
        "machines": "runtime/infra",
        "joined by": "person",
        "watches": {},
        "asleep": False,
    }


@cases(
    "arguments code said",
    ("no-credentials", ("add", "lab"), 2, "either --secret or --kubeconfig"),
    ("half-a-secret", ("add", "lab", "--secret", "x"), 2, "write NAMESPACE/NAME"),
    ("runtime", ("add", "runtime", "--kubeconfig", "x"), 2, "it is always served"),
    ("unknown-kind", ("add", "lab", "--kubeconfig", "x", "--kind", "cats"), 2, "no kind 'cats'"),
    ("not-there", ("remove", "lab"), 3, "no cluster 'lab' is a member"),
)
def test_a_mistake_about_clusters_is_explained(
    operated: Operated, arguments: tuple[str, ...], code: int, said: str
) -> None:
    shown = operated.windowbox.here("clusters", *arguments)
    assert shown.exit_code == code
    assert said in shown.output


def test_without_a_bus_the_remedy_is_named(tmp_path: Path) -> None:
    nowhere = CommandLine(tmp_path / "missing.yaml", {})
    assert "WINDOWBOX_SETTINGS names" in nowhere("top", "--once", expect=3)
    homeless = CommandLine(tmp_path, {"WINDOWBOX_SETTINGS": "", "WINDOWBOX_HOME": str(tmp_path)})
    assert "Start it with `windowbox up`" in homeless("top", "--once", expect=3)
