"""Run the `streamdedup` command by `python -m streamdedup`."""

import sys

from streamdedup.cli import main

if __name__ == "__main__":
    sys.exit(main())
