"""The state file of a sandbox, which other processes read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from sandbox import files, processes
from sandbox.options import Options
from sandbox.processes import ProcessId
from windowbox.errors import Malformed

_DEFAULT = "default"

Condition = Literal["waiting", "starting", "ready", "crashed", "stopped"]


class ChildState(BaseModel):
    """The state of one child process."""

    condition: Condition = "waiting"
    pid: int | None = None
    started: str | None = None
    since: float | None = None
    """When it was started last, in seconds since 1970."""
    took: float | None = None
    """Seconds from start to ready."""
    port: int | None = None
    host: str = "127.0.0.1"
    restarts: int = 0
    last_exit: str | None = None
    log: str = ""
    needs: list[str] = Field(default_factory=list)
    """The paths of programs that were missing when the sandbox started."""

    def lacks_program(self) -> bool:
        """Whether it waits for a program that is not there yet."""
        return not all(Path(path).exists() for path in self.needs)

    def process(self) -> ProcessId | None:
        return ProcessId(self.pid, self.started) if self.pid and self.started else None

    def running(self) -> bool:
        process = self.process()
        return process is not None and processes.alive(process)


class State(BaseModel):
    """A sandbox: its supervisor, children and ports."""

    name: str
    pid: int
    started: str
    since: float
    options: Options = Options()
    ports: dict[str, int] = Field(default_factory=dict)
    children: dict[str, ChildState] = Field(default_factory=dict)
    ready: bool = False
    failure: str | None = None
    mark: str = ""
    """Marks its processes, see `ownership`."""
    site: str = ""
    """The link to its nodes, and the prefix of the names of their namespaces; empty without nodes."""

    def supervisor(self) -> ProcessId:
        return ProcessId(self.pid, self.started)

    def running(self) -> bool:
        return processes.alive(self.supervisor())


def home() -> Path:
    """The folder of all sandboxes: the nearest `.windowbox` in this folder or above, else one here."""
    if explicit := os.environ.get("WINDOWBOX_HOME"):
        return Path(explicit)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / ".windowbox").is_dir():
            return folder / ".windowbox"
    return here / ".windowbox"


def folder(name: str | None = None) -> Path:
    """The data of the sandbox `name`; by default the one in WINDOWBOX_SANDBOX, or `default`."""
    chosen = name or os.environ.get("WINDOWBOX_SANDBOX") or _DEFAULT
    if chosen != Path(chosen).name or chosen.startswith("."):
        raise Malformed(f"sandbox name {chosen!r}: use a plain word, it becomes the name of a folder")
    return home() / chosen


def command(name: str, folder: Path) -> str:
    """The command line of `windowbox NAME` for the sandbox in `folder`."""
    return f"windowbox {name}" + ("" if folder.name == _DEFAULT else f" --name {folder.name}")


def read(folder: Path) -> State | None:
    """The last state of the sandbox in `folder`; None if there never was one."""
    path = folder / "state.json"
    try:
        return State.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise Malformed(
            f"{path} is from another version of windowbox: end its processes, then remove the folder"
        ) from error


def write(folder: Path, state: State) -> None:
    files.write_private(folder / "state.json", state.model_dump_json(indent=2))
