"""From a cluster, a workload and a policy to the options of every table and the problem made of them."""
