"""`streamdedup audit`: check that the output holds what was promised. It reads the topics again, in bounded memory."""

from streamdedup.commands.audit.report import PartitionCounts, Report
from streamdedup.commands.audit.run import audit

__all__ = ["PartitionCounts", "Report", "audit"]
