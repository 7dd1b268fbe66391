"""A graph in parts: cutting one, a part on disk, and the books that say which part holds what."""
