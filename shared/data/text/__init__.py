"""From texts to tokens to shards: what prepare_text is made of.

A source (`files.py`, `rows.py`) knows its *units*: parts of the data that one worker reads from front to back. The
units depend on the data alone; the nodes share them in contiguous ranges. First every node turns its units into tokens,
in temporary files of its own (`encode.py`); then all tell each other how many there are, and every node writes the
shards of its units (`shards.py`). So the shards are the same whatever the number of nodes, and no text and no shard is
ever held whole.
"""
