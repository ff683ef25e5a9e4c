"""Which parts of the demo are foretold for which machine."""

from __future__ import annotations

import dataclasses

from commands.demo.opening import opening
from sandbox.forecast import findings, showing, summary, timing
from sandbox.forecast.facts import Facts, Place
from sandbox.nodes.suitability import Host
from sandbox.programs import releases
from sandbox.programs.binaries import PROGRAMS
from tests.support.cases import cases

GIB = 1 << 30
_FOLDERS = (("programs", "/root/.cache/windowbox"), ("sandbox", "/src/.windowbox"), ("build", "/root/go"))
DEBIAN = Facts(
    memory=8 * GIB,
    places=tuple(Place(purpose, folder, 100 * GIB) for purpose, folder in _FOLDERS),  # type: ignore[arg-type]
    inotify_free=128,
    free_parts=32,
    installs=True,
    go=True,
)
"""Root on a machine of which nothing special is to be said; all programs are there."""
ROOT_PORT = "port 22 is for root: sudo sysctl net.ipv4.ip_unprivileged_port_start=22"
USER = dataclasses.replace(
    DEBIAN, host=Host(root=False), installs=False, ports={22: ROOT_PORT, 80: "port 80"}
)
MACOS = Facts(host=Host(system="darwin", root=False), architecture="arm64", memory=8 * GIB, docker=True)
NODES, ALL = {"balancer", "shoot"}, {"records", "webhook", "balancer", "owners", "bastion", "shoot"}
EVERY = (*timing.DOWNLOADED, "windowbox-echo")
LACKING = ("etcd", "kube-apiserver", "kubelet", "windowbox-echo")


def changed(facts: Facts = DEBIAN, **changes: object) -> Facts:
    return dataclasses.replace(facts, **changes)  # type: ignore[arg-type]


def without(**changes: object) -> Facts:
    """Debian with another kind of host."""
    return changed(host=Host(**changes))  # type: ignore[arg-type]


def with_free(size: int, purpose: str) -> Facts:
    """Debian with a small disk for one purpose."""
    places = [dataclasses.replace(p, free=size, disk=1) if p.purpose == purpose else p for p in DEBIAN.places]
    return changed(places=tuple(places), lacking=LACKING)


@cases(
    "facts left_out reason code",
    ("root-on-debian", DEBIAN, set(), "", 0),
    ("cgroup-v1", without(cgroups="v1"), set(), "", 0),
    ("arm64", changed(architecture="arm64"), set(), "", 0),
    ("user", USER, NODES | {"bastion"}, "real nodes need root", 1),
    ("user-who-may-have-any-port", changed(USER, ports={}), NODES, "real nodes need root", 1),
    ("user-without-bind", changed(USER, system=("named",), bind_command="apt"), ALL, "BIND 9", 3),
    ("container", changed(host=Host(capabilities=0, writable=False), container="Docker"), NODES,
     "as in a privileged container", 1),
    ("read-only-cgroups", without(writable=False), NODES, "cgroups that can be written", 1),
    ("container-without-volume", without(filesystem="overlay"), NODES, "set WINDOWBOX_HOME", 1),
    ("macos", changed(MACOS, ports={22: "port 22 cannot be used"}), NODES | {"bastion"},
     "real nodes need Linux", 1),
    ("packages-that-nobody-installs", changed(packages=("runc",), installs=False), NODES, "runc", 1),
    ("packages-that-apt-installs", changed(packages=("runc",), system=("named", "dig")), set(), "", 0),
    ("sshd-on-all-addresses", changed(ports={22: "another holds port 22"}), {"bastion"}, "another holds", 1),
    ("web-server", changed(ports={80: "another process holds port 80"}), NODES, "another", 1),
    ("full-disk", with_free(GIB // 2, "programs"), ALL, "1.0 GiB of disk in /root/.cache/windowbox", 3),
    ("no-room-to-compile", with_free(2 * GIB, "build"), ALL, "7.0 GiB of disk in /root/go", 3),
    ("no-room-for-machines", with_free(2 * GIB, "sandbox"), {"shoot"}, "3.0 GiB of disk", 1),
    ("cache-of-another-user", changed(
        places=(Place("programs", "/root/.cache", 9 * GIB, writable=False),), lacking=LACKING), ALL,
     "the right to write in /root/.cache", 3),
    ("little-memory", changed(memory=2 * GIB), {"shoot"}, "it needs 2.2 GiB of memory", 1),
    ("less-memory", changed(memory=GIB), NODES, "1.1 GiB of memory", 1),
    ("no-memory", changed(memory=GIB // 4), ALL, "0.6 GiB of memory", 3),
    ("few-inotify-instances", changed(inotify_free=40), {"shoot"}, "sysctl fs.inotify.max_user_instances", 1),
    ("no-inotify-instances", changed(inotify_free=2), ALL, "8 inotify instances", 3),
    ("a-running-sandbox-has-its-own", changed(inotify_free=2, memory=GIB // 4, running=True), set(), "", 0),
    ("routes-everywhere", changed(free_parts=0), NODES, "addresses", 1),
    ("nothing-known", Facts(), set(), "", 0),
)  # fmt: skip
def test_what_a_machine_shows(facts: Facts, left_out: set[str], reason: str, code: int) -> None:
    lacking = {part.name: part.lacking for part in showing.parts(facts)}
    assert {name for name, why in lacking.items() if why} == left_out
    assert any(reason in why for why in lacking.values())
    assert summary.code(facts) == code
    said = opening(facts)
    assert len(said) <= 6
    assert reason in "\n".join(said)
    wrong = [one for one in findings.findings(facts) if one.verdict == "wrong"]
    assert bool(wrong) == (code == 3), "what ends the demo is wrong, all else is noted"
    noted = [one for one in findings.findings(facts) if one.verdict == "note"]
    assert noted or code != 1


@cases(
    "facts topic words",
    ("names", changed(site="wb3"), "network namespaces", "wb3-switch, wb3-node-1, wb3-node-2 are made"),
    ("routes", changed(free_parts=30, overlapping=("198.18.0.0/16",)), "network namespaces", "198.18.0.0/16"),
    ("no-namespaces", USER, "network namespaces", "none are made"),
    ("silent-server", changed(lacking=LACKING, name_servers={"192.0.2.1": False}), "name servers",
     "192.0.2.1 is silent"),
    ("no-question", changed(name_servers={"192.0.2.1": False}), "name servers", "none is needed"),
    ("unknown-kernel", without(features={"overlay": True, "veth": None}), "kernel", "whether it has veth"),
    ("cgroups", without(cgroups="v1"), "cgroups", "v1, writable"),
    ("apt", changed(packages=("runc",)), "packages", "apt-get installs runc"),
    ("docker-instead", MACOS, "machine", "real nodes need Linux"),
)  # fmt: skip
def test_each_topic_says_what_it_is_about(facts: Facts, topic: str, words: str) -> None:
    [said] = [one.said for one in findings.findings(facts) if one.what == topic]
    assert words in said


def test_a_user_of_docker_is_led_to_it() -> None:
    [machine] = [one for one in findings.findings(MACOS) if one.what == "machine"]
    assert "docs/install.md" in machine.mend


@cases(
    "platform compiled",
    ("amd64", "linux-amd64", {"windowbox-echo"}),
    ("arm64", "linux-arm64", {"windowbox-echo"}),
    ("riscv64", "linux-riscv64", {*LACKING, "kwok"}),
)
def test_what_is_downloaded_depends_on_the_architecture(platform: str, compiled: set[str]) -> None:
    lacking = (*LACKING, "kwok")
    places = {name: place for name in lacking if (place := releases.find(PROGRAMS[name], platform))}
    sources = {name: place.source for name, place in places.items()}
    facts = changed(lacking=lacking, sources=sources, unreachable=dict.fromkeys(sources.values(), ""))
    assert set(facts.compiled) == compiled
    assert set(facts.compiled) | set(facts.downloaded) == set(lacking)


@cases(
    "facts shortest longest",
    ("here", DEBIAN, 30, 120),
    ("without-nodes", USER, 20, 60),
    ("compiled", changed(lacking=tuple(timing.DOWNLOADED)), 240, 1200),
    ("compiled-by-many", changed(lacking=tuple(timing.DOWNLOADED), cpus=16), 60, 240),
    ("downloaded", changed(
        lacking=tuple(timing.DOWNLOADED), sources=dict.fromkeys(timing.DOWNLOADED, "here"), unreachable={}),
     60, 180),
)  # fmt: skip
def test_the_time_expected(facts: Facts, shortest: float, longest: float) -> None:
    time = timing.expected(facts, nodes=not showing.without_nodes(facts))
    assert shortest <= time.everything <= longest
    assert time.records < time.everything


@cases(
    "unreachable how",
    ("not-asked", None, "programs, once: 1 compiled"),
    ("answering", {"pages": ""}, "programs, once: 1 downloaded"),
    ("silent", {"pages": "no answer in 2 s"}, "programs, once: 1 compiled, as no release page answers"),
)
def test_the_way_of_programs_is_told(unreachable: dict[str, str] | None, how: str) -> None:
    facts = changed(lacking=("etcd",), sources={"etcd": "pages"}, unreachable=unreachable)
    assert timing.expected(facts, nodes=True).how == how


def test_each_program_of_the_demo_has_its_figures() -> None:
    assert all(PROGRAMS[name].effort for name in timing.DOWNLOADED)
