"""Checkpoints that survive a kill at any moment and a damaged disk: safetensors and JSON, no pickle.

A folder of checkpoints::

    step-00000120/rank-00003-1f2e3d4cx7.safetensors   rank 3's pieces, with the place of each in the whole
    step-00000120/rank-00003-1f2e3d4cx7.json          what rank 3 alone has: the state of its random number generators
    step-00000120/state-1f2e3d4cx7.json               what the ranks have in common besides tensors
    step-00000120/manifest.json                       size and sha256 of all of them, written last
    latest.json                                       a hint which one is the newest, and who has written it

Where all ranks have the same tensors, rank 0 writes them whole. In the names stands which start of the job has written
them, and in which of its saves (`saving` says why that is safe when a process dies). Nothing is renamed, appended to or
read back; nothing that is read is believed before its sha256 is right, and the one before is kept to fall back to.

Throughout, `folder` is the folder of checkpoints, the same one for all ranks; `step` counts the optimizer steps done,
from 0; `state` is what all ranks have in common and `own` what a rank alone has, whatever JSON holds; and `timeout` is
how long a rank waits for the others.
"""
