"""What the command prints, given its parsed options."""

import json
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from streamdedup.commands.lines import line_reader, opened, url_rules
from streamdedup.commands.plan import report, sample
from streamdedup.commands.plan.compare import plan
from streamdedup.commands.plan.job import Asked, job_of
from streamdedup.errors import ConfigError
from streamdedup.keys.options import Normalization

ERROR_RATE = 1e-6  # the default of the worker and of `pipe`

_OF_A_SAMPLE = ("key", "separator", "normalize", "url_rule", "url_ignore")
_OF_A_JOB = (
    "keys",
    "error_rate",
    "removable",
    "window",
    "rate",
    "partitions",
    "sample",
    *_OF_A_SAMPLE,
)


def output(given: Mapping[str, Any], stdin: Callable[[], BinaryIO]) -> str:
    """Return the text for the options `given`, by name. `stdin` returns the stream of a sample.

    ConfigError if options do not fit.
    """
    if given["table"]:
        return _table(given)
    for name in _OF_A_SAMPLE:
        if given[name] not in (None, "none") and not given["sample"]:
            raise ConfigError(
                f"--{name.replace('_', '-')} is for the keys of a sample; add --sample FILE, or delete the option"
            )
    asked = Asked(
        keys=given["keys"],
        error_rate=given["error_rate"] or ERROR_RATE,
        removable=given["removable"],
        window_s=given["window"],
        rate=given["rate"],
        partitions=given["partitions"],
    )
    read = _sampled(given, stdin) if given["sample"] else None
    made = plan(job_of(asked, read), read)
    return _as_json(report.as_json(made)) if given["json"] else report.as_text(made)


def _sampled(given: Mapping[str, Any], stdin: Callable[[], BinaryIO]) -> sample.Sample:
    with opened(given["sample"], f"--sample {given['sample']}", stdin) as source:
        normalize: Normalization = given["normalize"] or "none"
        rules = url_rules(normalize, given["url_rule"], given["url_ignore"])
        reader = line_reader(given["key"] or ["line"], normalize, rules, given["separator"])
        return sample.read(source, reader)


def _table(given: Mapping[str, Any]) -> str:
    for name in _OF_A_JOB:
        if given[name]:
            option = "--" + name.replace("_", "-")
            raise ConfigError(f"--table prints the same for every job; delete {option} or --table")
    return _as_json(report.table_json()) if given["json"] else report.table_text()


def _as_json(value: object) -> str:
    return json.dumps(value, indent=2)
