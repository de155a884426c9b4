"""Sweep steps: what is tried next, which trials are stopped early, and whose outputs are the step's."""
