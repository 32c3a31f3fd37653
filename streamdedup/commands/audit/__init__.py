"""`streamdedup audit`: whether the output holds what was promised, read back from the topics, in bounded memory."""

from streamdedup.commands.audit.report import PartitionCounts, Report
from streamdedup.commands.audit.run import audit

__all__ = ["PartitionCounts", "Report", "audit"]
