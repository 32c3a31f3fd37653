"""Claims about a block list while events flow: files that are replaced, changes from a topic, what must not harm."""

import signal
from pathlib import Path

from disposable_email_domains import blocklist as disposable

from tests.broker.topics import (
    read_all,
)
from tests.deployment import Deployment
from tests.lists.screening import blocked, build, header

DOMAINS = sorted(name for name in disposable if "xn--" not in name)  # one is none by IDNA 2008


def test_the_disposable_domains_of_a_package_are_screened(
    screened: Deployment, tmp_path: Path
) -> None:
    """Every address of theirs is blocked, as is that of one below a domain with a dot; everybody else passes."""
    build(tmp_path / "block.list", [*(f"@{domain}" for domain in DOMAINS), ".spam.example"])
    caught = [f"User.{n}@{domain.upper()}" for n, domain in enumerate(DOMAINS)]
    caught += ["a@spam.example", "a@deep.er.spam.example"]
    others = [f"user{n}@company{n % 7}.example" for n in range(2000)] + ["a@notspam.example"]
    addresses = enumerate([*caught, *others])
    screened.feed((n % 2, None, address.encode(), [], None) for n, address in addresses)
    screened.run_to_the_end()
    assert sorted(r.value or b"" for r in read_all(screened.bootstrap, screened.sink)) == sorted(
        a.encode() for a in others
    )
    letters = blocked(screened)
    assert sorted(r.value or b"" for r in letters) == sorted(a.encode() for a in caught)
    assert {header(r, "rule") for r in letters} == {"domain"}


def test_sighup_reads_the_lists_again(screened: Deployment, tmp_path: Path) -> None:
    """Also if the file looks as it did; the worker goes on."""
    version = build(tmp_path / "block.list", ["@first.example"])
    with screened.running() as worker:
        worker.wait_for("shard_live", 2)
        worker.process.send_signal(signal.SIGHUP)
        found = worker.wait_for("list_in_force", 2)
        assert [line["version"].partition("+")[0] for line in found] == [version, version]
        assert worker.interrupt() == 0
