"""What the keeper, its templates and who asks them say. An interpreter that does not know allranks loads this too."""

from __future__ import annotations

import struct

MOST_BYTES = 1 << 20
"""Of a message."""
MOST_FILES = 4
"""That come with one: a log, namespaces to be entered, and where start and end are told."""
STARTED = struct.Struct("=i")
"""What is told of a rank that was forked: its id; or 0, followed by the reason why none was."""
ENDED = struct.Struct("=iqi")
"""What is told of a rank that has ended: the status of ``os.wait4``, its peak memory in bytes, and how many bytes of
its /proc/PID/stat follow; after them comes /proc/PID/io."""
FORKED_RANK, FORKED_ENGINE = b"rank", b"engine"
"""What the keeper is told of what was forked; else it is told the reason."""
