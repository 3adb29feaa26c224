"""How a batch travels from a worker process to the consumer: in place, in slots, with a small message beside it."""
