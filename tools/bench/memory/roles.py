"""Memory of each process: what its imports take, and what it has idle and with records."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from sandbox.options import TOGETHER, Options
from tools.bench.bus.emptyruns import CHECKOUT
from tools.bench.report import MachineFacts, Report, is_ours, say, table
from tools.bench.usage import files, private, resident
from tools.bench.world import world

_PROCESS = ("commands.cli", "commands.processes", "commands.roles.roleprocess")
ROLES: Mapping[str, Sequence[str]] = {
    "run": (*_PROCESS, *(f"commands.roles.{role}" for role in ("watching", "working", "patching"))),
    "watch": (*_PROCESS, "commands.roles.watching"),
    "work": (*_PROCESS, "commands.roles.working"),
    "patch": (*_PROCESS, "commands.roles.patching"),
    "edge": (*_PROCESS, "commands.roles.edging"),
    "admit": (*_PROCESS, "commands.roles.admitting"),
    "ui": (*_PROCESS, "ui.command", "ui.serving"),
    "launch": ("commands.cli", "commands.launching", "workers.loadbalancer.launcher.launcher"),
}
"""The modules that each role begins with."""
_FEWEST = 0.3
"""Packages that take fewer MB are shown as one."""
_PATIENCE = 10.0


@dataclass(frozen=True)
class Used:
    """A running process, in MB."""

    process: str
    idle_private: float
    idle_resident: float
    private: float
    """With the records."""
    resident: float
    files: float
    """Of that, pages of programs and libraries, which all processes share that run them."""


@dataclass(frozen=True)
class MemoryFigures(MachineFacts):
    """The result of `bench memory`."""

    records: int
    imports: Mapping[str, Mapping[str, float]]
    """MB that each package takes, by role."""
    used: Sequence[Used]


async def measure(records: int) -> Report:
    """Measure the imports of each role, and the processes, idle and with so many records."""
    imports = {role: await _imports(modules) for role, modules in ROLES.items()}
    used = [await _launcher()]
    for options in (Options.model_validate(TOGETHER), Options(admits=1)):
        async with world("memory", options) as here:
            await here.quiet()
            idle = {name: (private(pid), resident(pid)) for name, pid in here.pids().items()}
            say(f"{records} records")
            await here.measured("create", range(records), here.client.create)
            await here.quiet()
            for name, pid in here.pids().items():
                if is_ours(name):
                    used.append(Used(name, *idle[name], private(pid), resident(pid), files(pid)))
    return _report(MemoryFigures(records=records, imports=imports, used=used))


def _report(figures: MemoryFigures) -> Report:
    roles = figures.imports
    packages = sorted(
        {package for found in roles.values() for package in found},
        key=lambda package: (package == "all", package == "others", -roles["run"].get(package, 0)),
    )
    columns = {
        role: lambda package, found=found: f"{found[package]:.1f}" if package in found else ""
        for role, found in roles.items()
    }
    return Report(
        figures,
        [
            table("Private memory that imports take, in MB", packages, {"package": str, **columns}),
            table(
                f"Processes, in MB: private, resident; with {figures.records} records also pages of files",
                figures.used,
                {
                    "process": lambda one: one.process,
                    "idle": lambda one: f"{one.idle_private:.1f}, {one.idle_resident:.1f}",
                    "with records": lambda one: f"{one.private:.1f}, {one.resident:.1f}, {one.files:.1f}",
                },
            ),
        ],
    )


async def _imports(modules: Sequence[str]) -> dict[str, float]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tools.bench.memory.imports", *modules, cwd=CHECKOUT, stdout=PIPE
    )
    output, _ = await process.communicate()
    found = orjson.loads(output)
    all_packages = {package: bytes_ / 1e6 for package, bytes_ in found["packages"].items()}
    shown = {package: mb for package, mb in all_packages.items() if mb >= _FEWEST}
    return {
        **{package: round(mb, 2) for package, mb in shown.items()},
        "others": round(sum(all_packages.values()) - sum(shown.values()), 2),
        "all": round(found["all"] / 1e6, 1),
    }


async def _launcher() -> Used:
    """A launcher without Envoys; it knows no records."""
    with tempfile.TemporaryDirectory() as folder:
        argv = ["-m", "windowbox", "launch", "--folder", folder, "--envoy", "/bin/false"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *argv, cwd=CHECKOUT, stdout=DEVNULL, stderr=PIPE
        )
        try:
            assert process.stderr
            async with asyncio.timeout(_PATIENCE):
                await process.stderr.readline()  # it says that it serves
            idle = private(process.pid), resident(process.pid)
            return Used("launcher", *idle, *idle, files(process.pid))
        finally:
            process.terminate()
            await process.wait()
