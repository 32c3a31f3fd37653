"""Lists of keys: each is built once into one file, and then mapped, shared, and looked up for every event.

`load` gives a list to a worker or a program. The other modules are for the commands `streamdedup lists`.
"""

from streamdedup.lists.key_list import KeyList, load

__all__ = ["KeyList", "load"]
