"""What is said about objects of Gardener, and about its end-to-end tests."""

from __future__ import annotations

from typing import Any

from tools.gardener import e2e, status

SEED = {
    "kind": "Seed",
    "metadata": {"name": "local"},
    "status": {
        "lastOperation": {
            "type": "Reconcile", "state": "Processing", "progress": 16, "description": "Waiting for Istio",
        },
        "lastErrors": [{"description": "no address"}],
        "conditions": [
            {"type": "GardenletReady", "status": "True", "message": "posts"},
            {"type": "ExtensionsReady", "status": "False", "message": "one is missing"},
        ],
    },
}  # fmt: skip


def test_an_object_is_shown_with_what_is_not_well() -> None:
    assert list(status.described(SEED)) == [
        "Seed       local                                Reconcile Processing 16 %",
        "    Waiting for Istio",
        "    no address",
        "    ExtensionsReady False: one is missing",
    ]


def test_an_object_without_status_is_shown() -> None:
    assert list(status.described({"kind": "Shoot", "metadata": {"namespace": "n", "name": "one"}})) == [
        "Shoot      n/one"
    ]


def step(text: str, state: str, *containers: str, **more: Any) -> dict[str, Any]:
    return {
        "LeafNodeType": "It", "LeafNodeText": text, "State": state, "RunTime": 2_000_000_000,
        "ContainerHierarchyTexts": ["Shoot Tests", *(containers or ("Shoot",))], **more,
    }  # fmt: skip


def test_steps_of_one_test_are_one_result() -> None:
    failed = step("Wait", "failed", "Two", Failure={"Message": "\nTimed out\nat line 5"})
    report: list[dict[str, Any]] = [
        {
            "SpecReports": [
                {"LeafNodeType": "BeforeSuite", "State": "passed"},
                step("Create", "passed"), step("Delete", "passed"),
                step("Create", "passed", "Two"), failed, step("Delete", "skipped", "Two"),
                step("Create", "skipped", "Left out"),
            ]
        },
        {"SpecReports": None},
    ]  # fmt: skip
    assert e2e.results(report) == [
        e2e.Result("Shoot Tests › Shoot", "passed", 4.0),
        e2e.Result("Shoot Tests › Two", "failed", 6.0, "Wait: Timed out"),
    ]


def test_a_step_that_several_tests_share_belongs_to_each_of_them() -> None:
    failed = step("Connect", "failed", "One", "Bastion", Failure={"Message": "refused"})
    report = [{"SpecReports": [step("Create", "passed", "One"), failed, step("Delete", "skipped", "One")]}]

    assert e2e.results(report) == [e2e.Result("Shoot Tests › One", "failed", 6.0, "Connect: refused")]
