"""A user's own script: how it is to be started, what it takes, what it needs; read without importing it."""
