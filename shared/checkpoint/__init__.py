"""Checkpoints that survive a kill at any moment and a damaged disk: safetensors and JSON, no pickle.

A folder of checkpoints::

    step-00000120/tensors.safetensors      every tensor (`whole`)
    step-00000120/rank-00003.safetensors   or rank 3's pieces; its header says where each belongs (`shards`)
    step-00000120/state.json               everything else that the ranks have in common
    step-00000120/rank-00003.json          what rank 3 alone has, such as the state of its random number generators
    step-00000120/manifest.json            sha256 and size of all of them
    latest.json                            which one is the newest, written last

One is written under another name, synchronised to the disk and renamed when it is whole: a rank that dies in between
leaves a folder that is no checkpoint. A mounted blob store has no atomic rename and its listings lag, so nothing that
is read is believed before its sha256 is right, and the one before is kept to fall back to.

Throughout, `folder` is the folder of checkpoints, the same one for all ranks; `step` counts the optimizer steps done,
from 0; `state` is what all ranks have in common and `own` what a rank alone has, whatever JSON holds; and `timeout` is
how long a rank waits for the others.
"""
