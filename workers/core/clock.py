"""The time of a run, by the API server of our own cluster; in a replay, the recorded time.

Deadlines compare it with timestamps of objects, which that server and other processes have set: the clock of
this machine may differ from theirs.
"""

from __future__ import annotations

from datetime import datetime

from workers.core.recorder import Recorder


async def now(recorder: Recorder) -> datetime:
    async def read() -> str:
        return (await recorder.time()).isoformat()

    return datetime.fromisoformat(await recorder.call("clock", None, read))
