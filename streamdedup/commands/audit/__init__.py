"""`streamdedup audit`: whether the output holds what was promised, read back from the topics, in bounded memory."""

from streamdedup.commands.audit.auditing import audit
from streamdedup.commands.audit.report import Counts, Report

__all__ = ["Counts", "Report", "audit"]
