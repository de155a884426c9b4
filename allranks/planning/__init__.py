"""Estimate a training step on several nodes, so that lint can warn of one that mostly waits for its network.

``links`` has what a network gives, ``collectives`` what an exchange takes on it, ``step`` what of that a step waits
for. Pure functions over frozen dataclasses; times are seconds, sizes bytes, speeds bytes a second.
"""
