"""Tables at one address: Delta tables and one manifest, what a run changes in them, and what keeps them small."""
