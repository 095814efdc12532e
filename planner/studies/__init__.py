"""What-if studies: a grid of clusters and workloads, a plan for each point, and what they say together."""
