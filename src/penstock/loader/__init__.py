"""Loaders: PyG's interface over a hub. Torch begins here; nothing below knows it."""
