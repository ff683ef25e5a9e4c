"""How measurements are counted and summed up."""

from __future__ import annotations

import os
from pathlib import Path

import orjson

from tests.support.lifecycleobjects import record
from tools.bench import audit
from tools.bench.audit import AuditLog
from tools.bench.client import done
from tools.bench.report import Phase, Spread
from tools.bench.usage import usage


def test_a_spread_is_in_milliseconds_and_in_order() -> None:
    assert Spread.of([n / 1000 for n in range(100, 0, -1)]) == Spread(p50=50.5, p95=96.0, max=100.0)


def test_a_single_latency_is_its_own_spread() -> None:
    assert Spread.of([0.02]) == Spread(20.0, 20.0, 20.0)


def test_only_windowboxs_own_cpu_is_summed_up() -> None:
    cpu = {"worker-1": 1.5, "worker-2": 0.5, "watcher-1": 0.25, "kube-apiserver": 7.0, "bench": 2.0}
    assert Phase("create", 1, 1.0, cpu_ms=cpu).our_cpu_ms == 2.25


def test_requests_are_counted_once_and_only_ours(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    lines = [
        _line("system:windowbox:worker", "patch", "dnsrecords"),
        _line("system:windowbox:patcher", "patch", "dnsrecords", subresource="status"),
        _line("system:windowbox:watcher", "watch", "dnsrecords", stage="ResponseStarted"),
        _line("admin", "create", "dnsrecords"),
    ]
    path.write_bytes(b"".join(lines))
    counted = AuditLog(path).requests()
    assert counted == {"patch dnsrecords": 1, "patch dnsrecords/status": 1}
    assert audit.writes(counted) == 2


def test_a_line_is_counted_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    line = _line("system:windowbox:worker", "get", "dnsrecords")
    log = AuditLog(path)
    path.write_bytes(line + line[:20])
    assert log.requests() == {"get dnsrecords": 1}
    path.write_bytes(line + line)
    assert log.requests() == {"get dnsrecords": 1}
    assert log.requests() == {}


def test_a_process_that_has_ended_uses_nothing() -> None:
    assert usage(os.getpid()).peak > 1
    assert usage(2**30) == (0.0, 0.0)


def test_a_record_is_done_when_its_newest_generation_is() -> None:
    assert done(record(last="Create/Succeeded"))
    assert not done(record(last="Create/Succeeded", generation=2))
    assert not done(record("reconcile", last="Create/Succeeded"))
    assert not done(record(last="Create/Error"))
    assert not done(record())


def _line(user: str, verb: str, resource: str, stage: str = "ResponseComplete", **about: str) -> bytes:
    event = {
        "stage": stage,
        "verb": verb,
        "user": {"username": user},
        "objectRef": {"resource": resource, **about},
    }
    return orjson.dumps(event) + b"\n"
