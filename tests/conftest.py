"""What holds for the tests of every folder, whichever of them run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The first text that is drawn builds a table of Unicode, once: seconds in a fresh clone on a loaded machine.
settings.register_profile("allranks", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("allranks")
