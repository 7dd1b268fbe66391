"""What to sample out of a graph: the kernels, told what the types of a graph mean."""

from penstock.sampling.khop import NeighborSampler

__all__ = ["NeighborSampler"]
