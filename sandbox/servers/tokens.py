"""Bearer tokens for windowbox's processes; in a real cluster they use service account tokens.

The API server looks tokens up in memory. It verifies client certificates at every request, which took an
eighth of its time.
"""

from __future__ import annotations

import csv
import io
import secrets
from collections.abc import Iterable
from pathlib import Path

from sandbox import files


def tokens(path: Path, users: Iterable[str]) -> dict[str, str]:
    """The token of each user, from the file at `path`, in the form of `--token-auth-file`."""
    kept = {user: token for token, user, _ in csv.reader(path.open())} if path.exists() else {}
    complete = {user: kept.get(user) or secrets.token_urlsafe(24) for user in users}
    if complete != kept:
        content = io.StringIO()
        csv.writer(content).writerows((token, user, user) for user, token in complete.items())
        files.write_private(path, content.getvalue())
    return complete
