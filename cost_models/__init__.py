"""What a placement costs: workloads, coefficients, one file per physical term, the step."""
