"""States from images: encoder, replay buffer of frames, environment wrappers."""
