"""Where ids come from: files that are cut into chunks, each of which gives the ids of its samples."""
