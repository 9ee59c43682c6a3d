"""`python -m marin_cas` is the command `marin`."""

import sys

from marin_cas.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
