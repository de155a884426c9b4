"""The pages of runs: what they show as one JSON document, and how that becomes HTML."""
