"""Records of decisions in the journal, and their replay."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from bus.transport.connection import Bus
from tests.support.admissionexamples import IMAGES
from tests.support.admitted import resource
from tests.support.cases import cases
from tests.support.reviews import admission_review
from tests.support.running import running
from webhooks import answering, clustershoots, journal
from webhooks.answering import Asked
from webhooks.review import Context, Found, Review
from webhooks.server import Decision
from webhooks.table import WEBHOOKS
from windowbox.models.objects import Json
from windowbox.settings.webhooksettings import PrometheusSettings, WebhookSettings
from windowbox.telemetry import metrics

LAST_APPLIED = {"kubectl.kubernetes.io/last-applied-configuration": "c2VjcmV0", "kept": "this"}
SECRET = resource(
    "v1 Secret",
    *("cloud", "garden-local"),
    metadata={"annotations": LAST_APPLIED, "managedFields": [{"manager": "kubectl"}]},
    data={"kubeconfig": "c2VjcmV0", "empty": ""},
)
MANAGER = resource("apps/v1 Deployment", "machine-controller-manager", "one", spec={})
NODE = resource("v1 Node", "one", "")


def decision(
    size: int = 100, *, of: Json = NODE, webhook: str = "node", plural: str = "nodes", **context: Any
) -> Decision:
    facts = Context(**context)
    asked = answering.read(WEBHOOKS[webhook], json.dumps(admission_review(of, plural)).encode())
    assert isinstance(asked, Asked)
    answer = answering.decide(WEBHOOKS[webhook], asked.review, facts)
    return Decision(WEBHOOKS[webhook], asked.review, facts, answer, 0.001, size)


def test_values_of_secrets_are_not_recorded() -> None:
    noted = journal.record(decision(of=SECRET, webhook="secrets.validator", plural="secrets"), "here")
    given, _ = journal.unpacked(noted.request)
    assert (noted.key, noted.outcome) == ("garden.secrets.garden-local.cloud", "allowed")
    metadata = {"name": "cloud", "namespace": "garden-local", "annotations": {"kept": "this"}}
    assert given.object["metadata"] == metadata
    data = given.object["data"]
    assert data["kubeconfig"] not in ("", "c2VjcmV0")
    assert data["empty"] == ""  # webhooks decide by emptiness


def test_a_recorded_decision_can_be_replayed() -> None:
    noted = journal.record(decision(), "here")
    review, context = journal.unpacked(noted.request)
    assert json.loads(answering.decide(WEBHOOKS["node"], review, context).patch) == noted.patch


def test_a_decision_with_looked_up_objects_can_be_replayed() -> None:
    shoot: Json = {"spec": {"provider": {"workers": []}}}
    found = Found({"kind": "Cluster", "metadata": {"managedFields": [{}]}, "spec": {"shoot": shoot}})
    objects = {clustershoots.lookup("one").key: found}
    made = decision(of=MANAGER, webhook="controlplane", plural="deployments", objects=objects, images=IMAGES)
    noted = journal.record(made, "here")
    assert noted.outcome == "patched"
    result = journal.replayed([noted, noted.model_copy(update={"message": "another"})])
    assert (result.replayed, result.left_out, len(result.differences)) == (2, 0, 1)


@pytest.mark.parametrize("driver", [True, False])
def test_a_record_says_whether_there_is_a_driver(driver: bool) -> None:
    noted = journal.record(decision(driver=driver), "here")
    assert journal.unpacked(noted.request)[1].driver is driver


def test_a_decision_that_would_look_up_more_today_is_not_replayed() -> None:
    failed = decision(of=NODE)
    noted = journal.record(replace(failed, webhook=WEBHOOKS["controlplane"], review=_of(MANAGER)), "here")
    result = journal.replayed([noted])
    assert (result.replayed, result.left_out) == (0, 1)


def _of(object: Json) -> Review:
    body = json.dumps(admission_review(object, "deployments")).encode()
    asked = answering.read(WEBHOOKS["controlplane"], body)
    assert isinstance(asked, Asked)
    return asked.review


@cases("count size", ("many", 1100, 1), ("large", 5, 10 << 20))
def test_decisions_beyond_the_queue_are_counted(count: int, size: int) -> None:
    before = metrics.reviews_unnoted._value.get()
    noting = journal.Journal("here")
    noting._writing = True
    one = decision(size)
    for _ in range(count):
        noting.note(one)
    assert before < metrics.reviews_unnoted._value.get() < before + count


@cases("has_bus missed", ("no-writer", True, 1), ("no-bus", False, 0))
def test_no_decision_is_queued_without_a_writer(has_bus: bool, missed: int) -> None:
    before = metrics.reviews_unnoted._value.get()
    noting = journal.Journal("here", has_bus=has_bus)
    noting.note(decision())
    assert (len(noting._waiting), metrics.reviews_unnoted._value.get()) == (0, before + missed)


class _NeverPublishing(Bus):
    def __init__(self) -> None:
        """Without a connection."""

    async def publish(self, *_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()


async def test_a_cancelled_writer_empties_the_queue() -> None:
    before = metrics.reviews_unnoted._value.get()
    noting = journal.Journal("here")
    large = decision(10 << 20)
    for _ in range(6):
        async with running(noting.write(_NeverPublishing())):
            await asyncio.sleep(0)  # the writer begins
            noting.note(large)
            await asyncio.sleep(0)  # and has taken it, or waits for more
    assert metrics.reviews_unnoted._value.get() == before + 6
    assert (noting._bytes, len(noting._waiting)) == (0, 0)


class _Timing(_NeverPublishing):
    """Remembers at which turn of the event loop each record came."""

    def __init__(self) -> None:
        self.turn, self.seen = 0, list[int]()
        self.complete = asyncio.Event()

    async def turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)  # the next turn, in which reviews are answered

    async def publish(self, *_: Any, **__: Any) -> Any:
        self.seen.append(self.turn)
        if len(self.seen) == 64:
            self.complete.set()


async def test_reviews_are_answered_while_records_are_encoded_and_these_are_written_together() -> None:
    noting, bus = journal.Journal("here"), _Timing()
    async with running(noting.write(bus)), running(bus.turns()):
        await asyncio.sleep(0)  # the writer begins
        for _ in range(64):
            noting.note(decision())
        noted = bus.turn
        await bus.complete.wait()
    assert bus.seen[0] - noted >= 64
    assert len(set(bus.seen)) == 1


def test_looked_up_objects_count_in_the_queue() -> None:
    noting = journal.Journal("here")
    noting._writing = True
    large = decision(objects={"a": Found({"spec": "x" * (12 << 20)})})
    for _ in range(3):
        noting.note(large)
    assert len(noting._waiting) == 2


def test_credentials_of_remote_writes_are_not_recorded() -> None:
    urls = "https://me:p@ss@write.example/api", "http://write.example/api?key=p%40ss&a=b"
    settings = WebhookSettings(prometheus=PrometheusSettings(remote_write_urls=urls))
    seed = resource("monitoring.coreos.com/v1 Prometheus", "seed", "garden")
    made = decision(of=seed, webhook="prometheus", plural="prometheuses", settings=settings)
    noted = journal.record(made, "here")
    _, context = journal.unpacked(noted.request)
    assert context.settings.prometheus.remote_write_urls == (
        "https://hidden@write.example/api",
        "http://write.example/api?hidden",
    )
    assert not any(secret in noted.encoded() for secret in (b"p@ss", b"p%40ss"))
    assert journal.replayed([noted]).differences == []


@pytest.mark.timeout(20)
def test_credentials_of_many_urls_take_a_moment() -> None:
    text = b"http://" * 1_000_000
    assert journal._without_credentials(text) == text


def test_a_replay_finds_changed_decisions() -> None:
    same = journal.record(decision(), "here")
    other = same.model_copy(update={"outcome": "denied", "message": "no"})
    found = journal.replayed([same, other, same.model_copy(update={"request": ""})])
    assert (found.replayed, found.left_out) == (2, 1)
    assert [one.review for one in found.differences] == [other]
