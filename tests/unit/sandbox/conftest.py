"""A machine with nothing but the shell, and a Go for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.programs import downloads
from tests.unit.sandbox import releaseserver
from tests.unit.sandbox.releaseserver import Releases

Built = Callable[[], list[str]]

# Like `go list` and `go build -o FOLDER/ PACKAGE…`: notes what was built, and makes programs of the version
# we need, one after the other. After the program $HELD_AFTER, it waits for the file $HELD.
GO = """#!/bin/sh
[ "$1" = version ] && { echo go version go1.26.0; exit; }
[ "$1" = list ] && { printf 'fmt\\nos\\n'; exit; }
case "$*" in *" -o "*) ;; *) exit ;; esac  # packages of Go itself
while [ "$1" != -o ]; do shift; done
target=$2; shift 2
for package in "$@"; do
  name=${package##*/}
  [ "$name" = v2 ] && name=nats-server
  echo "$name" >> "$BUILT"
  case $name in nats-server) v=2.15.2;; etcd) v=3.7.0;; windowbox-echo) v=1.0.0;; *) v=1.36.3;; esac
  printf '#!/bin/sh\\necho built v%s\\n' $v > "$target.$name"
  /bin/chmod +x "$target.$name"
  /bin/mv "$target.$name" "$target$name"
  while [ "$name" = "$HELD_AFTER" ] && [ ! -e "$HELD" ]; do /bin/sleep 0.05; done
done
"""


@pytest.fixture
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on its PATH but the shell, and nothing in the cache. Returns that PATH."""
    path = tmp_path / "path"
    path.mkdir()
    (path / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("WINDOWBOX_CACHE", str(tmp_path / "cache"))
    for name, value in releaseserver.mirrors("http://127.0.0.1:1").items():  # nothing is published
        monkeypatch.setenv(name, value)
    return path


@pytest.fixture
def built(tmp_path: Path, empty_machine: Path, monkeypatch: pytest.MonkeyPatch) -> Built:
    """A Go on the empty machine, and what it has built."""
    (empty_machine / "go").write_text(GO)
    (empty_machine / "go").chmod(0o755)
    (tmp_path / "built").touch()
    monkeypatch.setenv("BUILT", str(tmp_path / "built"))
    return lambda: (tmp_path / "built").read_text().split()


@pytest.fixture
def published(empty_machine: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Releases]:
    """A place where all is published as it should be."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(downloads, "ASKING", 60.0)  # other tests load this machine
    with releaseserver.served() as published:
        for name, value in releaseserver.mirrors(published.url).items():
            monkeypatch.setenv(name, value)
        yield published
