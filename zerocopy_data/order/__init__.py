"""Which sample comes when: pure functions of seed, epoch and position. Needs numpy, no torch, no input or output."""
