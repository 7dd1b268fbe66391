"""The kernels of Penstock."""
