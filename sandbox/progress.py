"""Progress output of jobs that take minutes."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator

_REMIND_AFTER = 30.0
_REDRAW_AFTER = 1.0


ONCE = "Getting what this machine lacks. This happens once; later starts take seconds.\n"


class Job:
    """A job; its function updates `detail`, and sets `usual` if it knows that."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.detail = ""
        self.usual = 0.0
        """The seconds that the same took before; 0 if unknown."""
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def __str__(self) -> str:
        detail = f"{self.detail}, " if self.detail else ""
        usual = f" of about {self.usual:.0f} s" if self.usual else ""
        return f"{self.what}: {detail}{self.seconds:.0f} s{usual}"


class Progress:
    """Lines about jobs of several threads: on a terminal one line that is redrawn, otherwise a few lines."""

    def __init__(
        self, say: Callable[[str], None], *, introduction: str = "", live: bool | None = None
    ) -> None:  # fmt: skip
        self._print, self._introduction = say, introduction
        self._live = sys.stdout.isatty() if live is None else live
        self._jobs: list[Job] = []
        self._lock = threading.Lock()
        self._held: list[str] | None = None
        self.cancelled = threading.Event()
        """Set when the result is no longer needed."""

    def say(self, text: str) -> None:
        with self._lock:
            self._clear()
            if self._held is None:
                self._print(text)
            else:
                self._held.append(text)
            self._draw()

    @contextlib.contextmanager
    def job(self, what: str, doing: str, done: str) -> Iterator[Job]:
        """`what` is `doing` while the block runs, and `done` if it succeeds."""
        job, ended = Job(what), threading.Event()

        def remind() -> None:
            while not ended.wait(_REDRAW_AFTER if self._live else _REMIND_AFTER):
                if self._live:
                    with self._lock:
                        self._draw()
                elif not self.held_back:
                    self.say(f"    … {job}")

        with self._lock:
            introduction, self._introduction = self._introduction, ""
            self._jobs.append(job)
        self.say(f"{introduction}  {what}: {doing}")
        reminder = threading.Thread(target=remind, daemon=True)
        reminder.start()
        try:
            yield job
        finally:
            ended.set()
            reminder.join()
            with self._lock:
                self._clear()
                self._jobs.remove(job)
        self.say(f"  {what}: {done} in {job.seconds:.0f} s")

    @property
    def held_back(self) -> bool:
        """Whether output is paused."""
        return self._held is not None

    def hold_back(self) -> None:
        """Pause output, because other output uses the screen."""
        with self._lock:
            self._clear()
            self._held = []

    def go_on(self) -> None:
        """Resume output, with what was held back."""
        with self._lock:
            held, self._held = self._held or [], None
            for text in held:
                self._print(text)
            self._draw()

    def _clear(self) -> None:
        if self._live and self._held is None:
            print("\r\033[K", end="", flush=True)

    def _draw(self) -> None:
        if self._live and self._held is None and self._jobs:
            text = "  … " + " · ".join(map(str, self._jobs))
            print(f"\r\033[K{text[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
