"""What else de-duplicates a Kafka topic, each as its own documentation has it: `python -m bench full` runs them."""
