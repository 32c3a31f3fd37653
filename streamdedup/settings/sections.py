"""The sections of the configuration that no other room declares: lists, snapshots, and the server."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from streamdedup.kafka.options import Name
from streamdedup.secret import RegularFile, TokenFile, is_address
from streamdedup.shape import PEERS_MAX
from streamdedup.units import LocalPath, count, seconds


class AllowlistOptions(BaseModel):
    """Keys that no block list blocks. The filter still decides whether their events are duplicates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: RegularFile | None = Field(
        default=None,
        description="A list made by `streamdedup lists build`, preferably with `--kind exact`: its keys pass "
        "`blocklist`, even if that matches them. If not set, there is no allow list.",
        examples=["/var/lib/streamdedup/allow.list"],
    )


class BlocklistOptions(BaseModel):
    """Keys whose events are blocked, whether they were emitted before or not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: RegularFile | None = Field(
        default=None,
        description="A list made by `streamdedup lists build`, with the normalization of this configuration, and by "
        "siphash under `filter.hash_key` if that is set, else by murmur3; `-c` takes them from here. If not set, there "
        "is no block list.",
        examples=["/var/lib/streamdedup/block.list"],
    )
    control_topic: Name | None = Field(
        default=None,
        description="A compacted topic of single changes, written by `streamdedup lists add` and `remove`: a change "
        "in it overrides the list. Every worker reads the whole topic before it handles events, and then follows it.",
        examples=["blocklist-changes"],
    )

    on_positive: Literal["drop", "verify"] = Field(
        default="drop",
        description="What happens to an event whose key the list matches, which may be a false positive: `drop` blocks "
        "it; `verify` looks the key up in the exact store, which `lists build --exact` writes beside the list, and "
        "blocks the event only if the store holds the key or its domain. `verify` needs a list of any kind but "
        "`exact`.",
    )
    exact: LocalPath | None = Field(
        default=None,
        description="The directory of the exact store, for `on_positive: verify`. If not set, it is the path of "
        "`blocklist.file` with `.exact` appended.",
        examples=["/var/lib/streamdedup/block.list.exact"],
    )


class SnapshotOptions(BaseModel):
    """Where the filters are saved, and how often."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    directory: LocalPath = Field(
        description="The directory of the snapshots; `~` is the home directory, and a relative path "
        "starts at the working directory.",
        examples=["/var/lib/streamdedup"],
    )
    interval_s: Annotated[float, seconds(0.1, 86_400)] = Field(
        default=60.0, description="The time between two snapshots of a partition."
    )
    keep: Annotated[int, count(1, 100, "snapshots")] = Field(
        default=3, description="How many snapshots of each partition are kept, the newest included."
    )


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _check_host(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*", name) or len(name) > 253:
        raise ValueError(
            "has a name that no host has; write it as in dedup.example.org, without protocol, port and wildcards"
        )
    return name.lower()


HostName = Annotated[str, AfterValidator(_check_host)]
HOSTS_MAX = 100


def _as_peers(value: object) -> object:
    return (value,) if isinstance(value, str) else _as_tuple(value)


def _check_peer(peer: str) -> str:
    name, _, port = peer.rpartition(":")
    address = name.removeprefix("[").removesuffix("]") if name.startswith("[") else name
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise ValueError("has a peer without a port; write host:port, as in dedup-headless:9464")
    if not is_address(address) or (":" in address and not name.startswith("[")):
        _check_host(name)
    return peer.lower()


PeerName = Annotated[str, AfterValidator(_check_peer)]


class ServerOptions(BaseModel):
    """Where the page, metrics and probes are served over HTTP. Anyone who can connect can read them.

    To ask about a key and to act takes the token of `token_file`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="The address to listen on; `0.0.0.0` accepts connections from other machines, too.",
    )
    port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="The port of the page, `/metrics`, `/livez` and `/readyz`; with 0, the system picks a free port, "
        "which the log reports. If not set, there are none of them. Workers on one machine need different ports.",
        examples=[9464],
    )
    probe_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="A further port, which serves only `/livez` and `/readyz`: there, probes wait for nobody who asks "
        "for something else, however many they are.",
        examples=[9465],
    )
    hosts: Annotated[
        tuple[HostName, ...],
        BeforeValidator(_as_tuple, json_schema_input_type=list[str]),
        Field(max_length=HOSTS_MAX),
    ] = Field(
        default=(),
        description="The names under which browsers reach the page, beside `localhost` and addresses: those of "
        "services and proxies. Under another name it is refused, so that no site can read it through its visitors.",
        examples=[["dedup.example.org"]],
    )
    peers: Annotated[
        tuple[PeerName, ...],
        BeforeValidator(_as_peers, json_schema_input_type=str | list[str]),
        Field(max_length=PEERS_MAX),
    ] = Field(
        default=(),
        description="The `server.host` and `server.port` of all workers, as a list of `host:port`, or as one name that "
        "resolves to all of them, such as that of a headless service: the page of each worker then shows all. Only "
        "these addresses are asked, at most every 2 s, while somebody looks.",
        examples=["dedup-headless:9464"],
    )
    token_file: TokenFile | None = Field(
        default=None,
        description="A file holding a token, of 16 characters or more. Whoever has it may ask about keys, save "
        "snapshots, reload lists, and stop this worker, over HTTP. It is read again when it changes. If not set, "
        "nobody may.",
        examples=["/run/secrets/streamdedup/token"],
    )

    @property
    def places(self) -> list[tuple[str, int]]:
        """The host and the port of each of `peers`."""
        parts = (peer.rpartition(":") for peer in self.peers)
        return [(host.strip("[]"), int(port)) for host, _, port in parts]

    def conflicts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield each contradiction: the options concerned, the wrong one first, and the reason."""
        if self.probe_port and self.probe_port == self.port:
            yield (
                ("probe_port", "port"),
                "is the same as server.port; set another one, or unset it: server.port serves the probes, too",
            )
        unused = ("hosts", self.hosts), ("peers", self.peers), ("token_file", self.token_file)
        for name, value in unused:
            if value and self.port is None:
                yield (name, "port"), "means nothing without server.port; set that, or unset it"
