"""An event-driven simulation of training steps, which shares no formula with the closed form."""
