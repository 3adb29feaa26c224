"""Fused operations on batches: in Triton where there is a CUDA device, in plain torch elsewhere."""

from .normalize import fused_normalize, normalize_table, reference_normalize

__all__ = ["fused_normalize", "normalize_table", "reference_normalize"]
