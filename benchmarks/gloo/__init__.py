"""Training steps of small models on CPU processes that TorchRec shards over gloo. Needs torch and torchrec."""
