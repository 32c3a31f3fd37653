"""How the known keys are remembered, as an operator states it: the `filter` section."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from streamdedup.units import count


class FilterOptions(BaseModel):
    """The memory of the keys: its kind, its size, and what happens when it is full."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["bloom"] = Field(default="bloom", description="The structure of the filter.")
    capacity: Annotated[int, count(1, 10**12, "keys")] = Field(
        description="Distinct keys that the whole topic may bring before the filters are full; "
        "every partition gets its share. Memory follows from this and `error_rate`.",
        examples=["100M"],
    )
    error_rate: float = Field(
        default=1e-6,
        ge=1e-15,
        le=0.5,
        allow_inf_nan=False,
        description="Probability, at most and with the filter at capacity, that a new event is "
        "dropped as a false duplicate.",
    )
    on_full: Literal["stop", "warn"] = Field(
        default="stop",
        description="At capacity a partition stops being consumed and says so, or goes on with a "
        "growing error rate and a warning.",
    )
    partition_headroom: float = Field(
        default=0.2,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="Share that each partition's filter is made larger than an even split of "
        "`capacity`, because keys spread unevenly; 0.2 is 20 %.",
    )
