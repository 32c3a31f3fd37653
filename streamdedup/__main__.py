"""`python -m streamdedup` is the `streamdedup` command."""

import sys

from streamdedup.cli import main

if __name__ == "__main__":
    sys.exit(main())
