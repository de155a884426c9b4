"""Runs a pipeline on this machine as Azure ML would: the real commands, snapshots and variables, on emulated nodes."""
