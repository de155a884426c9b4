"""Random changes of training pictures, in NumPy and Pillow: the same bits for every framework and number of ranks.

`draws` says what is random, `geometry` and `pixels` change pictures, `mixing` pairs of them, and `batches` does all of
it to the rows of one rank's batch.
"""
