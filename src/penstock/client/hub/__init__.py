"""A rank's view of a hub: starting one, supervising it, joining one, talking to it."""
