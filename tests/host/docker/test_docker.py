"""The adapter for Docker engines."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiodocker.exceptions
import pytest
from aiodocker.exceptions import DockerError

from tests.host.docker.host import IMAGE, Host
from tests.support.cases import cases
from tests.support.rules import rule
from tests.support.running import soon
from windowbox.clients import docker
from windowbox.clients.docker import Engine
from windowbox.errors import Conflict, Malformed, Missing, Refused, Unreachable, WindowboxError

SLEEP = {"Image": IMAGE, "Cmd": ["sleep", "infinity"]}


@pytest.mark.parametrize(
    "error",
    [
        kind
        for _, kind in inspect.getmembers(aiodocker.exceptions, inspect.isclass)
        if issubclass(kind, DockerError)
    ],
)
def test_every_error_of_the_library_is_translated(error: type[DockerError]) -> None:
    made = error.__new__(error)
    made.status, made.message = 500, "said so"
    assert "try it: said so" in str(docker.refusal("try it", made))


@cases(
    "status message error",
    ("LB-14-docker-malformed", 400, "invalid reference format", Malformed),
    ("LB-14-docker-address-taken", 403, "Address already in use", Refused),
    ("LB-14-docker-missing", 404, "No such container: a", Missing),
    ("LB-14-docker-name-taken", 409, "The container name is already in use", Conflict),
    ("LB-14-docker-port-taken", 500, "port is already allocated", Refused),
    ("LB-14-docker-no-address", 500, "bind: cannot assign requested address", Refused),
    ("LB-14-docker-other", 500, "something else", Unreachable),
    ("LB-14-docker-busy", 503, "the engine starts", Unreachable),
    ("LB-14-docker-away", 900, "Cannot connect", Unreachable),
)
def test_answers_of_docker_are_translated(status: int, message: str, error: type[WindowboxError]) -> None:
    found = docker.refusal("start container a", DockerError(status, message))
    assert type(found) is error
    assert str(found).startswith("start container a: ")
    assert message in str(found)


async def test_an_engine_that_is_away_is_unreachable(tmp_path: Path) -> None:
    async with docker.opened(str(tmp_path / "docker.sock")) as engine:
        with pytest.raises(Unreachable, match="list containers: "):
            await engine.labelled({})


async def test_an_invalid_engine_address_is_reported() -> None:
    with pytest.raises(Malformed, match=r"set loadbalancer\.docker"):
        async with docker.opened("nonsense"):
            pass


async def test_the_variable_docker_host_is_used(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{host.socket}")
    async with docker.opened() as engine:
        assert await engine.labelled({}) == []


@rule("LB-9-delete")
async def test_removing_a_missing_container_succeeds(engine: Engine) -> None:
    await engine.remove("never-was")


@rule("LB-14-docker")
async def test_the_output_of_a_failed_program_is_reported(engine: Engine) -> None:
    container = await engine.create("box", SLEEP)
    await engine.start(container)
    assert await engine.execute(container, ["sh", "-c", "echo said"]) == b"said\n"
    with pytest.raises(Refused, match=r"run sh in container .* exit code 3: so it is"):
        await engine.execute(container, ["sh", "-c", "echo so it is >&2; exit 3"])


@rule("LB-14-docker")
async def test_files_are_put_and_read_before_and_after_the_start(engine: Engine) -> None:
    container = await engine.create("box", SLEEP)
    await engine.put(container, "/", {"some/where/a": b"1", "some/where/b": b"2"})
    assert await engine.files(container, "/some/where") == {"a": b"1", "b": b"2"}
    await engine.start(container)
    assert await engine.files(container, "/some/where/b") == {"b": b"2"}
    assert await engine.files(container, "/some/where/c") == {}


async def test_a_second_container_of_the_name_is_a_conflict(engine: Engine) -> None:
    await engine.create("box", SLEEP)
    with pytest.raises(Conflict):
        await engine.create("box", SLEEP)


async def test_starting_a_running_container_succeeds(engine: Engine) -> None:
    container = await engine.create("box", SLEEP)
    await engine.start(container)
    await engine.start(container)
    assert (await engine.look("box")).running


_OTHER_WAYS = [pytest.param(way, marks=pytest.mark.long) for way in ("kill", "stop --time=0")]


@pytest.mark.parametrize("way", ["rm --force", "restart --time=0", *_OTHER_WAYS])
async def test_the_end_of_a_container_is_noticed(engine: Engine, host: Host, way: str) -> None:
    container = await engine.create("box", SLEEP)
    await engine.start(container)
    ended = asyncio.ensure_future(engine.ended(await engine.look(container)))
    await asyncio.sleep(0)
    await asyncio.to_thread(host.engine.docker, *way.split(), "box")
    await soon(ended)


async def test_an_end_that_was_missed_is_noticed(engine: Engine) -> None:
    container = await engine.create("box", SLEEP)
    await engine.start(container)
    found = await engine.look(container)
    await engine.remove(container)
    await soon(engine.ended(found))


async def test_an_end_missed_during_an_outage_is_noticed(engine: Engine, host: Host, tmp_path: Path) -> None:
    container = await engine.create("box", SLEEP)
    await engine.start(container)
    async with interrupted(host.socket, tmp_path) as (address, cut), docker.opened(address) as far:
        ended = asyncio.ensure_future(far.ended(await far.look(container)))
        for _ in range(5):  # after these responses, `ended` has had its own, and waits
            await far.look(container)
        async with cut():
            await engine.remove(container)
            with pytest.raises(Unreachable):
                await far.look(container)
        await soon(ended)


async def test_a_missing_image_is_reported(engine: Engine) -> None:
    await engine.ensure_image(IMAGE)
    with pytest.raises(WindowboxError, match=r"image 127\.0\.0\.1:9/nowhere"):
        await engine.ensure_image("127.0.0.1:9/nowhere")


@contextlib.asynccontextmanager
async def interrupted(
    socket: str, folder: Path
) -> AsyncIterator[tuple[str, Callable[[], AbstractAsyncContextManager[None]]]]:
    """Another address of the engine, and how to cut all connections to it for a while."""
    address, hidden = folder / "far.sock", folder / "hidden.sock"
    writers: list[asyncio.StreamWriter] = []

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(socket)
        writers.extend((writer, far_writer))
        await asyncio.gather(_copied(reader, far_writer), _copied(far_reader, writer))

    @contextlib.asynccontextmanager
    async def cut() -> AsyncIterator[None]:
        address.rename(hidden)
        for writer in writers:
            writer.close()
        yield
        hidden.rename(address)

    async with await asyncio.start_unix_server(pass_on, address):
        try:
            yield str(address), cut
        finally:
            for writer in writers:
                writer.close()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()
