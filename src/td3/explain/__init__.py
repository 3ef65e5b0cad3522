"""The fifteen steps explained: a recorded run, a page that replays it, drawings, a film and a notebook."""
