"""Play broken deployments on a broker, ask `doctor` and `explain`, and write their answers into docs/runbook.md."""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from bench.entry import add_names
from bench.harness import machine_text, markdown, today
from proof.chaos.brokers import OneBroker
from proof.operators.cases import CASES, Case, There
from proof.operators.run import Answer, ask

PAGE = Path(__file__).parents[2] / "docs" / "runbook.md"
_PLACE = re.compile(
    r"(?<=<!-- made by: python -m proof operators -->\n\n).*?(?=\n<!-- until here -->\n)", re.DOTALL
)
SHOWN_MAX = 240  # characters of an answer


def main() -> int:
    """The exit status: 1 if an answer does not name the cause."""
    parser = argparse.ArgumentParser(prog="python -m proof operators", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table into docs/runbook.md")
    parser.add_argument("--whole", action="store_true", help="print all that the commands print")
    add_names(parser, "CASE", [case.name for case in CASES])
    options = parser.parse_args()
    cases = [case for case in CASES if not options.names or case.name in options.names]
    rows, wrong = list[Sequence[str]](), 0
    with closing(OneBroker()) as broker:
        for case in cases:
            for answer in played(case, broker):
                wrong += not answer.is_expected
                said = "names it" if answer.is_expected else "DOES NOT NAME IT"
                print(
                    f"{case.name}: {answer.typed}: {said}, status {answer.ran.status}", flush=True
                )
                if options.whole or not answer.is_expected:
                    print(answer.ran.text)
                rows.append(_row(case, answer))
    table = markdown(("Seen", "Cause", "Command", "Its answer", "Seconds"), rows)
    print(table)
    if options.write and not wrong:
        made = f"{table}\nMeasured on {today()}: {machine_text()}\n"
        PAGE.write_text(_PLACE.sub(lambda _: made, PAGE.read_text("utf-8")), "utf-8")
    return 1 if wrong else 0


def played(case: Case, broker: OneBroker) -> Iterator[Answer]:
    """Break a deployment, and yield the answers about it."""
    with tempfile.TemporaryDirectory() as directory:
        there = There(broker, Path(directory), case.name)
        with case.broken(there) as asked:
            yield from [ask(there, each) for each in asked]


def _row(case: Case, answer: Answer) -> Sequence[str]:
    line = answer.line or "-"
    shown = line if len(line) <= SHOWN_MAX else f"{line[:SHOWN_MAX]} ..."
    escaped = re.sub(r"\S*/tmp/\S*/", "", shown).replace("|", "\\|").replace("`", "")
    return (
        case.symptom,
        case.cause,
        f"`{answer.typed}`".replace("|", "\\|"),
        f"`{escaped}`",
        f"{answer.ran.seconds:.1f}",
    )


if __name__ == "__main__":
    sys.exit(main())
