"""``python -m allranks``."""

import sys

from allranks.cli.main import main

sys.exit(main())
