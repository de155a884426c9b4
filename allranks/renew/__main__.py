"""``python -m allranks.renew``: ``allranks renew`` in the checkout that this package lies in."""

import sys

from allranks import library
from allranks.cli.main import main

sys.exit(main(["renew", str(library.root()), *sys.argv[1:]]))
