"""`python -m bench acceptance`: writes results/acceptance.md; with names of sections, prints those only."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from bench.acceptance import bits, counting, cuckoo, dleft, growth, sizes, window
from bench.acceptance.report import Section, document
from bench.entry import add_names
from bench.harness import RESULTS, machine_text

DOCUMENT = RESULTS / "acceptance.md"
SECTIONS: dict[str, Callable[[], Section]] = {
    "churn": dleft.churn,
    "dleft": dleft.errors,
    "dlcbf": counting.beside_dlcbf,
    "counting": counting.counters,
    "cuckoo": cuckoo.section,
    "table": bits.table,
    "small": bits.small,
    "probes": bits.probe_sequences,
    "window": window.section,
    "growth": growth.section,
    "sizes": sizes.section,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """1 where a figure is out of its bounds."""
    parser = argparse.ArgumentParser(prog="python -m bench acceptance", description=__doc__)
    add_names(parser, "SECTION", SECTIONS)
    names = parser.parse_args(arguments).names
    started, sections = time.monotonic(), []
    here = machine_text("numpy", "numba", "mmh3")
    print(here, flush=True)
    for name in names or SECTIONS:
        begun = time.monotonic()
        sections.append(SECTIONS[name]())
        print(f"\n{sections[-1].markdown()}\n\n({time.monotonic() - begun:.1f} s)", flush=True)
    if not names:
        DOCUMENT.write_text(document(sections, here, time.monotonic() - started), "utf-8")
        print(f"\n{DOCUMENT} is written")
    out = [figure.row() for section in sections for figure in section.figures if not figure.holds]
    for row in out:
        print(f"out of bounds: {row}", file=sys.stderr)
    return 1 if out else 0


if __name__ == "__main__":
    sys.exit(main())
