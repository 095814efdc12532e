"""What one GPU takes for the parts of a training step that need no other: measured, and beside what the model says."""
