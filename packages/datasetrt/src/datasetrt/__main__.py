"""``python -m datasetrt``: the same commands as the console script ``datasetrt``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
