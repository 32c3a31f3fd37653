"""How deep the domains of a list may be.

Anybody can write an address of a hundred labels; this bound keeps such an address as cheap as any other.
"""

# The most labels of a domain that stands for all of its subdomains. A name in the root zone has 1; a public
# suffix rarely has more than 6.
LABELS_MAX = 16
