"""The first stage of `source.repartition`: it copies each event to the partition that its key alone chooses."""
