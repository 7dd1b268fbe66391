"""The processes that sample: their memory, their lives, their deaths."""
