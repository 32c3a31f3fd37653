"""Lists of keys: built once into one file, then mapped, shared, and asked for each event.

`load` gives a list to a worker or a program; the rest is what the commands `streamdedup lists` do.
"""

from streamdedup.lists.key_list import KeyList, load

__all__ = ["KeyList", "load"]
