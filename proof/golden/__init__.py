"""What earlier versions wrote, as files that are loaded for ever, and what others rely on, as records."""
