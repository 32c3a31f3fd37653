"""What touches aiokafka's private parts: connections, requests, the seams for columns."""
