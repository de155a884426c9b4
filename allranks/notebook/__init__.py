"""A run in Python and in notebooks: its logs, its metrics, its curves, and a view that follows it while it runs."""
