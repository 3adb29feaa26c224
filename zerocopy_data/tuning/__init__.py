"""What a machine offers, and how fast loaders are on it: measured side by side, never taken on trust."""
