"""What a filter is needed for, from the options of the command. Errors name the option that does not fit."""

from dataclasses import dataclass
from math import ceil

from streamdedup.commands.plan.sample import Sample
from streamdedup.errors import ConfigError
from streamdedup.filters.options import YEAR_MS, FilterOptions
from streamdedup.units import count, rate, seconds

KEYS_MAX = 10**12
DAY_S = 86_400.0
QUANTITIES = {
    "window": seconds(1, 100 * YEAR_MS / 1000, bare=False),
    "rate": rate(1e-6, 1e9, "events"),
    "partitions": count(1, 100_000, "partitions"),
}


@dataclass(frozen=True)
class Asked:
    """The options as given; None if not given. Windows are in seconds, rates in events per second."""

    keys: int | None = None
    error_rate: float = 1e-6
    removable: bool = False
    window_s: float | None = None
    rate: float | None = None
    partitions: int | None = None


@dataclass(frozen=True)
class Job:
    """What a filter is for. `keys_from` and `rate_from` name the sources of the numbers, for a person.

    `filter_keys` is the capacity of one filter: of one partition if their number is given. `new_share` is the share of
    events that bring a new key; without a sample it is 1.
    """

    keys: int
    keys_from: str
    error_rate: float
    removable: bool
    window_s: float | None
    rate: float | None  # events per second
    rate_from: str
    new_share: float
    partitions: int | None
    filter_keys: int

    @property
    def needs(self) -> tuple[str, ...]:
        """The abilities that a kind must have."""
        wanted = (("remove", self.removable), ("window", self.window_s is not None))
        return tuple(ability for ability, needed in wanted if needed)

    @property
    def new_keys_a_day(self) -> float | None:
        """The number of new keys a day; None if no rate is known."""
        return None if self.rate is None else self.rate * DAY_S * self.new_share


def job_of(asked: Asked, sample: Sample | None = None) -> Job:
    """Return the job, completed by `sample`. ConfigError if options contradict each other, or if one is missing."""
    if asked.removable and asked.window_s is not None:
        raise ConfigError(
            "no kind both removes keys and forgets old ones; delete --removable or --window"
        )
    events_per_s, rate_from = _rate(asked, sample)
    keys, keys_from = _keys(asked, sample)
    if not 1 <= keys <= KEYS_MAX:
        raise ConfigError(
            f"{keys:,} keys, by {keys_from}, are out of range; a filter is made for 1 to {KEYS_MAX:,}"
        )
    filter_keys = keys
    if asked.partitions:
        filter_keys = FilterOptions(capacity=keys).share(keys, asked.partitions)
    return Job(
        keys=keys,
        keys_from=keys_from,
        error_rate=asked.error_rate,
        removable=asked.removable,
        window_s=asked.window_s,
        rate=events_per_s,
        rate_from=rate_from,
        new_share=sample.new_share if sample else 1.0,
        partitions=asked.partitions,
        filter_keys=filter_keys,
    )


def _rate(asked: Asked, sample: Sample | None) -> tuple[float | None, str]:
    if asked.rate is not None:
        return asked.rate, "--rate"
    if sample is None:
        return None, ""
    if asked.window_s is not None:
        return sample.lines / asked.window_s, "the sample, taken as the events of --window"
    return sample.lines / DAY_S, "the sample, taken as the events of a day"


def _keys(asked: Asked, sample: Sample | None) -> tuple[int, str]:
    events = None
    if asked.window_s is not None and asked.rate is not None:
        events = round(asked.rate * asked.window_s)
    if asked.keys is not None:
        if events is not None and asked.keys > events:
            raise ConfigError(
                f"--keys {asked.keys:,} contradicts --rate and --window, which give {events:,} events; delete one"
            )
        return asked.keys, "--keys"
    if events is not None:
        if sample:
            how = "--rate times --window times the share of new keys in the sample"
            return ceil(events * sample.new_share), how
        return events, "--rate times --window"
    if sample:
        return sample.distinct, "the distinct keys of the sample"
    if asked.window_s is not None:
        raise ConfigError(
            "--window alone does not give the number of keys in it; add --rate, for example 2000/s, or --keys"
        )
    raise ConfigError(
        "the number of keys is missing; give --keys, for example 100M, or --rate and --window, or --sample"
    )
