"""The MLflow runs of steps: a store in the runs folder, and a small server on loopback that any MLflow client logs to.

``reading.py`` is what views read; ``store.py`` and its neighbours are MLflow's entities, ``routes.py`` its REST API.
"""

SETTLE_PATH = "/allranks/settle"
"""Answered by the server when all is stored that clients had sent before."""

JOB_TAG = "allranks.job"
"""Tag of a run that a script has made itself: the MLflow run of the step or trial that the script belongs to."""
