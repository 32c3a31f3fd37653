"""A deployment with `source.repartition`, on a real broker."""

import json
from collections import Counter
from pathlib import Path

from tests.broker.topics import create_topic, read_all, unique_name
from tests.deployment import Deployment, WorkerProcess
from tests.spread import PARTITIONS
from tests.staged import PLACES


class Staged(Deployment):
    """A deployment whose input is repartitioned; its workers make the middle topic and the output."""

    def __init__(self, bootstrap: str, directory: Path, partitions: int = PARTITIONS) -> None:
        super().__init__(bootstrap, directory, partitions)
        self.middle = unique_name("middle")
        self.config["source"]["repartition"] = {"topic": self.middle, "partitions": PLACES}
        self.config["key"] = {"field": "id"}
        self.config["sink"]["create_topics"] = True
        create_topic(bootstrap, self.source, partitions)

    def ids(self) -> Counter[str]:
        """How often each key is in the output, which the workers may not have made yet."""
        try:
            output = read_all(self.bootstrap, self.sink)
        except LookupError:
            return Counter()
        return Counter(json.loads(record.value or b"")["id"] for record in output)

    def stage(self, stage: str, config: Path, number: int = 0) -> WorkerProcess:
        """Start a process that runs one stage alone."""
        log = self.directory / f"{stage}-{number}.log"
        return WorkerProcess(config, log, arguments=("--stage", stage))
