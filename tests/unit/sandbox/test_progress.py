"""Output about jobs that take minutes."""

from __future__ import annotations

import re
import threading

import pytest

from sandbox import progress as module
from sandbox.progress import Progress


def test_jobs_are_reported_when_started_and_done() -> None:
    said: list[str] = []
    progress = Progress(said.append, introduction="Once:\n", live=False)
    for what in ("etcd", "kubelet"):
        with progress.job(what, "compiling", "compiled"):
            pass
    assert said == [
        "Once:\n  etcd: compiling",
        "  etcd: compiled in 0 s", "  kubelet: compiling", "  kubelet: compiled in 0 s",
    ]  # fmt: skip


def test_a_job_that_fails_is_not_called_done() -> None:
    said: list[str] = []
    with pytest.raises(OSError), Progress(said.append, live=False).job("etcd", "compiling", "compiled"):
        raise OSError
    assert len(said) == 1


def test_long_jobs_report_their_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMIND_AFTER", 0.01)
    output = threading.Event()

    def say(text: str) -> None:
        if re.fullmatch(r"    … etcd: 12 packages, 0 s of about 67 s", text):
            output.set()

    with Progress(say, live=False).job("etcd", "compiling", "compiled") as job:
        job.detail, job.usual = "12 packages", 67.2
        assert output.wait(20)


def test_held_back_output_is_printed_later() -> None:
    said: list[str] = []
    progress = Progress(said.append, live=False)
    progress.hold_back()
    with progress.job("etcd", "compiling", "compiled"):
        pass
    assert said == []
    progress.go_on()
    assert len(said) == 2


def test_a_terminal_shows_all_jobs_on_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    progress = Progress(print, live=True)
    with progress.job("etcd", "compiling", "compiled"), progress.job("bind9", "fetching", "there") as job:
        job.detail = "setting up bind9, which takes a long time"
        progress.say("something else")
    shown = capsys.readouterr().out
    lines = [line.rpartition("\033[K")[2] for line in shown.splitlines()]
    assert "something else" in lines
    live = re.findall(r"\033\[K(  … [^\r\n]*)", shown)
    assert "  … etcd: 0 s · bind9: setting up bind9" in "".join(live)
    assert max(map(len, live)) <= 39
