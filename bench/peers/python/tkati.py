"""tkati-node-dedup as it is, with a file of settings; beside it, a look at its group says when it has partitions."""

import os
import sys
import threading
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient

from bench.worker.asked import Asked, asked, tell_assigned

SETTINGS = """\
[input]
type = "kafka"
[input.connection]
broker = "{job.bootstrap}"
[input.topic]
name = "{job.source}"
[input.topic.schema]
email = "string"
n = "string"
pad = "string"
[input.consumer]
group_id = "{job.group}"
batch_size = 20000
batch_timeout_sec = 1
auto_offset_reset = "earliest"
[output]
type = "kafka"
[output.connection]
broker = "{job.bootstrap}"
[output.topic]
name = "{job.sink}"
key_column = "email"
[output.config]
"compression.type" = "{job.compression}"
[dedup]
field = "email"
store_dir = "{directory}/store"
[metrics]
enabled = false
"""
LOOK_EVERY_S = 0.02


def main() -> None:
    """Work until SIGTERM, which the node takes care of."""
    job, directory = asked(), Path(sys.argv[1]).parent
    settings = directory / "settings.toml"
    settings.write_text(SETTINGS.format(job=job, directory=directory), "utf-8")
    # Both are read when the node is imported.
    os.environ |= {"SETTINGS_FILE": str(settings), "LOGURU_LEVEL": "INFO"}
    from tkati_node_dedup.main import main as run

    threading.Thread(target=tell, args=(job,), daemon=True).start()
    run()


def tell(job: Asked) -> None:
    """Wait until a member of the group has partitions, and say so."""
    admin, found = AdminClient({"bootstrap.servers": job.bootstrap}), list[int]()
    while not found:
        time.sleep(LOOK_EVERY_S)
        group = admin.describe_consumer_groups([job.group])[job.group].result()
        found = [at.partition for one in group.members for at in one.assignment.topic_partitions]
    tell_assigned(found)


if __name__ == "__main__":
    main()
