"""Claims about the hosts of URLs: all cases of the standard, all ways to write a host, and all home pages."""

import json
from pathlib import Path

from proof.keys.test_url import homepages
from streamdedup.events import Column
from streamdedup.keys.normalizers.host_column import hosts
from streamdedup.keys.normalizers.hosts import SIGN, canonical
from tests.keys.test_hosts import URL, asked, by_python, cell, may_exist
from tests.rows import table

# The URLs of http and https in url/resources/urltestdata.json and toascii.json of web-platform-tests that the standard
# takes, and the host of each.
WHATWG_CASES: list[tuple[str, str]] = json.loads(
    Path(__file__).with_name("whatwg_hosts.json").read_text(encoding="utf-8")
)


@table(WHATWG_CASES)
def test_the_standard_s_own_cases(url: str, host: str) -> None:
    """Each has the host that the standard gives, or no key."""
    found = cell(url)
    if found is not None and may_exist(host):
        assert found == SIGN + canonical(host).encode()


def test_the_hosts_of_home_pages() -> None:
    """Each is as the standard has it, and the kernel finds all."""
    pages = Column.of([page.encode() for page in homepages()])
    keys, malformed = URL.of_column(pages)
    found = list(hosts(keys, drops_www=False))
    for row, host in enumerate(found):
        if row not in malformed:
            name = asked((pages[row] or b"").decode())
            assert name is not None
            assert host == SIGN + canonical(name).encode()
    assert by_python(keys) == sorted(malformed)
