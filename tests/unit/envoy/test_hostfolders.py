"""Files of an Envoy on a slow disk: a write to a named pipe blocks until the pipe is read."""

import asyncio
import os
from pathlib import Path

import pytest

from workers.loadbalancer.envoy import hostfolders

NAME = "owners.json"


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """A pipe in the place of the temporary file."""
    pipe = tmp_path / f".{NAME}.new"
    os.mkfifo(pipe)
    return pipe


async def test_the_event_loop_goes_on_while_files_are_written(slow: Path) -> None:
    writing = asyncio.create_task(hostfolders.write(slow.parent, {NAME: b"content"}))
    assert await asyncio.to_thread(slow.read_bytes) == b"content"
    await writing
    assert (slow.parent / NAME).exists()


async def test_a_cancelled_write_ends_before_a_later_one_begins(slow: Path) -> None:
    writing = asyncio.create_task(hostfolders.write(slow.parent, {NAME: b"older"}))
    await asyncio.sleep(0)  # it begins
    for _ in range(2):
        writing.cancel()
        await asyncio.sleep(0.05)  # it is cancelled
        assert not writing.done()
    await asyncio.to_thread(slow.read_bytes)
    with pytest.raises(asyncio.CancelledError):
        await writing
    await hostfolders.write(slow.parent, {NAME: b"newer"})
    assert (slow.parent / NAME).read_bytes() == b"newer"
