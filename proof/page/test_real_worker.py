"""The page of a real worker. Alone in this file: the loops of a browser and of a worker do not share a thread."""

from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from proof.page.browser import Served, Tab, chromium
from proof.page.documents import NOW, Values, healthy, trouble
from proof.page.test_page import READ
from streamdedup.server.pulse import Pulse
from streamdedup.server.state import document, observe
from tests.deployment import keyed
from tests.local import Start, on_virtual_clock
from tests.memory_deployment import MemoryDeployment


def test_the_page_of_a_real_worker_has_its_numbers(tmp_path: Path) -> None:
    """Over a broker in memory; and the documents that the other tests make up have the names of its document."""
    real = Values()
    deployment = MemoryDeployment(tmp_path, partitions=2).create(retention_ms=-1)

    @on_virtual_clock
    async def _(start: Start) -> None:
        async with start(deployment, connect=deployment.connect) as worker:
            await worker.live()
            deployment.feed([*keyed(range(10), 2), *keyed(range(10), 2)])
            await worker.until(lambda: worker.worker.tally.consumed == 20, "20 events")
            status, pulse = worker.worker.status, Pulse()
            observe(status, pulse)
            real.update(document(status, pulse))

    assert names(real) <= names(trouble()) | names(healthy())
    served, topic = Served(tmp_path / "token"), deployment.source
    with chromium() as browser:
        tab = Tab(browser, served, NOW)
        page = tab.show(real)
        expect(page.locator("h1")).to_have_text(f"Ready: 2 partitions of {topic} are live")
        rows = page.evaluate(READ)["rows"]
        assert [row[0].split(" | ")[0] for row in rows] == [f"{topic}/0", f"{topic}/1"]
        page.click("tbody .place >> nth=0")
        details = page.locator(".details").inner_text()
        assert f"{real['shards'][0]['verdicts']['duplicate']}, " in details
        assert tab.errors == []
    served.close()


def names(value: Any, path: str = "") -> set[str]:
    """The paths of all leaves that are not null, and not an empty list."""
    if isinstance(value, dict):
        return {name for key, below in value.items() for name in names(below, f"{path}.{key}")}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return names(value[0], path)
    return set() if value in (None, []) else {path}
