"""The paths of the API that names lead to."""

from __future__ import annotations

import pytest

from windowbox.errors import Malformed
from windowbox.models.refs import NAMESPACES, SECRETS


def test_paths_are_those_of_the_api() -> None:
    assert SECRETS.path("a", "b.c:d") == "/api/v1/namespaces/a/secrets/b.c:d"
    assert NAMESPACES.path() == "/api/v1/namespaces"


@pytest.mark.parametrize(
    "name", ["..", ".", "../../b/secrets/c", "a/b", "a%2fb", "a?watch=1", "a#b", "a b", "a\nb", "a\\b"]
)
def test_no_name_leads_elsewhere(name: str) -> None:
    with pytest.raises(Malformed, match=r"cannot be a name in secrets: correct the reference"):
        SECRETS.path("a", name)
    with pytest.raises(Malformed, match=r"cannot be a name in secrets: correct the reference"):
        SECRETS.path(name, "b")
