"""The judge of a plan: an event-driven simulation of training steps that shares no formula with the closed form."""
