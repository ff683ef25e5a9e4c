"""The page in a real browser: Debian's Chromium, by Playwright."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, Route, async_playwright, expect

from bus import subjects
from bus.messages import Call, Reason, Wish
from tests.support import pages
from tests.support.pages import World, record
from tests.support.roles import role_server
from ui.sessions import COOKIE
from windowbox.models.refs import (
    CLUSTERS,
    CONTROL_PLANES,
    INFRASTRUCTURES,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    OPERATING_SYSTEM_CONFIGS,
    SERVICES,
    WORKERS,
    ObjectRef,
    Resource,
)  # fmt: skip
from workers.loadbalancer.edge.edgestatus import EdgeStatus, ListenerStatus, LoadBalancerStatus, RangeStatus
from workers.loadbalancer.envoy.admin import Health
from workers.loadbalancer.envoy.edge import About

CHROMIUM = shutil.which("chromium") or ""
pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="no chromium on this machine"),
    pytest.mark.asyncio(loop_scope="module"),
]

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text()
SHOTS = os.environ.get("SCREENSHOTS", "")
"""A folder that gets screenshots of all pages, `docs/ui` for those of the documentation."""
WIDE, NARROW, HUGE = (1440, 900), (375, 812), (3840, 2160)
STORY = "/story/runtime/dnsrecord/shoot--local--demo/www"
PAGES = {"attention": "/attention", "find": "/find?q=dnsrecord", "pools": "/pools", "story": STORY} | {
    "shoots": "/shoots",
    "shoot": "/shoot/shoot--local--demo",
    "balancers": "/balancers",
    "balancer": "/balancer/runtime/shoot--local--demo/kube-apiserver",
}
WWW = record("www")
AT_ONCE: dict[str, Any] = {"waited": 0.0002, "seconds": 0.0005}
"""So that steps come one after the other, as those of real processes."""
PATIENCE = 60_000
"""Milliseconds until a test gives up."""
expect.set_options(timeout=PATIENCE)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    with role_server(tmp_path_factory.mktemp("bus")) as roles:
        async with (
            pages.served(roles) as made,
            pages.process(made, pools=("dnsrecord", "infrastructure", "worker", "patch")),
            pages.edge(made, traffic()),
        ):
            await fill(made)
            await balance(made)
            await grow(made)
            yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        # As root, as which many containers run, Chromium has no sandbox of its own.
        opened = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        await opened.close()


def dns(address: str, **more: Any) -> Call:
    request = {
        "do": "replace",
        "name": "www.local.gardener.cloud",
        "ttl": 120,
        "type": "A",
        "values": [address],
    }
    return Call(door="dns", request=request, effect=True, **more)


async def fill(world: World) -> None:
    """A cloud with a few troubles."""
    for number in range(40):
        await world.object(record(f"site-{number}"), {"spec": {"name": f"site-{number}"}})
        await world.run(record(f"site-{number}"), ago=12.0 * number)
    key = "the name server 10.0.0.53 refuses updates of local.gardener.cloud: check the key in the Secret dns"
    for number in range(4):
        api = record("api", f"shoot--local--s{number}")
        await world.object(api, {"spec": {"name": f"api.s{number}"}})
        await world.run(api, "failed", key, wish=Wish(reason=Reason.RETRY, attempt=3), ago=400.0 + number)
        await world.later(api, Wish(reason=Reason.RETRY, note=key), 3000)
    worker = ObjectRef("runtime", WORKERS.id, "shoot--local--demo", "demo")
    at_work = {"lastOperation": {"state": "Processing"}}
    await world.object(worker, {"spec": {"type": "local"}, "status": at_work})
    why = "machine demo-a-z1-5c9d7-x2k has not joined: its kubelet reports no node"
    await world.run(worker, "waiting", why, pool="worker", ago=310)
    old = ObjectRef("runtime", INFRASTRUCTURES.id, "shoot--local--old", "old")
    leaving = {"deletionTimestamp": "2026-11-28T12:00:00Z", "finalizers": ["extensions.gardener.cloud/local"]}
    await world.object(old, {"metadata": leaving})
    await world.object(record("crash"), {"spec": {"name": "crash"}})
    await world.later(record("crash"), Wish(reason=Reason.QUARANTINED, note="set aside"), 3000)
    await world.object(
        WWW, {"spec": {"name": "www.local.gardener.cloud", "values": ["10.0.0.1"], "ttl": 120}}
    )
    report = Call(
        door="report", effect=True,
        request={"patch": {"lastOperation": {"type": "Reconcile", "state": "Succeeded"}}},
    )  # fmt: skip
    await world.run(WWW, calls=[dns("10.0.0.1"), report], **AT_ONCE)
    await world.run(WWW, pool="patch", **AT_ONCE)
    await world.object(
        WWW, {"spec": {"name": "www.local.gardener.cloud", "values": ["10.0.0.2"], "ttl": 120}}
    )
    error = {"type": "Refused", "message": "NOTAUTH"}
    await world.run(
        WWW, "failed", "the name server refuses the update", calls=[dns("10.0.0.2", error=error)], **AT_ONCE
    )


def service(name: str, namespace: str = "shoot--local--demo") -> ObjectRef:
    return ObjectRef("runtime", SERVICES.id, namespace, name)


API, WEB, SLOW = service("kube-apiserver"), service("web", "shop"), service("slow", "shop")


def traffic() -> EdgeStatus:
    """What the edge says about three load balancers."""
    nodes = [Health(f"machine-{zone}", f"10.1.0.{zone}", 30443, True) for zone in (1, 2, 3)]
    sick = Health("machine-4", "10.1.0.4", 30443, False, ("active_hc_timeout",))

    def one(ref: ObjectRef, address: str, ends: list[Health], open_: int, sent: int) -> LoadBalancerStatus:
        place = ListenerStatus(
            address=address, port=443, protocol="TCP", backends=tuple(ends), open=open_, total=open_ * 99,
            received=sent // 9, sent=sent,
        )  # fmt: skip
        healthy = sum(end.healthy for end in ends)
        return LoadBalancerStatus(
            key=subjects.key(ref), backends=len(ends), healthy=healthy, open=open_, total=place.total,
            places=(place,),
        )  # fmt: skip

    balancers = (
        one(API, "172.18.255.225", [*nodes, sick], 214, 5_300_000),
        one(WEB, "172.18.255.226", nodes, 12, 40_000),
        one(SLOW, "172.18.255.227", [sick], 0, 0),
    )  # fmt: skip
    usage = RangeStatus(range="172.18.255.224/27", family="IPv4", used=3, total=30)
    envoys = (About("edge", 2, "1.40.0", 7400, 4711),)
    return EdgeStatus(count=3, envoys=envoys, balancers=balancers, ranges=(usage,))


async def balance(world: World) -> None:
    """Load balancers, one of which serves nobody, and a name."""
    await pages.balanced(world, API, "172.18.255.225")
    await pages.balanced(world, WEB, "172.18.255.226")
    await pages.balanced(world, SLOW, "172.18.255.227")
    await world.object(service("new", "shop"), {"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}})
    why = "no address is free in 172.18.255.224/27: it waits until another Service releases one"
    await world.run(service("new", "shop"), "waiting", why, pool="loadbalancer", ago=200)
    name = {"name": "api.demo.local.gardener.cloud", "recordType": "A", "values": ["172.18.255.225"]}
    await world.object(record("demo-external"), {"spec": name})


MACHINE = ObjectRef("runtime", MACHINES.id, "shoot--local--demo", "demo-a-z1-5c9d7-x2k")


async def grow(world: World) -> None:
    """The Shoot that a machine keeps from being ready."""
    namespace = MACHINE.namespace

    async def part(kind: Resource, name: str, owner: str = "", **body: Any) -> None:
        metadata: dict[str, Any] = {"uid": name} | ({"ownerReferences": [{"uid": owner}]} if owner else {})
        await world.object(ObjectRef("runtime", kind.id, namespace, name), {"metadata": metadata, **body})

    last = {
        "state": "Processing",
        "type": "Create",
        "progress": 68,
        "description": "Waiting until Worker is ready",
    }
    shoot = {"metadata": {"name": "demo", "namespace": "garden-local"}, "status": {"lastOperation": last}}
    await world.object(ObjectRef("runtime", CLUSTERS.id, "", namespace), {"spec": {"shoot": shoot}})
    await part(INFRASTRUCTURES, "demo")
    await part(CONTROL_PLANES, "demo")
    for purpose in ("provision", "reconcile"):
        await part(OPERATING_SYSTEM_CONFIGS, f"gardener-node-agent-{purpose}", spec={"purpose": purpose})
    scale: dict[str, Any] = {"spec": {"replicas": 2}, "status": {"readyReplicas": 1}}
    await part(MACHINE_DEPLOYMENTS, "demo-a-z1", **scale)
    await part(MACHINE_SETS, "demo-a-z1-5c9d7", "demo-a-z1", **scale)
    for name, phase in ((MACHINE.name, "Pending"), ("demo-a-z1-5c9d7-q8w", "Running")):
        await part(MACHINES, name, "demo-a-z1-5c9d7", status={"currentStatus": {"phase": phase}})
    await world.run(MACHINE, "waiting", "its kubelet reports no node", pool="machine", ago=290)
    await world.later(MACHINE, Wish(reason=Reason.RETRY), 3000, pool="machine")


async def opened(
    browser: Browser, world: World, size: tuple[int, int] = WIDE, scheme: Any = "light"
) -> tuple[BrowserContext, Page, list[str]]:
    """A window that has signed in, and what goes wrong in it."""
    width, height = size
    context = await browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE)
    page, wrong = await context.new_page(), list[str]()
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda one: None if one.url.startswith(world.url) else wrong.append(one.url))
    await context.add_cookies([{"name": COOKIE, "value": world.cookie(), "url": world.url}])
    await page.goto(world.url + "/")
    return context, page, wrong


async def live(page: Page) -> None:
    await expect(page.locator("#live")).to_have_text("live", timeout=PATIENCE)


async def violations(page: Page) -> list[str]:
    """What a person with a screen reader, or who sees little, would stumble over."""
    await page.evaluate(AXE)
    found = await page.evaluate("() => axe.run(document)")
    return [f"{one['id']}: {[node['html'][:120] for node in one['nodes']]}" for one in found["violations"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW, HUGE], ids=["wide", "narrow", "huge"])
async def test_every_page_is_accessible_fits_and_asks_nobody_else(
    world: World, browser: Browser, size: tuple[int, int], scheme: str
) -> None:
    context, page, wrong = await opened(browser, world, size, scheme)
    for name, path in PAGES.items():
        await page.goto(world.url + path)
        await live(page)
        assert await violations(page) == [], name
        assert await page.evaluate("document.documentElement.scrollWidth") <= size[0], name
        if SHOTS and size != HUGE:
            which = "narrow" if size == NARROW else scheme
            await page.screenshot(path=Path(SHOTS) / f"{name}-{which}.png")
    assert wrong == []
    await context.close()


async def test_a_link_signs_in_and_leads_to_the_start(world: World, browser: Browser) -> None:
    page = await browser.new_page()
    await page.goto(world.link())
    await page.wait_for_url(world.url + "/")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Needs attention")
    await page.close()


async def test_signing_in_is_accessible_and_says_what_is_wrong(world: World, browser: Browser) -> None:
    page = await browser.new_page()
    await page.goto(world.url + "/pools")
    assert page.url == world.url + "/sign-in"
    assert await violations(page) == []
    await page.get_by_label("A token").fill("clusters: []\nusers: []")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("no cluster in this test")
    await page.close()


async def test_the_reason_comes_first_and_leads_to_its_story(world: World, browser: Browser) -> None:
    context, page, _ = await opened(browser, world)
    first = page.locator(".need").first
    await expect(first).to_contain_text("the name server 10.0.0.53 refuses updates")
    await expect(first).to_contain_text("tried again by itself")
    await expect(page.locator(".sum")).to_contain_text("objects are well")
    await first.get_by_role("link").first.click()
    await page.wait_for_url("**/story/runtime/dnsrecords.extensions.gardener.cloud/**")
    await expect(page.get_by_role("heading", level=1)).to_have_text("shoot--local--s3/api")
    await context.close()


async def test_a_page_changes_by_itself_and_keeps_what_is_open(world: World, browser: Browser) -> None:
    context, page, wrong = await opened(browser, world)
    await live(page)
    await page.locator("details summary").first.click()
    troubled = record("new-trouble")
    await world.object(troubled, {"spec": {}})
    await world.run(troubled, "failed", "the cable was cut")
    await expect(page.get_by_text("the cable was cut")).to_be_visible(timeout=PATIENCE)
    assert await page.locator("details").first.get_attribute("open") is not None
    assert (await page.title()).startswith("(")
    await world.run(troubled)
    await expect(page.get_by_text("the cable was cut")).to_have_count(0, timeout=PATIENCE)
    assert wrong == []
    await context.close()


async def test_a_story_goes_on_while_somebody_looks(world: World, browser: Browser) -> None:
    context, page, _ = await opened(browser, world)
    told = record("told")
    await world.object(told, {"spec": {"name": "told"}})
    await page.goto(f"{world.url}/story/runtime/dnsrecord/shoot--local--demo/told")
    await live(page)
    await world.run(told, "failed", "the cable was cut", calls=[dns("10.0.0.9")])
    await expect(page.locator(".sum")).to_contain_text("the cable was cut", timeout=PATIENCE)
    await expect(page.locator(".step.world")).to_contain_text("10.0.0.9")
    await world.run(told)
    await expect(page.locator(".sum")).to_contain_text("All is done", timeout=PATIENCE)
    await context.close()


async def test_load_balancers_are_shown_with_their_traffic_as_it_passes(
    world: World, browser: Browser
) -> None:
    context, page, wrong = await opened(browser, world)
    await page.goto(world.url + "/balancers")
    await live(page)
    first, api = page.locator("tbody tr").first, page.locator("tbody tr", has_text="kube-apiserver")
    await expect(first).to_contain_text("none of its backends is healthy")
    await expect(api).to_contain_text("api.demo.local.gardener.cloud")
    await expect(api).to_contain_text("3 of 4")
    await expect(api).to_contain_text(re.compile(r"\d KiB/s|\d MiB/s"), timeout=60_000)
    await api.get_by_role("link", name="kube-apiserver").click()
    await page.wait_for_url("**/balancer/**")
    await expect(page.locator("tr.bad")).to_contain_text("its health check is not answered")
    await pages.balanced(world, API, "172.18.255.225", problems={"443/TCP": "another process holds the port"})
    await expect(page.locator(".sum")).to_contain_text("another process holds the port", timeout=60_000)
    await pages.balanced(world, API, "172.18.255.225")
    assert wrong == []
    await context.close()


async def test_a_shoot_shows_what_blocks_it_until_it_does_not(world: World, browser: Browser) -> None:
    context, page, wrong = await opened(browser, world)
    await page.goto(world.url + "/shoots")
    await page.get_by_role("link", name="shoot--local--demo").click()
    await page.wait_for_url("**/shoot/shoot--local--demo")
    await live(page)
    await expect(page.get_by_role("link", name=f"Machine {MACHINE.name}")).to_be_visible()
    blocking = page.locator(".part.blocks", has_text=MACHINE.name)
    await expect(blocking.last.locator(".block")).to_contain_text("its kubelet reports no node")
    await expect(blocking.last.locator(".block")).to_contain_text("next try in")
    body: dict[str, Any] = {
        "metadata": {"uid": MACHINE.name, "ownerReferences": [{"uid": "demo-a-z1-5c9d7"}]}
    }
    await world.object(MACHINE, {**body, "status": {"currentStatus": {"phase": "Running"}}})
    await world.run(MACHINE, pool="machine")
    await expect(page.get_by_role("link", name=f"Machine {MACHINE.name}")).to_have_count(0)
    assert wrong == []
    await context.close()


async def test_everything_can_be_done_by_keys(world: World, browser: Browser) -> None:
    context, page, _ = await opened(browser, world)
    await live(page)
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("k")
    first = "document.querySelector('[data-row]')"
    assert await page.evaluate(f"document.activeElement.closest('[data-row]') === {first}")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/story/**")
    await page.keyboard.press("g")
    await page.keyboard.press("p")
    await page.wait_for_url("**/pools")
    await page.keyboard.press("/")
    await page.keyboard.type("site-7")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/find?q=site-7")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement !== document.body")
    await context.close()


async def test_light_or_dark_can_be_chosen_and_is_kept(world: World, browser: Browser) -> None:
    context, page, _ = await opened(browser, world)
    background = "getComputedStyle(document.documentElement).backgroundColor"
    light = await page.evaluate(background)
    await page.get_by_role("button", name="Light or dark").click()
    dark = await page.evaluate(background)
    assert dark != light
    await page.reload()
    assert await page.evaluate(background) == dark
    await context.close()


async def test_a_window_connects_again_after_it_was_refused(world: World, browser: Browser) -> None:
    context, page, _ = await opened(browser, world)
    refused = 0

    async def refuse(route: Route) -> None:
        nonlocal refused
        refused += 1
        await (route.fulfill(status=429, body="Too many") if refused == 1 else route.continue_())

    await page.route("**/live/**", refuse)
    await page.goto(f"{world.url}/attention")
    await live(page)
    assert refused == 2
    await context.close()


async def test_hostile_names_run_nothing(world: World, browser: Browser) -> None:
    context, page, wrong = await opened(browser, world)
    text = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    hostile = record(text)
    await world.object(hostile, {"spec": {"name": text}})
    await world.run(hostile, "failed", text, process=text)
    await expect(page.get_by_text(text).first).to_be_visible(timeout=PATIENCE)
    await page.get_by_role("link", name=text).first.click()
    await page.wait_for_url("**/story/**")
    await live(page)
    assert "owned" not in (await page.title()).split("<")[0]
    assert await page.locator("img[src=x]").count() == 0
    assert wrong == []
    await world.run(hostile)
    await context.close()
