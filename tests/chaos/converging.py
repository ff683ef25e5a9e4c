"""Questions at the end of a chaos run, and the journal of all runs on the way."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import timedelta

import yaml

from bus import intents, streams
from bus.messages import RunRecord
from bus.transport import consumers
from bus.transport.connection import Bus, connected
from sandbox.supervisor import Supervisor
from windowbox.errors import WindowboxError
from windowbox.settings.bussettings import Access

logger = logging.getLogger(__name__)

Question = Callable[[], Awaitable[list[str]]]
"""Answers in words what is not yet as it ought to be."""


class Journal:
    """The records of all runs, saved from time to time, since the bus may forget them."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.runs: dict[tuple[str, str, str], RunRecord] = {}

    async def save(self) -> None:
        async with connected(self.access) as bus:
            async for stored in consumers.snapshot(bus, streams.JOURNAL, ["run.>"], history=True):
                run = RunRecord.model_validate_json(stored.data)
                self.runs[run.pool + run.key, run.process, run.started.isoformat()] = run

    def overlaps(self) -> list[str]:
        """In words, which runs of one object were under way at the same time."""
        by_key: dict[str, list[RunRecord]] = defaultdict(list)
        for run in self.runs.values():
            # Reports are written as they come, so two writes may be under way (decision 42); each names the
            # version that it is about.
            if run.pool != intents.PATCH:
                by_key[run.pool + run.key].append(run)
        found = []
        for key, runs in by_key.items():
            runs.sort(key=lambda run: run.started)
            for one, next_one in itertools.pairwise(runs):
                if one.started + timedelta(seconds=one.seconds) > next_one.started:
                    found.append(
                        f"{key}: {one.process} {one.started} and {next_one.process} {next_one.started}"
                    )
        return found


async def settled(patience: float, *questions: Question) -> list[str]:
    """What is still not as it ought to be when patience ends; empty as soon as all is well."""
    begun = reported = time.monotonic()
    while True:
        problems = [problem for question in questions for problem in await _attempt(question)]
        now = time.monotonic()
        if not problems or now > begun + patience:
            return problems
        if now > reported + _TELL:
            reported = now
            logger.warning("after %.0f s, %d problems are left: %s", now - begun, len(problems), problems[:3])
        await asyncio.sleep(0.5)  # no event says that all of this is well


async def _attempt(question: Question) -> list[str]:
    try:
        return await question()
    except WindowboxError as error:
        return [str(error)]


_TELL = 30.0
_HEARTBEAT = "later.heartbeat."


async def waiting(bus: Bus) -> list[str]:
    """What is still waiting on the bus."""
    found = []
    for stream, subject in (
        (streams.TRIGGERS, "trigger.>"),
        (streams.WORK, "work.>"),
        (streams.LATER, "later.>"),
    ):
        state = (await bus.api(f"STREAM.INFO.{stream}", {"subjects_filter": subject}))["state"]
        if stream == streams.WORK:
            found += [f"{stream}: {state['messages']} items"] if state["messages"] else []
        else:
            names = state.get("subjects") or ()
            # The heart never stops beating.
            found += [f"{stream}: {name}" for name in names if not name.startswith(_HEARTBEAT)]
    return found


def access(sandbox: Supervisor) -> Access:
    """To the bus, as an operator."""
    settings = yaml.safe_load(sandbox.settings_file("operator").read_text())["nats"]
    return Access(settings["url"], settings["user"], settings["password"], "chaos")
