"""What the cluster is: units, cluster models, fabric, YAML with positions, catalog."""
