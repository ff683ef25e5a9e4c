"""Folders of backups on a real disk: what is made, what is removed, and what is left alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clouds.frame.services.backups import Retention
from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.errors import Malformed, TransientError, WindowboxError
from workers.kinds.backups import backupfolders
from workers.kinds.backups.backupfolders import BackupFolders


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    return made


@pytest.fixture
def folders(root: Path) -> BackupFolders:
    return BackupFolders(root)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """What nobody may touch."""
    made = tmp_path / "elsewhere"
    made.mkdir()
    (made / "precious").write_text("kept")
    return made


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@cases(
    "name",
    {
        "empty": "",
        "none": None,
        "root-itself": ".",
        "above": "..",
        "absolute": "/etc",
        "slash": "a/b",
        "nul": "a\0b",
        "line-break": "a\nb",
        "too-long": "a" * 256,
        "too-long-in-bytes": "ä" * 128,
    },
)
def test_names_that_could_lead_elsewhere_are_refused(name: str | None) -> None:
    with pytest.raises(Malformed, match=r"spec\.bucketName"):
        backupfolders.checked("spec.bucketName", name)


@pytest.mark.parametrize("name", ["a", "9d2c1f60-3a77", "...", "a..b", "a b", "a" * 255])
def test_other_names_are_taken(name: str) -> None:
    assert backupfolders.checked("spec.bucketName", name) == name


@rule("BB-1")
async def test_a_folder_has_its_mode_whatever_was_there(folders: BackupFolders, root: Path) -> None:
    before = os.umask(0o077)
    try:
        await folders.make("bucket")
    finally:
        os.umask(before)
    assert mode(root / "bucket") == 0o775
    (root / "bucket").chmod(0o700)
    (root / "bucket" / "backup").write_text("kept")
    await folders.make("bucket")
    assert mode(root / "bucket") == 0o775
    assert (root / "bucket" / "backup").read_text() == "kept"


@rule("BB-2", "BE-4")
async def test_a_folder_goes_with_all_that_is_in_it(folders: BackupFolders, root: Path) -> None:
    for entry in ("one", "two"):
        (root / "bucket" / entry / "v2" / "deep").mkdir(parents=True)
        (root / "bucket" / entry / "v2" / "deep" / "snapshot").write_text("x")
    await folders.remove("bucket", "one")
    assert names(root / "bucket") == ["two"]
    await folders.remove("bucket")
    assert names(root) == []
    await folders.remove("bucket")
    await folders.remove("bucket", "one")


async def test_many_levels_are_no_hindrance(folders: BackupFolders, root: Path) -> None:
    os.mkdir(root / "bucket")
    below = os.open(root / "bucket", os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=below)
        next_ = os.open("d", os.O_RDONLY, dir_fd=below)
        os.close(below)
        below = next_
    os.close(below)
    await folders.remove("bucket")
    assert names(root) == []


async def test_the_loop_runs_while_files_are_removed(folders: BackupFolders, root: Path) -> None:
    for number in range(20):
        (root / "bucket" / str(number)).mkdir(parents=True)
        for file in range(50):
            (root / "bucket" / str(number) / str(file)).touch()
    turns = 0
    removing = asyncio.create_task(folders.remove("bucket"))
    while not removing.done():
        turns += 1
        await asyncio.sleep(0)
    await removing
    assert turns > 10
    assert not (root / "bucket").exists()


async def test_a_removal_that_was_broken_off_is_finished_later(folders: BackupFolders, root: Path) -> None:
    for number in range(100):
        (root / "bucket" / f"{number}" / "inner").mkdir(parents=True)
    removing = asyncio.create_task(folders.remove("bucket"))
    await asyncio.sleep(0)  # it starts
    removing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await removing
    # The first may still be at it for a moment.
    await asyncio.gather(folders.remove("bucket"), folders.remove("bucket"))
    assert not (root / "bucket").exists()


@cases("path", {"bucket": ("bucket",), "entry-below-link": ("bucket", "entry")})
async def test_a_link_below_the_root_is_refused(
    folders: BackupFolders, root: Path, elsewhere: Path, path: tuple[str, ...]
) -> None:
    (elsewhere / "entry").mkdir()
    os.chmod(elsewhere, 0o750)
    (root / "bucket").symlink_to(elsewhere)
    with pytest.raises(Malformed, match="is not followed; remove it"):
        await folders.make("bucket")
    with pytest.raises(Malformed, match="is not followed; remove it"):
        await folders.remove(*path)
    assert (elsewhere / "precious").read_text() == "kept"
    assert (elsewhere / "entry").exists()
    assert mode(elsewhere) == 0o750


async def test_links_within_a_folder_are_removed_but_not_their_targets(
    folders: BackupFolders, root: Path, elsewhere: Path
) -> None:
    (root / "bucket" / "entry").mkdir(parents=True)
    (root / "bucket" / "entry" / "out").symlink_to(elsewhere)
    (root / "bucket" / "out").symlink_to(elsewhere / "precious")
    (root / "bucket" / "nowhere").symlink_to("missing")
    await folders.remove("bucket")
    assert names(root) == []
    assert (elsewhere / "precious").read_text() == "kept"


async def test_a_link_that_is_swapped_in_meanwhile_is_not_followed(
    folders: BackupFolders, root: Path, elsewhere: Path
) -> None:
    """Somebody turns folders into links, and back, for as long as they are being removed."""
    for number in range(200):
        (elsewhere / f"{number}").touch()
    swapping = True

    def swap() -> None:
        while swapping:
            with contextlib.suppress(OSError):
                os.mkdir(root / "bucket")
            for name in ("a", "b"):
                with contextlib.suppress(OSError):
                    os.mkdir(root / "bucket" / name)
                    (root / "bucket" / name / "file").touch()
                    os.rename(root / "bucket" / name, root / "bucket" / f"{name}-aside")
                    os.symlink(elsewhere, root / "bucket" / name)

    swapper = asyncio.create_task(asyncio.to_thread(swap))
    try:
        for _ in range(200):
            with contextlib.suppress(WindowboxError):
                await folders.remove("bucket")
    finally:
        swapping = False
        await swapper
    assert len(names(elsewhere)) == 201
    assert (elsewhere / "precious").read_text() == "kept"


async def test_a_file_in_the_place_of_a_folder_is_named(folders: BackupFolders, root: Path) -> None:
    (root / "bucket").write_text("not ours")
    with pytest.raises(Malformed, match=r"bucket in backup\.root .*a file stands"):
        await folders.make("bucket")
    with pytest.raises(Malformed, match="a file stands"):
        await folders.remove("bucket")
    assert (root / "bucket").read_text() == "not ours"


async def test_a_missing_root_is_named_and_not_created(folders: BackupFolders, root: Path) -> None:
    os.rmdir(root)
    with pytest.raises(Malformed, match=r"backup\.root .*make it, or correct") as refused:
        await folders.make("bucket")
    assert refused.value.codes == ("ERR_CONFIGURATION_PROBLEM",)
    # Of a disk that is not there nobody can say that it has been cleared.
    with pytest.raises(Malformed, match="make it, or correct"):
        await folders.remove("bucket")
    assert "root" not in names(root.parent)


@pytest.fixture
def tiny(root: Path) -> Iterator[Path]:
    """The root is a disk with room for two more files or folders."""
    options = "size=64k,nr_inodes=3"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(root)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield root
    finally:
        subprocess.run(["umount", "-l", str(root)], check=True)


async def test_a_full_disk_is_a_clear_error(folders: BackupFolders, tiny: Path) -> None:
    await folders.make("first")
    await folders.make("second")
    with pytest.raises(TransientError, match=r"third in backup\.root .*No space left.*free some") as full:
        await folders.make("third")
    assert full.value.codes == ("ERR_INFRA_RESOURCES_DEPLETED",)
    await folders.remove("first")
    await folders.make("third")


async def test_a_root_that_is_read_only_is_a_clear_error(folders: BackupFolders, tiny: Path) -> None:
    await folders.make("bucket")
    await asyncio.to_thread(subprocess.run, ["mount", "-o", "remount,ro", str(tiny)], check=True)
    with pytest.raises(Malformed, match="Read-only file system: mount it writable") as refused:
        await folders.make("other")
    assert refused.value.codes == ("ERR_CONFIGURATION_PROBLEM",)
    with pytest.raises(Malformed, match="mount it writable"):
        await folders.remove("bucket")


async def test_a_root_without_write_permission_is_reported(root: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can become somebody else")
    reported = await asyncio.to_thread(_told_to_a_stranger, root)
    assert reported.startswith("Malformed ERR_CONFIGURATION_PROBLEM bucket in backup.root")
    assert "let the user of this worker write there" in reported


def _told_to_a_stranger(root: Path) -> str:
    # From within, since the folders of tests are closed to others further up.
    root.parent.chmod(0o755)
    script = (
        "import asyncio, os, pathlib, sys\n"
        "from workers.kinds.backups.backupfolders import BackupFolders\n"
        "os.chdir(sys.argv[1])\n"
        "os.setuid(65534)\n"
        "try: asyncio.run(BackupFolders(pathlib.Path('root')).make('bucket'))\n"
        "except Exception as error: print(type(error).__name__, *error.codes, error)\n"
    )
    arguments = [sys.executable, "-c", script, str(root.parent)]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    return ended.stdout + ended.stderr


@rule("GCP-B3")
async def test_a_locked_retention_outlives_everything_but_its_bucket(
    folders: BackupFolders, root: Path
) -> None:
    await folders.make("bucket")
    await folders.retain("bucket", Retention(2 * 86_400.0, locked=True))
    again = BackupFolders(root)
    with pytest.raises(Malformed, match="the retention of 2 days is locked and cannot become shorter"):
        await again.retain("bucket", Retention(86_400.0, locked=True))
    await again.make("bucket-2")
    await again.retain("bucket-2", None)
    (root / "bucket" / "entry").mkdir()
    (root / "bucket" / "entry" / "backup").touch()
    with pytest.raises(TransientError, match="retentionPolicyNotMet") as refused:
        await again.remove("bucket", "entry")
    assert refused.value.retry_after == 3600
    (root / "bucket" / "entry" / "backup").unlink()
    assert not await again.remove_empty("bucket")
    await again.remove("bucket")
    await again.make("bucket")
    await again.retain("bucket", None)


async def test_an_unreadable_retention_keeps_everything(folders: BackupFolders, root: Path) -> None:
    await folders.make("bucket")
    await folders.retain("bucket", Retention(86_400.0))
    [file] = [one for one in os.listdir(root) if one.startswith(".retention-")]
    (root / file).write_text("{}")
    for act in (folders.remove("bucket"), folders.retain("bucket", None)):
        with pytest.raises(Malformed, match="cannot be read: correct the file"):
            await act
    assert (root / "bucket").is_dir()


async def test_a_search_for_retained_files_is_bounded(folders: BackupFolders, root: Path) -> None:
    await folders.make("bucket")
    await folders.retain("bucket", Retention(86_400.0))
    (root / "bucket" / "/".join(["d"] * 60)).mkdir(parents=True)
    with pytest.raises(Malformed, match="has more than 50 folders within each other"):
        await folders.remove("bucket")
    await folders.retain("bucket", None)
    await folders.remove("bucket")
