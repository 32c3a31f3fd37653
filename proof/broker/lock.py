"""`python -m proof.broker.lock VERSION`: write the lock files of a version of Kafka, by Maven.

A lock has the broker's jar, all that it needs at run time, and what writes its log: one line for each jar, with its
SHA-256. Of the tools, which only an image of a broker has, the lock has their own jar.
"""

import hashlib
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.broker.jars import POM, run_maven
from tests.broker.versions import IMAGED, TOOLS_LOCK, Kafka

LOG4J_1 = "org.slf4j:slf4j-reload4j:1.7.36"
LOG4J_2 = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5"


def main(version: str) -> None:
    """Write the lock of a version's broker; of its tools, too, if images are made of it."""
    kafka = Kafka(version)
    broker = f"org.apache.kafka:kafka_2.13:{version}"
    kafka.lock.write_text(locked([broker, LOG4J_2 if kafka.is_from("4.0") else LOG4J_1]), "utf-8")
    if kafka == IMAGED:
        tools = f"org.apache.kafka:kafka-tools:{version}"
        TOOLS_LOCK.write_text(locked([tools], alone=True), "utf-8")


def locked(coordinates: Iterable[str], *, alone: bool = False) -> str:
    """Resolve `coordinates`, with all that they need unless `alone`; one line for each jar."""
    with tempfile.TemporaryDirectory() as directory:
        jars = Path(directory) / "jars"
        pom = Path(directory) / "pom.xml"
        pom.write_text(POM.format(dependencies="".join(map(_dependency, coordinates))))
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        scope = ["-DexcludeTransitive=true"] if alone else ["-DincludeScope=runtime"]
        run_maven(pom, [*copy, *scope, "-Dmdep.useRepositoryLayout=true"])
        return "".join(sorted(_line(jar, jars) for jar in jars.rglob("*.jar")))


def _dependency(coordinate: str) -> str:
    group, artifact, version = coordinate.split(":")
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>\n"
    )


def _line(jar: Path, repository: Path) -> str:
    *group, artifact, version, _ = jar.relative_to(repository).parts
    digest = hashlib.sha256(jar.read_bytes()).hexdigest()
    return f"{'.'.join(group)}:{artifact}:{version} {digest}\n"


if __name__ == "__main__":
    main(sys.argv[1])
