"""What touches aiokafka's private parts: connections, requests, the seams for columns."""

from streamdedup.kafka.client.fit import check

check()  # before a module of this package imports a name that another aiokafka may lack
