"""Let the clock of a process jump ahead by a day for each file in the folder JUMPS: its time limits are then over.

A test puts this folder on PYTHONPATH, so the interpreter imports this module first. The rest of time is real.
"""

import os
import time

if folder := os.environ.get("JUMPS"):
    real = time.monotonic
    time.monotonic = lambda: real() + 86400 * len(os.listdir(folder))  # noqa: PTH208 before anything is imported
