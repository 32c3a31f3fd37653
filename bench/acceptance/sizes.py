"""What a key costs in every kind, and what 100 million addresses take beside the 1.6 GB of the literature."""

from bench.acceptance.chance import random_keys
from bench.acceptance.report import Figure, Section, near
from streamdedup import filters
from streamdedup.filters.fuse.fuse import Fuse
from streamdedup.filters.kinds import KINDS

ADDRESSES = 100_000_000
LITERATURE_GB = 1.6  # fingerprints of 8 bytes at a load of one half
BUILT = 1_000_000
LISTED = 4_000_000
RATES = (1e-2, 1e-3, 1e-4)
PAPER = {  # bits a key at RATES
    "bitmap": (99.5, 1000.0, 1e4),
    "bloom": (9.6, 14.4, 19.2),
    "blocked": (9.9, 15.5, 21.9),
    "counting": (38.0, 58.0, 77.0),
    "dleft": (16.0, 20.0, 24.0),
    "dlcbf": (18.7, 22.7, 26.7),
    "cuckoo": (10.5, 13.7, 17.9),
}
FUSE = {2**-8: 9.04, 2**-16: 18.1}


def section() -> Section:
    """Bits a key, and the table of 100 million addresses."""
    return Section(
        "Sizes",
        f"""Paper: bits a key as published or measured elsewhere, at error rates of 1, 0.1 and 0.01 %.
        Theory: the sizing functions, for {ADDRESSES:,} keys. Measured: the memory of a filter for
        {BUILT:,} keys, of `fuse` for {LISTED:,}. The baseline is what the literature takes for a hash
        table of {ADDRESSES:,} addresses: fingerprints of 8 bytes at half load, {LITERATURE_GB} GB.
        `exact` is at its default load of 0.8 but for the first row.""",
        [_baseline(), *_bits_a_key(), *(_fuse(*row) for row in FUSE.items())],
        _addresses(),
    )


def _baseline() -> Figure:
    half = filters.build({"kind": "exact", "capacity": BUILT, "load": 0.5})
    measured = half.size_bytes / BUILT * ADDRESSES / 1e9
    theory = KINDS["exact"].footprint(ADDRESSES, RATES[0], load=0.5).size_bytes / 1e9
    return near(
        f"exact at half load, {ADDRESSES:,} keys, GB",
        measured,
        LITERATURE_GB,
        rel=0.005,
        theory=theory,
        paper=LITERATURE_GB,
    )


def _bits_a_key() -> list[Figure]:
    figures = []
    for kind, papers in PAPER.items():
        for rate, paper in zip(RATES, papers, strict=True):
            seen = filters.build({"kind": kind, "capacity": BUILT, "error_rate": rate})
            theory = _bits(kind, rate)
            name = f"{kind} at {100 * rate:g} %, bits a key"
            measured = 8 * seen.size_bytes / BUILT
            figures.append(near(name, measured, paper, rel=0.012, theory=theory, paper=paper))
    return figures


def _fuse(rate: float, paper: float) -> Figure:
    seen = Fuse.from_chunks(random_keys(120, LISTED), LISTED, rate)
    name, measured = f"fuse at {100 * rate:.2g} %, bits a key", 8 * seen.size_bytes / LISTED
    return near(name, measured, paper, rel=0.005, theory=_bits("fuse", rate), paper=paper)


def _bits(kind: str, rate: float) -> float:
    """A key, of as many as there are addresses."""
    return 8 * KINDS[kind].footprint(ADDRESSES, rate).size_bytes / ADDRESSES


def _addresses() -> str:
    head = [
        f"{ADDRESSES:,} addresses, by the sizing functions:",
        "",
        "| Kind | GB at 1 % | of 1.6 GB | GB at 0.1 % | of 1.6 GB |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(_row(kind) for kind in ("exact", *PAPER, "fuse", "window"))])


def _row(kind: str) -> str:
    cells = []
    for rate in RATES[:2]:
        gigabytes = KINDS[kind].footprint(ADDRESSES, rate).size_bytes / 1e9
        cells += [f"{gigabytes:.3f}", f"{gigabytes / LITERATURE_GB:.1%}"]
    return f"| `{kind}` | {' | '.join(cells)} |"
