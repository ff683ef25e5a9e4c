"""Recordings for tests: those beside this file, and small ones made by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bus.messages import OPERATION, UID, VERSION, Call, Read, Reason, RunRecord, Wish
from bus.recordings import FORMAT, Header, Recording, SeenObject
from windowbox.settings.bussettings import Deciding, Zone

FOLDER = Path(__file__).parents[1] / "unit" / "replay"
FILES = sorted(FOLDER.glob("*.wbx"))
DEMO = FOLDER / "demo.wbx"
BALANCERS = FOLDER / "loadbalancer.wbx"

KEY = "runtime.dnsrecords_extensions_gardener_cloud.demo.web"
SUBJECT = f"object.{KEY}"
NOW = datetime(2026, 9, 1, 10, 15, 31, tzinfo=UTC)


def seen(sequence: int, operation: str = "ADDED", body: dict[str, Any] | None = None) -> SeenObject:
    headers = {OPERATION: operation, UID: "u", VERSION: str(sequence)}
    return SeenObject(subject=SUBJECT, sequence=sequence, time=sequence * 10**9, headers=headers, body=body)


def run(
    reads: tuple[int, ...] = (), calls: tuple[Call, ...] = (), outcome: str = "succeeded", **more: Any
) -> RunRecord:
    key = more.pop("key", KEY)
    return RunRecord(
        pool=more.pop("pool", "dnsrecord"),
        key=key,
        wish=Wish(reason=Reason.EVENT),
        wish_sequence=1,
        delivery=1,
        started=NOW,
        seconds=0.01,
        process="process 1",
        outcome=outcome,
        reads=[Read(stream="OBJECTS", subject=f"object.{key}", sequence=sequence) for sequence in reads],
        calls=list(calls),
        **more,
    )


def recording(runs: list[RunRecord], *objects: SeenObject) -> Recording:
    settings = Deciding(zones=(Zone(name="local.gardener.cloud"),))
    header = Header(recording=FORMAT, version="0.1.0", since=NOW, until=NOW, settings=settings)
    return Recording(header, {each.sequence: each for each in objects}, runs)
