"""Every benchmark once, with few objects: it prints its figures, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox import processes, stages
from sandbox.programs import binaries
from tests.support import servers

ROOT = Path(__file__).parents[3]
WITH_NODES = ("loadbalancer", "fairness", "hostile", "extensions", "echoes")
NEIGHBOURS = ("Infrastructure", "DNSRecord", "Service")


def bench(home: Path, *arguments: str) -> Any:
    """The figures that `windowbox bench` prints as JSON; its sandboxes are in a folder of the test."""
    lacking = servers.missing(
        *stages.PROGRAMS, *(stages.SIMULATED_PROGRAMS if arguments[0] in WITH_NODES else ())
    )
    if lacking:
        pytest.skip(lacking)
    answer = subprocess.run(
        [sys.executable, "-m", "windowbox", "bench", *arguments, "-o", "json"],
        env={**os.environ, "WINDOWBOX_HOME": str(home)}, cwd=ROOT,
        capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert list(home.iterdir()) == []
    return json.loads(answer.stdout)


def phases_of(found: Any) -> list[tuple[str, int]]:
    return [(phase["name"], phase["count"]) for phase in found["phases"]]


@pytest.mark.long  # e2e/test_flows.py counts what a record costs, tests/unit/bench shows the figures
def test_records_are_measured_from_their_creation_to_their_end(tmp_path: Path) -> None:
    found = bench(tmp_path, "dnsrecords", "-n", "10", "--idle", "0.5")
    assert phases_of(found) == [("isolated", 20), ("create", 10), ("update", 10), ("delete", 10)]
    # Finalizer and status; then annotation and status; then the finalizer.
    assert [phase["writes"] for phase in found["phases"]] == [2, 2, 2, 1]
    assert all(phase["dns_updates"] > 0 for phase in found["phases"])
    assert {"watcher-1", "worker-1", "patcher-1", "kube-apiserver"} <= found["idle_percent"].keys()
    restart = found["restart"]
    assert (restart["objects"], restart["writes"], restart["dns_updates"]) == (80, 0, 0)


@pytest.mark.long  # two sandboxes; servers/envoy/test_launcher.py shows what a launcher loads
def test_memory_is_measured_by_import_and_by_use(tmp_path: Path) -> None:
    found = bench(tmp_path, "memory", "-n", "10")
    assert found["imports"]["run"]["aiohttp"] > 1
    assert "aiohttp" not in found["imports"]["launch"]
    assert [one["process"].partition("-")[0] for one in found["used"]] == [
        *("launcher", "runner", "watcher", "worker", "patcher", "admit")
    ]
    assert all(0 < one["idle_private"] < one["idle_resident"] for one in found["used"])


def test_the_bus_alone_is_measured(tmp_path: Path) -> None:
    found = bench(tmp_path, "bus", "-n", "100", "--workers", "2")
    assert found["items_per_second"] > 0
    assert sum(found["shares"]) == pytest.approx(1, abs=0.01)


@pytest.mark.long  # the bus alone, above, and servers/bus, which shows what the streams hold
def test_machines_that_come_and_go_leave_nothing_in_the_streams(tmp_path: Path) -> None:
    found = bench(tmp_path, "bus", "--churn", "300")
    streams = {stream["name"]: stream for stream in found["streams"]}
    assert streams["OBJECTS"]["peak"]["messages"] > 600
    assert streams["INTENTS"]["peak"]["messages"] == streams["LATER"]["peak"]["messages"] == 300
    # Records of runs stay for a day, or until there are too many; a Machine ends the benchmark.
    del streams["JOURNAL"]
    assert {
        name: max(stream["after"]["messages"] - 5, 0) for name, stream in streams.items()
    } == dict.fromkeys(streams, 0)


def test_services_that_wait_for_an_address_are_checked_again(tmp_path: Path) -> None:
    found = bench(tmp_path, "loadbalancer", "--waiting", "200")
    ranges = ["10.0.0.0/27", "10.0.0.0/27, shared", "10.0.0.0/24", "10.0.0.0/24, shared"]
    assert [each["addresses"] for each in found] == ranges
    assert {(each["waiting"], each["checks"]) for each in found} == {(200, 100)}
    assert all(each["check_ms"]["p50"] > 0 for each in found)


@pytest.mark.long
def test_workers_are_added_one_after_the_other(tmp_path: Path) -> None:
    found = bench(tmp_path, "scale", "-n", "20", "--workers", "1", "--workers", "2")
    assert [(each["workers"], each["count"]) for each in found] == [(1, 20), (2, 20)]


@pytest.mark.long  # what a Machine writes is counted in tests/api/machine, and records show a whole benchmark
def test_machines_are_measured_until_they_run_and_until_they_are_gone(tmp_path: Path) -> None:
    found = bench(tmp_path, "machines", "-n", "2", "--singles", "1")
    assert phases_of(found) == [("isolated", 1), ("create", 2), ("delete one", 1), ("delete", 2)]
    # Pod, Secret, Service, token and its deletion, a patch of Machine and of node, two of the status.
    # One more where a report conflicts with another.
    assert found["phases"][0]["writes"] <= 10
    assert found["after_pod"]["p50"] > 0


@pytest.mark.long
def test_load_balancers_are_measured_from_their_creation_to_their_end(tmp_path: Path) -> None:
    found = bench(tmp_path, "loadbalancer", "-n", "1", "--simulated")
    assert found["nodes"] == "4 simulated nodes"
    measured = {one["what"]: one for one in found["measured"]}
    assert [(one["count"], one["failed"], one["errors"]) for one in measured.values()] == [(1, [], [])] * 8
    under_load = [what for what, one in measured.items() if one["connections"]]
    assert under_load == ["node out", "node in", "port added", "port removed"]
    # Finalizer, status, finalizer.
    assert found["writes"] == 3


@pytest.mark.long
def test_many_load_balancers_are_measured_in_crowds(tmp_path: Path) -> None:
    sizes = ("--services", "2", "--services", "5")
    found = bench(tmp_path, "loadbalancer", "--scale", *sizes, "-n", "1", "--idle", "0.5")
    assert [(one["services"], one["unserved"], one["one_more"]["count"]) for one in found] == [
        (2, [], 1),
        (5, [], 1),
    ]
    assert all(one["envoy_mb"] > 1 and one["memory_mb"]["worker-1"] > 1 for one in found)
    assert all({"envoy", "worker-1", "watcher-1"} <= one["idle_percent"].keys() for one in found)


@pytest.mark.long
def test_neighbours_of_a_slow_provider_are_measured(tmp_path: Path) -> None:
    found = bench(tmp_path, "fairness", "-n", "2", "--delay", "0.5", "--rounds", "1", "--turns", "2")
    phases = ("alone", "beside the slow provider")
    assert [(one["phase"], one["kind"]) for one in found] == [
        (p, kind) for p in phases for kind in NEIGHBOURS
    ]
    assert all(one["count"] >= 2 and one["latency"]["p50"] > 0 for one in found)


@pytest.mark.long
def test_neighbours_of_hostile_objects_are_measured(tmp_path: Path) -> None:
    found = bench(tmp_path, "hostile", "-n", "13", "--rounds", "2")
    phases = ("alone", "beside unserved objects", "beside hostile objects")
    assert [(one["phase"], one["kind"]) for one in found["latencies"]] == [
        (p, kind) for p in phases for kind in NEIGHBOURS
    ]
    assert [one["phase"] for one in found["costs"]] == list(phases)


@pytest.mark.long
def test_controlplanes_are_measured_through_a_rotation(tmp_path: Path) -> None:
    found = bench(tmp_path, "controlplane", "-n", "3", "--singles", "1")
    assert phases_of(found) == [("isolated", 1), ("create", 3), ("again", 3), ("rotate", 3)]
    again = found["phases"][2]
    # Metadata and status. On a busy machine, a long run also reports progress.
    assert 2 <= again["writes"] <= 3
    assert found["restart"]["writes"] == 0


@pytest.mark.long
def test_extensions_are_measured_alone_together_and_over_restarts(tmp_path: Path) -> None:
    found = bench(tmp_path, "extensions", "-n", "5", "--singles", "2")
    assert phases_of(found) == [("isolated", 2), ("create", 5), ("again", 5)]
    # Finalizer, status, and one for each object; then annotation and status.
    assert [found["phases"][number]["writes"] for number in (0, 2)] == [found["objects"] + 2, 2]
    assert (found["restart"]["objects"], found["restart"]["writes"]) == (17, 0)
    assert found["bastions"]["count"] == 2


@pytest.mark.long  # tests/unit/bench shows the medians; conformance starts Gardener's program
def test_gardeners_own_program_is_measured_beside_windowbox(tmp_path: Path) -> None:
    servers.need("provider-local")
    if sys.platform != "linux" or os.getuid() or not processes.is_free(53):
        pytest.skip("Gardener's provider-local needs port 53, and a hosts file of its own")
    program = str(binaries.find("provider-local"))
    found = bench(
        tmp_path, "versus", "--program", program, "--objects", "5", "--shoots", "2", "--rounds", "1"
    )
    assert [turn["program"] for turn in found["turns"]] == ["provider-local", "windowbox"]
    writes = {row["what"]: (row["go"]["writes"], row["ours"]["writes"]) for row in found["rows"]}
    assert list(writes) == [
        "records created", "records updated", "records deleted",
        "alone on a quiet API server", "2 at once created", "2 at once reconciled again", "2 at once deleted",
        "alone, 3 s after many Shoots",
    ]  # fmt: skip
    # Ours sets the finalizer and removes the request at once. Gardener's own also says "Processing".
    assert writes["records created"][0] > writes["records created"][1] == 2
    assert all(min(both) >= 1 for both in writes.values())


@pytest.mark.long  # tests/unit/bench shows how samples are counted
def test_the_cpu_of_each_step_is_shown(tmp_path: Path) -> None:
    found = bench(tmp_path, "dnsrecords", "--profile", "--together", "-n", "50")
    assert [one["phase"]["name"] for one in found] == ["create", "update", "delete"]
    assert all(sum(one["steps"].values()) > 0 for one in found)


@pytest.mark.long
def test_runs_of_each_kind_are_counted_with_their_causes(tmp_path: Path) -> None:
    found = bench(tmp_path, "echoes")
    steps = {(one["example"], one["name"]): one for one in found["steps"]}
    infrastructure = steps["infrastructure", "create"]
    # Finalizer, five objects; the status is counted as well.
    assert (infrastructure["runs"], infrastructure["drift"], infrastructure["writes"]) == (
        {"infrastructure": 1}, 0, 7,
    )  # fmt: skip
    assert steps["ingress", "address"]["runs"]["dnsrecord"] == 2
    assert all(one["writes"] for one in found["steps"] if one["name"] == "delete")


@pytest.mark.long
def test_infrastructures_are_measured_while_a_provider_cluster_joins(tmp_path: Path) -> None:
    found = bench(tmp_path, "joining", "-n", "3")
    assert found["shoots"] == 3
    assert len(found["series"]) == 15
    # Of the Shoots before, and of the first one of that cluster.
    assert found["checks"] >= 18
