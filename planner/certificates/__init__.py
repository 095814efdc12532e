"""What proves a bound: data and arithmetic that a verifier needs, without a search."""
