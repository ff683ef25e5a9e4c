"""Sources of settings and features, and refusals of bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import pages
from tests.support.cases import cases
from windowbox import features
from windowbox.errors import Malformed
from windowbox.features import Feature, Stage
from windowbox.kinds import POOLS
from windowbox.settings import settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.yaml"


def test_the_page_of_settings_is_up_to_date() -> None:
    assert pages.SETTINGS_PAGE.read_text() == pages.settings_page(), "run `make generate`"


def test_flags_override_environment_and_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("nats: {url: 'nats://file:1', user: from-file}\nmetrics: 127.0.0.1:1\n")
    monkeypatch.setenv("WINDOWBOX_NATS__URL", "nats://environment:2")
    monkeypatch.setenv("WINDOWBOX_METRICS", "127.0.0.1:2")
    monkeypatch.setenv("WINDOWBOX_NATS__REPLICAS", "3")
    monkeypatch.setenv("WINDOWBOX_BACKUP__ROOT", "")
    loaded = settings.load(file, {"metrics": "127.0.0.1:3"})
    found = (loaded.nats.user, loaded.nats.url, loaded.nats.replicas, loaded.metrics, loaded.backup.root)
    assert found == ("from-file", "nats://environment:2", 3, "127.0.0.1:3", None)


def test_lists_and_mappings_are_json_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("WINDOWBOX_WORK", '{"concurrency": 2, "ack_wait": 3}'),
        ("WINDOWBOX_WORK__ACK_WAIT", "4"),
        ("WINDOWBOX_WORK__CLASSES", '["seed"]'),
        ("WINDOWBOX_DNS__ZONES", '[{"name": "a.b", "servers": ["127.0.0.1:53"]}]'),
        ("windowbox_feature_gates", "{}"),
        ("WINDOWBOX_CLUSTER__FILES__ONE", "/a/kubeconfig"),
        ("WINDOWBOX_NATS__PASSWORD", "[7"),
        ("WINDOWBOX_SANDBOX", "one"),
    ):
        monkeypatch.setenv(name, value)
    loaded = settings.load(None)
    assert (loaded.work.concurrency, loaded.work.ack_wait, loaded.work.classes) == (2, 4, ("seed",))
    assert [zone.name for zone in loaded.dns.zones] == ["a.b"]
    assert loaded.cluster.files == {"one": Path("/a/kubeconfig")}
    assert loaded.nats.password is not None
    assert loaded.nats.password.get_secret_value() == "[7"


@cases(
    "name value words",
    ("no-json", "WINDOWBOX_WORK__CLASSES", "seed", ["WINDOWBOX_WORK__CLASSES", "JSON"]),
    ("unknown", "WINDOWBOX_NATS__ULR", "nats://one", ["nats.ulr"]),
    ("not-a-section", "WINDOWBOX_METRICS__PORT", "9101", ["metrics"]),
    ("both", "WINDOWBOX_NATS__USER__NAME", "b", ["WINDOWBOX_NATS__USER__NAME", "user is a single value"]),
)
def test_a_bad_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: list[str]
) -> None:
    monkeypatch.setenv("WINDOWBOX_NATS__USER", "a")
    monkeypatch.setenv(name, value)
    with pytest.raises(Malformed) as error:
        settings.load(None)
    assert [one for one in words if one not in str(error.value)] == []


@cases(
    "text words",
    ("unknown-name", "nuts: {}", ["unknown settings nuts", "nats"]),
    ("two-replicas", "nats: {replicas: 2}", ["nats.replicas", "1 or 3"]),
    ("unknown-kind", "watch: {kinds: [ponds]}", ["watch.kinds", "'ponds'", "dnsrecords"]),
    ("an-unknown-class", "work: {classes: [shoots]}", ["work.classes", "garden"]),
    ("a-misspelled-setting", "work: {concurency: 3}", ["work.concurency"]),
    ("not-a-mapping", "- 1", ["must hold a mapping"]),
    ("a-number-for-a-name", "1: {}", ["unknown settings 1", "nats"]),
    ("not-yaml", "nats: {\nurl: [", ["is not YAML at line 2, column 7"]),
    ("no-server", "dns: {zones: [{name: a.b, servers: []}]}", ["dns.zones.0.servers"]),
)
def test_a_bad_setting_is_named(file: Path, text: str, words: list[str]) -> None:
    file.write_text(text)
    with pytest.raises(Malformed) as error:
        settings.load(file)
    assert [one for one in words if one not in str(error.value)] == []


@pytest.mark.parametrize("text", ["nats: {password: hunter2, replicas: 2}", 'nats: {password: "hunter2}'])
def test_a_refusal_of_settings_shows_no_secret(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(Malformed) as error:
        settings.load(file)
    assert "hunter2" not in str(error.value)
    assert "hunter2" not in repr(settings.load(None, {"nats": {"password": "hunter2"}}))


def test_recorded_settings_hold_no_secrets_or_servers() -> None:
    key = {"name": "k", "secret": "aHVudGVyMg=="}
    zone = {"name": "local.gardener.cloud", "servers": ["192.0.2.53"], "key": key}
    flags = {"nats": {"password": "hunter2"}, "dns": {"zones": [zone]}, "heartbeat": {"interval": 7}}
    read = settings.load(None, flags)
    text = read.deciding.model_dump_json()
    assert "local.gardener.cloud" in text
    assert '"interval":7' in text
    for hidden in ("hunter2", "aHVudGVyMg", "192.0.2.53"):
        assert hidden not in text


KNOWN = (
    Feature("Ponds", Stage.ALPHA, "ponds", frozenset({"pond"})),
    Feature("Rivers", Stage.BETA, "rivers", frozenset({"river", "stream"})),
    Feature("Seas", Stage.GA, "seas", frozenset({"sea"})),
)


@cases(
    "gates pools",
    ("alpha-is-off", {}, {"pond"}),
    ("alpha-is-asked-for", {"Ponds": True}, set()),
    ("beta-is-switched-off", {"Rivers": False}, {"pond", "river", "stream"}),
    ("ga-is-named", {"Seas": True}, {"pond"}),
)
def test_pools_of_features_that_are_off_are_not_served(gates: dict[str, bool], pools: set[str]) -> None:
    assert features.refusal(gates, KNOWN) is None
    assert features.unserved(gates, KNOWN) == pools


UNKNOWN = "unknown feature 'Lakes'; known are Ponds (alpha, off), Rivers (beta, on), Seas (GA, on)"


@cases(
    "gates why",
    ("unknown", {"Lakes": True}, UNKNOWN),
    ("ga", {"Seas": False}, "feature Seas is GA: it cannot be switched off"),
)
def test_unknown_and_fixed_features_are_refused(gates: dict[str, bool], why: str) -> None:
    assert features.refusal(gates, KNOWN) == why


def test_settings_refuse_unknown_features_and_name_the_known_ones(file: Path) -> None:
    file.write_text("feature_gates: {Ponds: true}\n")
    with pytest.raises(Malformed, match=r"feature_gates.*unknown feature 'Ponds'; known are IngressRecords"):
        settings.load(file)


def test_features_name_existing_pools() -> None:
    assert {pool for feature in features.FEATURES for pool in feature.pools} <= POOLS.keys()
