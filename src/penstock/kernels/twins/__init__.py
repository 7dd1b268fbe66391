"""The kernels of each kind of sampling again in plain NumPy: slow, obvious, and the same bytes."""
