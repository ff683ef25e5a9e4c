"""The adapter for a Docker engine: containers, their processes and events."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import aiodocker
import aiohttp
from aiodocker.exceptions import DockerContextError, DockerError, DockerStreamError

from windowbox.errors import (
    Conflict,
    Malformed,
    Missing,
    PermanentError,
    Refused,
    TransientError,
    Unreachable,
    WindowboxError,
)

logger = logging.getLogger(__name__)

_LIMIT = 60.0
# A busy engine serves requests one after another, and takes seconds instead of milliseconds for each.
_PULL_LIMIT = 600.0
_PAUSE = 0.5


@dataclass(frozen=True)
class Container:
    """A container as the engine reports it."""

    id: str
    name: str
    labels: Mapping[str, str]
    state: str
    """created, running, restarting, exited, …"""
    life: str
    """The time of its last start: distinguishes restarts."""
    addresses: Mapping[str, Sequence[IPv4Address | IPv6Address]]
    """By Docker network."""
    image: str
    """The id of its image, whatever its tags are now."""

    @property
    def running(self) -> bool:
        return self.state == "running"


class Engine:
    """One Docker engine."""

    def __init__(self, docker: aiodocker.Docker) -> None:
        self._docker = docker
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._host = ""

    async def host(self) -> str:
        """The name of the machine it runs on."""
        if not self._host:
            async with _request("ask Docker for its host"):
                self._host = (await self._docker.system.info())["Name"]
        return self._host

    async def image(self, name: str) -> str:
        """The id of the image with this name; Missing if the engine has none."""
        async with _request(f"look at image {name}"):
            return str((await self._docker.images.inspect(name))["Id"])

    async def ensure_image(self, image: str) -> None:
        """Pull the image if the engine does not have it."""
        with contextlib.suppress(Missing):
            await self.image(image)
            return
        logger.info("image %s: not here yet, pulling it", image)
        async with _request(f"pull image {image}", _PULL_LIMIT):
            await self._docker.images.pull(image)

    async def labelled(self, labels: Mapping[str, str]) -> list[Container]:
        """All containers with these labels, running or not."""
        wanted = [f"{name}={value}" for name, value in labels.items()]
        async with _request("list containers"):
            listed = await self._docker.containers.list(all="true", filters=json.dumps({"label": wanted}))
        found = []
        for one in listed:
            with contextlib.suppress(Missing):
                found.append(await self.look(one.id))
        return found

    async def look(self, name: str) -> Container:
        """The state of the container with this name or id. Missing if there is none."""
        async with _request(f"look at container {name}"):
            return _container(await self._docker.containers.container(name).show())

    async def create(self, name: str, body: Mapping[str, Any]) -> str:
        """Create a container and return its id. Conflict if the name is taken."""
        async with _request(f"create container {name}"):
            return (await self._docker.containers.create(dict(body), name=name)).id

    async def start(self, name: str) -> None:
        async with _request(f"start container {name}"):
            await self._docker.containers.container(name).start()

    async def remove(self, name: str) -> None:
        """Remove a container, running or not. Idempotent."""
        # Conflict: another request is removing it already.
        with contextlib.suppress(Missing, Conflict):
            async with _request(f"remove container {name}"):
                await self._docker.containers.container(name).delete(force=True, v=True)

    async def put(self, name: str, folder: str, files: Mapping[str, bytes]) -> None:
        """Put files into a folder of a container, all by one archive; works before it is started, too.

        The engine unlinks and recreates files: a program that watches for renames does not notice.
        """
        async with _request(f"put {', '.join(files)} into container {name}"):
            await self._docker.containers.container(name).put_archive(folder, _archive(files))  # type: ignore[no-untyped-call]

    async def files(self, name: str, path: str) -> dict[str, bytes]:
        """A file of a container, or all files of a folder, by their names; empty if there is nothing."""
        with contextlib.suppress(Missing):
            async with _request(f"read {path} of container {name}"):
                archive = await self._docker.containers.container(name).get_archive(path)
                opened = {member.name: archive.extractfile(member) for member in archive}
                return {name.rpartition("/")[2]: file.read() for name, file in opened.items() if file}
        return {}

    async def execute(self, name: str, argv: Sequence[str]) -> bytes:
        """Run a program in a container and return its output. Refused if it ends with an error."""
        what = f"run {argv[0]} in container {name}"
        async with _request(what):
            execution = await self._docker.containers.container(name).exec(list(argv))
            output = {1: b"", 2: b""}
            async with execution.start(detach=False) as stream:
                while message := await stream.read_out():
                    output[message.stream] += message.data
            # The exit code is available only now.
            code = (await execution.inspect())["ExitCode"]
        if code:
            complaint = (output[2] or output[1]).decode(errors="replace").strip()
            raise Refused(f"{what}: exit code {code}: {complaint[-500:]}")
        return output[1]

    async def ended(self, container: Container) -> None:
        """Wait until the container has exited, even if the engine restarts it."""
        await self._until(
            container.id, lambda now: now is None or now.life != container.life or not now.running
        )

    async def back(self, id: str) -> Container:
        """Wait until the engine has restarted the container, or will not. Missing if it was removed."""
        async with _request(f"wait for container {id} to be started again"):
            found = await self._until(id, lambda now: now is None or now.state != "restarting")
        if found is None:
            raise Missing(f"container {id} is gone")
        return found

    async def follow(self) -> None:
        """Follow the events of containers for ever; wakes callers of `ended` and `back`."""
        while True:
            try:
                with _translated("listen to Docker's events"):
                    await self._listen()
            except TransientError as error:
                logger.debug("%s", error)
            await asyncio.sleep(_PAUSE)

    async def _listen(self) -> None:
        async with asyncio.timeout(_LIMIT):
            since = (await self._docker.system.info())["SystemTime"]
        # Wake all waiters to check again; later changes arrive as events.
        for happened in [waiter for waiters in self._waiting.values() for waiter in waiters]:
            happened.set()
        events = self._docker.events.subscribe(create_task=False)  # type: ignore[no-untyped-call]
        running = self._docker.events.run(since=since, filters=json.dumps({"type": ["container"]}))
        listening = asyncio.create_task(running, name="docker events")
        try:
            while (event := await events.get()) is not None:
                for happened in self._waiting.get(event["Actor"]["ID"], ()):
                    happened.set()
            await listening
        finally:
            listening.cancel()

    async def _until(self, id: str, holds: Callable[[Container | None], bool]) -> Container | None:
        happened = asyncio.Event()
        self._waiting.setdefault(id, set()).add(happened)
        try:
            while True:
                happened.clear()
                try:
                    found = await self.look(id)
                except Missing:
                    found = None
                except Unreachable:
                    # If only this request failed, no event announces that the engine is back.
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(happened.wait(), _PAUSE)
                    continue
                if holds(found):
                    return found
                await happened.wait()
        finally:
            self._waiting[id].discard(happened)
            if not self._waiting[id]:
                del self._waiting[id]


@contextlib.asynccontextmanager
async def opened(address: str | None = None) -> AsyncIterator[Engine]:
    """The engine at `address`, a socket or URL; else that of DOCKER_HOST, of Docker's context, or the usual.

    Uses the newest version of the API that both sides support.
    """
    url = f"unix://{address}" if address and address.startswith("/") else address
    try:
        docker = aiodocker.Docker(url)
    except (AssertionError, ValueError, DockerError, OSError) as error:
        raise Malformed(
            f"no Docker engine at {address or 'any of the usual places'}: {error}; "
            "set loadbalancer.docker, or DOCKER_HOST, to its socket"
        ) from error
    async with docker:
        engine = Engine(docker)
        following = asyncio.create_task(engine.follow(), name="docker")
        try:
            yield engine
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following


@contextlib.asynccontextmanager
async def _request(what: str, limit: float = _LIMIT) -> AsyncIterator[None]:
    """Limit the time of a request, and translate its errors."""
    with _translated(what):
        async with asyncio.timeout(limit):
            yield


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """Translate errors of aiodocker into WindowboxErrors."""
    try:
        yield
    except DockerError as error:
        raise refusal(what, error) from error
    except (TimeoutError, aiohttp.ClientError, OSError, json.JSONDecodeError, tarfile.TarError) as error:
        raise Unreachable(f"{what}: {str(error) or type(error).__name__}") from error


# Docker answers 403 or 500 in all these cases and in many others; only the text distinguishes them.
_REASONS = {
    "port is already allocated": "another container publishes that port: free it, or choose another port",
    "address already in use": "another program has that address and port: end it, or choose another port",
    "cannot assign requested address": "the address is not on this host: add it to an interface, such as lo",
}


def refusal(what: str, error: DockerError) -> WindowboxError:
    """The error for a failed response of the engine."""
    message = f"{what}: {error.message}"
    for text, reason in _REASONS.items():
        if error.status in (403, 500) and text in error.message.lower():
            return Refused(f"{what}: {reason} ({error.message})", codes=("ERR_INFRA_RESOURCES_DEPLETED",))
    match error:
        case DockerContextError():
            return Malformed(f"{message}; set loadbalancer.docker to Docker's socket")
        case DockerStreamError():
            return Unreachable(message)
    match error.status:
        case 400:
            return Malformed(message)
        case 401:
            return PermanentError(message, codes=("ERR_INFRA_UNAUTHENTICATED",))
        case 404:
            return Missing(message)
        case 409:
            return Conflict(message)
        case status if status == 429 or status >= 500:
            # aiodocker's own 900: connection refused.
            return Unreachable(message)
        case _:
            return Refused(message)


def _container(inspected: Mapping[str, Any]) -> Container:
    addresses = {}
    for name, endpoint in (inspected["NetworkSettings"].get("Networks") or {}).items():
        found = (endpoint.get("IPAddress"), endpoint.get("GlobalIPv6Address"))
        addresses[name] = [ip_address(address) for address in found if address]
    return Container(
        id=inspected["Id"],
        name=inspected["Name"].lstrip("/"),
        labels=inspected["Config"].get("Labels") or {},
        state=inspected["State"]["Status"],
        life=inspected["State"]["StartedAt"],
        addresses=addresses,
        image=inspected["Image"],
    )


def _archive(files: Mapping[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return written.getvalue()
