"""What the trainers share: `core` needs no framework; the other rooms are named after theirs, counterparts alike."""
