"""``python -m allranks``."""

import sys

from allranks.entry import main

sys.exit(main())
