"""`python -m proof NAME`: one tool; `--help` lists them."""

import sys

from bench.entry import Tool, run

TOOLS = {
    "chaos": Tool("Real faults on real workers and brokers, an hour of them", "proof.chaos"),
    "compat": Tool("Storms and tests on each version of Kafka, hours of them", "proof.compat"),
    "framings": Tool(
        "Write what Kafka's own code makes of record batches",
        "proof.kafka.framings",
        parses=False,
    ),
    "fuzz": Tool("Wrong inputs for the parsers of foreign bytes", "proof.fuzz"),
    "golden": Tool("Write the goldens that are missing", "proof.golden.records", parses=False),
    "mutants": Tool("Each promise broken once: a test must go red", "proof.mutants"),
    "one-key": Tool(
        "Builtins of filters at random, where a wrong address is a crash", "proof.one_key"
    ),
    "operators": Tool(
        "Deployments that operators break, each named by doctor and explain", "proof.operators"
    ),
    "simulation": Tool("Deployments over a broker in memory, by seeds", "proof.simulation"),
    "tables": Tool("Write the tables of docs/ that are made", "proof.tables", parses=False),
}

if __name__ == "__main__":
    sys.exit(run("proof", TOOLS))
