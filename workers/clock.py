"""What time it is for a run; played back, the time it was then."""

from __future__ import annotations

from datetime import UTC, datetime

from workers.doors import Doors


async def now(doors: Doors) -> datetime:
    async def read() -> str:
        return datetime.now(UTC).isoformat()

    return datetime.fromisoformat(await doors.call("clock", None, read))
