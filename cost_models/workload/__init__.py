"""Workloads: models, profiles from files, the catalog and the synthetic generator."""
