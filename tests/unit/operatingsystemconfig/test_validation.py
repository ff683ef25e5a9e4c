"""Errors in a spec name field, value and remedy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.errors import Malformed
from windowbox.models.objects import Object
from workers.kinds.operatingsystemconfig import oscvalidation

INLINE = {"inline": {"encoding": "", "data": "x"}}


def parsed(purpose: str = "reconcile", **spec: Any) -> Any:
    return oscvalidation.parsed(Object({"spec": {"type": "local", "purpose": purpose, **spec}}))


def a_file(path: str = "/a", content: Any = INLINE, **more: Any) -> dict[str, Any]:
    return {"files": [{"path": path, "content": content, **more}]}


def inline(data: str, encoding: str, **more: Any) -> dict[str, Any]:
    return a_file(content={"inline": {"encoding": encoding, "data": data}, **more})


def from_secret(name: str, key: str) -> dict[str, Any]:
    return a_file(content={"secretRef": {"name": name, "dataKey": key}})


def a_unit(name: str = "a.service", **more: Any) -> dict[str, Any]:
    return {"units": [{"name": name, **more}]}


def cri(**containerd: Any) -> dict[str, Any]:
    return {"criConfig": {"name": "containerd", "containerd": {"sandboxImage": "pause:3", **containerd}}}


def registries(*upstreams: str) -> dict[str, Any]:
    return cri(registries=[{"upstream": upstream} for upstream in upstreams])


def twice(*hosts: str | None) -> dict[str, Any]:
    return {"files": [{"path": "/a", "content": INLINE, "hostName": host} for host in hosts]}


IMAGE = {"imageRef": {"image": "i", "filePathInImage": "/f"}}
FILE, UNIT = "spec.files[0]", "spec.units[0]"
REGISTRY = "spec.criConfig.containerd.registries"


@cases(
    "spec, complaint",
    {
        "A-6-no-path": (a_file(""), f"{FILE}.path is empty"),
        "A-6-relative": (a_file("etc/motd"), f"{FILE}.path is 'etc/motd'"),
        "A-6-upwards": (a_file("/a/../../etc"), f"{FILE}.path is '/a/../../etc'"),
        "A-6-line-break": (a_file("/a\nrm -rf /"), f"{FILE}.path is '/a\\nrm -rf /'"),
        "A-6-nul": (a_file("/a\0"), f"{FILE}.path is '/a\\x00'"),
        "A-6-folder": (a_file("/etc/"), f"{FILE}.path is '/etc/', which names a folder"),
        "A-6-root": (a_file("/"), f"{FILE}.path is '/', which names a folder"),
        "A-6-negative": (a_file(permissions=-1), f"{FILE}.permissions is -1"),
        "A-6-too-much": (a_file(permissions=4096), f"{FILE}.permissions is 4096"),
        "A-6-no-content": (a_file(content={}), f"{FILE}.content holds nothing"),
        "A-6-two-contents": (a_file(content=INLINE | IMAGE), f"{FILE}.content holds inline and imageRef"),
        "A-6-empty": (inline("", ""), f"{FILE}.content.inline.data is empty"),
        "A-6-encoding": (inline("x", "gzip"), f"{FILE}.content.inline.encoding is 'gzip'"),
        "A-6-base64": (inline("x", "b64"), f"{FILE}.content.inline.data is not base64"),
        "A-6-not-ascii": (inline("ä", "b64"), f"{FILE}.content.inline.data is not base64"),
        "A-6-no-secret": (from_secret("", "k"), f"{FILE}.content.secretRef.name is ''"),
        "A-6-another-path": (
            from_secret("../secrets/b", "k"),
            f"{FILE}.content.secretRef.name is '../secrets/b'",
        ),
        "A-6-no-key": (from_secret("a", ""), f"{FILE}.content.secretRef.dataKey is ''"),
        "A-6-twice": (twice(None, None), "spec.files[0].path is '/a', which is there more"),
        "A-6-one-without-host": (twice("a", None), "spec.files[1].path is '/a'"),
        "A-6+B.11-host-twice": (twice("a", "b", "a"), "spec.files[2].path is '/a'"),
        "A-6+B.11-second-host-twice": (twice("a", "b", "b"), "for host 'b': take one out"),
        "A-6-no-unit-name": (a_unit(""), f"{UNIT}.name is ''"),
        "A-6-unit-upwards": (a_unit("../a"), f"{UNIT}.name is '../a'"),
        "A-6-unit-with-quotes": (a_unit("a'; id; '"), f"{UNIT}.name is \"a'; id; '\""),
        "A-6-unit-as-option": (a_unit("--now"), f"{UNIT}.name is '--now'"),
        "A-6-unit-line-break": (a_unit("a\n"), f"{UNIT}.name is 'a\\n'"),
        "A-6-unit-too-long": (a_unit("a" * 256), f"{UNIT}.name is 'aaa"),
        "A-6-drop-in": (a_unit(dropIns=[{"name": "", "content": "x"}]), f"{UNIT}.dropIns[0].name is ''"),
        "A-6-drop-in-elsewhere": (
            a_unit(dropIns=[{"name": "a/b", "content": "x"}]),
            f"{UNIT}.dropIns[0].name is 'a/b'",
        ),
        "A-6-drop-in-empty": (
            a_unit(dropIns=[{"name": "a.conf", "content": ""}]),
            f"{UNIT}.dropIns[0].content is empty",
        ),
        "A-6-file-of-unit": (a_unit(filePaths=["/b"]) | a_file(), f"{UNIT}.filePaths[0] is '/b'"),
        "A-6-no-sandbox": (cri(sandboxImage=""), "spec.criConfig.containerd.sandboxImage is empty"),
        "A-6-upstream-twice": (registries("a", "a"), f"{REGISTRY}[1].upstream is 'a'"),
        "A-6-upstream-with-path": (registries("a/b"), f"{REGISTRY}[0].upstream is 'a/b'"),
        "A-6-upstream-port": (registries("a:0"), f"{REGISTRY}[0].upstream is 'a:0'"),
        "A-6-high-port": (registries("a:65536"), f"{REGISTRY}[0].upstream is 'a:65536'"),
        "A-6-capability": (
            cri(registries=[{"upstream": "a", "hosts": [{"url": "https://b", "capabilities": ["own"]}]}]),
            f"{REGISTRY}[0].hosts[0].capabilities: 'own' is none of pull, resolve, push",
        ),
        "A-6-plugin": (cri(plugins=[{"op": "change", "path": ["a"]}]), "plugins[0].op is 'change'"),
        "A-6-plugin-removed": (
            cri(plugins=[{"op": "remove", "path": ["a"], "values": {}}]),
            "plugins[0].values is set",
        ),
        "X-8-version": (
            {"inPlaceUpdates": {"kubelet": "1", "operatingSystemVersion": '1/e; s/"/x'}},
            "spec.inPlaceUpdates.operatingSystemVersion is '1/e; s/\"/x'",
        ),
        "A-6+X-9-none": ({"purpose": ""}, "unknown purpose: ; set spec.purpose"),
    },
)
def test_an_invalid_spec_is_refused(spec: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Malformed) as raised:
        parsed(**spec)
    assert complaint in str(raised.value)
    assert raised.value.codes == ("ERR_CONFIGURATION_PROBLEM",)


@cases(
    "spec, complaint",
    {
        "X-1+B.9-image": (a_file(content=IMAGE), f"{FILE}.content.imageRef is 'i'"),
        "A-6-containerd": (cri(), "spec.criConfig.containerd is set"),
        "X-3-nul": (
            inline("AA==", "b64", transmitUnencoded=True),
            f"{FILE}.content.inline.data holds a NUL byte",
        ),
    },
)
def test_new_machines_allow_less(spec: dict[str, Any], complaint: str) -> None:
    parsed("reconcile", **spec)
    with pytest.raises(Malformed) as raised:
        parsed("provision", **spec)
    assert complaint in str(raised.value)


@pytest.mark.parametrize("purpose", ["provision", "reconcile"])
@cases(
    "spec",
    {
        "A-6-nothing": {},
        "A-6+B.11-hosts": twice("a", "b", "c"),
        "A-6-empty": {"files": None, "units": None, "criConfig": {"name": "containerd"}},
        "A-6-unit": a_unit("var-a\\x2db@x:y_z.mount", filePaths=["/a"]) | a_file(),
        "A-6-base64-of-several-lines": inline("eA==\n", "b64", transmitUnencoded=True),
        "A-6-unusual-path": a_file('/opt/"a b"/$c', permissions=0o7777),
    },
)
def test_a_valid_spec_is_accepted(purpose: str, spec: dict[str, Any]) -> None:
    assert parsed(purpose, **spec).purpose == purpose


@rule("A-6")
def test_registries_are_hosts_with_or_without_port() -> None:
    given = ("_default", "docker.io", "registry.local:5001", "10.0.0.1", "[fd00::1]:5000")
    spec = parsed(
        **registries(*given), inPlaceUpdates={"kubelet": "1", "operatingSystemVersion": "1.2.0-a+b"}
    )
    assert tuple(one.upstream for one in spec.cri_config.containerd.registries) == given


def test_all_errors_are_reported_up_to_a_limit() -> None:
    with pytest.raises(Malformed) as raised:
        parsed(files=[{"path": "", "content": INLINE}] * 2, units=[{"name": "/"}] * 9)
    assert str(raised.value).count("spec.") == 5


@given(st.text(min_size=8, alphabet="0123456789abcdef"), st.sampled_from(["b64", "", "other"]))
def test_errors_never_contain_data(data: str, encoding: str) -> None:
    secret = f"!{data}!"
    with pytest.raises(Malformed) as raised:
        parsed("provision", **inline(secret, encoding), units=[{"name": ""}])
    assert secret not in str(raised.value)


def test_an_unparsable_spec_is_refused_without_its_data() -> None:
    with pytest.raises(Malformed, match=r"^spec\.files\.0\.content\.inline\.encoding: ") as raised:
        parsed(files=[{"path": "/a", "content": {"inline": {"data": "password"}}}])
    assert "password" not in str(raised.value)
