"""The configuration: one frozen tree from defaults, a YAML file, the environment, the command line.

`load` reports all problems at once, each with its place and its remedy. No message holds a secret.
"""

from streamdedup.settings.loading import filter_option, hash_key_in, load
from streamdedup.settings.render import reference_markdown, schema, show
from streamdedup.settings.sections import ServerOptions, SnapshotOptions
from streamdedup.settings.tree import Settings

__all__ = [
    "ServerOptions",
    "Settings",
    "SnapshotOptions",
    "filter_option",
    "hash_key_in",
    "load",
    "reference_markdown",
    "schema",
    "show",
]
