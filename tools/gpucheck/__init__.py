"""What `tools/gpu_check` is made of."""
