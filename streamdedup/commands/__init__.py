"""What each command does. `streamdedup.cli` parses its arguments and prints its results."""
