"""The kernels of each kind of sampling in plain NumPy: slow, simple, and the same bytes."""
