"""All that speaks to Kafka. The only room that imports aiokafka, whose types stop here."""
