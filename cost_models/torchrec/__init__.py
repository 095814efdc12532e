"""TorchRec's own estimate of a placement: its planner's performance and storage estimators, and its rating.

`docs/explanation/torchrec-objective.md` says how our words map to TorchRec's.
"""
