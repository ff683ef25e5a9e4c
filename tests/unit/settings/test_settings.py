"""Settings: where they come from, and what is told about bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import pages
from windowbox.errors import Malformed
from windowbox.settings import settings


def test_the_page_of_settings_is_up_to_date() -> None:
    assert pages.SETTINGS_PAGE.read_text() == pages.settings_page(), "run `make generate`"


def test_flags_win_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("nats: {url: 'nats://file:1', user: from-file}\nmetrics: 127.0.0.1:1\n")
    monkeypatch.setenv("WINDOWBOX_NATS__URL", "nats://environment:2")
    monkeypatch.setenv("WINDOWBOX_METRICS", "127.0.0.1:2")

    loaded = settings.load(file, {"metrics": "127.0.0.1:3"})

    assert loaded.nats.user == "from-file"
    assert loaded.nats.url == "nats://environment:2"
    assert loaded.metrics == "127.0.0.1:3"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("nuts: {}", ["unknown settings nuts", "nats"], id="a-name-nobody-knows"),
        pytest.param("nats: {replicas: 2}", ["nats.replicas", "1 or 3"], id="two-replicas"),
        pytest.param("watch: {kinds: [ponds]}", ["watch.kinds", "'ponds'", "dnsrecords"], id="unknown-kind"),
        pytest.param("work: {classes: [shoots]}", ["work.classes", "garden"], id="an-unknown-class"),
        pytest.param("work: {concurency: 3}", ["work.concurency"], id="a-misspelled-setting"),
        pytest.param("- 1", ["must hold a mapping"], id="not-a-mapping"),
        pytest.param("1: {}", ["unknown settings 1", "nats"], id="a-number-for-a-name"),
        pytest.param("nats: {\nurl: [", ["is not YAML at line 2, column 7"], id="not-yaml"),
        pytest.param("dns: {zones: [{name: a.b, servers: []}]}", ["dns.zones.0.servers"], id="no-server"),
    ],
)
def test_a_bad_setting_is_named(tmp_path: Path, text: str, told: list[str]) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)

    with pytest.raises(Malformed) as error:
        settings.load(file)

    for words in told:
        assert words in str(error.value)


def test_no_secret_is_told_when_the_settings_are_wrong(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("nats: {password: hunter2, replicas: 2}")

    with pytest.raises(Malformed) as error:
        settings.load(file)

    assert "hunter2" not in str(error.value)
    file.write_text('nats: {password: "hunter2}')
    with pytest.raises(Malformed, match="is not YAML") as error:
        settings.load(file)

    assert "hunter2" not in str(error.value)
    assert "hunter2" not in repr(settings.load(None, {"nats": {"password": "hunter2"}}))


def test_what_the_environment_leaves_empty_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDOWBOX_BACKUP__ROOT", "")
    monkeypatch.setenv("WINDOWBOX_HEARTBEAT__NAMESPACE", "")
    loaded = settings.load(None)
    assert loaded.backup.root is None
    assert loaded.heartbeat.namespace is None


def test_what_decides_has_no_secrets_and_no_servers() -> None:
    zone = {
        "name": "local.gardener.cloud",
        "servers": ["192.0.2.53"],
        "key": {"name": "k", "secret": "aHVudGVyMg=="},
    }
    read = settings.load(
        None, {"nats": {"password": "hunter2"}, "dns": {"zones": [zone]}, "heartbeat": {"interval": 7}}
    )
    told = read.deciding.model_dump_json()
    assert "local.gardener.cloud" in told
    assert '"interval":7' in told
    for hidden in ("hunter2", "aHVudGVyMg", "192.0.2.53"):
        assert hidden not in told


def test_the_environment_can_ask_for_three_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDOWBOX_NATS__REPLICAS", "3")
    assert settings.load(None).nats.replicas == 3
