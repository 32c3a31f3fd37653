"""results/benchmarks.md, written from the results and from nothing else; a test holds it equal to them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import harness
from bench.harness import RESULTS, Found, machine_lines, markdown, read, targets_table
from bench.worker import full_page, plots, results
from bench.worker.batches import BYTES_MAX
from bench.worker.by_hand import BATCH_EVENTS
from bench.worker.cases import LARGE
from bench.worker.contenders import CONTENDERS, COPY, LOOP, OURS, REPARTITION
from bench.worker.rounds import OTHER_LOAD_MAX, REPEATS_MAX

THROUGHPUT = RESULTS / "worker.json"
FULL = RESULTS / "worker-full.json"
STAGES = RESULTS / "repartition.json"
SECTIONS = ("restart", "snapshot", "memory", "latency", "growth", "peers")
PAGE = RESULTS / "benchmarks.md"

HOW = f"""\
- **The broker** runs on the same machine and takes its share of the processors, whichever contender is measured.
  {{warm_up}}
- **A round** of a case runs all contenders one right after the other, each time with another one first. Ratios are
  taken within a round; the tables have their median. The rounds go over all cases in turn.
- **The clock** is the same for all: from the moment a contender says that it has partitions to the last commit of its
  group that can be seen from outside. Each runs in a process of its own, to the end of the input or for
  {{seconds}};
  rates are those of the events that were consumed and committed by then.
- **streamdedup** is `streamdedup run -c config.yaml`; options that neither the case nor the base case names have their
  defaults. {{pages}}
- **The input** is the same for all contenders of a case, made from a seed, in record batches of up to
  {BYTES_MAX >> 10} KiB. An event of 120 bytes has a key of 28, an address, and a JSON value of 92; it
  compresses well, to about a sixth with lz4 and a twelfth with zstd.
- **The output** of every run is compared, byte for byte and in order, with the first occurrences in what was consumed
  (with all of it for the copy). An event that a filter wrongly took for a duplicate is counted as missing. If more are
  missing than its error rate of 1e-6 explains, or if anything else differs, there is no figure but an error.
- **Other load** is the work of the machine beside contender, broker and clock. A round with more than
  {OTHER_LOAD_MAX:.0%} of all processors is measured again, {REPEATS_MAX} times at most, and the quietest counts.
- **The copy** goes through aiokafka's objects, judges nothing and has no transactions; it compresses at
  aiokafka's levels, which are slow for lz4. **The loop** is a simple program
  written by hand, with confluent-kafka and a set, in batches of up to {BATCH_EVENTS:,} events: with exactly once, each
  is a transaction; with at least once, it is flushed before its offsets are committed. Its set is gone after a restart.
- **Processor** is the contender's own user and system time by event, **memory** its most resident, both within the time
  that is measured.
"""


RAN_ONCE = "Before the first round, each contender ran once."
WARMED_UP = """\
Before the first round, the first contender ran {warm_ups} times, until the broker took hardly less time for an event
  than before, and each other one once."""
WITH_HUGE_PAGES = """\
If the case does not say otherwise, all contenders run with the
  [huge pages](../docs/deploy.md#what-to-mount-and-to-set) that the image asks for."""
WITHOUT_HUGE_PAGES = "No contender asks for huge pages."

HOW_STAGES = """\
All contenders read the same input, one right after the other in each round, as [above](#how-it-is-measured). No event
is a duplicate: a worker without `source.repartition` passes record batches on as they are, while the second stage takes
a header off every event. The middle topic has as many partitions as the input. A run with both stages is over once the
second group has committed the end of the middle topic; the second stage alone finds all of it there. The clock of the
two that have the first stage starts before that joins its group.
"""

BOUNDS = """\
Memory limits the rate. A filter is larger than the cache: `cuckoo` has to look at two cache lines for a key, `bloom` at
as many as the error rate asks for, `blocked` at one. And every byte of an event is copied five times: by the kernel
from one socket and to another, and in between out of an answer, into a record batch, and into a request. These changes
made the worker faster. It decodes each answer in the buffer into which it was received, without a stream. It decides
at once what it fetched of a partition. It hashes eight keys at once, and prefetches the cache lines of later keys while
it looks at those of earlier ones. It joins a record batch to its request once, and makes its checksum once.
"""


def write(path: Path, found: Found) -> None:
    """Keep these results; then the page and its plots, from all that are kept."""
    harness.write(path, found)
    throughput, full = read(THROUGHPUT), read(FULL)
    PAGE.write_text(page(throughput, full, read(STAGES)), "utf-8")
    plots.draw(throughput, full)
    print(f"{PAGE} is written", flush=True)


def page(throughput: Found, full: Found, stages: Found) -> str:
    """The whole page, from the results of `python -m bench worker`, `full` and `repartition`."""
    parts = [
        "# Benchmarks\n",
        "Written by `make bench` and `python -m bench full` from `results/`; do not edit. Ratios carry over to\n"
        "other machines better than rates do.\n",
        *_throughput(throughput, full["cells"]),
        *_stages(stages),
        *full_page.sections(full),
    ]
    return "\n".join(parts)


def _throughput(found: Found, cells: Found) -> Iterator[str]:
    seconds = ", ".join(f"{each.seconds_max:g} s ({each.what})" for each in CONTENDERS.values())
    cases = found["cases"]
    yield "## Throughput\n"
    yield circumstances(found) + f"- `{found['command']}`, {found['minutes']} minutes\n"
    yield "### Targets\n"
    large = results.large_target(cases[LARGE.name]["rounds"])
    streams = results.streams_target(cells)
    wanted = [*results.targets(cases["base"]["rounds"]), large, *([streams] if streams else [])]
    yield targets_table("In the base case", wanted)
    if not streams:
        yield f"Not measured: {results.STREAMS_CLAIM}, at least {results.STREAMS_RATIO_MIN:g}.\n"
    yield "### One thing changed at a time\n"
    base = cases["base"]["case"]
    yield (
        f"The base case: {base['guarantee'].replace('_', ' ')}, events of {base['size']} bytes, key from the record's"
        " key,"
        f"\n{base['partitions']} partitions, {base['duplicates']:.0%} duplicates, a `{base['kind']}` filter for"
        f" {base['capacity']:,} keys, no compression. Rates are in thousands of\nevents a second.\n"
    )
    yield _rates(cases)
    yield f"![Events a second of each case and contender]({plots.CASES.name})\n"
    yield "### What they take\n"
    yield _costs(cases)
    yield "### Where the worker's time goes\n"
    yield _profile(found["profile"])
    yield "### How quiet it was, and how exact\n"
    yield _quiet(cases)
    yield "### How it is measured\n"
    warm_up = WARMED_UP.format(**found) if found.get("warm_ups", 1) > 1 else RAN_ONCE
    pages = WITH_HUGE_PAGES if "pages" in base else WITHOUT_HUGE_PAGES
    yield HOW.format(seconds=seconds, warm_up=warm_up, pages=pages)


def _stages(found: Found) -> Iterator[str]:
    rounds, case = found["rounds"], found["case"]
    yield "## Repartition\n"
    yield circumstances(found) + f"- `{found['command']}`, {found['minutes']} minutes\n"
    yield stages_ratios(rounds)
    yield (
        f"{case['events']:,} events of {case['size']} bytes, {case['partitions']} partitions,"
        f" {case['guarantee'].replace('_', ' ')}, no compression. Rates are in thousands of\nevents a second.\n"
    )
    rows = [
        [contender.what, _rate(rounds, name), *(cost(rounds, name) for cost in COSTS.values())]
        for name, contender in REPARTITION.items()
    ]
    yield markdown(["Contender", "Rate", *COSTS], rows)
    yield f"Other load, at most: {results.other_load(rounds, 'unknown')}, in {len(rounds)} rounds.\n\n{HOW_STAGES}"


def stages_ratios(rounds: Sequence[Found]) -> str:
    """The ratios of `source.repartition`, as a table."""
    return targets_table(
        "With `source.repartition`, medians (all rounds)", results.repartition_ratios(rounds)
    )


def circumstances(found: Found) -> str:
    """Machine, versions, commit, as a list."""
    lines = [
        f"Measured on {found['measured']}, at commit `{found['commit']}`.",
        *(f"{line}." for line in machine_lines(found["machine"])),
        f"Load {found['load_before']} before.",
        f"Broker: {found['broker']}.",
    ]
    return "".join(f"- {line}\n" for line in lines)


def _rates(cases: Found) -> str:
    rows = []
    for told in cases.values():
        rounds, case = told["rounds"], told["case"]
        each = [_rate(rounds, name) for name in CONTENDERS]
        ratios = [results.spread(results.ratios(rounds, name)) for name in (COPY, LOOP)]
        rows.append([case["what"], *each, case["guarantee"].replace("_", " "), *ratios])
    heads = ["Case", "streamdedup", "copy", "loop", "the loop's guarantee"]
    return markdown([*heads, "ratio to the copy (all rounds)", "ratio to the loop"], rows)


def _costs(cases: Found) -> str:
    rows = [
        [
            told["case"]["what"],
            *(cost(told["rounds"], name) for cost in COSTS.values() for name in CONTENDERS),
            f"{results.filter_bytes(told['rounds']) / 1e6:,.1f}",
        ]
        for told in cases.values()
    ]
    heads = [f"{what}: {name}" for what in COSTS for name in CONTENDERS]
    return markdown(["Case", *heads, "of these filters"], rows)


def _profile(found: Found) -> str:
    cpu_us = found["cpu_us"]
    rows = [
        [part, f"{share:.0%}", f"{share * cpu_us:.3f}"] for part, share in found["shares"].items()
    ]
    return (
        f"Of {found['samples']:,} samples of the worker's main thread in the base case, taken by py-spy, each is"
        f" counted for one part.\nThe column of µs divides the {cpu_us:.2f} µs of processor an event of this run.\n\n"
        f"{markdown(['Part', 'Share', 'µs an event'], rows)}\n{BOUNDS}"
    )


def _quiet(cases: Found) -> str:
    rows = []
    for told in cases.values():
        rounds = told["rounds"]
        ours = results.runs(rounds, OURS)
        rows.append(
            [
                told["case"]["what"],
                str(len(rounds)),
                str(sum(found["repeats"] for found in rounds)),
                results.other_load(rounds, "unknown"),
                f"{told['case']['events']:,}",
                f"{min(run['events'] for run in ours):,}",
                f"{sum(run['missing'] for run in ours)} of {sum(run['emitted'] for run in ours):,}",
            ]
        )
    heads = [
        "Case",
        "Rounds",
        "Repeated",
        "Other load, at most",
        "Events",
        "of which ours consumed",
    ]
    return markdown([*heads, "Missing of ours"], rows)


def _rate(rounds: Sequence[Found], contender: str) -> str:
    return f"{results.rate(rounds, contender) / 1000:,.0f}"


def _broker_us(rounds: Sequence[Found], contender: str) -> str:
    microseconds = results.broker_us(rounds, contender)
    return "" if microseconds is None else f"{microseconds:.2f}"


COSTS: dict[str, Callable[[Sequence[Found], str], str]] = {
    "µs an event": lambda rounds, name: f"{results.cpu_us(rounds, name):.2f}",
    "of the broker": _broker_us,
    "MB": lambda rounds, name: f"{results.rss_bytes(rounds, name) / 1e6:,.0f}",
}
