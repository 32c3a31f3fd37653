"""What each command does, without its arguments: `streamdedup.cli` parses and prints."""
