"""One strategy for each layer of a graph: a dynamic programme over layers, and the price of memory."""
