"""What else de-duplicates a Kafka topic, each as its own documentation would have it: `make bench-full` runs them."""
