"""The dashboard on a real Prometheus that scrapes real workers in all modes: each panel has data.

No Grafana is here: what it draws was not looked at.
"""

import asyncio
import itertools
import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from proof.broker.staged import Staged
from streamdedup.metrics import forecast
from tests.broker.base import DEADLINE_S, Broker, free_ports
from tests.deployment import Deployment, keyed
from tests.lists.files import list_file
from tests.local import LocalWorker, Start
from tests.metrics.test_dashboard import PANELS
from tests.programs import program_of_debian
from tests.spread import spread

EVENTS = 200
SCRAPE_S = 0.5


@contextmanager
def prometheus(program: str, directory: Path, workers: dict[str, int]) -> Iterator[str]:
    """Run Prometheus, which scrapes each of `workers`, by name and port, every `SCRAPE_S`; its address."""
    (port,) = free_ports(1)
    jobs = [
        {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{at}"]}]}
        for name, at in workers.items()
    ]
    config = directory / "prometheus.yml"
    times = dict.fromkeys(("scrape_interval", "scrape_timeout"), f"{SCRAPE_S * 1000:.0f}ms")
    config.write_text(yaml.safe_dump({"global": times, "scrape_configs": jobs}), "utf-8")
    address = f"127.0.0.1:{port}"
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}"]
    log = (directory / "prometheus.log").open("wb")
    with (
        log,
        subprocess.Popen(
            [*command, f"--web.listen-address={address}"], stdout=log, stderr=log
        ) as process,
    ):
        try:
            yield address
        finally:
            process.kill()


def is_empty(address: str, expression: str) -> bool:
    """Whether an expression has no value now."""
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/query?{query}", timeout=10) as answer:
            return not json.load(answer)["data"]["result"]
    except urllib.error.HTTPError:
        raise
    except OSError:  # it does not listen yet
        return True


async def served(worker: LocalWorker) -> int:
    """Wait until a worker serves its pages; the port."""
    status = worker.worker.status
    await worker.until(lambda: status.port is not None, "a port")
    assert status.port is not None
    return status.port


def deployments(bootstrap: str, directory: Path) -> dict[str, Deployment]:
    """One of each mode, with events in its input."""
    plain, window, lists = (
        Deployment(bootstrap, directory / name, partitions=2).create(retention_ms=-1)
        for name in ("plain", "window", "lists")
    )
    window.config["filter"] = {"kind": "window", "retention": "1d", "capacity": 10_000}
    lists.config["blocklist"] = {"file": str(list_file(directory / "block.list", [b"k1", b"k2"]))}
    for deployment in (plain, window, lists):
        deployment.feed([*keyed(range(EVENTS), 2), *keyed(range(EVENTS), 2)])
    staged = Staged(bootstrap, directory / "staged")
    staged.feed(spread(EVENTS, EVENTS // 2).events)
    return {"plain": plain, "window": window, "lists": lists, "staged": staged}


@pytest.mark.broker
async def test_each_panel_has_data(
    broker: Broker, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of workers in all modes, one of which has a list that is refused."""
    program = program_of_debian("prometheus", "prometheus")
    monkeypatch.setattr(forecast, "SPAN_S_MIN", 1.0)
    monkeypatch.setattr(forecast, "EVERY_S", 0.5)
    made = await asyncio.to_thread(deployments, broker.bootstrap_servers, tmp_path)
    workers = dict[str, LocalWorker]()
    for name, deployment in made.items():
        deployment.directory.mkdir(exist_ok=True)
        deployment.config["server"] = {"port": 0}
        deployment.config["snapshot"]["interval_s"] = 1
        workers[name] = start(deployment)
    ports = {name: await served(worker) for name, worker in workers.items()}
    await asyncio.gather(*(worker.consumed(EVENTS) for worker in workers.values()))
    (tmp_path / "block.list").write_bytes(b"no list")
    workers["lists"].worker.reload()
    left = {(title, expression) for title, _, expression in PANELS}
    numbers = itertools.count(EVENTS)
    with prometheus(program, tmp_path, ports) as address, suppress(TimeoutError):
        async with asyncio.timeout(DEADLINE_S):
            while left:
                # New keys keep rates and forecasts going, as a stream does.
                more = keyed(itertools.islice(numbers, 10), 2)
                await asyncio.to_thread(made["plain"].feed, more)
                await asyncio.sleep(SCRAPE_S)
                left = {one for one in left if await asyncio.to_thread(is_empty, address, one[1])}
    assert not left
