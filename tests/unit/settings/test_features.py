"""Features by name: stages, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from windowbox import features
from windowbox.errors import Malformed
from windowbox.features import Feature, Stage
from windowbox.kinds import POOLS
from windowbox.settings import settings

KNOWN = (
    Feature("Ponds", Stage.ALPHA, "ponds", frozenset({"pond"})),
    Feature("Rivers", Stage.BETA, "rivers", frozenset({"river", "stream"})),
    Feature("Seas", Stage.GA, "seas", frozenset({"sea"})),
)


@pytest.mark.parametrize(
    ("gates", "pools"),
    [
        pytest.param({}, {"pond"}, id="alpha-is-off"),
        pytest.param({"Ponds": True}, set(), id="alpha-is-asked-for"),
        pytest.param({"Rivers": False}, {"pond", "river", "stream"}, id="beta-is-switched-off"),
        pytest.param({"Seas": True}, {"pond"}, id="ga-is-named"),
    ],
)
def test_pools_of_features_that_are_off_are_not_served(gates: dict[str, bool], pools: set[str]) -> None:
    assert features.refusal(gates, KNOWN) is None
    assert features.unserved(gates, KNOWN) == pools


@pytest.mark.parametrize(
    ("gates", "why"),
    [
        pytest.param(
            {"Lakes": True},
            "unknown feature 'Lakes'; known are Ponds (alpha, off), Rivers (beta, on), Seas (GA, on)",
            id="unknown",
        ),
        pytest.param({"Seas": False}, "feature Seas is GA: it cannot be switched off", id="ga"),
    ],
)
def test_what_cannot_be_switched_is_refused(gates: dict[str, bool], why: str) -> None:
    assert features.refusal(gates, KNOWN) == why


def test_settings_refuse_unknown_features_and_name_the_known_ones(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("feature_gates: {Ponds: true}\n")
    with pytest.raises(Malformed, match=r"feature_gates.*unknown feature 'Ponds'; known are IngressRecords"):
        settings.load(file)


def test_features_name_pools_that_there_are() -> None:
    assert {pool for feature in features.FEATURES for pool in feature.pools} <= POOLS.keys()
