"""One Infrastructure while a provider cluster joins that has the objects of many Shoots."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Sequence
from dataclasses import dataclass

import yaml
from rich.text import Text

from sandbox import roles
from sandbox.options import TOGETHER, Options
from sandbox.servers import certificates
from tools.bench import shoots
from tools.bench.client import Observer, each
from tools.bench.owned import echoes
from tools.bench.report import MachineFacts, Report, Spread, say
from tools.bench.shoots import Shoots
from tools.bench.world import World, world
from windowbox.models.refs import INFRASTRUCTURES

_SINGLES = 15
_APART = 0.2
"""Seconds between two of the Infrastructures that are measured."""


@dataclass(frozen=True)
class JoiningFigures(MachineFacts):
    """The result of `bench joining`."""

    shoots: int
    before: Spread
    """One Infrastructure alone."""
    during: Spread
    """The same, from the moment in which the cluster joins."""
    series: Sequence[float]
    """In milliseconds, one after the other."""
    checks: int
    """Drift checks that followed."""


async def measure(count: int) -> Report:
    """Measure Infrastructures, one after the other, while the cluster of `count` others joins."""
    options = Options.model_validate(TOGETHER)
    async with (
        world("joining", options) as here,
        Observer.watching(here.client, INFRASTRUCTURES, "") as observer,
    ):
        made, joining = Shoots.within(here), Shoots(here.client, _of_another_cluster(here))
        everything, late = range(count + _SINGLES), range(count + _SINGLES, count + 2 * _SINGLES)
        say(f"{count} Shoots with Infrastructures")
        await each([*everything], made.prepare)
        await each([*late], joining.prepare)
        await each(range(count), made.infrastructure)
        await observer.all_of(map(shoots.named, range(count)))
        await here.quiet()
        say(f"{_SINGLES} Infrastructures one after the other, then as many in a cluster that joins")
        before = [await _one(made, observer, number) for number in everything[count:]]
        await here.quiet()
        since = await echoes.now(here)
        during = [await _one(joining, observer, number) for number in late]
        # Deferred checks come 50 ms apart.
        await asyncio.sleep(2 + 0.06 * count)
        await here.quiet()
        checks = sum(run.wish.drift for run in await echoes.runs(here.bus, since))
    series = [round(1000 * seconds) for seconds in during]
    figures = JoiningFigures(count, Spread.of(before), Spread.of(during), series, checks)
    return Report(
        figures,
        [
            Text(
                f"One Infrastructure alone: p50 {figures.before.p50} ms, at most {figures.before.max} ms\n"
                f"while a provider cluster with {count} Shoots joins: p50 {figures.during.p50} ms, at most "
                f"{figures.during.max} ms; one after the other: {', '.join(map(str, series))}\n"
                f"{checks} drift checks followed"
            )
        ],
    )


async def _one(made: Shoots, observer: Observer, number: int) -> float:
    """The seconds until an Infrastructure is done."""
    started = time.perf_counter()
    await made.infrastructure(number)
    name = shoots.named(number)
    took = (await observer.all_of([name]))[name] - started
    await asyncio.sleep(_APART)
    return took


def _of_another_cluster(here: World) -> str:
    """A kubeconfig of the sandbox's cluster that looks like one of another cluster: it trusts one more CA."""
    config = yaml.safe_load(roles.provider_kubeconfig(here.sandbox.folder))
    folder = here.sandbox.folder / "another"
    folder.mkdir()
    cluster = config["clusters"][0]["cluster"]
    trusted = base64.b64decode(cluster["certificate-authority-data"])
    trusted += certificates.authority(folder).certificate.read_bytes()
    cluster["certificate-authority-data"] = base64.b64encode(trusted).decode()
    return str(yaml.safe_dump(config))
