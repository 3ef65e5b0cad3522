"""What people look at: progress while a run trains, and videos of what it learned."""
