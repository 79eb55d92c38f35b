"""Leader of a partition: positions of its followers, changes of the ISR, high watermark."""
