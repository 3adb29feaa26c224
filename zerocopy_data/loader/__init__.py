"""From rows to batches: the map-style dataset, the thread engine, and the DataLoader. Needs torch."""
