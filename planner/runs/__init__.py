"""Training runs: what a schedule of batches and nodes takes and costs."""
