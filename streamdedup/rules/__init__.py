"""From digests to verdicts."""
