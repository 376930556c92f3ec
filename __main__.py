"""`python -m hpo` is the command `hpo`."""

import sys

from .cli import main

sys.exit(main())
