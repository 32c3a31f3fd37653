"""How deep the domains of a list go: so an address of a hundred labels, which anybody can write, costs no more."""

LABELS_MAX = 16  # of a domain that stands for all below it; the root zone's names have 1, the public's rarely above 6
