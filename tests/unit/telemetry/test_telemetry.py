"""What processes say about themselves."""

from __future__ import annotations

import asyncio
import gc
import http.server
import json
import linecache
import logging
import subprocess
import sys
import textwrap
import threading
import time
import zlib
from collections.abc import Iterator

import aiohttp
import pytest

from sandbox import processes
from tests.support.running import soon
from windowbox.errors import Malformed
from windowbox.telemetry import garbage, logs, metrics, stalls, tracing
from windowbox.telemetry import http as serving


class Collector(http.server.BaseHTTPRequestHandler):
    """An OpenTelemetry collector that keeps what it is given."""

    received: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: its lines would go between those of the tests."""


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    received: list[tuple[str, bytes]] = []
    handler = type("Handler", (Collector,), {"received": received})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_spans_reach_a_collector(collector: tuple[str, list[tuple[str, bytes]]]) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")
    url, received = collector
    program = textwrap.dedent(
        """
        from windowbox.telemetry import tracing
        assert tracing.export("windowbox-test")
        with tracing.span("run dnsrecord", tracing.fresh(), key="demo.web"):
            pass
        """
    )
    # In a process of its own: it exports what is left when it ends.
    subprocess.run(
        [sys.executable, "-c", program],
        env={"OTEL_EXPORTER_OTLP_ENDPOINT": url, "PYTHONPATH": ":".join(sys.path)},
        check=True,
        timeout=60,
    )

    [(path, body)] = received
    assert path == "/v1/traces"
    assert b"run dnsrecord" in body
    assert b"windowbox-test" in body
    assert b"demo.web" in body


def test_without_an_endpoint_nothing_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    assert not tracing.export("windowbox-test")


def test_a_span_belongs_to_the_trace_of_its_parent() -> None:
    parent = tracing.fresh()
    with tracing.span("route", parent) as mine:
        assert tracing.current() == mine
    assert tracing.trace_id(mine) == tracing.trace_id(parent)
    assert mine != parent
    assert tracing.current() == ""


def test_messages_carry_the_trace_of_their_task_or_a_new_one() -> None:
    with tracing.span("route", tracing.fresh()) as mine:
        assert tracing.for_message() == mine
    assert tracing.trace_id(tracing.for_message()) not in {"", tracing.trace_id(mine)}


def test_a_span_without_a_parent_begins_a_trace() -> None:
    with tracing.span("route", "nonsense") as mine:
        assert len(tracing.trace_id(mine)) == 32


def test_a_structured_line_names_the_trace_and_the_error() -> None:
    try:
        raise ValueError("a bug")
    except ValueError:
        record = logging.LogRecord(
            "bus.workqueue.pool", logging.ERROR, "", 0, "%s: failed", ("web",), sys.exc_info()
        )
    with tracing.span("run", "") as mine:
        line = json.loads(logs.Structured().format(record))
    assert line["message"] == "web: failed"
    assert line["level"] == "error"
    assert line["trace"] == tracing.trace_id(mine)
    assert "a bug" in line["error"]


async def test_a_process_serves_its_metrics_and_health() -> None:
    metrics.runs.labels("dnsrecord", "succeeded").observe(0.01)
    ready = False
    asked: list[str] = []

    async def refresh() -> None:
        asked.append("gauges")

    async with (
        serving.served("127.0.0.1:0", lambda: ready, refresh) as address,
        aiohttp.ClientSession(f"http://{address}") as session,
    ):
        reported = await (await session.get("/metrics")).text()
        assert "windowbox_run_seconds" in reported
        assert asked == ["gauges"]
        assert (await session.get("/healthz")).status == 200
        assert (await session.get("/readyz")).status == 503
        ready = True
        assert (await session.get("/readyz")).status == 200


async def test_a_failure_that_a_restart_cures_is_unhealthy() -> None:
    health = serving.Health(False, "the connection to the bus is closed")
    async with (
        serving.served("127.0.0.1:0", lambda: True, health=lambda: health) as address,
        aiohttp.ClientSession(f"http://{address}") as session,
    ):
        answer = await session.get("/healthz")
        assert (answer.status, await answer.text()) == (503, "the connection to the bus is closed\n")


async def test_probes_may_have_another_address() -> None:
    port = processes.free_port()
    probes = f"127.0.0.1:{port}"
    async with (
        serving.served("127.0.0.1:0", lambda: True, probes=probes) as address,
        aiohttp.ClientSession() as session,
    ):
        assert address != probes
        assert (await session.get(f"http://{probes}/readyz")).status == 200


@pytest.mark.parametrize("address", ["9101", "localhost:http", "127.0.0.1:99999x"])
async def test_an_invalid_address_is_named(address: str) -> None:
    with pytest.raises(Malformed, match="host:port"):
        async with serving.served(address, lambda: True):
            pass


async def test_compressed_bodies_are_not_unpacked() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    blanks = packer.compress(b" " * (16 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    body = blanks * 100
    packed = f"Content-Encoding: deflate\r\nContent-Length: {len(body)}\r\n"
    head = f"GET /healthz HTTP/1.1\r\nHost: x\r\n{packed}\r\n"
    async with serving.served("127.0.0.1:0", lambda: True) as address:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        before = time.thread_time()
        writer.write(head.encode() + body)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).count(b"200 OK") == 2
        assert time.thread_time() - before < 0.5
        writer.close()


async def test_requests_that_are_no_http_are_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("aiohttp.server"), "filters", [])
    async with serving.served("127.0.0.1:0", lambda: True) as address:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: secret\r\n\r\n")
        assert b"400 Bad Request" in await reader.read()
        writer.close()
    assert caplog.text == ""


async def compute(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251


async def test_the_task_that_holds_the_loop_up_is_named(caplog: pytest.LogCaptureFixture) -> None:
    linecache.clearcache()
    with stalls.watched(), caplog.at_level(logging.WARNING):
        await asyncio.create_task(asyncio.sleep(0.2))  # the watchdog looks several times meanwhile
        await soon(asyncio.create_task(compute(1.0), name="work.pool.the-object"))
    warned = [record.getMessage() for record in caplog.records]
    assert any("work.pool.the-object" in line and "test_telemetry.py" in line for line in warned), warned
    assert stalls.culprit(within=60) == "work.pool.the-object"
    # No source is kept for a stack that was logged.
    assert [file for file in linecache.cache if file.endswith("test_telemetry.py")] == []


async def test_a_task_that_holds_the_loop_for_a_moment_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def hold() -> None:
        ends = time.thread_time() + 0.3  # half as long as from one heartbeat to the next
        while time.thread_time() < ends:
            pass

    def named() -> bool:
        return (
            "the event loop is held for 0." in caplog.text
            and "by work.pool.the-object: tests/" in caplog.text
        )

    with stalls.watched(), caplog.at_level(logging.INFO):
        for number in range(100):
            await asyncio.create_task(hold(), name="work.pool.the-object")
            if named():
                break
            # Heartbeats shall meet holds at different moments: without a pause, each came when one had ended.
            await asyncio.sleep(number % 7 / 20)
    assert named()


async def test_a_loop_that_only_waits_is_blamed_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with stalls.watched(), caplog.at_level(logging.WARNING):
        await asyncio.sleep(1.0)  # longer than the watchdog takes to look
    assert not [r for r in caplog.records if "busy" in r.getMessage()]


@pytest.fixture
def thawed() -> Iterator[None]:
    """Nothing is frozen for the collector, as in a new process."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("thawed")
def test_what_survives_a_long_collection_of_garbage_is_not_visited_again() -> None:
    with garbage.bounded():
        before = gc.get_freeze_count()
        known = [[number] for number in range(400_000)]
        gc.collect()
        assert gc.get_freeze_count() - before >= len(known)
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("thawed")
def test_what_survived_is_visited_once_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    with garbage.bounded():
        gc.collect(0)
        assert gc.get_freeze_count() > 0
        monkeypatch.setattr(garbage, "_DAY", -1.0)
        gc.collect(0)
        assert gc.get_freeze_count() == 0


async def test_lateness_is_measured() -> None:
    def late() -> float:
        return float(metrics.loop_lag._sum.get())

    before = late()
    with stalls.watched():
        await asyncio.sleep(0.15)  # a beat is due after half a second
        await compute(0.7)
        await asyncio.sleep(0.1)  # the loop is not blocked meanwhile
    assert late() - before > 0.2
