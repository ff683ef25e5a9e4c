"""Nodes that break, and are mended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.support import echoclient, worldwithnodes
from tests.support.worldwithnodes import NodeWorld


@pytest.fixture(scope="module")
def echo(nodes: NodeWorld) -> Iterator[dict[str, Any]]:
    """The echo servers behind a Service; a node answers for its own."""
    with nodes.exposed("breaking", "echo", type="LoadBalancer", externalTrafficPolicy="Local") as service:
        yield service


def test_a_cut_off_node_drops_everything_until_repaired(nodes: NodeWorld, echo: dict[str, Any]) -> None:
    node, port = nodes.nodes[0], worldwithnodes.node_port(echo, 8080)
    echoclient.until(lambda: echoclient.tcp(node.v4, port))
    node.cut()
    with pytest.raises(TimeoutError):
        echoclient.tcp(node.v4, port, timeout=1)
    nodes.repair(node)
    assert echoclient.tcp(node.v4, port).node == node.name


@pytest.mark.long  # that it drops everything: the test before; what clients notice: test_zero_drop.py
@pytest.mark.slow
def test_a_node_cut_off_becomes_unready(nodes: NodeWorld) -> None:
    node = nodes.nodes[1]
    node.cut()
    nodes.wait_node(node, ready=False)
    nodes.repair(node)
    nodes.wait_node(node, ready=True)


def test_a_node_returns_with_its_pods(nodes: NodeWorld, echo: dict[str, Any]) -> None:
    node, port = nodes.nodes[2], worldwithnodes.node_port(echo, 8080)
    echoclient.until(lambda: echoclient.tcp(node.v4, port))
    nodes.kill(node)
    with pytest.raises(OSError):
        echoclient.tcp(node.v4, port, timeout=1)
    nodes.repair(node)
    assert echoclient.until(lambda: echoclient.tcp(node.v4, port)).node == node.name


@pytest.mark.parametrize("program", ["kubelet", "kube-proxy", "containerd"])
def test_pods_answer_while_a_node_component_restarts(
    nodes: NodeWorld, echo: dict[str, Any], program: str
) -> None:
    node, port = nodes.nodes[0], worldwithnodes.node_port(echo, 8080)
    echoclient.until(lambda: echoclient.tcp(node.v4, port))
    before = nodes.sandbox.state.children[f"{node.name}/{program}"].restarts
    nodes.call(nodes.sandbox.kill(f"{node.name}/{program}"))
    assert echoclient.tcp(node.v4, port).node == node.name
    nodes.call(nodes.sandbox.ready(f"{node.name}/{program}"))
    assert nodes.sandbox.state.children[f"{node.name}/{program}"].restarts == before + 1
    assert echoclient.tcp(node.v4, port).node == node.name


def _hangs(address: str) -> None:
    # A moment after the signal, one of its threads may still answer.
    try:
        status = echoclient.status(address, 10256, timeout=1)
    except TimeoutError:
        return
    raise AssertionError(f"it answers {status}")


def test_a_program_of_a_node_can_hang(nodes: NodeWorld) -> None:
    node = nodes.nodes[0]
    nodes.sandbox.signal(f"{node.name}/kube-proxy", signal.SIGSTOP)
    try:
        echoclient.until(partial(_hangs, node.v4))
    finally:
        nodes.sandbox.signal(f"{node.name}/kube-proxy", signal.SIGCONT)
    assert echoclient.until(lambda: echoclient.status(node.v4, 10256)) == 200
