"""An epoch of a loader: its batches, their order, the rank's share, and where the reader stands."""
