"""How measurements are made, counted and summed up."""

from __future__ import annotations

import importlib
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import orjson
import pytest
from click.testing import CliRunner

from commands import bench as command
from tests.support.cases import cases
from tests.support.lifecycleobjects import record
from tools.bench import audit, requests
from tools.bench.audit import AuditLog
from tools.bench.client import done
from tools.bench.loadbalancers.crowd import CrowdFigures
from tools.bench.profiling import sitecustomize
from tools.bench.profiling.samples import by_step
from tools.bench.report import Measured, Phase, Spread
from tools.bench.requests import WebhookCalls
from tools.bench.usage import Meter, Usage, private, running_first, usage
from tools.bench.versus.turns import Turn, rows
from windowbox.errors import Refused, Unreachable


def test_a_spread_is_in_milliseconds_and_in_order() -> None:
    assert Spread.of([n / 1000 for n in range(100, 0, -1)]) == Spread(p50=50.5, p95=96.0, max=100.0)
    assert Spread.of([0.02]) == Spread(20.0, 20.0, 20.0)


def test_only_windowboxs_own_cpu_is_summed_up() -> None:
    cpu = {"worker-1": 1.5, "worker-2": 0.5, "watcher-1": 0.25, "kube-apiserver": 7.0, "bench": 2.0}
    assert Phase("create", 1, 1.0, cpu_ms=cpu).our_cpu_ms == 2.25


def test_requests_are_counted_once_and_only_ours(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(
        _line("system:windowbox:worker", "patch")
        + _line("system:windowbox:patcher", "patch", subresource="status")
        + _line("system:windowbox:watcher", "watch", stage="ResponseStarted")
        + _line("admin", "create")
    )
    counted = AuditLog(path).requests()
    assert counted == {"patch dnsrecords": 1, "patch dnsrecords/status": 1}
    assert audit.writes(counted) == 2


def test_a_line_is_counted_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    line = _line("system:windowbox:worker", "get")
    log = AuditLog(path)
    path.write_bytes(line + line[:20])
    assert log.requests() == {"get dnsrecords": 1}
    path.write_bytes(line + line)
    assert log.requests() == {"get dnsrecords": 1}
    assert log.requests() == {}


def test_requests_before_a_skip_are_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    before, line = _line("system:windowbox:worker", "get"), _line("system:windowbox:worker", "patch")
    log = AuditLog(path)
    path.write_bytes(before * 1000 + line[:20])
    log.skip()
    path.write_bytes(before * 1000 + line)
    assert log.requests() == {"patch dnsrecords": 1}


def test_a_process_that_has_ended_uses_nothing() -> None:
    assert usage(os.getpid()).peak > 1
    assert private(os.getpid()) > 1
    assert usage(2**30) == (0.0, 0.0, 0)
    assert private(2**30) == 0.0


def test_all_cpu_of_a_restarted_process_counts() -> None:
    meter = Meter({"same": Usage(1.0, 1.0, 10), "restarted": Usage(1.0, 1.0, 10)})
    assert meter.read({"same": Usage(3.0, 1.0, 10), "restarted": Usage(3.0, 1.0, 20)}).cpu == {
        "same": 2.0,
        "restarted": 3.0,
    }


def test_a_record_is_done_when_its_newest_generation_is() -> None:
    assert done(record(last="Create/Succeeded"))
    assert not done(record(last="Create/Succeeded", generation=2))
    assert not done(record("reconcile", last="Create/Succeeded"))
    assert not done(record(last="Create/Error"))
    assert not done(record())


GOOD = Measured("created", 20, 300, Spread(299.0, 900.0, 1000.0))


@cases(
    "measured reached",
    ("the-median-is-within-the-aim", GOOD, True),
    ("it-is-not", Measured("created", 20, 300, Spread(301.0, 302.0, 303.0)), False),
    ("one-never-ended", Measured("created", 20, 300, GOOD.spread, ("never",)), False),
    ("none-ever-ended", Measured("created", 0, 300, None), False),
    ("a-client-failed", Measured("changed", 20, 300, GOOD.spread, connections=200, errors=("reset",)), False),
    ("without-an-aim", Measured("changed", 20, None, GOOD.spread), True),
)
def test_an_aim_is_reached_by_the_median_and_without_failures(measured: Measured, reached: bool) -> None:
    assert measured.reached is reached


def test_idle_cpu_is_the_sum_of_envoy_and_windowbox() -> None:
    idle = {"envoy": 0.5, "worker-1": 0.25, "watcher-1": 0.25, "kube-apiserver": 5.0, "node-simulator": 3.0}
    assert CrowdFigures(1, "4 simulated nodes", 1.0, (), 20.0, {}, idle, 2.0, {}).ours_idle == 1.0


def test_events_do_not_count_as_writes() -> None:
    requests = Counter({"create events": 4, "patch services/status": 3, "get services": 1})
    assert audit.writes(audit.without_events(requests)) == 3


async def test_a_request_that_fails_ends_no_benchmark() -> None:
    async def act(number: int) -> None:
        if number:
            raise (Unreachable if number == 1 else Refused)(f"{number}")

    asked = await requests.at_rate(act, 1000, 3)
    assert (len(asked.seconds), sorted(asked.failed)) == (1, ["1", "2"])


_NAME = "apiserver_admission_webhook_admission_duration_seconds"
_METRICS = f"""# TYPE {_NAME} histogram
{_NAME}_bucket{{name="a",operation="CREATE",rejected="false",type="admit",le="0.005"}} 3
{_NAME}_bucket{{name="a",operation="CREATE",rejected="false",type="admit",le="0.025"}} 4
{_NAME}_bucket{{name="a",operation="CREATE",rejected="false",type="admit",le="+Inf"}} 4
{_NAME}_sum{{name="a",operation="CREATE",rejected="false",type="admit"}} 0.03
{_NAME}_count{{name="a",operation="CREATE",rejected="false",type="admit"}} 4
{_NAME}_bucket{{name="b",operation="UPDATE",rejected="false",type="admit",le="0.005"}} 1
{_NAME}_sum{{name="b",operation="UPDATE",rejected="false",type="admit"}} 0.001
{_NAME}_count{{name="b",operation="UPDATE",rejected="false",type="admit"}} 1
apiserver_admission_step_admission_duration_seconds_count{{type="admit"}} 9
"""


def test_calls_of_all_webhooks_are_counted() -> None:
    found = WebhookCalls.parsed(_METRICS)
    assert found == WebhookCalls(5, 0.031, 4)
    since = found.since(WebhookCalls(1, 0.001, 1))
    assert (since.average_ms, since.short_percent) == (7.5, 75.0)
    assert WebhookCalls().average_ms == WebhookCalls().short_percent == 0.0


def _policies(process: int) -> set[int]:
    return {os.sched_getscheduler(int(task.name)) for task in Path(f"/proc/{process}/task").iterdir()}


def test_a_measurement_restores_its_priority() -> None:
    before = os.sched_getscheduler(0)
    try:
        with running_first([os.getpid()]):
            given = _policies(os.getpid())
    except Refused:
        pytest.skip("this user may not set real-time priorities")
    assert os.SCHED_RR in given
    assert os.sched_getscheduler(0) == before


def test_without_a_checkout_bench_says_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command.bench.callback
    # As in a wheel, which does not contain the module with the commands.
    monkeypatch.setitem(sys.modules, command.bench.callback.__module__, None)
    try:
        result = CliRunner().invoke(importlib.reload(command).bench, ["bus", "-n", "1"])
    finally:
        monkeypatch.undo()
        importlib.reload(command)
    assert result.exit_code == 1
    assert "runs from a checkout of the repository" in result.output
    assert isinstance(command.bench, click.Group)


def _line(user: str, verb: str, stage: str = "ResponseComplete", **about: str) -> bytes:
    ref = {"resource": "dnsrecords", **about}
    return orjson.dumps({"stage": stage, "verb": verb, "user": {"username": user}, "objectRef": ref}) + b"\n"


@cases(
    "files step",
    ("nats-for-a-kind", ("workers/core/reconcile", "workers/dns/actuator", "nats/client"), "run: the kind"),
    (
        "the-pool",
        ("commands/roles/working", "bus/workqueue/pool", "bus/transport/pull"),
        "pool: take, journal, requeue",
    ),
    ("nats-alone", ("commands/processes", "nats/client"), "NATS client: read and flush"),
    ("a-library", ("lib/json",), "event loop: sockets, TLS, timers"),
)
def test_a_sample_counts_for_the_innermost_step(files: tuple[str, ...], step: str) -> None:
    """Each file of the stack calls the next one."""
    act: Callable[[], str] = lambda: sitecustomize.step(sys._getframe(1))  # noqa: E731
    for file in reversed(files):
        names: dict[str, Any] = {"inner": act}
        exec(compile("def outer(): return inner()", f"/somewhere/{file}.py", "exec"), names)
        act = names["outer"]
    assert act() == step


def test_steps_have_milliseconds_for_each_object() -> None:
    phase = Phase("create", 4, 1.0)
    assert by_step(Counter({"route": 6, "patch": 3}), phase) == {"route": 6.0, "patch": 3.0}


def test_programs_are_compared_by_their_medians() -> None:
    def phase(program: str, seconds: float, cpu: float) -> Phase:
        cpu_ms = {program: cpu, "nats-server": 1.0, "named": 0.5, "kube-apiserver": 10.0, "etcd": 2.0}
        requests = {"get dnsrecords": 1.0, "patch dnsrecords": 2.0, "list dnsrecords": 0.5}
        return Phase("records created", 100, seconds, None, cpu_ms, requests, 2.0)

    go = [Turn(n, "provider-local", [phase("provider-local", n, 4.0)]) for n in (1, 2, 9)]
    ours = [Turn(n, "windowbox", [phase("runner-1", n / 2, 5.0)]) for n in (1, 2, 9)]
    (row,) = rows([*go, *ours])
    assert (row.go.rate, row.ours.rate, row.faster) == (50.0, 100.0, 2.0)
    assert (row.go.nats_ms, row.ours.nats_ms, row.cost) == (0.0, 1.0, 1.5)
    assert (row.ours.writes, row.ours.reads, row.ours.named_ms) == (2.0, 1.0, 0.5)
