"""Samples the steps in which a process of windowbox uses CPU. By its name, Python imports it at its start.

It imports nothing of windowbox, which would change what is measured.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

FOLDER = "WINDOWBOX_SAMPLES"
"""The environment variable with the folder for the samples."""
INTERVAL = 0.004
"""Seconds of CPU from one sample to the next: a tick of most kernels."""
LOOP = "event loop: sockets, TLS, timers"
STEPS = (
    ("/windowbox/clients/nameserver/", "name server: updates and their proof"),
    ("/watchers/", "watch and mirror: events to OBJECTS"),
    ("/bus/workqueue/routing.py", "route: OBJECTS to WORK"),
    ("/bus/workqueue/pool.py", "pool: take, journal, requeue"),
    ("/patchers/", "patch: INTENTS to the status"),
    ("/workers/core/", "run: the shell"),
    ("/workers/", "run: the kind"),
    ("/bus/views.py", "views: objects to read"),
    ("/nats/", "NATS client: read and flush"),
    ("/bus/", "bus: pull, leases, presence"),
    ("/aiohttp/", "HTTP client: read"),
    ("/commands/", "processes"),
)
"""Parts of paths; the innermost frame that has one says the step, one of `_ALONE` only if no other does."""
_ALONE = ("/nats/", "/bus/", "/aiohttp/", "/commands/")


def step(frame: FrameType | None) -> str:
    """The step that this frame belongs to."""
    alone = ""
    # A signal that came in the event loop is handled when the next callback begins.
    if frame and frame.f_back and frame.f_lasti < 4 and "asyncio" in frame.f_back.f_code.co_filename:
        return LOOP
    while frame:
        path = frame.f_code.co_filename
        for part, name in STEPS:
            if part in path:
                if part not in _ALONE:
                    return name
                alone = alone or name
                break
        frame = frame.f_back
    return alone or LOOP


def begin(folder: str) -> None:
    """Write the step of each sample as a line of a file with the pid of this process."""
    file = os.open(os.path.join(folder, str(os.getpid())), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def sample(_: int, frame: FrameType | None) -> None:
        os.write(file, step(frame).encode() + b"\n")

    signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)


if (_folder := os.environ.get(FOLDER)) and "windowbox" in sys.orig_argv:
    begin(_folder)
