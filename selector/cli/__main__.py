"""Entry point of `python -m selector.cli`."""

import sys

from selector.cli.main import main

sys.exit(main())
