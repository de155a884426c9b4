"""Drills: faults that strike a run on purpose, to see whether it comes back and ends as the undisturbed run does."""
