"""What a user reads: summaries and tables made from plan documents."""
