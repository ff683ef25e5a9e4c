"""The time of a run; in a replay, the recorded time."""

from __future__ import annotations

from datetime import UTC, datetime

from workers.core.recorder import Recorder


async def now(recorder: Recorder) -> datetime:
    async def read() -> str:
        return datetime.now(UTC).isoformat()

    return datetime.fromisoformat(await recorder.call("clock", None, read))
