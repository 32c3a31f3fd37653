"""How long addresses may be, and how deep the domains of a list.

Anybody can write an address of a hundred labels; the last of these bounds keeps it as cheap as any other.
"""

# email-validator accepts no longer text: it counts the bytes of an address as written, as normalized, and in ASCII.
# But it counts them last, and what comes before takes 20 ms for 4 kB of text.
ADDRESS_BYTES_MAX = 254
LOCAL_BYTES_MAX = 64  # RFC 5321, 4.5.3.1.1

# The most labels of a domain that stands for all of its subdomains. A name in the root zone has 1; a public
# suffix rarely has more than 6.
LABELS_MAX = 16
