"""`python -m tools.newcomer [demo] [test]`: how long a newcomer waits, in a clean clone with empty caches.

In a mount namespace of its own, fresh folders lie over the home, and with it over the caches of Go, pip and
windowbox, and over temporary files. Programs that the distribution has installed are there. Prints what
`make demo`, twice, and `make test` print, each line with its seconds, then the figures of the README.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PARTS = ("demo", "demo", "test")
"""The second demo has its programs."""
MOMENTS = {
    "first record": r"dig: [\w.:]*\d",
    "load balancer": r"answered the first client after",
    "Shoot": r"a PersistentVolumeClaim is bound",
}
"""What the demo prints when each is there."""
_MARK = "WINDOWBOX_NEWCOMER"
"""In the environment of whatever is started: nothing with it may be left."""
_KEPT = re.compile(
    r"LANG|LC_ALL|TERM|USER|LOGNAME|SHELL|(?i:https?_proxy|no_proxy|all_proxy)|PIP_(?!CACHE).*"
    r"|SSL_CERT_.*|(?:CURL|REQUESTS)_CA_BUNDLE|GOPROXY|GOSUMDB|GONOSUMDB|DOWNLOAD|JOBS|LONG|CI"
    r"|WINDOWBOX_RELEASES_.*"
)
_ENOUGH = 12 << 30
"""Bytes for compiled programs, the sources of their modules and Python packages."""


def refusal() -> str:
    """Why this is impossible here; empty if it is not."""
    if not sys.platform.startswith("linux") or not shutil.which("unshare"):
        return "it needs a mount namespace: Linux, and unshare (util-linux)"
    if os.geteuid() != 0:
        return "only root may put an empty home over its own in a mount namespace: sudo make newcomer"
    return ""


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["inside"]:
        return inside(Path(arguments[1]), arguments[2:])
    if unknown := set(arguments) - set(PARTS):
        raise SystemExit(
            f"make newcomer ARGS: {' or '.join(dict.fromkeys(PARTS))}, not {', '.join(sorted(unknown))}"
        )
    if reason := refusal():
        raise SystemExit(f"make newcomer: {reason}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Neither below the home nor with other temporary files: both will be covered.
    with tempfile.TemporaryDirectory(prefix="windowbox-newcomer-", dir="/var/tmp") as place:
        if shutil.disk_usage(place).free < _ENOUGH:
            raise SystemExit(f"make newcomer: it needs {_ENOUGH >> 30} GiB in /var/tmp")
        subprocess.run(["git", "clone", "--quiet", ".", f"{place}/windowbox"], check=True)
        command = ["unshare", "--mount", sys.executable, "-m", "tools.newcomer", "inside", place, *arguments]
        with _child(command, env={**os.environ, _MARK: place}) as child:
            code = child.wait()
        for left in leftovers(place):
            print(f"left behind: {left}")
            code = code or 1
    return code


def inside(place: Path, parts: Iterable[str]) -> int:
    """In the mount namespace."""
    environment = fresh(place, os.environ)
    cover(place, Path.home())
    checkout, figures = place / "windowbox", dict[str, float]()
    try:
        for part in parts or PARTS:
            what = f"make {part} again" if f"make {part}" in figures else f"make {part}"
            code, seconds, moments = timed(["make", part], checkout, environment)
            figures |= {f"{what}: {moment}": after for moment, after in moments.items()}
            figures[what] = seconds
            if code:
                print(f"make {part} ended with {code}")
                return code
    finally:
        subprocess.run(["make", "down", "ARGS=--wipe"], cwd=checkout, env=environment, check=False)
        print("\n".join(table(figures)))
    return 0


def fresh(place: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what leads to caches and tools of this user."""
    home = Path.home()
    kept = {name: value for name, value in environment.items() if _KEPT.fullmatch(name)}
    path = [one for one in environment["PATH"].split(":") if not Path(one).is_relative_to(home)]
    interpreter = f"{sys.base_prefix}/bin"
    return {**kept, "HOME": str(home), "PATH": ":".join((interpreter, *path)), _MARK: str(place)}


def cover(place: Path, home: Path) -> None:
    """Mount fresh folders; of the home only the interpreter stays."""
    (place / "home").mkdir()
    (place / "tmp").mkdir(mode=0o1777)
    prefix = Path(sys.base_prefix)
    if prefix.is_relative_to(home):
        stays = place / "home" / prefix.relative_to(home)
        stays.mkdir(parents=True)
        _mount("--bind", str(prefix), str(stays))
    _mount("--rbind", str(place / "home"), str(home))
    _mount("--bind", str(place / "tmp"), "/tmp")
    if Path("/dev/shm").is_dir():
        _mount("-t", "tmpfs", "tmpfs", "/dev/shm")


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def timed(
    command: list[str], folder: Path, environment: Mapping[str, str]
) -> tuple[int, float, dict[str, float]]:
    """Run it, and print its lines with their seconds; its exit code, its seconds, and when moments were."""
    began, moments = time.monotonic(), dict[str, float]()
    with _child(command, cwd=folder, env=environment, stdout=subprocess.PIPE) as child:
        assert child.stdout
        for line in child.stdout:
            after = time.monotonic() - began
            print(f"{after:7.1f}  {line}", end="", flush=True)
            for moment, said in MOMENTS.items():
                if re.search(said, line):
                    moments.setdefault(moment, after)
        code = child.wait()
    return code, time.monotonic() - began, moments


@contextlib.contextmanager
def _child(command: list[str], **options: object) -> Iterator[subprocess.Popen[str]]:
    """Ctrl-C is passed on once to the child and what it runs: make passes on nothing."""
    with subprocess.Popen(command, text=True, stderr=subprocess.STDOUT, process_group=0, **options) as child:  # type: ignore[call-overload]
        try:
            yield child
        except BaseException:
            os.killpg(child.pid, signal.SIGINT)
            child.wait()
            raise


def leftovers(place: str) -> list[str]:
    """Processes that were started with the mark and still live."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        if f"{_MARK}={place}".encode() in environment:
            found.append(f"process {pid}: {command}")
    return found


def table(figures: Mapping[str, float]) -> Iterator[str]:
    """As the README has it."""
    yield ""
    for what, seconds in figures.items():
        yield f"| {what} | {int(seconds) // 60}:{int(seconds) % 60:02} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
