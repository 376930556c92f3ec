"""`python -m hpo` is the command `hpo`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
