"""What lies on disk: fields, manifest, shard writer and reader, integrity. Needs pyarrow, no torch."""
