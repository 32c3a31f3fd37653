"""The sections of the tree that no other room declares: lists, snapshots, and the server."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from streamdedup.kafka.options import Name
from streamdedup.secret import ReadableFile
from streamdedup.units import LocalPath, count, seconds


class AllowlistOptions(BaseModel):
    """The keys that no block list blocks. They are still judged by the filter."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: ReadableFile | None = Field(
        default=None,
        description="A list of `streamdedup lists build`, best of `--kind exact`: what it holds passes `blocklist`, "
        "also where that matches it wrongly. Not set, there is none.",
        examples=["/var/lib/streamdedup/allow.list"],
    )


class BlocklistOptions(BaseModel):
    """The keys whose events do not pass, whether they came before or not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: ReadableFile | None = Field(
        default=None,
        description="A list of `streamdedup lists build`, of the same hash and normalization as here. Not set, there "
        "is none.",
        examples=["/var/lib/streamdedup/block.list"],
    )
    control_topic: Name | None = Field(
        default=None,
        description="A compacted topic of single changes, as `streamdedup lists add` and `remove` write them: what it "
        "says of a key wins over the list. All workers read it before they serve, and then follow it.",
        examples=["blocklist-changes"],
    )

    on_positive: Literal["drop", "verify"] = Field(
        default="drop",
        description="What becomes of an event whose key the list matches, maybe wrongly: `drop` blocks it; `verify` "
        "asks the exact store of the list, which `lists build --exact` puts beside it, and blocks it only where that "
        "has the key, or its domain. Needs the extra `exact`, and a list of another kind than `exact`.",
    )
    exact: LocalPath | None = Field(
        default=None,
        description="The directory of the exact store, for `on_positive: verify`. Not set, it is that of "
        "`blocklist.file` and `.exact`.",
        examples=["/var/lib/streamdedup/block.list.exact"],
    )


class SnapshotOptions(BaseModel):
    """Where and when the filters are saved."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    directory: LocalPath = Field(
        description="The directory of the snapshots; `~` is the home directory, a relative path "
        "starts at the working directory.",
        examples=["/var/lib/streamdedup"],
    )
    interval_s: Annotated[float, seconds(0.1, 86_400)] = Field(
        default=60.0, description="Time between two snapshots of a partition."
    )
    keep: Annotated[int, count(1, 100, "snapshots")] = Field(
        default=3, description="Generations that are kept of each partition, the newest included."
    )


class ServerOptions(BaseModel):
    """Where metrics and probes are served over HTTP, to whoever can connect: there is no password."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="The address to listen at; `0.0.0.0` is reached from other machines, too.",
    )
    port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="The port of `/metrics`, `/livez` and `/readyz`; 0 is any that is free, which "
        "the log tells. Not set, there is no server. Workers on one machine each need their own.",
        examples=[9464],
    )
