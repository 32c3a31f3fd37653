"""Claims about `streamdedup doctor`, on a broker in memory; on a real one in proof/doctor."""
