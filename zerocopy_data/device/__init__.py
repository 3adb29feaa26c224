"""The way to the device: staging into its memory, decoding and augmentation there, and care for its memory."""
