"""Decide which batches an epoch of a loader has, in which order, and how far it has been read.

`schedule`, `order` and `ranks` say what an epoch consists of; `run`, `iteration` and `position`
read it and save how far it got.
"""
